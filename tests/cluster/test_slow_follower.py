"""A follower that lives, as far as ZooKeeper knows, and does not keep up: its leader's affair, not the controller's."""

from __future__ import annotations

import asyncio
import signal
from collections.abc import Iterator

import pytest

from kafkalite.client.async_client import AsyncClient
from kafkalite.testing.cluster_state import wait_in_sync
from kafkalite.testing.processes import ProcessCluster
from tests.cluster.running import QUICK, Load, create_topic, eye, replicas_of, settled, wait_until

pytestmark = [pytest.mark.cluster, pytest.mark.zookeeper]

SLOW = 3


@pytest.fixture(scope="module")
def cluster(tmp_path_factory: pytest.TempPathFactory) -> Iterator[ProcessCluster]:
    """Nodes 1 and 2 are quick to judge; the session of node 3 outlasts their patience by far."""
    obsolete = {"replica.lag.max.messages": 4_000}  # the article's key: taken, without effect (invariant C9)
    settings = QUICK | obsolete | {"zookeeper.session.timeout.ms": 2_000, "replica.lag.time.max.ms": 3_000}
    # The controller, which asks after silent nodes as well, is kept out of it: the leader is to see it by itself.
    settings |= {"broker.heartbeat.timeout.ms": 0}
    with ProcessCluster(tmp_path_factory.mktemp("slow"), nodes=2, settings=settings) as made:
        made.settings |= {"zookeeper.session.timeout.ms": 60_000, "replica.lag.time.max.ms": 90_000}
        made.add_node(SLOW)
        asyncio.run(settled(made))
        yield made


@pytest.mark.checklist("C9")
@pytest.mark.checklist(1, 7, 47, 48, 49, 50, 51, 55, "F6", "F12")
async def test_it_leaves_the_isr_by_its_leaders_hand_and_returns(cluster: ProcessCluster) -> None:
    await create_topic(cluster, "slow", assignment={0: (1, 2, SLOW)}, min_insync_replicas="2")
    path = "/brokers/topics/slow/partitions/0/state"
    with eye(cluster.zookeeper_connect) as zk:
        before, version = zk.state("slow"), zk.stat(path).version
        registered = zk.stat(f"/brokers/ids/{SLOW}").czxid
        cluster.nodes[SLOW].signal(signal.SIGSTOP)
        try:
            # Nobody produces anything: a timer sees it.
            await asyncio.to_thread(wait_until, lambda: zk.state("slow")["isr"] == [1, 2], "out of the ISR")
            assert zk.stat(f"/brokers/ids/{SLOW}").czxid == registered
            assert zk.state("slow") == before | {"isr": [1, 2]}  # only the ISR: no election was needed
            assert zk.stat(path).version == version + 1
            async with Load(cluster, "slow") as load:
                await load.more()  # and now without the third
                # Somebody else's write makes the version unexpected: the leader looks, and goes on with it (invariant F6).
                zk.client.set(path, (zk.text(path) or "").encode())
                cluster.nodes[SLOW].signal(signal.SIGCONT)
                await wait_in_sync(cluster, "slow", 3)
                await load.more()
        finally:
            cluster.nodes[SLOW].signal(signal.SIGCONT)
        assert zk.state("slow") | {"isr": sorted(zk.state("slow")["isr"])} == before | {"isr": [1, 2, SLOW]}
        assert zk.stat(path).version == version + 3
    await load.check_exactly_once()
    async with AsyncClient.connect(cluster.bootstrap) as client, asyncio.timeout(60):
        while {replica.high_watermark for replica in (await replicas_of(client, "slow")).values()} != {load.sent}:
            await asyncio.sleep(0.02)
    told = await asyncio.to_thread(cluster.nodes[1].log_path.read_text)
    assert "replica.lag.max.messages is obsolete and ignored" in told
