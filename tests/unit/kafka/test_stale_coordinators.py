"""What a coordinator decided on before its partition was elsewhere for a while is not written when it is back."""

from __future__ import annotations

import asyncio
from collections.abc import Callable
from typing import Any

import pytest

from kafkalite.errors import ErrorCode
from kafkalite.model import GROUP_TOPIC, TRANSACTION_TOPIC, Offset, TopicPartition
from kafkalite.testing.simulation.plants import PLANTS
from tests.support.waiting import until

from .conftest import Broker
from .coordinator_requests import TRANSACTIONS, commit, coordinator, fetched, move

T0 = TopicPartition("t", 0)


class HeldAppends:
    """The confirmations of appends wait until `release`."""

    def __init__(self, broker: Broker, monkeypatch: Any) -> None:
        append = broker.services.partitions.append_internal
        self.held: list[Callable[[], None]] = []
        self.is_holding = False
        self.any = asyncio.Event()

        def held(timeout_ms: int, partitions: Any, done: Any, **named: Any) -> None:
            if not self.is_holding:
                append(timeout_ms, partitions, done, **named)
                return
            append(timeout_ms, partitions, lambda results: self.held.append(lambda: done(results)), **named)
            self.any.set()

        monkeypatch.setattr(broker.services.partitions, "append_internal", held)

    def release(self) -> None:
        self.is_holding = False
        for each in self.held:
            each()


@pytest.mark.parametrize("is_planted", [False, True])
async def test_offsets_are_not_purged_by_an_old_look_at_them(
    make_broker: Any, monkeypatch: Any, *, is_planted: bool
) -> None:
    if is_planted:
        PLANTS["reloaded"](monkeypatch.setattr)
    broker = await make_broker(offsets_topic_num_partitions=1)
    await broker.create("t")
    client = await broker.client()
    await coordinator(client, "a")
    for group in ("a", "b"):
        await client.ask(commit(group, 5), 8)
    appends = HeldAppends(broker, monkeypatch)
    appends.is_holding = True
    purge = asyncio.create_task(broker.side.groups.removal.topics_deleted(["t"]))
    await appends.any.wait()  # the tombstone of the first group
    appends.is_holding = False
    await move(broker, GROUP_TOPIC)
    await coordinator(client, "b")
    await client.ask(commit("b", 7), 8)
    appends.release()
    await purge
    found: list[int] = []
    for _ in range(2):
        known = (await fetched(client, "b", T0)).topics[0].partitions[0]
        found.append(known.committed_offset)
        await move(broker, GROUP_TOPIC)
        await coordinator(client, "b")
    assert (found == [7, 7]) is not is_planted, found


async def test_a_producer_is_not_forgotten_by_an_old_look_at_it(make_broker: Any, monkeypatch: Any) -> None:
    """It was idle, and is not any more."""
    broker = await make_broker(transaction_state_log_num_partitions=1)
    await broker.create("t")
    client = await broker.client()
    transactions = broker.side.transactions
    for name in ("a", "b"):
        await coordinator(client, name, TRANSACTIONS)
        producer_id, epoch = await transactions.init_producer(name, 600_000, (-1, -1))
    object.__setattr__(broker.services.config, "transactional_id_expiration_ms", -1)
    appends = HeldAppends(broker, monkeypatch)
    appends.is_holding = True
    look = asyncio.create_task(transactions.expire())
    await appends.any.wait()
    appends.is_holding = False
    await move(broker, TRANSACTION_TOPIC)
    await coordinator(client, "b", TRANSACTIONS)
    await transactions.add_partitions("b", producer_id, epoch, [T0])
    appends.release()
    await look
    await move(broker, TRANSACTION_TOPIC)
    await coordinator(client, "b", TRANSACTIONS)
    assert transactions.describe("b").state.wire_name == "Ongoing"


async def test_overdue_transactions_are_aborted_side_by_side(broker: Broker, monkeypatch: Any) -> None:
    """Each waited for the replication of the one before: slow followers of one partition kept those of all others open."""
    await broker.create("t")
    client = await broker.client()
    transactions = broker.side.transactions
    names = ("a", "b", "c")
    for name in names:
        await coordinator(client, name, TRANSACTIONS)
        await transactions.add_partitions(name, *await transactions.init_producer(name, 1, (-1, -1)), [T0])
    await asyncio.sleep(0.01)
    appends = HeldAppends(broker, monkeypatch)
    appends.is_holding = True
    look = asyncio.create_task(transactions.abort_overdue())
    async with asyncio.timeout(150):
        while len(appends.held) < len(names):
            await asyncio.sleep(0)
    appends.release()
    await look
    assert {transactions.describe(name).state.wire_name for name in names} <= {"PrepareAbort", "CompleteAbort"}


async def test_only_what_is_loaded_writes(broker: Broker) -> None:
    client = await broker.client()
    await coordinator(client, "g")
    log = broker.side.groups.log
    old = log.state_for("g")
    await move(broker, GROUP_TOPIC)
    await coordinator(client, "g")
    outcomes: list[tuple[ErrorCode, Offset]] = []
    log.append(old.index, old, [(b"key", None)], lambda *outcome: outcomes.append(outcome))
    assert outcomes == [(ErrorCode.NOT_COORDINATOR, -1)]


async def test_a_load_that_was_given_up_replaces_nothing(broker: Broker, monkeypatch: Any) -> None:
    """A leader that resigned with its session may lead again in the same epoch."""
    client = await broker.client()
    await coordinator(client, "g")
    log, partitions = broker.side.groups.log, broker.services.partitions
    await broker.create("t")
    await client.ask(commit("g", 1), 8)
    goes_on, load_local = asyncio.Event(), partitions.load_local
    loads = 0

    async def slow(*arguments: Any) -> None:
        nonlocal loads
        loads += 1
        if loads == 1:
            await goes_on.wait()
        await load_local(*arguments)

    monkeypatch.setattr(partitions, "load_local", slow)
    await move(broker, GROUP_TOPIC)
    while not loads:
        await asyncio.sleep(0)
    monkeypatch.setattr(partitions, "led", lambda key: key.topic != GROUP_TOPIC)
    partitions.tell_change()
    await until(lambda: not log._loads)
    monkeypatch.setattr(partitions, "led", lambda key: True)
    partitions.tell_change()
    await until(lambda: log._loads)
    await coordinator(client, "g")
    assert loads == 2
    state = log.state_for("g")
    goes_on.set()
    for _ in range(20):
        await asyncio.sleep(0)
    assert log.state_for("g") is state


async def test_a_log_that_ends_with_a_gap_is_loaded(broker: Broker) -> None:
    """A compaction took the last records of a segment, and a truncation all of the next: nothing is to be read before the end."""
    await broker.create("t")
    client = await broker.client()
    await coordinator(client, "g")
    for offset in (5, 6):
        await client.ask(commit("g", offset), 8)
    [log] = [log for key, log in broker.services.partitions.logs.items() if key.topic == GROUP_TOPIC and log.batches]
    log.batches.pop()
    await move(broker, GROUP_TOPIC)
    await asyncio.wait_for(coordinator(client, "g"), 10)
    assert (await fetched(client, "g", T0)).topics[0].partitions[0].committed_offset == 5


async def test_a_load_that_ends_by_a_bug_is_tried_again(make_broker: Any, monkeypatch: Any) -> None:
    """Without that, the group's clients are asked to wait until another node leads."""
    monkeypatch.setattr("kafkalite.coordinators.internal_log._FAILED_AGAIN_S", 0.01)
    broker = await make_broker(offsets_topic_num_partitions=1)
    await broker.create("t")
    client = await broker.client()
    await coordinator(client, "a")
    await client.ask(commit("a", 5), 8)
    log = broker.side.groups.log
    replay = log._replay
    failed: list[object] = []

    def fail_first(*arguments: Any) -> None:
        if not failed:
            failed.append(arguments)
            raise IndexError("a bug")
        replay(*arguments)

    monkeypatch.setattr(log, "_replay", fail_first)
    await move(broker, GROUP_TOPIC)
    await coordinator(client, "a")
    async with asyncio.timeout(150):
        while (found := await fetched(client, "a", T0)).error_code:
            await asyncio.sleep(0.01)
    assert failed and found.topics[0].partitions[0].committed_offset == 5


async def test_a_deletion_that_comes_while_a_coordinator_loads_is_not_missed(broker: Broker, monkeypatch: Any) -> None:
    """The groups would have begun at the offsets of the deleted topic in the next one of that name."""
    client = await broker.client()
    await coordinator(client, "g")
    await broker.create("t")
    await client.ask(commit("g", 5), 8)
    partitions = broker.services.partitions
    goes_on, is_loading, load_local = asyncio.Event(), asyncio.Event(), partitions.load_local

    async def slow(*arguments: Any) -> None:
        is_loading.set()
        await goes_on.wait()
        await load_local(*arguments)

    monkeypatch.setattr(partitions, "load_local", slow)
    await move(broker, GROUP_TOPIC)
    await is_loading.wait()
    broker.side.topics_deleted(["t"])
    for _ in range(20):
        await asyncio.sleep(0)
    goes_on.set()
    for _ in range(2):
        await coordinator(client, "g")
        async with asyncio.timeout(150):
            while (await fetched(client, "g", T0)).topics[0].partitions[0].committed_offset >= 0:
                await asyncio.sleep(0)
        await move(broker, GROUP_TOPIC)
