"""Two right parts that meet at a bad moment: a failed disk within an answer, a deletion within a flush, a write that never began."""

from __future__ import annotations

import asyncio
import errno
from typing import Any

import pytest

from kafkalite.env.real_file import RealFile
from kafkalite.errors import ErrorCode, StorageError
from kafkalite.log.partition_log import PartitionLog
from kafkalite.log.reading import ReadInfo
from kafkalite.model import (
    EARLIEST_TIMESTAMP,
    LATEST_TIMESTAMP,
    NO_LEADER_EPOCH,
    BrokerEpoch,
    BrokerId,
    LeaderEpoch,
    Offset,
    TopicId,
    TopicPartition,
)
from kafkalite.node.kafka_partitions import NodePartitions
from kafkalite.replica.client_fetch import AT_ONCE, READ_COMMITTED, ClientFetch, FetchTerms
from kafkalite.replica.decisions import isr as rules
from kafkalite.replica.decisions.isr import ProposalOutcome
from kafkalite.replica.decisions.leader import on_follower_fetch
from kafkalite.replica.isr_writer import Settled, Task
from kafkalite.replica.requests import ListOffsetsPartition, ListOffsetsRequest
from kafkalite.rpc.messages.control import StopPartition
from kafkalite.rpc.messages.replication import ReplicaFetchPartition, ReplicaFetchRequest, ReplicaFetchResponse
from tests.support.fetching import answered
from tests.support.logs import batch

TP, OTHER = TopicPartition("t", 0), TopicPartition("t", 1)
FOREVER_MS = 600_000


async def leading(
    make_cluster: Any, *, replicas: tuple[int, ...] = (1, 2), isr: tuple[int, ...] = (1, 2), **settings: Any
) -> Any:
    """A cluster of one node, which leads two partitions."""
    cluster = await make_cluster(1, **{"replica.lag.time.max.ms": 60_000}, **settings)
    cluster.create_topic("t", dict.fromkeys(range(2), replicas))
    states = [cluster.decide(each, leader=1, isr=isr, epoch=0, replicas=replicas) for each in (TP, OTHER)]
    await cluster.command(1, *states)
    return cluster


async def test_a_disk_that_fails_within_an_answer_to_a_follower(
    make_cluster: Any, monkeypatch: pytest.MonkeyPatch
) -> None:
    """The first read takes the whole disk offline, and with it the partition that is read next."""
    node = (await leading(make_cluster)).node(1)
    for each in (TP, OTHER):
        await node.produce(each, b"x", acks=1)
    read = PartitionLog.read

    def fail(self: PartitionLog, *arguments: Any, **options: Any) -> ReadInfo:
        if self.topic_partition == TP:
            error = OSError(errno.ENODEV, "injected")
            raise self.storage_error("read", error) from error
        return read(self, *arguments, **options)

    monkeypatch.setattr(PartitionLog, "read", fail)
    answers: list[ReplicaFetchResponse] = []
    wanted = tuple(
        ReplicaFetchPartition(
            "t", number, node.partition(each).topic_id, LeaderEpoch(0), Offset(0), LeaderEpoch(-1), Offset(0), 1 << 20
        )
        for number, each in enumerate((TP, OTHER))
    )
    request = ReplicaFetchRequest(BrokerId(2), BrokerEpoch(1002), 0, 1, 1 << 20, 0, 0, wanted, ())
    node.manager.serving.fetch(request, lambda response, body: answers.append(response))
    [answer] = answers
    assert {part.partition: part.error for part in answer.partitions} == dict.fromkeys(
        (0, 1), ErrorCode.KAFKA_STORAGE_ERROR
    )


async def test_a_partition_that_is_deleted_within_a_flush_does_not_fail(
    make_cluster: Any, until: Any, monkeypatch: pytest.MonkeyPatch
) -> None:
    """Its successor of the same name would be stopped, and reported to the controller as offline."""
    cluster = await leading(make_cluster, replicas=(1,), isr=(1,), **{"log.flush.before.ack": "true"})
    node = cluster.node(1)
    begun, go_on = asyncio.Event(), asyncio.Event()
    sync = RealFile.sync

    async def slow(self: RealFile) -> None:
        if self.path.endswith(".log"):
            begun.set()
            await go_on.wait()
        await sync(self)

    monkeypatch.setattr(RealFile, "sync", slow)
    partition = node.partition(TP)
    await node.produce(TP, b"x", acks=1)
    await begun.wait()
    await node.produce(TP, b"y", acks=1)
    await cluster.stop_replica(1, TP, epoch=0, delete=True)
    go_on.set()
    await until(lambda: not partition.is_flushing)
    assert node.storage_errors == [] and partition.storage_error is None


async def test_the_high_watermark_moves_when_a_proposal_was_surely_not_written(make_cluster: Any) -> None:
    """It waited for the member that was to join. Nothing else need happen: the producer waits for it."""
    node = (await leading(make_cluster, replicas=(1, 2, 3))).node(1)
    partition = node.partition(TP)
    leader = partition.leader
    wanted = BrokerId(1), BrokerId(2), BrokerId(3)
    rules.begin_proposal(leader, wanted)
    task = Task(TP, rules.propose(leader, wanted), partition.controller_epoch)
    on_follower_fetch(leader, BrokerId(3), fetch_offset=Offset(0), broker_epoch=BrokerEpoch(1003), at_ms=0)
    waiting = asyncio.create_task(node.produce(TP, b"x", timeout_ms=FOREVER_MS))
    await asyncio.sleep(0)
    on_follower_fetch(leader, BrokerId(2), fetch_offset=Offset(1), broker_epoch=BrokerEpoch(1002), at_ms=0)
    node.manager.hosted.advance(partition)
    assert leader.high_watermark == 0
    node.manager._isr_keeper.on_settled([Settled(task, ProposalOutcome.RETRY)])
    assert leader.high_watermark == 1
    assert (await waiting).error == ErrorCode.NONE


async def test_a_topic_made_again_whose_earlier_log_cannot_be_set_aside(
    make_cluster: Any, monkeypatch: pytest.MonkeyPatch
) -> None:
    """The replica is there, offline, so that it is recreated when that is possible."""
    cluster = await leading(make_cluster, replicas=(1,), isr=(1,))
    node = cluster.node(1)

    def fail(old: str, new: str) -> None:
        raise OSError(errno.EIO, "injected", old)

    monkeypatch.setattr(node.disk, "rename", fail)
    topic_id = TopicId("t1t1t1t1t1t1t1t1t1t1t1")
    answer = await cluster.command(1, cluster.decide(TP, leader=1, isr=(1,), epoch=0, topic_id=topic_id))
    assert [each.error for each in answer.partitions] == [ErrorCode.KAFKA_STORAGE_ERROR]
    partition = node.partition(TP)
    assert partition.topic_id == topic_id and isinstance(partition.storage_error, StorageError)


async def test_a_consumer_before_a_gap_waits_until_there_is_something_to_read(make_cluster: Any) -> None:
    """Compaction has removed all that was between its position and an open transaction. It got empty answers, one after the other."""
    cluster = await make_cluster(1)
    cluster.create_topic("t", {0: (1,)})
    node = cluster.node(1)
    state = cluster.decide(TP, leader=1, isr=(1,), epoch=1)
    log = node.logs.placing.create(TP, state.topic_id, node.topic_config("t"))
    log.append_as_follower(batch(["a"], leader_epoch=0))
    log.append_as_follower(
        batch(
            ["b"], base_offset=8, leader_epoch=0, producer_id=7, producer_epoch=0, base_sequence=0, transactional=True
        )
    )
    await cluster.command(1, state)
    assert (log.log_end_offset, log.last_stable_offset(9)) == (9, 8)
    fetch = ClientFetch(READ_COMMITTED)
    fetch.list(TP, Offset(1), 1 << 20)
    found: list[int] = []
    done = answered(lambda: found.append(sum(entry.records_size for entry in fetch.due())))
    node.manager.consuming.fetch(fetch, FetchTerms(FOREVER_MS, 1, 1 << 20), done, None, AT_ONCE)
    assert found == []
    fetch.expire()
    assert found == [0]


async def test_a_failed_log_is_deleted_by_the_second_order_if_it_was_being_checked_at_the_first(
    make_cluster: Any, until: Any
) -> None:
    """The second order found no replica, and said that all is deleted: the check, or a restart, brought the log back."""
    cluster = await leading(make_cluster, replicas=(1,), isr=(1,))
    node = cluster.node(1)
    log = node.partition(TP).log
    await node.produce(TP, b"x", acks=1)
    log._local.sync_failed = True  # only an operator opens it again
    error = log.storage_error("flush", OSError(errno.EIO, "injected"))
    node.logs.failures.log_failed(error)
    failed = node.logs.pool.failed(TP)
    await until(lambda: failed.is_examined)
    failed.is_under_check = True
    answer = await cluster.stop_replica(1, TP, epoch=-2, delete=True)
    assert [each.error for each in answer.partitions] == [ErrorCode.KAFKA_STORAGE_ERROR]
    failed.is_under_check = False
    other = StopPartition("t", 0, TopicId("o1o1o1o1o1o1o1o1o1o1o1"), LeaderEpoch(-2), delete_files=True)
    answer = await cluster.stop_replica(1, TP, epoch=-2, delete=True, partitions=(other,))
    assert [each.error for each in answer.partitions] == [ErrorCode.INCONSISTENT_TOPIC_ID], "not this topic's"
    assert node.disk.exists(log.path)
    answer = await cluster.stop_replica(1, TP, epoch=-2, delete=True)
    assert answer.partitions == () and not node.disk.exists(log.path)
    assert node.logs.pool.failed(TP) is None


async def test_an_epoch_of_which_nothing_is_left_ends_where_the_next_one_begins(make_cluster: Any) -> None:
    """A consumer at the start of the log, whose last record was of that epoch, was reset, with `latest` to the log's end."""
    cluster = await leading(make_cluster, replicas=(1,), isr=(1,))
    node = cluster.node(1)
    for epoch in (3, 5):
        await cluster.command(1, cluster.decide(TP, leader=1, isr=(1,), epoch=epoch))
        await node.produce(TP, b"x", b"y")
    await cluster.command(1, cluster.decide(TP, leader=1, isr=(1,), epoch=6))
    partitions = NodePartitions(node.manager, node.metadata)

    def end_of(epoch: int) -> tuple[int, int]:
        return partitions.end_offset_for_epoch(TP, NO_LEADER_EPOCH, LeaderEpoch(epoch))

    assert [end_of(epoch) for epoch in (-1, 0, 3, 4, 5, 6, 7)] == [
        (-1, -1),
        (0, 0),
        (3, 2),
        (3, 2),
        (5, 4),
        (6, 4),
        (-1, -1),
    ]
    await node.manager.hosted.delete_records(node.partition(TP), Offset(2))
    assert [end_of(epoch) for epoch in (-1, 0, 3, 4, 5)] == [(-1, -1), (0, 2), (3, 2), (4, 2), (5, 4)]


async def test_the_earliest_offset_comes_with_the_epoch_of_its_record(make_cluster: Any) -> None:
    """As in Kafka; the epoch of the present leader belongs to the latest offset."""
    cluster = await leading(make_cluster, replicas=(1,), isr=(1,))
    node = cluster.node(1)
    for epoch in (3, 5):
        await cluster.command(1, cluster.decide(TP, leader=1, isr=(1,), epoch=epoch))
        await node.produce(TP, b"x", b"y")

    async def listed(timestamp: int) -> tuple[int, int]:
        request = ListOffsetsRequest((ListOffsetsPartition("t", 0, timestamp),))
        [one] = (await node.manager.consuming.list_offsets(request)).partitions
        return one.offset, one.leader_epoch

    assert await listed(EARLIEST_TIMESTAMP) == (0, 3) and await listed(LATEST_TIMESTAMP) == (4, 5)
    await node.manager.hosted.delete_records(node.partition(TP), Offset(1))
    assert await listed(EARLIEST_TIMESTAMP) == (1, 3)
    await node.manager.hosted.delete_records(node.partition(TP), Offset(4))
    assert await listed(EARLIEST_TIMESTAMP) == (4, 5)
