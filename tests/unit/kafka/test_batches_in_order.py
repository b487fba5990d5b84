"""Batches of one transactional producer that are under way at once are appended in its order (KIP-890)."""

from __future__ import annotations

import asyncio
from collections.abc import Callable
from functools import partial
from typing import Any

import pytest

from kafkalite.coordinators.transactions.questions import Answers, Asker
from kafkalite.errors import ErrorCode
from kafkalite.model import TopicPartition
from kafkalite.protocol import wire

from .conftest import Broker, batch, produce
from .test_verification import bump, complete, send, started
from .transactional_producer import visible

T0 = TopicPartition("t", 0)


async def test_batches_behind_each_other_stay_in_order(broker: Broker) -> None:
    """Five requests under way at once, none of which waits for an answer; the first one has the question put."""
    producer = await started(broker)
    records = [
        batch(b"%d" % n, producer_id=producer.id, producer_epoch=producer.epoch, base_sequence=n, transactional=True)
        for n in range(5)
    ]
    for each in records:
        producer.client.send(produce("t", (0, each), transactional_id=producer.name), 12)
    for _ in records:
        _, answer = await producer.client.receive()
        assert answer.responses[0].partition_responses[0].error_code == 0
    assert await bump(producer, committed=True) == 0
    await complete(producer)
    assert (await visible(producer.client))[0] == [b"0", b"1", b"2", b"3", b"4"]


async def test_a_batch_that_comes_after_the_marker_waits_behind_the_one_before_it(
    broker: Broker, monkeypatch: pytest.MonkeyPatch
) -> None:
    """The first one asks while the marker of the transaction before is on its way; the second one comes when it has been written."""
    producer = await started(broker)
    verifier, real = broker.side.verifier, broker.side.verifier._ask
    assert await send(producer, b"before", 12) == 0
    assert await bump(producer, committed=True) == 0
    await complete(producer)
    answers = iter((ErrorCode.CONCURRENT_TRANSACTIONS, ErrorCode.NONE, ErrorCode.NONE))
    asked, go_on = asyncio.Event(), asyncio.Semaphore(0)

    async def slow(asker: Asker, partitions: tuple[TopicPartition, ...]) -> Answers:
        asked.set()
        await go_on.acquire()
        answer = next(answers)
        return dict.fromkeys(partitions, answer) if answer else await real(asker, partitions)

    monkeypatch.setattr(verifier, "_ask", slow)
    log = broker.services.partitions.logs[T0]
    records = [
        batch(b"%d" % n, producer_id=producer.id, producer_epoch=producer.epoch, base_sequence=n, transactional=True)
        for n in range(3)
    ]
    producer.client.send(produce("t", (0, records[0]), transactional_id=producer.name), 12)
    await asked.wait()
    log.verifications.end(producer.id)  # as the marker does
    producer.client.send(produce("t", (0, records[1]), transactional_id=producer.name), 12)
    while not any(inquiry.waiting for line in verifier._lines.values() for inquiry in list(line)[1:]):
        await asyncio.sleep(0)
    go_on.release()
    go_on.release()
    _, first = await producer.client.receive()
    third = await (await broker.client()).ask(produce("t", (0, records[2]), transactional_id=producer.name), 12)
    go_on.release()
    _, second = await producer.client.receive()
    assert [each.responses[0].partition_responses[0].error_code for each in (first, second, third)] == [0, 0, 0]
    assert await bump(producer, committed=True) == 0
    await complete(producer)
    assert (await visible(producer.client))[0] == [b"before", b"0", b"1", b"2"]


async def test_a_batch_that_has_nothing_to_ask_waits_behind_one_that_has(
    broker: Broker, monkeypatch: pytest.MonkeyPatch
) -> None:
    """The first batch is verified, but waits behind large requests to be appended; the second one comes, and asks; the
    first is appended, and opens the transaction; the third one has nothing to ask. It was checked before the second: out of order."""
    producer = await started(broker)
    verifier, partitions = broker.side.verifier, broker.services.partitions
    real_ask, real_produce = verifier._ask, partitions.produce
    held: list[Callable[[], None]] = []
    asked, go_on = asyncio.Event(), asyncio.Event()
    questions = 0

    async def ask(asker: Asker, names: tuple[TopicPartition, ...]) -> Answers:
        nonlocal questions
        questions += 1
        if questions > 1:
            asked.set()
            await go_on.wait()
        return await real_ask(asker, names)

    def hold(*args: Any, **options: Any) -> None:
        held.append(partial(real_produce, *args, **options))

    monkeypatch.setattr(verifier, "_ask", ask)
    monkeypatch.setattr(partitions, "produce", hold)
    records = [
        batch(b"%d" % n, producer_id=producer.id, producer_epoch=producer.epoch, base_sequence=n, transactional=True)
        for n in range(3)
    ]

    def send_next(number: int) -> None:
        producer.client.send(produce("t", (0, records[number]), transactional_id=producer.name), 12)

    send_next(0)
    while not held:
        await asyncio.sleep(0)
    send_next(1)
    await asked.wait()
    monkeypatch.setattr(partitions, "produce", real_produce)
    held[0]()
    send_next(2)
    _, first = await producer.client.receive()
    await (await broker.client()).ask(wire.MetadataRequest([]), 1)  # by now the third one has been received, too
    go_on.set()
    answers = [first, *[(await producer.client.receive())[1] for _ in range(2)]]
    assert [each.responses[0].partition_responses[0].error_code for each in answers] == [0, 0, 0]
    assert await bump(producer, committed=True) == 0
    await complete(producer)
    assert (await visible(producer.client))[0] == [b"0", b"1", b"2"]
