"""Topics vanish from ZooKeeper without an order: nothing is deleted, whoever fails meanwhile, and they can come back."""

from __future__ import annotations

import asyncio
from pathlib import Path

import pytest

from kafkalite.errors import ErrorCode
from kafkalite.protocol import wire
from kafkalite.testing.cluster_state import wait_in_sync
from kafkalite.testing.kafka_client import FrameClient
from kafkalite.testing.processes import ProcessCluster
from tests.cluster.running import QUICK, Load, create_topic, eye, wait_until
from tests.support.commands import kafkalite

pytestmark = [pytest.mark.cluster, pytest.mark.zookeeper]

TOPICS = "/brokers/topics"
NAMES = {"flights", "gone"}


def vanished(cluster: ProcessCluster) -> set[str]:
    """What health says."""
    told = kafkalite("admin", "health", "--json", bootstrap=cluster.bootstrap)
    return (
        {each["subject"] for each in told.json["problems"] if each["what"] == "topic.vanished"} if told.code else set()
    )


def replica_sizes(root: Path) -> dict[str, int]:
    """Replica directories of the topics: bytes of records."""
    found = [path for name in NAMES for path in root.rglob(f"{name}-?")]
    return {str(path): sum(each.stat().st_size for each in path.glob("*.log")) for path in found}


@pytest.mark.checklist("F19")
@pytest.mark.checklist("C19")
async def test_all_topics_vanish_and_one_comes_back(tmp_path: Path) -> None:
    with ProcessCluster(tmp_path, nodes=3, settings=QUICK) as cluster, eye(cluster.zookeeper_connect) as zk:
        for name in sorted(NAMES):
            await create_topic(cluster, name, min_insync_replicas="2")
        async with Load(cluster, "flights") as load:
            await load.more()
        flights = zk.client.get(f"{TOPICS}/flights")[0]
        sizes = replica_sizes(tmp_path)
        assert len(sizes) == 18
        for name in NAMES:
            zk.client.delete(f"{TOPICS}/{name}", recursive=True)
        await asyncio.to_thread(wait_until, lambda: vanished(cluster) == NAMES, "health says so")
        # Another controller, which has never known them; and a node that starts, which has them.
        controller = zk.controller()
        cluster.nodes[controller].kill()
        await asyncio.to_thread(wait_until, lambda: zk.controller() not in (-1, controller), "a failover")
        await asyncio.to_thread(cluster.nodes[controller].start)
        await asyncio.to_thread(
            wait_until,
            lambda: vanished(cluster) == NAMES and zk.stat(f"/brokers/ids/{controller}"),
            "health still says so",
        )
        assert replica_sizes(tmp_path) == sizes
        # A producer asks for it, as all do. Nothing is made that would take the place of what is kept.
        client = await FrameClient.to(cluster.kafka(min(cluster.nodes.keys() - {controller})))
        request = wire.MetadataRequest
        topics = [request.MetadataRequestTopic(name="flights")]
        [answer] = (await client.ask(request(topics, allow_auto_topic_creation=True), 9)).topics
        client.close()
        assert answer.error_code == ErrorCode.LEADER_NOT_AVAILABLE and zk.stat(f"{TOPICS}/flights") is None
        # One comes back, without its states; the other goes for good.
        zk.client.create(f"{TOPICS}/flights", flights)
        await wait_in_sync(cluster, "flights", 3)
        await load.check_exactly_once()
        assert min(zk.state("flights", number)["leader_epoch"] for number in range(3)) > 0
        assert kafkalite("admin", "delete-topic", "--yes", "--vanished", "gone", bootstrap=cluster.bootstrap).code == 0
        await asyncio.to_thread(wait_until, lambda: not vanished(cluster), "nothing is left of it")
        await asyncio.to_thread(
            wait_until, lambda: not any("gone-" in path for path in replica_sizes(tmp_path)), "its replicas are gone"
        )
