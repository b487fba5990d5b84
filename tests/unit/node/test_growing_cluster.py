"""Internal topics that are created while brokers are not there: they are as safe afterwards as if all had been."""

from __future__ import annotations

from pathlib import Path

from kafkalite.client.admin.groups import Groups
from kafkalite.client.async_client import AsyncClient
from kafkalite.coordination import config_znodes, paths, topic_znodes
from kafkalite.extension.messages.topics import NewTopic
from kafkalite.model import GROUP_TOPIC, TopicPartition
from tests.support.loopback_cluster import LoopbackCluster
from tests.support.waiting import until

FEW = {"offsets.topic.num.partitions": 4, "balancer.max.moves": 3, "balancer.mode": "off"}


def replicas(cluster: LoopbackCluster) -> set[int]:
    """How many the partitions of __consumer_offsets have; 0: it is growing."""
    data, _ = cluster.zookeeper.peek(paths.topic(GROUP_TOPIC)) or (b"", None)
    topic = topic_znodes.decode_topic(data)
    return {0} if topic.moves else {len(each) for each in topic.partitions.values()}


def min_insync(cluster: LoopbackCluster) -> str:
    data, _ = cluster.zookeeper.peek(paths.config_topic(GROUP_TOPIC)) or (b"", None)
    return config_znodes.decode_config(data)["min.insync.replicas"]


async def test_commits_survive_the_first_node(tmp_path: Path) -> None:
    async with LoopbackCluster(tmp_path, settings=FEW) as cluster:

        async def has_three() -> bool:
            return replicas(cluster) == {3}

        async with AsyncClient.connect(cluster.bootstrap) as client:
            await client.create_topics([NewTopic("t", 1, 1)])
            await Groups(client).commit("g", {TopicPartition("t", 0): 0})
            assert (replicas(cluster), min_insync(cluster)) == ({1}, "1"), "a single node does not wait for others"
            await cluster.start(2)
            await cluster.start(3)
            await until(has_three)
            assert min_insync(cluster) == "2"
        await cluster.stop(1)
        async with AsyncClient.connect(cluster.bootstrap) as client:

            async def is_known() -> bool:
                _, known = await Groups(client).describe("g")
                return [(each.topic, each.partition) for each in known.offsets] == [("t", 0)]

            await until(is_known)


async def test_a_group_begins_while_one_of_three_nodes_is_away(tmp_path: Path) -> None:
    async with LoopbackCluster(tmp_path, nodes=3, settings=FEW) as cluster:
        async with AsyncClient.connect(cluster.bootstrap) as client:
            await client.create_topics([NewTopic("t", 1, 3)])
        await cluster.stop(3)
        async with AsyncClient.connect(cluster.bootstrap) as client:
            await Groups(client).commit("g", {TopicPartition("t", 0): 0})
        assert (replicas(cluster), min_insync(cluster)) == ({2}, "2"), "what is acknowledged is on two nodes"
        await cluster.start(3)

        async def has_three() -> bool:
            return replicas(cluster) == {3}

        await until(has_three)
        assert min_insync(cluster) == "2"
