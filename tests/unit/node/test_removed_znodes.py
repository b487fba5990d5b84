"""Something was removed from ZooKeeper by hand, or was put back from an earlier time."""

from __future__ import annotations

import asyncio
from pathlib import Path

import pytest

from kafkalite.client.async_client import AsyncClient
from kafkalite.client.producer import Producer
from kafkalite.coordination import paths
from kafkalite.coordination.cluster_znodes import decode_cluster_id
from kafkalite.coordination.coordinator import Create, Delete
from kafkalite.coordination.topic_znodes import decode_partition_state, encode_partition_state
from kafkalite.extension.messages.topics import NewTopic
from kafkalite.model import LeaderAndIsr, TopicPartition
from tests.support.loopback_cluster import LoopbackCluster
from tests.support.waiting import until


async def registered(cluster: LoopbackCluster) -> None:
    await until(lambda: cluster.zookeeper.peek(paths.broker(1)) is not None)


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
        cluster.zookeeper.expire("node-1")
        await registered(cluster)
        assert id_of(cluster) == own
        await cluster.stop(1)
        await cluster.start(1)
        assert cluster.nodes[1].local.cluster_id == own


@pytest.mark.checklist("F18")
async def test_a_partition_goes_on_when_all_nodes_start_on_an_earlier_state(tmp_path: Path) -> None:
    """As if ZooKeeper was restored from an old copy while no node ran: the logs have later epochs than the znode."""
    partition, znode = TopicPartition("t", 0), paths.partition_state(TopicPartition("t", 0))

    def state() -> LeaderAndIsr:
        found = cluster.zookeeper.peek(znode)
        assert found is not None
        return decode_partition_state(found[0], found[1].version)

    async def write_and_wait(value: bytes) -> None:
        async with AsyncClient.connect(cluster.bootstrap) as client, Producer(client) as producer:
            await (await producer.send("t", None, value, partition=0))
        await until(lambda: len(state().isr) == 2)

    async with LoopbackCluster(tmp_path, nodes=2) as cluster:
        async with AsyncClient.connect(cluster.bootstrap) as client:
            await client.create_topics([NewTopic("t", 1, 2)])
        earlier = state()
        for broker_id in (1, 2, 1, 2):
            await write_and_wait(b"%d" % broker_id)
            await cluster.stop(broker_id)
            await cluster.start(broker_id)
        await write_and_wait(b"last")
        latest = state().leader_epoch
        assert latest > earlier.leader_epoch
        for broker_id in (1, 2):
            await cluster.stop(broker_id)
        cluster.zookeeper.poke(Delete(znode), Create(znode, encode_partition_state(earlier)))
        await asyncio.gather(cluster.start(1), cluster.start(2))
        await write_and_wait(b"after")
        assert state().leader_epoch > latest
        logs = [
            hosted.log for node in cluster.nodes.values() if (hosted := node.replicas.hosted.get(partition)) is not None
        ]
        assert len(logs) == 2
        await until(lambda: [log.log_end_offset for log in logs] == [6, 6])
        assert logs[0].epoch_and_end_offset_for(latest) == logs[1].epoch_and_end_offset_for(latest)
        assert not any(
            node.replicas.hosted.counters.truncations_below_high_watermark for node in cluster.nodes.values()
        )
