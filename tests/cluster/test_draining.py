"""`remove-partitions --drain` of partitions that groups read: removed when every group has committed their ends."""

from __future__ import annotations

import asyncio
from pathlib import Path

import pytest

from kafkalite.client.async_client import AsyncClient
from kafkalite.client.producer import Producer
from kafkalite.coordinators.draining import consumed
from kafkalite.coordinators.groups.decisions.members import Committer
from kafkalite.coordinators.groups.offsets import CommittedOffset
from kafkalite.coordinators.internal_topics import internal_topic
from kafkalite.errors import ApiError, ErrorCode
from kafkalite.extension.messages.topics import (
    CreateTopicsRequest,
    NewTopic,
    RemovePartitionsRequest,
    RemovePartitionsResponse,
)
from kafkalite.model import GROUP_TOPIC, Offset, TopicPartition
from kafkalite.node.node import Node
from kafkalite.rpc.messages.groups import CommittedOffsetsResponse, GroupsOffset
from tests.support.fetching import run_to_end
from tests.support.loopback_cluster import LoopbackCluster

T1, T2 = TopicPartition("t", 1), TopicPartition("t", 2)


async def commit(cluster: LoopbackCluster, group: str, key: TopicPartition, offset: int) -> None:
    """Through whichever node coordinates the group."""
    while True:
        for node in cluster.nodes.values():
            done: asyncio.Future[dict[TopicPartition, ErrorCode]] = asyncio.get_running_loop().create_future()
            committed = CommittedOffset(Offset(offset), -1, "", node.env.clock.wall_ms())
            try:
                run_to_end(node.kafka.groups.offsets.committing(Committer(group), {key: committed}, done.set_result))
            except ApiError:
                continue  # not the coordinator, or not yet
            if not (await done)[key]:
                return
        await asyncio.sleep(0.05)


def offset_of(cluster: LoopbackCluster, group: str, key: TopicPartition) -> int | None:
    for node in cluster.nodes.values():
        try:
            found = node.kafka.groups.offsets.offsets_of(group).committed.get(key)
        except ApiError:
            continue
        return None if found is None else int(found.offset)
    return None


def knows(node: Node, key: TopicPartition) -> bool:
    return node.metadata.partition(key) is not None


@pytest.mark.checklist(60)
async def test_drained_by_consumption(tmp_path: Path) -> None:
    settings = {"offsets.topic.num.partitions": 3, "offsets.topic.replication.factor": 2}
    async with LoopbackCluster(tmp_path, nodes=3, settings=settings) as cluster:
        first = cluster.nodes[1]
        groups_topic = internal_topic(GROUP_TOPIC, first.config, 3)
        await first.admin.topics.create_topics(CreateTopicsRequest((groups_topic, NewTopic("t", 3, 2)), 20_000))
        async with AsyncClient.connect([str(first.endpoints["kafka"])]) as client:
            async with Producer(client) as producer:
                for number in range(30):
                    await producer.send("t", None, b"x", partition=number % 3)
            await commit(cluster, "quick", T1, 10)
            await commit(cluster, "quick", T2, 10)
            await commit(cluster, "slow", T2, 4)
            order = RemovePartitionsRequest("t", 1, drain=True, timeout_ms=20_000)
            answer = await client.request(order, RemovePartitionsResponse)
            assert (answer.error, answer.is_done) == (0, False), answer
            # t-1 could go; but the last ones go first, and t-2 is not read to its end by everybody.
            leader = next(
                n for n in cluster.nodes.values() if (led := n.replicas.hosted.get(T1)) is not None and led.leader
            )
            while (partition := leader.replicas.hosted.get(T1)) is not None and not partition.is_drained:
                await asyncio.sleep(0.05)
            assert all(knows(node, T2) for node in cluster.nodes.values())
            assert (
                next(each for n in cluster.nodes.values() if (each := n.replicas.hosted.get(T2))).log.log_start_offset
                == 0
            )
            with pytest.raises(ApiError):
                async with Producer(client, delivery_timeout_ms=300) as producer:
                    await (await producer.send("t", None, b"late", partition=2))
            await commit(cluster, "slow", T2, 10)
            while any(knows(node, key) for node in cluster.nodes.values() for key in (T1, T2)):
                await asyncio.sleep(0.05)
            while any(offset_of(cluster, group, key) is not None for group in ("quick", "slow") for key in (T1, T2)):
                await asyncio.sleep(0.05)
            assert len((await client.metadata(["t"])).topics[0].partitions) == 1
        assert not cluster.failures


def test_only_what_all_nodes_say_together_counts() -> None:
    ends = {T1: Offset(10), T2: Offset(10)}

    def said(*offsets: GroupsOffset, by: tuple[int, ...]) -> CommittedOffsetsResponse:
        return CommittedOffsetsResponse(by, offsets)

    t1, t2 = GroupsOffset("t", 1, 10, 1), GroupsOffset("t", 2, 9, 3)
    assert consumed([said(t1, by=(0, 1))], range(3), ends) == [], "a coordinator has not answered"
    assert consumed([said(t1, by=(0, 1)), said(by=(2,))], range(3), ends) == [T1], "nobody reads t-2"
    assert consumed([said(t1, by=(0, 1)), said(t2, by=(2,))], range(3), ends) == [T1]
    assert consumed([said(t1, by=(0, 1)), said(GroupsOffset("t", 1, 3, 1), by=(2,))], range(3), ends) == []
    unstable = GroupsOffset("t", 2, 10, 1, is_unstable=True)
    assert consumed([said(t1, unstable, by=(0, 1, 2))], range(3), ends) == [T1]
