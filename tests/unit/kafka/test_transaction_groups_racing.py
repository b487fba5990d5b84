"""Two drivers of one query at once, coordinators that move, appends whose outcome nobody knows: each row is there once.

The schedule comes from a seed. What is checked is what readers see at the end, and that every version is decided once.
"""

from __future__ import annotations

import asyncio
import random
from collections.abc import Sequence
from typing import Any

import pytest

from kafkalite.coordinators.transactions import coordinator, groups
from kafkalite.errors import ApiError, ErrorCode
from kafkalite.extension.messages.transactions import TransactionMember
from kafkalite.extension.transaction_groups import transactional_id
from kafkalite.model import NO_OFFSET, TRANSACTION_TOPIC
from kafkalite.partition_values import ProducedPartition

from .conftest import Broker
from .coordinator_requests import move
from .test_transaction_groups import T0, Group, committed

VERSIONS, TASKS = 5, 2


class Schedule:
    """Yields to the loop a random number of times, so that the next one to run is drawn from the seed."""

    def __init__(self, seed: int) -> None:
        self.random = random.Random(seed)
        self.decided = 0

    async def turn(self) -> None:
        for _ in range(self.random.randrange(12)):
            await asyncio.sleep(0)


def doubtful(broker: Broker, schedule: Schedule) -> None:
    """Some appends to `__transaction_state` time out: half of those are in the log all the same."""
    partitions = broker.services.partitions
    append = partitions.append_internal

    def append_or_not(timeout_ms: int, parts: Sequence[Any], done: Any, **more: Any) -> None:
        if parts[0][0].topic != TRANSACTION_TOPIC or schedule.random.random() > 0.15:
            append(timeout_ms, parts, done, **more)
            return
        if schedule.random.random() < 0.5:
            append(timeout_ms, parts, lambda results: None, **more)
        done(
            tuple(
                ProducedPartition(key.topic, key.partition, int(ErrorCode.REQUEST_TIMED_OUT), NO_OFFSET)
                for key, _ in parts
            )
        )

    partitions.append_internal = append_or_not  # type: ignore[assignment]


async def batch_of(group: Group, schedule: Schedule, version: int) -> None:
    """One run of a batch, as a driver does it; raises ApiError when it failed."""
    members: list[TransactionMember] = []
    try:
        for task in range(TASKS):
            attempts = schedule.random.choice([[0], [0, 1], [1], [1, 0]])
            winner = schedule.random.choice(attempts)
            for attempt in attempts:
                await schedule.turn()
                member = await group.begin(f"{task}-{attempt}", version)
                if member is None:
                    continue
                await write(group, schedule, member, b"%d/%d" % (version, task))
                if attempt == winner:
                    members.append(member)
        await schedule.turn()
        if members:
            answer = await group.end(version, *members)
            schedule.decided += not answer.was_decided
    except ApiError:
        await schedule.turn()
        await group.end(version, *members, is_commit=False)
        raise


async def write(group: Group, schedule: Schedule, member: TransactionMember, value: bytes) -> None:
    while True:
        await schedule.turn()
        try:
            await group.write(member, value)
            return
        except ApiError as error:
            if not error.retriable:
                raise


async def driver(group: Group, schedule: Schedule) -> None:
    """All batches, each again until it is through."""
    for version in range(VERSIONS):
        while True:
            try:
                await batch_of(group, schedule, version)
                break
            except ApiError as error:
                assert not error.retriable
                await schedule.turn()


async def driver_that_dies(group: Group, schedule: Schedule) -> None:
    """Killed again and again, started again from the first batch: what was decided is passed over."""
    for _ in range(4):
        running = asyncio.ensure_future(driver(group, schedule))
        for _ in range(schedule.random.randrange(10)):
            await schedule.turn()
            await asyncio.sleep(0.0005)
        running.cancel()
        await asyncio.wait([running])


async def moving(group: Group, schedule: Schedule) -> None:
    for _ in range(5):
        for _ in range(6):
            await schedule.turn()
        await asyncio.sleep(0.001)
        await move(group.broker, TRANSACTION_TOPIC)


@pytest.mark.checklist("F27")
@pytest.mark.parametrize("seed", range(25))
async def test_each_row_once_whatever_races(broker: Broker, monkeypatch: pytest.MonkeyPatch, seed: int) -> None:
    monkeypatch.setattr(groups, "_RETRY_S", 0.0)
    monkeypatch.setattr(coordinator, "_RETRY_S", 0.0)
    await broker.create("t")
    group, schedule = Group(broker), Schedule(seed)
    await broker.side.transactions.coordinator_of(transactional_id(group.group, "0"))
    doubtful(broker, schedule)
    async with asyncio.timeout(150), asyncio.TaskGroup() as tasks:
        tasks.create_task(driver_that_dies(group, schedule))
        tasks.create_task(moving(group, schedule))
        tasks.create_task(driver(group, schedule))
    await driver(group, schedule)  # the last one finds everything decided, or does it
    # what an attempt that died has left open times out
    clock = broker.services.clock
    wall_ms, monotonic = clock.wall_ms, clock.monotonic
    monkeypatch.setattr(clock, "wall_ms", lambda: wall_ms() + 120_000)
    monkeypatch.setattr(clock, "monotonic", lambda: monotonic() + 120)
    async with asyncio.timeout(150):
        await broker.side.transactions.abort_overdue()  # of what was loaded just now, the time begins here
        monkeypatch.setattr(clock, "monotonic", lambda: monotonic() + 240)
        while broker.services.partitions.logs[T0].open:
            await broker.side.transactions.abort_overdue()
            await asyncio.sleep(0)
    rows = sorted(await committed(group), key=str)
    assert rows == sorted((b"%d/%d" % (v, t) for v in range(VERSIONS) for t in range(TASKS)), key=str)
    assert schedule.decided <= VERSIONS
