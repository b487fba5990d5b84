"""KIP-890 through the wire: no transaction begins on a partition that its coordinator does not know of."""

from __future__ import annotations

import asyncio
from collections.abc import Sequence
from dataclasses import replace
from typing import Any

import pytest

from kafkalite.coordinators.transactions.questions import Answers, Asker
from kafkalite.coordinators.transactions.state import MAX_PRODUCER_EPOCH, TransactionState
from kafkalite.errors import ErrorCode
from kafkalite.features import Finalized
from kafkalite.features import finalized as finalized_features
from kafkalite.model import GROUP_TOPIC, TRANSACTION_TOPIC, BrokerEpoch, BrokerId, LeaderEpoch, TopicPartition
from kafkalite.partition_values import PartitionMetadata, TopicMetadata
from kafkalite.protocol import wire
from kafkalite.record.builder import end_transaction_marker
from kafkalite.replica.requests import MetadataResponse
from kafkalite.rpc.messages.control import Broker as LiveBroker

from .conftest import Broker, FrameClient, batch, produce
from .coordinator_requests import GROUPS, coordinator
from .transactional_producer import Producer, visible

T0 = TopicPartition("t", 0)


async def send(
    producer: Producer, value: bytes, version: int = 9, client: FrameClient | None = None, sequence: int | None = None
) -> int:
    """As `Producer.send`; the sequence moves on only if it was taken."""
    wanted = producer.sequence if sequence is None else sequence
    records = batch(
        value, producer_id=producer.id, producer_epoch=producer.epoch, base_sequence=wanted, transactional=True
    )
    request = produce("t", (0, records), transactional_id=producer.name)
    answer = await (client or producer.client).ask(request, version)
    code = int(answer.responses[0].partition_responses[0].error_code)
    producer.sequence = wanted + (not code)
    return code


async def complete(producer: Producer) -> None:
    """Wait until the transaction's markers are written."""
    while True:
        described = await producer.client.ask(wire.DescribeTransactionsRequest([producer.name]), 0)
        if described.transaction_states[0].transaction_state.startswith("Complete"):
            return
        await asyncio.sleep(0)


async def bump(producer: Producer, *, committed: bool) -> int:
    """EndTxn 5."""
    while True:
        request = wire.EndTxnRequest(producer.name, producer.id, producer.epoch, committed)
        answer = await producer.client.ask(request, 5)
        if answer.error_code != ErrorCode.CONCURRENT_TRANSACTIONS:
            break
    if not answer.error_code:
        assert (answer.producer_id, answer.producer_epoch) != (producer.id, producer.epoch)
        producer.id, producer.epoch, producer.sequence = answer.producer_id, answer.producer_epoch, 0
    return int(answer.error_code)


async def started(broker: Broker) -> Producer:
    await broker.create("t")
    producer = Producer(await broker.client())
    assert await producer.start() == 0
    return producer


# --- who adds partitions itself ------------------------------------------------------------------


@pytest.mark.parametrize(("version", "code"), [(3, ErrorCode.INVALID_TXN_STATE), (11, ErrorCode.TRANSACTION_ABORTABLE)])
async def test_a_batch_that_comes_after_the_abort_is_refused(broker: Broker, version: int, code: ErrorCode) -> None:
    producer = await started(broker)
    await producer.add()
    assert await send(producer, b"in time", version) == 0
    assert await producer.end(committed=False) == 0
    await complete(producer)
    assert await send(producer, b"late", version) == code
    values, aborted, stable = await visible(producer.client)
    assert values == [b"in time"] and aborted == [(producer.id, 0)] and stable == 2
    await producer.add()
    assert await send(producer, b"next", version) == 0
    await producer.end(committed=True)
    await complete(producer)
    assert (await visible(producer.client))[0] == [b"in time", b"next"]


@pytest.mark.parametrize("is_remote", [False, True])
async def test_a_coordinator_that_was_replaced_and_does_not_know_confirms_nothing(
    broker: Broker, monkeypatch: pytest.MonkeyPatch, *, is_remote: bool
) -> None:
    """The next one has aborted the transaction, and its marker is here; what the earlier one remembers is over."""
    if is_remote:
        elsewhere = LiveBroker(BrokerId(9), BrokerEpoch(9), "h", 1, "h", 2, None, 0)

        async def yes(coordinator: LiveBroker, asker: Asker, partitions: tuple[TopicPartition, ...]) -> Answers:
            return dict.fromkeys(partitions, ErrorCode.NONE)

        monkeypatch.setattr(broker.side.verifier, "_coordinator", lambda asker: (elsewhere, LeaderEpoch(0)))
        monkeypatch.setattr(broker.side.verifier._channels, "ask", yes)
    producer = await started(broker)
    await producer.add()
    assert await send(producer, b"in time") == 0
    marker = end_transaction_marker(producer.id, producer.epoch, commit=False, coordinator_epoch=1, timestamp_ms=1)
    broker.services.partitions.append_internal(1_000, [(T0, marker)], lambda results: None)
    assert broker.side.transactions.describe(producer.name).state is TransactionState.ONGOING
    assert await send(producer, b"late") == ErrorCode.NOT_ENOUGH_REPLICAS
    assert not broker.services.partitions.logs[T0].open


async def test_a_coordinator_that_lost_its_role_and_got_it_back_confirms_nothing_of_before(
    broker: Broker, monkeypatch: pytest.MonkeyPatch
) -> None:
    """It led in between, and neither knows (ADR 17): what it remembers is of an epoch that it does not lead in any more.

    The marker here is of no later coordinator than the one that the leader asks, so the leader could not know better.
    """
    producer = await started(broker)
    await producer.add()
    assert await send(producer, b"in time") == 0
    partitions = broker.services.partitions
    entry = broker.side.transactions.partition_of(producer.name).slots[producer.name]
    remembered = entry.transaction
    assert await producer.end(committed=False) == 0  # as the coordinator in between has decided
    await complete(producer)
    entry.transaction = remembered
    epochs, led = partitions.leader_epoch, partitions.led_partitions

    def later_epoch(partition: TopicPartition) -> LeaderEpoch | None:
        epoch = epochs(partition)
        return LeaderEpoch(epoch + 2) if epoch is not None and partition.topic == TRANSACTION_TOPIC else epoch

    monkeypatch.setattr(partitions, "leader_epoch", later_epoch)
    assert await send(producer, b"late") == ErrorCode.NOT_ENOUGH_REPLICAS
    assert not partitions.logs[T0].open
    monkeypatch.setattr(
        partitions, "led_partitions", lambda topic: {key: LeaderEpoch(epoch + 2) for key, epoch in led(topic).items()}
    )
    partitions.tell_change()
    await complete(producer)
    assert await send(producer, b"late") == ErrorCode.INVALID_TXN_STATE
    assert not partitions.logs[T0].open


async def test_what_was_never_added_is_refused_and_what_is_open_is_not_asked_for_again(broker: Broker) -> None:
    producer = await started(broker)
    assert await send(producer, b"too early") == ErrorCode.INVALID_TXN_STATE
    asked: list[object] = []
    verify = broker.side.transactions.verify_partition
    broker.side.transactions.verify_partition = lambda *who: asked.append(who) or verify(*who)  # type: ignore[func-returns-value, method-assign]
    await producer.add()
    for value in (b"a", b"b", b"c"):
        assert await send(producer, value) == 0
    assert len(asked) == 1


async def test_without_verification_the_late_batch_is_taken(make_broker: Any) -> None:
    producer = await started(await make_broker(transaction_partition_verification_enable=False))
    await producer.add()
    await send(producer, b"in time")
    await producer.end(committed=False)
    await complete(producer)
    assert await send(producer, b"late") == 0


async def test_an_answer_from_before_the_marker_opens_nothing(broker: Broker, monkeypatch: pytest.MonkeyPatch) -> None:
    """The coordinator says yes, the transaction ends, and only then the answer arrives."""
    producer = await started(broker)
    verifier, other = broker.side.verifier, await broker.client()
    asked, go_on = asyncio.Event(), asyncio.Event()
    real, count = verifier._ask, 0

    async def slow(asker: Asker, partitions: tuple[TopicPartition, ...]) -> Answers:
        nonlocal count
        count += 1
        answers = await real(asker, partitions)
        asked.set()
        await go_on.wait()
        return answers

    monkeypatch.setattr(verifier, "_ask", slow)
    monkeypatch.setattr(verifier, "_answer_here", lambda asker, line: False)
    await producer.add()
    sending = asyncio.ensure_future(send(producer, b"late", client=other))
    await asked.wait()
    await producer.end(committed=False)
    await complete(producer)
    go_on.set()
    assert await sending == ErrorCode.INVALID_TXN_STATE
    assert count == 2  # the yes was that to a transaction that is over: asked again
    assert not broker.services.partitions.logs[T0].open


async def test_a_refusal_from_before_the_partition_was_added_is_not_for_who_came_later(
    broker: Broker, monkeypatch: pytest.MonkeyPatch
) -> None:
    producer = await started(broker)
    verifier = broker.side.verifier
    asked, go_on = asyncio.Event(), asyncio.Event()
    real = verifier._ask

    async def slow(asker: Asker, partitions: tuple[TopicPartition, ...]) -> Answers:
        answers = await real(asker, partitions)
        asked.set()
        await go_on.wait()
        return answers

    monkeypatch.setattr(verifier, "_ask", slow)
    monkeypatch.setattr(verifier, "_answer_here", lambda asker, line: False)
    old_copy = asyncio.ensure_future(send(producer, b"copy", client=await broker.client(), sequence=0))
    await asked.wait()
    await producer.add()
    new = asyncio.ensure_future(send(producer, b"new", client=await broker.client(), sequence=0))
    while not verifier._lines or not next(iter(verifier._lines.values()))[0].late:
        await asyncio.sleep(0)
    go_on.set()
    assert await old_copy == ErrorCode.INVALID_TXN_STATE
    assert await new == 0


# --- transaction.version 2 -----------------------------------------------------------------------


async def test_the_leader_adds_the_partition_and_each_end_bumps_the_epoch(broker: Broker) -> None:
    producer = await started(broker)
    first = (producer.id, producer.epoch)
    for value, is_commit in ((b"one", True), (b"two", False), (b"three", True)):
        assert await send(producer, value, 12) == 0
        assert await bump(producer, committed=is_commit) == 0  # the next batch comes before the markers are written
    await complete(producer)
    values, aborted, _ = await visible(producer.client)
    assert values == [b"one", b"two", b"three"] and aborted == [(producer.id, 2)]
    assert (producer.id, producer.epoch) == (first[0], first[1] + 3)
    producer.epoch -= 1
    assert await send(producer, b"late", 12, sequence=1) == ErrorCode.INVALID_PRODUCER_EPOCH


@pytest.mark.parametrize("version", [11, 12])
async def test_a_leader_knows_which_producers_begin_at_zero(
    broker: Broker, monkeypatch: pytest.MonkeyPatch, version: int
) -> None:
    """Those with another epoch for each transaction: their first batch in a partition has the sequence 0."""
    producer = await started(broker)
    if version < 12:
        assert await producer.add("t") == 0
    begin = broker.services.partitions.begin_verification
    seen: list[bool] = []

    def noted(*who: Any, begins_at_zero: bool) -> int:
        seen.append(begins_at_zero)
        return begin(*who, begins_at_zero=begins_at_zero)

    monkeypatch.setattr(broker.services.partitions, "begin_verification", noted)
    assert await send(producer, b"one", version) == 0
    assert set(seen) == {version >= 12}


async def test_a_producer_whose_epochs_are_used_up_goes_on_under_another_id(broker: Broker) -> None:
    producer = await started(broker)
    _, slot = broker.side.transactions._find(producer.name)
    assert slot.transaction is not None
    slot.transaction = replace(slot.transaction, producer_epoch=MAX_PRODUCER_EPOCH)
    first, producer.epoch = producer.id, MAX_PRODUCER_EPOCH
    assert await send(producer, b"last of one", 12) == 0
    assert await bump(producer, committed=True) == 0
    assert producer.id != first and producer.epoch == 0
    assert await send(producer, b"first of the next", 12) == 0
    assert await bump(producer, committed=True) == 0
    await complete(producer)
    assert (await visible(producer.client))[0] == [b"last of one", b"first of the next"]


async def test_offsets_of_a_group_are_verified_and_added_alike(broker: Broker) -> None:
    producer = await started(broker)
    await coordinator(producer.client, "g", GROUPS)

    async def commit_offset(version: int) -> int:
        request = wire.TxnOffsetCommitRequest
        part = request.TxnOffsetCommitRequestPartition(0, 3, committed_metadata="")
        topics = [request.TxnOffsetCommitRequestTopic("t", partitions=[part])]
        message = request(producer.name, "g", producer.id, producer.epoch, topics=topics)
        answer = await producer.client.ask(message, version)
        return int(answer.topics[0].partitions[0].error_code)

    assert await commit_offset(3) == ErrorCode.INVALID_TXN_STATE
    assert await commit_offset(4) == ErrorCode.TRANSACTION_ABORTABLE
    assert await producer.client.ask(wire.AddOffsetsToTxnRequest(producer.name, producer.id, producer.epoch, "g"), 3)
    assert await commit_offset(3) == 0
    assert await producer.end(committed=False) == 0
    await complete(producer)
    assert await commit_offset(3) == ErrorCode.INVALID_TXN_STATE
    assert await commit_offset(5) == 0
    assert await bump(producer, committed=True) == 0
    await complete(producer)
    assert not any(log.open for key, log in broker.services.partitions.logs.items() if key.topic == GROUP_TOPIC)


async def test_the_version_is_what_all_live_brokers_know(broker: Broker, monkeypatch: pytest.MonkeyPatch) -> None:
    client = await broker.client()
    answer = await client.ask(wire.ApiVersionsRequest("test", "1.0"), 4)
    finalized = [(each.name, each.min_version_level, each.max_version_level) for each in answer.finalized_features]
    assert finalized == [
        ("eligible.leader.replicas.version", 1, 1),
        ("group.version", 1, 1),
        ("share.version", 2, 2),
        ("streams.version", 1, 1),
        ("transaction.version", 2, 2),
    ]
    assert answer.finalized_features_epoch == 1
    assert {each.name: (each.min_version, each.max_version) for each in answer.supported_features} == {
        "eligible.leader.replicas.version": (1, 1),
        "group.version": (0, 1),
        "share.version": (0, 2),
        "streams.version": (0, 1),
        "transaction.version": (0, 2),
    }
    assert (await client.ask(wire.ApiVersionsRequest("test", "1.0"), 3)).supported_features == ()
    me = broker.services.metadata([]).brokers[0]
    old = replace(me, broker_id=BrokerId(2), broker_epoch=BrokerEpoch(9), transaction_version=0, features=())
    elr = {"eligible.leader.replicas.version": 1}
    assert finalized_features([me, old], {}) == Finalized(9, elr)
    newer = replace(old, transaction_version=7)
    assert finalized_features([me, newer], {}) == Finalized(9, {**elr, "transaction.version": 2})
    assert finalized_features([me, replace(old, transaction_version=1, elr_version=0)], {}) == Finalized(
        9, {"transaction.version": 1}
    )
    assert finalized_features([], {}) == Finalized(-1, {})
    real = broker.services.metadata
    monkeypatch.setattr(broker.services, "metadata", lambda topics: replace(real(topics), brokers=(me, old)))
    finalized = (await client.ask(wire.ApiVersionsRequest("test", "1.0"), 4)).finalized_features
    assert [each.name for each in finalized] == ["eligible.leader.replicas.version"]


# --- between nodes -------------------------------------------------------------------------------


def coordinated_elsewhere(here: Broker, there: Broker) -> None:
    """`here` leads the topics, `there`, as broker 2, leads `__transaction_state`."""
    metadata, host, port = here.services.metadata, *there.services.kafka_endpoint
    other = LiveBroker(BrokerId(2), BrokerEpoch(2), host, port, host, 1, None, 2)
    mine = (BrokerId(2),)

    def of(topic: str, known: TopicMetadata) -> TopicMetadata:
        if topic != TRANSACTION_TOPIC:
            return known
        partition = PartitionMetadata(0, 0, BrokerId(2), LeaderEpoch(0), mine, mine)
        return TopicMetadata(topic, 0, known.topic_id, (partition,))

    def answer(topics: Sequence[str] | None) -> MetadataResponse:
        known = metadata(topics)
        topics_known = tuple(of(each.topic, each) for each in known.topics)
        return replace(known, brokers=(*known.brokers, other), topics=topics_known)

    here.services.metadata = answer  # type: ignore[method-assign]


@pytest.mark.parametrize("version", [9, 12])
async def test_the_coordinator_is_another_node(make_broker: Any, version: int) -> None:
    here, there = await make_broker(), await make_broker(transaction_state_log_num_partitions=1)
    producer = await started(there)
    await here.create("t")
    coordinated_elsewhere(here, there)
    leader = await here.client()
    if version < 12:
        assert await send(producer, b"early", version, leader) == ErrorCode.INVALID_TXN_STATE
        await producer.add()
    assert await send(producer, b"in it", version, leader) == 0
    described = await producer.client.ask(wire.DescribeTransactionsRequest([producer.name]), 0)
    assert [topic.partitions for topic in described.transaction_states[0].topics] == [[0]]
    here.services.partitions.logs[T0].open.clear()
    producer.epoch += 1
    assert await send(producer, b"x", version, leader, sequence=0) == ErrorCode.INVALID_PRODUCER_EPOCH
    producer.id += 1
    assert await send(producer, b"x", version, leader, sequence=0) == ErrorCode.INVALID_PRODUCER_ID_MAPPING


async def test_who_cannot_be_asked_is_asked_again(make_broker: Any) -> None:
    """The producer gets a retriable error, whatever its age; the connection that broke is opened again."""
    here, there = await make_broker(), await make_broker(transaction_state_log_num_partitions=1)
    producer = await started(there)
    await here.create("t")
    leader = await here.client()
    assert await send(producer, b"nobody", 9, leader) == ErrorCode.NOT_ENOUGH_REPLICAS  # there is no coordinator
    coordinated_elsewhere(here, there)
    await producer.add()
    assert await send(producer, b"one", 9, leader) == 0
    await producer.end(committed=True)
    await complete(producer)
    await there.side.listener.close()
    assert await send(producer, b"two", 9, leader, sequence=1) == 0  # this node got no marker: it is open here still
    here.services.partitions.logs[T0].open.clear()
    assert await send(producer, b"three", 9, leader, sequence=2) == ErrorCode.NOT_ENOUGH_REPLICAS


async def test_what_comes_behind_a_batch_that_could_not_be_verified_gets_its_error(make_broker: Any) -> None:
    """Its sequence is out of order, and after that error franz-go gives the transaction up."""
    here, there = await make_broker(), await make_broker(transaction_state_log_num_partitions=1)
    producer = await started(there)
    await here.create("t")
    assert await send(producer, b"nobody", 12, await here.client()) == ErrorCode.NOT_ENOUGH_REPLICAS
    behind = batch(
        b"behind", producer_id=producer.id, producer_epoch=producer.epoch, base_sequence=1, transactional=True
    )
    assert here.services.partitions.skipped.error_ahead(T0, behind) == ErrorCode.NOT_ENOUGH_REPLICAS
