"""A transaction ends although partitions that it touched are no more."""

from __future__ import annotations

import asyncio
from dataclasses import replace

import pytest

from kafkalite.coordinators.transactions.marker_targets import marker_targets
from kafkalite.errors import ErrorCode
from kafkalite.model import NO_TOPIC_ID, BrokerEpoch, BrokerId, LeaderEpoch, TopicPartition
from kafkalite.partition_values import PartitionMetadata, TopicMetadata
from kafkalite.protocol import wire
from kafkalite.replica.requests import MetadataResponse
from kafkalite.rpc.messages.control import Broker as BrokerAddress
from kafkalite.testing.simulation.plants import PLANTS

from .conftest import Broker
from .transactional_producer import Producer


async def _open(broker: Broker, partitions: int) -> Producer:
    """A transaction with every partition of topic t."""
    await broker.create("t", partitions)
    producer = Producer(await broker.client())
    await producer.start()
    request = wire.AddPartitionsToTxnRequest
    added = await producer.client.ask(
        request(
            v3_and_below_transactional_id="x",
            v3_and_below_producer_id=producer.id,
            v3_and_below_producer_epoch=producer.epoch,
            v3_and_below_topics=[request.AddPartitionsToTxnTopic("t", list(range(partitions)))],
        ),
        3,
    )
    results = added.results_by_topic_v3_and_below[0].results_by_partition
    assert [each.partition_error_code for each in results] == [0] * partitions
    return producer


async def _state(producer: Producer) -> str:
    answer = await producer.client.ask(wire.DescribeTransactionsRequest(["x"]), 0)
    return str(answer.transaction_states[0].transaction_state)


@pytest.mark.parametrize("is_commit", [True, False])
@pytest.mark.parametrize("partitions_left", [0, 1])
async def test_a_transaction_with_partitions_that_are_no_more_ends(
    broker: Broker, monkeypatch: pytest.MonkeyPatch, *, is_commit: bool, partitions_left: int
) -> None:
    """The topic was deleted, or recreated with fewer partitions (`remove-partitions` leaves the same)."""
    producer = await _open(broker, 2)
    await producer.client.ask(wire.DeleteTopicsRequest(topic_names=["t"], timeout_ms=1000), 5)
    if partitions_left:
        await broker.create("t", partitions_left)
    clock, real = broker.services.clock, broker.services.clock.monotonic
    skipped = 0
    monkeypatch.setattr(clock, "monotonic", lambda: real() + skipped)
    assert await producer.end(committed=is_commit) == 0
    # Metadata may only be behind: for a while the coordinator waits for the partition.
    skipped = 5
    for _ in range(5):
        assert (await _state(producer)).startswith("Prepare")
    async with asyncio.timeout(150):
        while (await _state(producer)).startswith("Prepare"):
            skipped += 6
            await asyncio.sleep(0.01)
    assert await _state(producer) == ("CompleteCommit" if is_commit else "CompleteAbort")
    await producer.start()  # the transactional id is usable


def _metadata(*partitions: int, leader: int = 1, error: ErrorCode = ErrorCode.NONE) -> MetadataResponse:
    entries = tuple(PartitionMetadata(each, 0, BrokerId(leader), LeaderEpoch(0), (), ()) for each in partitions)
    brokers = (
        BrokerAddress(BrokerId(1), BrokerEpoch(1), "h", 1, "h", 2),
        BrokerAddress(BrokerId(2), BrokerEpoch(1), "h", 3, "h", 4),
    )
    return MetadataResponse("c", BrokerId(1), brokers, (TopicMetadata("t", int(error), NO_TOPIC_ID, entries),))


def test_partitions_are_gone_when_they_are_missing_for_a_while() -> None:
    zero, one = TopicPartition("t", 0), TopicPartition("t", 1)
    missing: dict[TopicPartition, float] = {}
    both = {zero, one}
    assert marker_targets(_metadata(0, 1), both, missing, 0.0).by_leader[0][1] == (zero, one)
    for now in (100.0, 110.0):
        targets = marker_targets(_metadata(0), both, missing, now)
        assert targets.by_leader[0][1] == (zero,) and not targets.gone
    # How long a partition is missing counts from when it was last known.
    assert marker_targets(_metadata(0, 1), both, missing, 110.1).by_leader[0][1] == (zero, one)
    assert not marker_targets(_metadata(0), both, missing, 111.0).gone
    assert marker_targets(_metadata(0), both, missing, 121.1).gone == (one,)
    unknown = _metadata(error=ErrorCode.UNKNOWN_TOPIC_OR_PARTITION)
    assert marker_targets(unknown, both, missing, 122.0).gone == (one,)
    assert marker_targets(unknown, both, missing, 133.0).gone == (zero, one)


@pytest.mark.parametrize("leader", [-1, 7])
def test_a_partition_without_a_live_leader_is_not_gone(leader: int) -> None:
    missing: dict[TopicPartition, float] = {}
    for now in (0.0, 1000.0):
        targets = marker_targets(_metadata(0, leader=leader), {TopicPartition("t", 0)}, missing, now)
        assert not targets.gone and not targets.by_leader


def test_partitions_are_grouped_by_their_leaders() -> None:
    known = _metadata(0, 1, 2)
    [topic] = known.topics
    spread = tuple(replace(entry, leader=BrokerId(2 - entry.partition % 2)) for entry in topic.partitions)
    known = replace(known, topics=(replace(topic, partitions=spread),))
    targets = marker_targets(known, {TopicPartition("t", each) for each in range(3)}, {}, 0.0)
    sent = [(broker.broker_id, [each.partition for each in theirs]) for broker, theirs in targets.by_leader]
    assert sent == [(1, [1]), (2, [0, 2])]


async def test_a_leader_that_does_not_answer_does_not_hold_up_the_markers_of_others(
    broker: Broker, monkeypatch: pytest.MonkeyPatch
) -> None:
    producer = await _open(broker, 2)
    known = broker.services.metadata
    silent = BrokerAddress(BrokerId(0), BrokerEpoch(1), "127.0.0.1", 1, "127.0.0.1", 2)

    def metadata(topics: list[str] | None) -> MetadataResponse:
        """Partition 0 is led by another node, whose id comes first."""
        told = known(topics)
        if topics != ["t"]:
            return told
        [topic] = told.topics
        spread = tuple(replace(each, leader=BrokerId(each.partition)) for each in topic.partitions)
        return replace(told, brokers=(silent, *told.brokers), topics=(replace(topic, partitions=spread),))

    never = asyncio.Event()
    asked: list[tuple[str, int]] = []

    async def dial(host: str, port: int) -> object:
        asked.append((host, port))
        await never.wait()
        raise OSError("gone")

    monkeypatch.setattr(broker.services, "metadata", metadata)
    monkeypatch.setattr(broker.services, "dial_kafka", dial)
    assert await producer.end(committed=True) == 0
    log = broker.services.partitions.logs[TopicPartition("t", 1)]
    async with asyncio.timeout(150):
        while not (asked and any(header.is_control for header, _ in log.batches)):
            await asyncio.sleep(0)
    assert (await _state(producer)) == "PrepareCommit"
    monkeypatch.setattr(broker.services, "metadata", known)  # partition 0 has another leader now
    never.set()
    async with asyncio.timeout(150):
        while (await _state(producer)).startswith("Prepare"):
            await asyncio.sleep(0.01)


@pytest.mark.checklist("C19")
def test_a_topic_that_may_have_vanished_is_waited_for() -> None:
    """Nobody has said that it was deleted: it may come back with all its records, and each needs its marker."""
    zero, one = TopicPartition("t", 0), TopicPartition("t", 1)
    missing: dict[TopicPartition, float] = {}
    unknown = _metadata(error=ErrorCode.UNKNOWN_TOPIC_OR_PARTITION)
    for now in (100.0, 111.0, 699.0):
        assert not marker_targets(unknown, {zero, one}, missing, now, is_deleted=lambda _: False).gone
    back = marker_targets(_metadata(0), {zero, one}, missing, 699.5, is_deleted=lambda _: False)
    assert back.by_leader[0][1] == (zero,) and back.gone == (one,)
    assert not marker_targets(unknown, {zero}, missing, 700.0, is_deleted=lambda _: False).gone
    assert marker_targets(unknown, {zero}, missing, 711.0, is_deleted=lambda name: name == "t").gone == (zero,)
    assert marker_targets(unknown, {zero}, missing, 1301.0, is_deleted=lambda _: False).gone == (zero,)


@pytest.mark.checklist("C19")
@pytest.mark.parametrize("is_planted", [False, True])
async def test_a_transaction_waits_for_a_topic_that_has_vanished(
    broker: Broker, monkeypatch: pytest.MonkeyPatch, *, is_planted: bool
) -> None:
    if is_planted:
        PLANTS["vanished-markers"](monkeypatch.setattr)
    producer = await _open(broker, 1)
    services = broker.services
    clock, real = services.clock, services.clock.monotonic
    skipped = 0
    monkeypatch.setattr(clock, "monotonic", lambda: real() + skipped)
    metadata = services.metadata
    looks = 0

    def vanished(topics: list[str] | None = None) -> MetadataResponse:
        nonlocal looks
        known = metadata(topics)
        looks += topics == ["t"]
        missing = [
            replace(each, error=int(ErrorCode.UNKNOWN_TOPIC_OR_PARTITION), partitions=()) for each in known.topics
        ]
        return replace(known, topics=tuple(missing)) if topics == ["t"] else known

    monkeypatch.setattr(services, "metadata", vanished)
    assert await producer.end(committed=True) == 0
    for _ in range(8):
        skipped += 6
        seen = looks
        while looks < seen + 2 and (await _state(producer)).startswith("Prepare"):
            await asyncio.sleep(0.01)
    assert (await _state(producer)).startswith("Prepare") is not is_planted
    monkeypatch.setattr(services, "metadata", metadata)
    async with asyncio.timeout(150):
        while (await _state(producer)).startswith("Prepare"):
            await asyncio.sleep(0.01)
    assert await _state(producer) == "CompleteCommit"
