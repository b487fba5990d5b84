"""A supervisor is stopped by a task that has a failed TaskGroup behind it."""

from __future__ import annotations

import asyncio

import pytest

from kafkalite.env.supervisor import Policy, Supervisor


async def failing_group() -> None:
    """In Python 3.11 the task counts as being cancelled from then on, though it is not."""

    async def fail() -> None:
        await asyncio.sleep(0)
        raise ValueError

    with pytest.raises(ExceptionGroup):
        async with asyncio.TaskGroup() as group:
            group.create_task(fail())


async def test_the_error_of_a_group_does_not_become_a_cancellation() -> None:
    """A command whose copy failed ended as if somebody had pressed Ctrl-C, without the error."""
    await failing_group()
    supervisor = Supervisor(lambda error: None)
    waiting = supervisor.spawn("waiting", asyncio.sleep(3600), Policy.ISOLATED)
    await asyncio.sleep(0)
    await supervisor.stop()
    assert waiting.cancelled()


async def test_a_cancellation_while_it_stops_is_one() -> None:
    supervisor = Supervisor(lambda error: None)
    blocked = asyncio.Event()

    async def slow_to_end() -> None:
        try:
            await asyncio.sleep(3600)
        finally:
            blocked.set()
            await asyncio.sleep(3600)

    async def stop() -> None:
        await failing_group()
        await supervisor.stop()

    supervisor.spawn("slow", slow_to_end(), Policy.ISOLATED)
    await asyncio.sleep(0)
    stopping = asyncio.create_task(stop())
    await blocked.wait()
    stopping.cancel()
    with pytest.raises(asyncio.CancelledError):
        await stopping
