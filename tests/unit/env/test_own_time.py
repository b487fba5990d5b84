"""Suspicions count the time in which this process was run."""

from __future__ import annotations

import asyncio
from collections.abc import AsyncIterator

import pytest

from kafkalite.env import own_time
from kafkalite.env.own_time import MAX_TICKS, OwnTime
from tests.support.memory_disk import ManualClock


class Host:
    """A clock that goes on only when the test says so, and a ticker that looks as often as the loop turns."""

    def __init__(self) -> None:
        self.clock = ManualClock()
        self.own_time = OwnTime(self.clock)

    async def turns(self, count: int = 20) -> None:
        for _ in range(count):
            await asyncio.sleep(0.001)


@pytest.fixture
async def host(monkeypatch: pytest.MonkeyPatch) -> AsyncIterator[Host]:
    monkeypatch.setattr(own_time, "TICK_S", 0.001)
    host = Host()
    ticker = asyncio.ensure_future(host.own_time.run())
    await host.turns()
    yield host
    ticker.cancel()


def test_without_its_ticker_it_is_the_real_clock() -> None:
    clock = ManualClock()
    time = OwnTime(clock)
    before = time.now()
    clock.now_ms += 60_000
    assert time.now() - before == 60.0


async def test_a_pause_of_the_process_counts_as_one_tick(host: Host) -> None:
    before = host.own_time.now()
    host.clock.now_ms += 60_000
    assert host.own_time.now() - before <= MAX_TICKS * own_time.TICK_S  # before the ticker has looked …
    await host.turns()
    assert host.own_time.now() - before <= MAX_TICKS * own_time.TICK_S  # … and after


async def test_time_in_small_steps_counts_in_full(host: Host) -> None:
    before = host.own_time.now()
    for _ in range(50):
        looked = host.own_time._last_tick
        host.clock.now_ms += 1
        while host.own_time._last_tick == looked:
            await asyncio.sleep(0)
    assert host.own_time.now() - before == pytest.approx(50 * own_time.TICK_S)


async def test_a_timeout_outlives_a_pause_and_ends_with_own_time(host: Host) -> None:
    ended = asyncio.Event()

    async def wait() -> None:
        with pytest.raises(TimeoutError):
            async with host.own_time.timeout(0.05):
                await asyncio.Event().wait()
        ended.set()

    waiting = asyncio.ensure_future(wait())
    host.clock.now_ms += 60_000
    await host.turns(100)
    assert not ended.is_set()
    while not ended.is_set():
        host.clock.now_ms += 1
        await asyncio.sleep(0.001)
    await waiting


async def test_a_timeout_is_longer_while_there_is_a_reason() -> None:
    clock, asked = ManualClock(), list[int]()
    time = OwnTime(clock)

    def more() -> float:
        asked.append(1)
        return 0.001 if len(asked) < 3 else 0.0

    async def advance() -> None:
        while True:
            clock.now_ms += 1
            await asyncio.sleep(0.001)

    advancing = asyncio.ensure_future(advance())
    with pytest.raises(TimeoutError):
        async with time.timeout(0.001, more):
            await asyncio.Event().wait()
    assert len(asked) == 3
    advancing.cancel()


async def test_more_time_counts_from_when_it_is_given_however_late_that_is() -> None:
    clock, asked = ManualClock(), asyncio.Event()
    time = OwnTime(clock)

    def more() -> float:
        asked.set()
        return 0.001

    async with time.timeout(0.001, more):
        clock.now_ms += 60_000
        await asked.wait()
        for _ in range(10):
            await asyncio.sleep(0)


async def test_what_is_done_in_time_is_not_disturbed(host: Host) -> None:
    async with host.own_time.timeout(0.01):
        pass
    host.clock.now_ms += 1_000
    await host.turns()
