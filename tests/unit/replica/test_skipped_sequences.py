"""What is on its way behind a refused batch gets its error, so that clients send all again in order."""

from __future__ import annotations

import pytest

from kafkalite.errors import ErrorCode
from kafkalite.model import TopicPartition
from kafkalite.partition_values import ProducedPartition
from kafkalite.record.batch import MAX_SEQUENCE
from kafkalite.record.builder import RecordBatchBuilder
from kafkalite.replica import produce as producing
from kafkalite.replica import skipped_sequences
from kafkalite.replica.skipped_sequences import BEHIND, SkippedSequences

TP = TopicPartition("t", 0)
NOT_LEADER = ErrorCode.NOT_LEADER_OR_FOLLOWER


def batch(sequence: int, *, producer: int = 7, epoch: int = 0) -> bytes:
    builder = RecordBatchBuilder(producer_id=producer, producer_epoch=epoch, base_sequence=sequence)
    builder.append(None, b"%d" % sequence, (), 0)
    return builder.build()


async def test_a_leader_that_returns_between_two_requests(make_cluster) -> None:
    """librdkafka bumps its epoch for OUT_OF_ORDER_SEQUENCE_NUMBER, and then writes again what was not acknowledged."""
    cluster = await make_cluster(1)
    cluster.create_topic("t", {0: (1,)})
    node = cluster.node(1)
    await cluster.command_all(cluster.decide(TP, leader=1, isr=(1,), epoch=0))
    answers: list[tuple[ProducedPartition, ...]] = []

    def produce(sequence: int) -> int:
        node.manager.producing.produce(1, 5_000, [(TP, batch(sequence))], answers.append)
        return answers[-1][0].error

    assert [produce(0), produce(1)] == [0, 0]
    await cluster.command_all(cluster.decide(TP, leader=-1, isr=(1,), epoch=1, replicas=(1,)))
    assert produce(2) == NOT_LEADER
    await cluster.command_all(cluster.decide(TP, leader=1, isr=(1,), epoch=2))
    assert [produce(3), produce(4)] == [NOT_LEADER, NOT_LEADER]  # they were on their way
    assert [produce(2), produce(3), produce(4)] == [0, 0, 0]
    assert produce(6) == ErrorCode.OUT_OF_ORDER_SEQUENCE_NUMBER  # nothing was refused before it
    assert node.partition(TP).log.log_end_offset == 5


def test_not_more_than_what_may_be_on_its_way() -> None:
    skipped = SkippedSequences()
    skipped.refused(TP, batch(10), NOT_LEADER)
    found = [skipped.error_ahead(TP, batch(10 + number)) for number in range(1, BEHIND + 2)]
    assert found == [NOT_LEADER] * BEHIND + [None]
    assert not skipped


def test_the_first_producer_id_counts_as_any_other() -> None:
    skipped = SkippedSequences()
    skipped.refused(TP, batch(10, producer=0), NOT_LEADER)
    assert skipped.error_ahead(TP, batch(11, producer=0)) is NOT_LEADER


def test_those_behind_that_were_refused_themselves_count() -> None:
    skipped = SkippedSequences()
    for sequence in (10, 11, 12):
        skipped.refused(TP, batch(sequence), ErrorCode.NOT_ENOUGH_REPLICAS)
    found = [skipped.error_ahead(TP, batch(sequence)) for sequence in (13, 14, 15)]
    assert found == [ErrorCode.NOT_ENOUGH_REPLICAS, ErrorCode.NOT_ENOUGH_REPLICAS, None]


@pytest.mark.parametrize(
    "other",
    [batch(11, producer=8), batch(11, epoch=1), batch(9), batch(10)],
    ids=["another producer", "another epoch", "an earlier one", "the same"],
)
def test_others_are_not_affected(other: bytes) -> None:
    skipped = SkippedSequences()
    skipped.refused(TP, batch(10), NOT_LEADER)
    assert skipped.error_ahead(TP, other) is None
    assert skipped.error_ahead(TopicPartition("t", 1), batch(11)) is None
    assert skipped.error_ahead(TP, batch(11)) is NOT_LEADER


def test_sequences_go_on_at_zero() -> None:
    """librdkafka would write again what was not acknowledged."""
    skipped = SkippedSequences()
    for sequence in (MAX_SEQUENCE - 1, MAX_SEQUENCE, 0):
        skipped.refused(TP, batch(sequence), NOT_LEADER)
    assert skipped.error_ahead(TP, batch(1)) is NOT_LEADER
    assert skipped.error_ahead(TP, batch(MAX_SEQUENCE - 2)) is None
    skipped.appended(TP, batch(MAX_SEQUENCE - 2))
    assert skipped
    skipped.appended(TP, batch(1))
    assert not skipped


@pytest.mark.parametrize(("appended", "is_remembered"), [(9, True), (10, False), (11, False)])
def test_what_was_appended_ends_it(appended: int, *, is_remembered: bool) -> None:
    skipped = SkippedSequences()
    skipped.refused(TP, batch(10), NOT_LEADER)
    skipped.appended(TP, batch(appended))
    assert bool(skipped) is is_remembered


def test_only_passing_errors_of_idempotent_producers_and_not_too_many(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(skipped_sequences, "MAX_REMEMBERED", 3)
    skipped = SkippedSequences()
    skipped.refused(TP, batch(10), ErrorCode.INVALID_RECORD)
    skipped.refused(TP, batch(-1, producer=-1), NOT_LEADER)
    skipped.refused(TP, b"short", NOT_LEADER)
    assert not skipped
    for producer in range(5):
        skipped.refused(TP, batch(10, producer=producer), NOT_LEADER)
    assert len(skipped) == 3
    assert [skipped.error_ahead(TP, batch(11, producer=each)) for each in (1, 4)] == [None, NOT_LEADER]


async def test_a_producer_that_is_new_to_the_partition(make_cluster) -> None:
    """It may begin at any sequence. Its second batch was appended before the first one, which was then out of order."""
    cluster = await make_cluster(1)
    cluster.create_topic("t", {0: (1,)})
    node = cluster.node(1)
    await cluster.command_all(cluster.decide(TP, leader=-1, isr=(1,), epoch=0, replicas=(1,)))
    answers: list[tuple[ProducedPartition, ...]] = []

    def produce(sequence: int) -> int:
        node.manager.producing.produce(1, 5_000, [(TP, batch(sequence))], answers.append)
        return answers[-1][0].error

    assert produce(0) == NOT_LEADER
    await cluster.command_all(cluster.decide(TP, leader=1, isr=(1,), epoch=1))
    assert [produce(1), produce(2)] == [NOT_LEADER, NOT_LEADER]  # they were on their way
    assert [produce(0), produce(1), produce(2), produce(3)] == [0, 0, 0, 0]


async def test_a_topic_that_was_not_known_by_its_id(make_cluster) -> None:
    """Java's producer names topics by id; a leader hears of a new topic's id after it leads, and after other nodes."""
    cluster = await make_cluster(1)
    cluster.create_topic("t", {0: (1,)})
    node = cluster.node(1)
    await cluster.command_all(cluster.decide(TP, leader=1, isr=(1,), epoch=0))
    topic_id = node.partition(TP).log.topic_id
    assert topic_id
    node.manager.producing.refused(TopicPartition(topic_id, 0), batch(0), ErrorCode.UNKNOWN_TOPIC_ID)
    answers: list[tuple[ProducedPartition, ...]] = []
    for sequence in (1, 2, 0, 1, 2):
        node.manager.producing.produce(1, 5_000, [(TP, batch(sequence))], answers.append)
    assert [each[0].error for each in answers] == [ErrorCode.UNKNOWN_TOPIC_ID] * 2 + [0, 0, 0]


async def test_a_leader_with_too_much_under_way(make_cluster, monkeypatch: pytest.MonkeyPatch) -> None:
    """librdkafka takes THROTTLING_QUOTA_EXCEEDED for final, and gives the records up."""
    monkeypatch.setattr(producing, "MAX_WAITING", 0)
    cluster = await make_cluster(1)
    cluster.create_topic("t", {0: (1,)})
    node = cluster.node(1)
    await cluster.command_all(cluster.decide(TP, leader=1, isr=(1,), epoch=0))
    assert (await node.produce(TP, batch=batch(0))).error == ErrorCode.NOT_ENOUGH_REPLICAS
    monkeypatch.undo()
    codes = [(await node.produce(TP, batch=batch(sequence))).error for sequence in (1, 0, 1)]
    assert codes == [ErrorCode.NOT_ENOUGH_REPLICAS, 0, 0]
