"""A computation that many ask for at the same time."""

from __future__ import annotations

import asyncio

import pytest

from kafkalite.env.shared import Shared


class _Slow:
    """Ends when it is let go; says which one it was."""

    def __init__(self) -> None:
        self.begun = 0
        self.room = asyncio.Semaphore(0)
        self.fails = False

    async def compute(self) -> int:
        self.begun += 1
        number = self.begun
        await self.room.acquire()
        if self.fails:
            raise ValueError(str(number))
        return number


async def _turns() -> None:
    for _ in range(10):
        await asyncio.sleep(0)


async def test_those_who_ask_while_one_runs_share_the_next() -> None:
    """They must not get the one that runs: it may have passed what they ask about."""
    slow = _Slow()
    shared = Shared(slow.compute)
    first = asyncio.create_task(shared.result())
    await _turns()
    others = [asyncio.create_task(shared.result()) for _ in range(50)]
    await _turns()
    assert slow.begun == 1
    slow.room.release()
    await _turns()
    assert first.done() and slow.begun == 2 and not any(each.done() for each in others)
    slow.room.release()
    assert await first == 1 and set(await asyncio.gather(*others)) == {2}
    slow.room.release()
    assert await shared.result() == 3, "nothing is kept"


async def test_one_that_gives_up_or_fails_leaves_the_others_their_own() -> None:
    slow = _Slow()
    shared = Shared(slow.compute)
    tasks = [asyncio.create_task(shared.result()) for _ in range(3)]
    await _turns()
    tasks[0].cancel()
    await _turns()
    assert slow.begun == 2
    slow.fails = True
    slow.room.release()
    await _turns()
    slow.fails = False
    slow.room.release()
    with pytest.raises(ValueError, match="2"):
        await tasks[1]
    assert await tasks[2] == 3
