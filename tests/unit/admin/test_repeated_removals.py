"""An order to remove partitions whose answer is lost is given again: it removes what was asked for, and nothing else."""

from __future__ import annotations

import dataclasses
import inspect
import json
from collections.abc import Callable, Coroutine
from typing import Any

import pytest

from kafkalite.coordination import admin_znodes, paths, topic_znodes
from kafkalite.coordination.coordinator import Create, Delete, SetData
from kafkalite.errors import ErrorCode
from kafkalite.extension.messages.topics import AddPartitionsRequest, NewPartitions, RemovePartitionsRequest
from kafkalite.model import BrokerId, TopicPartition
from kafkalite.testing.simulated.loop import SimLoop
from kafkalite.testing.simulated.zookeeper import Fate
from tests.unit.admin.test_partition_admin import admin_of
from tests.unit.controller.cluster import Cluster

FIVE_TO_THREE = RemovePartitionsRequest("t", 3, timeout_ms=100, before=5)


def in_virtual_time(test: Callable[..., Coroutine[Any, Any, None]]) -> Callable[..., None]:
    """There is no controller: a request waits for what was ordered until its time is over."""

    def run(**parameters: Any) -> None:
        async def main() -> None:
            cluster = Cluster()
            try:
                await test(cluster, **parameters)
            finally:
                await cluster.close()

        loop = SimLoop()  # type: ignore[abstract]
        try:
            loop.run_until_complete(main())
        finally:
            loop.close()

    others = [each for name, each in inspect.signature(test).parameters.items() if name != "cluster"]
    run.__signature__ = inspect.Signature(others)  # type: ignore[attr-defined]
    return run


def carry_out(cluster: Cluster, count: int) -> None:
    """What a controller does with the orders."""
    data, stat = cluster.zookeeper.peek(paths.topic("t")) or (b"", None)
    assert stat is not None
    topic = topic_znodes.decode_topic(data)
    left = {number: replicas for number, replicas in topic.partitions.items() if number < count}
    cluster.zookeeper.poke(
        SetData(paths.topic("t"), topic_znodes.encode_topic(dataclasses.replace(topic, partitions=left)), stat.version),
        *(Delete(paths.partition_remove(TopicPartition("t", number))) for number in ordered(cluster)),
    )


def ordered(cluster: Cluster) -> list[int]:
    numbers = range(1, 20)
    return [n for n in numbers if cluster.zookeeper.peek(paths.partition_remove(TopicPartition("t", n))) is not None]


@in_virtual_time
async def test_the_second_order_finds_what_the_first_one_did(cluster: Cluster) -> None:
    admin = await admin_of(cluster, "t")
    await admin.remove(FIVE_TO_THREE)
    assert ordered(cluster) == [3, 4]
    again = await admin.remove(FIVE_TO_THREE)
    assert (again.error, again.partitions, again.is_done) == (0, (3, 4), False)
    carry_out(cluster, 3)
    last = await admin.remove(FIVE_TO_THREE)
    assert (last.error, last.message, last.partitions, last.is_done) == (0, "", (3, 4), True)
    assert ordered(cluster) == []


@in_virtual_time
async def test_without_the_number_before_a_second_order_is_refused(cluster: Cluster) -> None:
    admin = await admin_of(cluster, "t")
    old = dataclasses.replace(FIVE_TO_THREE, before=-1)
    await admin.remove(old)
    carry_out(cluster, 3)
    assert (await admin.remove(old)).error == ErrorCode.INVALID_PARTITIONS


@in_virtual_time
async def test_partitions_that_the_order_does_not_know_stay(cluster: Cluster) -> None:
    admin = await admin_of(cluster, "t")
    refused = await admin.remove(dataclasses.replace(FIVE_TO_THREE, count=2, before=4))
    assert (refused.error, refused.message) == (
        ErrorCode.INVALID_PARTITIONS,
        "topic 't' has 5 partitions, not 4; nothing was changed",
    )
    assert ordered(cluster) == []


@pytest.mark.parametrize("before", [-1, 5])
@in_virtual_time
async def test_zookeepers_lost_answer_is_no_refusal(cluster: Cluster, before: int) -> None:
    """The controller is faster than the second attempt."""
    admin = await admin_of(cluster, "t")
    lost: list[object] = []

    def lose_first(host: str, request: object) -> Fate:
        path = paths.partition_remove(TopicPartition("t", 3))
        if not lost and any(getattr(op, "path", "") == path for op in getattr(request, "ops", ())):
            lost.append(request)
            return Fate.LOSE_REPLY
        if lost and ordered(cluster):
            carry_out(cluster, 3)
        return Fate.SERVE

    cluster.zookeeper.decide_fate = lose_first
    answer = await admin.remove(dataclasses.replace(FIVE_TO_THREE, before=before, timeout_ms=5000))
    assert lost
    assert (answer.error, answer.message, answer.partitions, answer.is_done) == (0, "", (3, 4), True)


@in_virtual_time
async def test_a_drain_becomes_a_removal_at_once(cluster: Cluster) -> None:
    """And not the other way round: what is asked to go now does not wait for its readers again."""
    admin = await admin_of(cluster, "t")
    await admin.remove(dataclasses.replace(FIVE_TO_THREE, drain=True))
    assert drains(cluster) == [True, True]
    await admin.remove(FIVE_TO_THREE)
    assert drains(cluster) == [False, False]
    await admin.remove(dataclasses.replace(FIVE_TO_THREE, drain=True))
    assert drains(cluster) == [False, False]


def drains(cluster: Cluster) -> list[bool]:
    found = [cluster.zookeeper.peek(paths.partition_remove(TopicPartition("t", n))) for n in ordered(cluster)]
    return [json.loads(each[0] or b"{}").get("drain", False) for each in found if each is not None]


@in_virtual_time
async def test_what_has_left_the_topic_keeps_its_order(cluster: Cluster) -> None:
    admin = await admin_of(cluster, "t")
    await admin.remove(dataclasses.replace(FIVE_TO_THREE, drain=True))
    path = paths.partition_remove(TopicPartition("t", 4))
    gone = admin_znodes.encode_partition_remove(admin_znodes.PartitionRemoval(drain=True, replicas=(BrokerId(1),)))
    cluster.zookeeper.poke(SetData(path, gone, 0))
    await admin.remove(FIVE_TO_THREE)
    assert (cluster.zookeeper.peek(path) or (b"",))[0] == gone


@in_virtual_time
async def test_numbers_that_are_not_free_name_the_broker_that_holds_them(cluster: Cluster) -> None:
    admin = await admin_of(cluster, "t")
    await admin.remove(FIVE_TO_THREE)
    carry_out(cluster, 3)
    path = paths.partition_remove(TopicPartition("t", 4))
    gone = admin_znodes.encode_partition_remove(admin_znodes.PartitionRemoval(replicas=(BrokerId(1), BrokerId(9))))
    cluster.zookeeper.poke(Create(path, gone))
    added = (await admin.add(AddPartitionsRequest((NewPartitions("t", 6),), timeout_ms=100))).topics[0]
    assert added.error == ErrorCode.REASSIGNMENT_IN_PROGRESS
    assert "not free until brokers [9] return (an empty one with the same id will do)" in added.message
