"""Something was removed from ZooKeeper by hand."""

from __future__ import annotations

import asyncio
from pathlib import Path

from kafkalite.client.async_client import AsyncClient
from kafkalite.coordination import paths
from kafkalite.coordination.cluster_znodes import decode_cluster_id
from kafkalite.coordination.coordinator import Delete
from kafkalite.extension.messages.topics import NewTopic
from kafkalite.testing.loopback_cluster import LoopbackCluster


async def registered(cluster: LoopbackCluster) -> None:
    while cluster.zookeeper.peek(paths.broker(1)) is None:
        await asyncio.sleep(0.01)


def id_of(cluster: LoopbackCluster) -> str:
    found = cluster.zookeeper.peek(paths.CLUSTER_ID)
    assert found is not None
    return decode_cluster_id(found[0])


async def test_an_id_that_was_removed_is_put_back(tmp_path: Path) -> None:
    """Or the next node that starts would draw another one, and find that its directories are of another cluster."""
    async with LoopbackCluster(tmp_path) as cluster:
        own = cluster.nodes[1].local.cluster_id
        async with AsyncClient.connect(cluster.bootstrap) as client:
            await client.create_topics([NewTopic("t", 1, 1)])
        cluster.zookeeper.poke(Delete(paths.CLUSTER_ID))
        cluster.zookeeper.expire("host-1")
        await registered(cluster)
        assert id_of(cluster) == own
        await cluster.stop(1)
        await cluster.start(1)
        assert cluster.nodes[1].local.cluster_id == own
