"""An external ensemble of three ZooKeeper servers, and a chroot in it."""

from __future__ import annotations

import asyncio
from collections.abc import Iterator
from pathlib import Path

import pytest

from kafkalite.coordination.embedded import EmbeddedZooKeeper, cache_directory, free_port
from kafkalite.testing.processes import ProcessCluster
from tests.cluster.running import QUICK, Load, create_topic, eye, wait_until

pytestmark = [pytest.mark.cluster, pytest.mark.zookeeper]


@pytest.fixture
def servers(tmp_path: Path) -> Iterator[list[EmbeddedZooKeeper]]:
    members = [f"127.0.0.1:{free_port('127.0.0.1')}:{free_port('127.0.0.1')}" for _ in range(3)]
    made = [
        EmbeddedZooKeeper(tmp_path / f"zk{n}", my_id=n, members=members, class_cache=cache_directory(), max_heap_mb=64)
        for n in (1, 2, 3)
    ]
    for server in made:
        server.launch()
    yield made
    for server in made:
        server.kill()


def leads(server: EmbeddedZooKeeper) -> bool:
    return "Mode: leader" in server.command("srvr")


async def test_a_cluster_in_a_chroot_survives_the_ensembles_leader(
    servers: list[EmbeddedZooKeeper], tmp_path: Path
) -> None:
    wait_until(lambda: any(leads(server) for server in servers), "a quorum")
    connect = ",".join(server.connect for server in servers)
    with (
        ProcessCluster(tmp_path / "cluster", nodes=2, settings=QUICK, zookeeper=f"{connect}/some/where") as cluster,
        eye(connect) as zk,
    ):
        await create_topic(cluster, "before", replicas=2, min_insync_replicas="2")
        assert sorted(zk.client.get_children("/")) == ["some", "zookeeper"]
        assert sorted(zk.client.get_children("/some/where/brokers/ids")) == ["1", "2"]
        epochs = [zk.stat(f"/some/where/brokers/ids/{number}").czxid for number in (1, 2)]
        async with Load(cluster, "before") as load:
            await load.more()
            killed = next(server for server in servers if leads(server))
            killed.kill()
            await load.more()
            # The order waits for ZooKeeper, but not as long as a busy machine may take for an election there.
            others = [server for server in servers if server is not killed]
            await asyncio.to_thread(wait_until, lambda: any(map(leads, others)), "the next leader")
            await create_topic(cluster, "after", replicas=2)
            await load.more()
        await load.check_exactly_once()
        assert [zk.stat(f"/some/where/brokers/ids/{number}").czxid for number in (1, 2)] == epochs
        assert zk.json("/some/where/brokers/topics/after") is not None
        assert sorted(zk.client.get_children("/")) == ["some", "zookeeper"]
