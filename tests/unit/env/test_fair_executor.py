"""Functions off the loop: a few at a time, owners in turn."""

from __future__ import annotations

import asyncio
import contextlib
import gc
import weakref
from collections.abc import Callable
from functools import partial

import pytest

from kafkalite.env.fair_executor import FairExecutor
from kafkalite.env.real import RealClock
from kafkalite.env.real_disk import RealDisk


class Threads:
    """Functions run when the test says so."""

    def __init__(self) -> None:
        self.begun: list[str] = []
        self._gates: list[asyncio.Future[None]] = []

    async def run(self, function: Callable[[], object]) -> object:
        self.begun.append(str(function()))
        gate: asyncio.Future[None] = asyncio.get_running_loop().create_future()
        self._gates.append(gate)
        await gate
        return None

    async def finish_one(self) -> None:
        self._gates.pop(0).set_result(None)
        for _ in range(5):
            await asyncio.sleep(0)


class Megabytes:
    """What a function works on."""


async def test_what_a_function_worked_on_goes_when_it_has_failed() -> None:
    """The error held the frames, and they the error: only the collector found them. A client's pushes of four megabytes that were refused, one
    after the other, took 300 MB in ten seconds."""
    disk = RealDisk()
    executor = FairExecutor(disk.run_blocking, RealClock(), at_once=1)
    worked_on: list[weakref.ref[Megabytes]] = []

    def fail() -> None:
        megabytes = Megabytes()
        worked_on.append(weakref.ref(megabytes))
        raise ValueError

    gc.disable()
    try:
        for _ in range(3):
            with contextlib.suppress(ValueError):
                await executor.run(("a", 0), fail)
            await asyncio.sleep(0)
        assert [each() for each in worked_on[:-1]] == [None, None]
    finally:
        gc.enable()
        disk.close()


async def test_owners_take_turns_whatever_they_have_queued() -> None:
    threads = Threads()
    executor = FairExecutor(threads.run, RealClock(), at_once=1)
    wanted = [("greedy", f"g{number}") for number in range(5)] + [("modest", "m0")]
    tasks = [asyncio.create_task(executor.run((owner, 0), partial(str, name))) for owner, name in wanted]
    await asyncio.sleep(0)
    await asyncio.sleep(0)
    assert executor.waiting == 5
    for _ in wanted:
        await threads.finish_one()
    assert threads.begun == ["g0", "g1", "m0", "g2", "g3", "g4"]
    await asyncio.gather(*tasks)
    assert executor.waiting == 0


async def test_who_gives_up_makes_room_and_errors_are_the_callers() -> None:
    threads = Threads()
    executor = FairExecutor(threads.run, RealClock(), at_once=2)
    tasks = [asyncio.create_task(executor.run(("a", 0), partial(int, number))) for number in range(4)]
    for _ in range(3):
        await asyncio.sleep(0)
    assert threads.begun == ["0", "1"]
    tasks[2].cancel()
    await threads.finish_one()
    assert threads.begun == ["0", "1", "3"]
    await threads.finish_one()
    await threads.finish_one()
    with pytest.raises(asyncio.CancelledError):
        await tasks[2]

    async def fail(function: Callable[[], object]) -> object:
        function()
        raise OSError("no")

    executor = FairExecutor(fail, RealClock(), at_once=1)
    for _ in range(3):
        with pytest.raises(OSError, match="no"):
            await executor.run(("a", 0), lambda: 1)


async def test_who_gives_up_a_function_that_runs_does_not_make_room() -> None:
    """Nothing ends a thread: when four clients had given up, four schemas were compared at once, where one may be."""
    threads = Threads()
    executor = FairExecutor(threads.run, RealClock(), at_once=1)
    tasks = [asyncio.create_task(executor.run(("a", 0), partial(int, number))) for number in range(3)]
    for _ in range(3):
        await asyncio.sleep(0)
    tasks[0].cancel()
    with pytest.raises(asyncio.CancelledError):
        await tasks[0]
    for _ in range(5):
        await asyncio.sleep(0)
    assert threads.begun == ["0"]
    for begun in (["0", "1"], ["0", "1", "2"], ["0", "1", "2"]):
        await threads.finish_one()
        assert threads.begun == begun
    await asyncio.gather(*tasks[1:])
