"""Tasks within a block: all have ended behind it, and nobody else is cancelled."""

from __future__ import annotations

import asyncio
import contextlib

import pytest

from kafkalite.env.side_by_side import SideBySide


async def _failing(error: Exception) -> None:
    await asyncio.sleep(0)
    raise error


async def test_the_task_that_waits_does_not_count_as_cancelled_afterwards() -> None:
    """With a TaskGroup it does, and with Python 3.11.2 the next timeout then ends it: a controller was silent for ever."""
    current = asyncio.current_task()
    assert current is not None
    for _ in range(2):
        with pytest.raises(KeyError):
            async with SideBySide() as group:
                group.create_task(_failing(KeyError("bug")))
                group.create_task(asyncio.Event().wait())
        assert current.cancelling() == 0
        with pytest.raises(TimeoutError):
            async with asyncio.timeout(0.001):
                await asyncio.Event().wait()


async def test_results_are_there_behind_the_block() -> None:
    async with SideBySide() as group:
        tasks = [group.create_task(asyncio.sleep(0, number)) for number in range(3)]
    assert [task.result() for task in tasks] == [0, 1, 2]
    async with SideBySide():
        pass


async def test_what_leaves_the_block_ends_the_tasks() -> None:
    with pytest.raises(ZeroDivisionError):
        async with SideBySide() as group:
            waiting = group.create_task(asyncio.Event().wait())
            failing = group.create_task(_failing(KeyError("not reported")))
            await asyncio.wait([failing])
            raise ZeroDivisionError
    assert waiting.cancelled()


async def test_who_cancels_the_task_that_waits_cancels_all_and_is_obeyed() -> None:
    begun, ended = asyncio.Event(), asyncio.Event()

    async def slow_to_end() -> None:
        begun.set()
        try:
            await asyncio.Event().wait()
        finally:
            await asyncio.sleep(0)
            ended.set()

    async def work() -> None:
        async with SideBySide() as group:
            group.create_task(slow_to_end())

    task = asyncio.create_task(work())
    await begun.wait()
    task.cancel()
    with contextlib.suppress(asyncio.CancelledError):
        await task
    assert task.cancelled()
    assert ended.is_set()


async def test_a_coroutine_that_is_dropped_ends_at_once() -> None:
    """As those of a process that crashes in the simulation."""
    for within_block in (True, False):
        tasks: list[asyncio.Task[bool]] = []

        async def work(*, within_block: bool, tasks: list[asyncio.Task[bool]]) -> None:
            async with SideBySide() as group:
                tasks.append(group.create_task(asyncio.Event().wait()))
                if within_block:
                    await asyncio.sleep(1)

        dropped = work(within_block=within_block, tasks=tasks)
        dropped.send(None)
        dropped.close()
        with contextlib.suppress(asyncio.CancelledError):
            await tasks[0]
        assert tasks[0].cancelled()
