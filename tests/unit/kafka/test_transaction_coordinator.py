"""The transaction coordinator through the wire: what clients see, what is stored, what survives a move."""

from __future__ import annotations

import asyncio
from typing import Any

import pytest

from kafkalite.errors import ErrorCode
from kafkalite.model import TRANSACTION_TOPIC, TopicPartition
from kafkalite.protocol import wire
from tests.support.waiting import until

from .conftest import Broker
from .coordinator_requests import GROUPS, TRANSACTIONS, coordinator, fetched, move, wire_error
from .transactional_producer import Producer, visible


@pytest.mark.parametrize("version", [0, 3, 5])
async def test_commit_and_abort(broker: Broker, version: int) -> None:
    await broker.create("t")
    client = await broker.client()
    producer = Producer(client)
    assert await producer.start() == 0
    for value, is_commit in ((b"kept", True), (b"dropped", False)):
        assert await producer.add(version=version) == 0
        assert await producer.send(value) == 0
        assert b"kept" not in (await visible(client))[0] or not is_commit
        assert await producer.end(committed=is_commit, version=min(version, 4)) == 0
        while (await visible(client))[2] != broker.services.partitions.logs[TopicPartition("t", 0)].log_end_offset:
            await asyncio.sleep(0)
    values, aborted, stable = await visible(client)
    assert values == [b"kept", b"dropped"] and aborted == [(producer.id, 2)] and stable == 4


async def test_a_coordinator_that_was_replaced_cannot_confirm_the_end_of_a_transaction(broker: Broker) -> None:
    """The last end it knows is not the one that is asked for: its next transaction began at another node."""
    await broker.create("t")
    client = await broker.client()
    producer = Producer(client)
    assert await producer.start() == 0
    assert await producer.add() == 0
    assert await producer.send(b"first") == 0
    assert await producer.end(committed=True) == 0
    while (await visible(client))[2] != broker.services.partitions.logs[TopicPartition("t", 0)].log_end_offset:
        await asyncio.sleep(0)
    assert await producer.end(committed=True) == 0, "a repetition, as far as it knows"
    broker.services.partitions.fail_appends = ErrorCode.NOT_ENOUGH_REPLICAS  # what it writes is confirmed by nobody
    assert await producer.end(committed=True) == ErrorCode.COORDINATOR_NOT_AVAILABLE


async def test_an_abort_that_comes_while_its_partitions_are_added_is_to_be_repeated(
    broker: Broker, monkeypatch: pytest.MonkeyPatch
) -> None:
    """librdkafka sends it without waiting for the answer about the partitions; INVALID_TXN_STATE would be fatal for it."""
    await broker.create("t")
    client, other = await broker.client(), await broker.client()
    producer = Producer(client)
    assert await producer.start() == 0
    real, held = broker.services.partitions.append_internal, []

    def hold(*args: Any, **more: Any) -> None:
        held.append((args, more))

    monkeypatch.setattr(broker.services.partitions, "append_internal", hold)
    adding = asyncio.ensure_future(producer.add(version=0))
    while not held:
        await asyncio.sleep(0)
    again = Producer(other)
    again.id, again.epoch = producer.id, producer.epoch
    assert await again.end(committed=False, version=1) == ErrorCode.CONCURRENT_TRANSACTIONS
    monkeypatch.undo()
    for args, more in held:
        real(*args, **more)
    assert await adding == 0
    assert await again.end(committed=False, version=1) == 0


async def test_the_next_transaction_waits_a_moment_for_the_markers_of_the_last_one(
    broker: Broker, monkeypatch: pytest.MonkeyPatch
) -> None:
    """librdkafka sends an abort directly behind partitions that were refused: as nothing is open then, the producer would end."""
    await broker.create("t")
    producer = Producer(await broker.client())
    await producer.start()
    await producer.add()
    await producer.send(b"kept")
    real, held = broker.services.partitions.append_internal, []

    def hold_markers(timeout_ms: int, partitions: Any, done: Any, **more: Any) -> None:
        if partitions[0][0].topic == "t":
            held.append((timeout_ms, partitions, done, more))
        else:
            real(timeout_ms, partitions, done, **more)

    monkeypatch.setattr(broker.services.partitions, "append_internal", hold_markers)
    assert await producer.end(committed=True, version=1) == 0
    assert await producer.add_once(version=0) == ErrorCode.CONCURRENT_TRANSACTIONS, "the markers take long"
    adding = asyncio.ensure_future(producer.add_once(version=0))
    for _ in range(100):
        await asyncio.sleep(0)
    assert held and not adding.done()
    monkeypatch.undo()
    for timeout_ms, partitions, done, more in held:
        real(timeout_ms, partitions, done, **more)
    assert await adding == 0
    assert await producer.end(committed=False, version=1) == 0


async def test_a_prepared_commit_is_completed_after_a_move(broker: Broker) -> None:
    await broker.create("t")
    client = await broker.client()
    producer = Producer(client)
    await producer.start()
    await producer.add()
    await producer.send(b"kept")
    # The partition takes no marker yet: the transaction stays prepared.
    real, seen = broker.services.partitions.append_internal, []

    def no_markers(timeout_ms: int, partitions: Any, done: Any, **more: Any) -> None:
        if partitions[0][0].topic == "t":
            seen.append(1)
            done(tuple(wire_error(key) for key, _ in partitions))
        else:
            real(timeout_ms, partitions, done, **more)

    broker.services.partitions.append_internal = no_markers  # type: ignore[method-assign]
    assert await producer.end(committed=True) == 0
    while not seen:
        await asyncio.sleep(0)
    assert (await visible(client))[2] == 0
    await move(broker, "__transaction_state")
    broker.services.partitions.append_internal = real  # type: ignore[method-assign]
    async with asyncio.timeout(150):
        while (await visible(client))[2] != 2:
            await asyncio.sleep(0.01)
    assert (await visible(client))[0] == [b"kept"]


async def test_a_producer_cannot_add_an_internal_topic(broker: Broker) -> None:
    client = await broker.client()
    producer = Producer(client)
    await producer.start()
    await coordinator(client, "g", GROUPS)
    for topic in ("__consumer_offsets", "__transaction_state"):
        assert await producer.add(topic) == ErrorCode.TOPIC_AUTHORIZATION_FAILED
        assert await producer.add(topic, version=4) == 0  # of a node, for offsets in a transaction


async def test_a_second_incarnation_fences_the_first(broker: Broker) -> None:
    await broker.create("t")
    client = await broker.client()
    first, second = Producer(client), Producer(client)
    await first.start()
    await first.add()
    await first.send(b"lost")
    assert await second.start() == 0
    assert (second.id, second.epoch) == (first.id, 2)  # one epoch for the abort, one for the newcomer
    assert await first.end(committed=True) == ErrorCode.PRODUCER_FENCED
    assert await first.end(committed=True, version=1) == ErrorCode.INVALID_PRODUCER_EPOCH  # what older clients know
    assert await first.add() == ErrorCode.PRODUCER_FENCED
    await second.add()
    await second.send(b"kept")
    await second.end(committed=True)
    async with asyncio.timeout(150):
        while (await visible(client))[2] != 4:
            await asyncio.sleep(0.01)
    values, aborted, _ = await visible(client)
    assert values == [b"lost", b"kept"] and aborted == [(first.id, 0)]


async def test_a_producer_asks_for_its_next_epoch_while_its_transaction_is_open(broker: Broker) -> None:
    """KIP-360: it goes on after the abort; a client of before KIP-890, too."""
    await broker.create("t")
    client = await broker.client()
    producer = Producer(client)
    await producer.start()
    await producer.add()
    await producer.send(b"lost")
    assert await producer.start(producer_id=producer.id, producer_epoch=0) == 0
    assert producer.epoch == 1
    assert await producer.add() == 0
    assert await producer.send(b"kept") == 0
    assert await producer.end(committed=True) == 0


async def test_a_transaction_that_takes_too_long_is_aborted(broker: Broker) -> None:
    await broker.create("t")
    client = await broker.client()
    producer = Producer(client)
    await coordinator(client, "x", TRANSACTIONS)
    answer = await client.ask(wire.InitProducerIdRequest("x", 1), 4)
    producer.id, producer.epoch = answer.producer_id, answer.producer_epoch
    await producer.add()
    await producer.send(b"late")
    async with asyncio.timeout(150):
        while (await visible(client))[2] != 2:
            await broker.side.transactions.abort_overdue()
            await asyncio.sleep(0.005)
    assert (await visible(client))[1] == [(producer.id, 0)]
    assert await producer.end(committed=True) == ErrorCode.PRODUCER_FENCED
    assert await producer.start(producer_id=producer.id, producer_epoch=0) == 0
    assert producer.epoch == 1, "its own next epoch: nobody has taken its place"


async def test_an_open_transaction_outlives_a_wall_clock_that_jumps(
    broker: Broker, monkeypatch: pytest.MonkeyPatch
) -> None:
    await broker.create("t")
    client = await broker.client()
    producer = Producer(client)
    await coordinator(client, "x", TRANSACTIONS)
    answer = await client.ask(wire.InitProducerIdRequest("x", 60_000), 4)
    producer.id, producer.epoch = answer.producer_id, answer.producer_epoch
    await producer.add()
    await producer.send(b"kept")
    clock, real = broker.services.clock, broker.services.clock.wall_ms
    for hours in (2, -2):
        monkeypatch.setattr(clock, "wall_ms", lambda hours=hours: real() + hours * 3_600_000)
        await broker.side.transactions.abort_overdue()
    later = clock.monotonic() + 59
    monkeypatch.setattr(clock, "monotonic", lambda: later)
    await broker.side.transactions.abort_overdue()
    assert await producer.end(committed=True) == ErrorCode.NONE
    await producer.add()
    await broker.side.transactions.abort_overdue()
    later += 61
    await broker.side.transactions.abort_overdue()
    assert await producer.end(committed=True) == ErrorCode.PRODUCER_FENCED


@pytest.mark.parametrize("asks_again", [True, False])
async def test_a_transaction_whose_end_was_refused_is_not_overdue(
    make_broker: Any, monkeypatch: pytest.MonkeyPatch, *, asks_again: bool
) -> None:
    """The coordinator may be replaced, and sends its clients away. The time in which they are not heard does not count against them."""
    broker = await make_broker(transaction_state_log_num_partitions=1)
    await broker.create("t")
    client = await broker.client()
    producer = Producer(client)
    await coordinator(client, "x", TRANSACTIONS)
    answer = await client.ask(wire.InitProducerIdRequest("x", 60_000), 4)
    producer.id, producer.epoch = answer.producer_id, answer.producer_epoch
    await producer.add()
    replaced = broker.services.partitions.replaced
    replaced.add(TopicPartition(TRANSACTION_TOPIC, 0))
    assert await producer.end(committed=True) == ErrorCode.NOT_COORDINATOR
    now_s = broker.services.clock.monotonic()
    monkeypatch.setattr(broker.services.clock, "monotonic", lambda: now_s)
    now_s += 61
    if asks_again:  # it is heard again before the coordinator looks
        replaced.clear()
    await broker.side.transactions.abort_overdue()
    replaced.clear()
    now_s += 59
    await broker.side.transactions.abort_overdue()
    assert await producer.end(committed=True) == ErrorCode.NONE


async def test_offsets_in_a_transaction(broker: Broker) -> None:
    await broker.create("t")
    client = await broker.client()
    await coordinator(client, "g")
    producer = Producer(client)
    await producer.start()
    for offset, is_commit in ((11, False), (12, True)):
        while True:
            added = await client.ask(wire.AddOffsetsToTxnRequest("x", producer.id, producer.epoch, "g"), 3)
            if added.error_code != ErrorCode.CONCURRENT_TRANSACTIONS:
                break
        assert added.error_code == 0
        request = wire.TxnOffsetCommitRequest
        part = request.TxnOffsetCommitRequestPartition(0, offset)
        topics = [request.TxnOffsetCommitRequestTopic("t", partitions=[part])]
        answer = await client.ask(request("x", "g", producer.id, producer.epoch, topics=topics), 3)
        assert answer.topics[0].partitions[0].error_code == 0
        waiting = (await fetched(client, "g", TopicPartition("t", 0), stable=True)).topics[0].partitions[0]
        assert waiting.error_code == ErrorCode.UNSTABLE_OFFSET_COMMIT
        before = (await fetched(client, "g", TopicPartition("t", 0))).topics[0].partitions[0]
        assert before.committed_offset == -1
        await move(broker, "__consumer_offsets")  # the open transaction is in the log
        await coordinator(client, "g")
        assert await producer.end(committed=is_commit) == 0
        await until(lambda: not broker.side.groups.offsets.offsets_of("g").in_transactions)
        after = (await fetched(client, "g", TopicPartition("t", 0), stable=True)).topics[0].partitions[0]
        assert (after.error_code, after.committed_offset) == (0, 12 if is_commit else -1)


async def test_init_producer_id_errors(broker: Broker) -> None:
    client = await broker.client()
    ids = [(await client.ask(wire.InitProducerIdRequest(None, 0), version)).producer_id for version in range(6)]
    assert len(set(ids)) == 6
    await coordinator(client, "x", TRANSACTIONS)

    async def code(*fields: Any) -> int:
        return int((await client.ask(wire.InitProducerIdRequest(*fields), 4)).error_code)

    assert await code("", 1000) == ErrorCode.INVALID_REQUEST
    assert await code("x", 0) == ErrorCode.INVALID_TRANSACTION_TIMEOUT
    assert await code("x", 10**9) == ErrorCode.INVALID_TRANSACTION_TIMEOUT
    assert await code("x", 1000, 5, -1) == ErrorCode.INVALID_REQUEST
    producer = Producer(client)
    await producer.start()
    producer.id += 1
    await broker.create("t")
    assert await producer.add() == ErrorCode.INVALID_PRODUCER_ID_MAPPING
    assert await producer.add("nowhere") == ErrorCode.UNKNOWN_TOPIC_OR_PARTITION
    filters = ["Empty", "Odd", "Odd", "PrepareEpochFence"]
    listed = await client.ask(wire.ListTransactionsRequest(state_filters=filters), 0)
    assert [entry.transactional_id for entry in listed.transaction_states] == ["x"]
    assert listed.unknown_state_filters == ["Odd"]
    for pattern, names in (("x|z", ["x"]), ("y", []), ("", ["x"]), (None, ["x"])):
        listed = await client.ask(wire.ListTransactionsRequest(transactional_id_pattern=pattern), 2)
        assert [entry.transactional_id for entry in listed.transaction_states] == names
    # As with Kafka, an id without a transaction since it was initialized is older than any duration.
    for duration, names in ((-1, ["x"]), (0, ["x"]), (10**12, ["x"]), (2**62, [])):
        listed = await client.ask(wire.ListTransactionsRequest(duration_filter=duration), 1)
        assert [entry.transactional_id for entry in listed.transaction_states] == names, duration
    listed = await client.ask(wire.ListTransactionsRequest(transactional_id_pattern="("), 2)
    assert listed.error_code == ErrorCode.INVALID_REGULAR_EXPRESSION
    missing = await client.ask(wire.DescribeTransactionsRequest(["y"]), 0)
    assert missing.transaction_states[0].error_code == ErrorCode.TRANSACTIONAL_ID_NOT_FOUND


async def test_idle_transactional_ids_are_forgotten(broker: Broker) -> None:
    client = await broker.client()
    await Producer(client).start()
    object.__setattr__(broker.services.config, "transactional_id_expiration_ms", -10)
    await broker.side.transactions.expire()
    missing = await client.ask(wire.DescribeTransactionsRequest(["x"]), 0)
    assert missing.transaction_states[0].error_code == ErrorCode.TRANSACTIONAL_ID_NOT_FOUND


async def test_the_interval_of_the_search_for_idle_ids_is_a_setting(make_broker: Any) -> None:
    """Kafka's own tests set it."""
    broker = await make_broker(
        transactional_id_expiration_ms=1, transaction_remove_expired_transaction_cleanup_interval_ms=1
    )
    client = await broker.client()
    await Producer(client).start()
    async with asyncio.timeout(150):
        while (await client.ask(wire.DescribeTransactionsRequest(["x"]), 0)).transaction_states[0].error_code == 0:
            await asyncio.sleep(0.001)
