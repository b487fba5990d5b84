"""Work that takes long, off the loop: a few functions at a time, those who cause it in turn.

Each owner (a client, a reader) has a queue of its own, so an owner with a thousand functions delays another one's by one
function, not by a thousand. How many functions wait is bounded by their callers: a connection has at most one.
"""

from __future__ import annotations

import asyncio
from collections.abc import AsyncIterator, Awaitable, Callable
from contextlib import asynccontextmanager
from typing import TypeVar, cast

from kafkalite.env.fair_queue import FairQueue, Owner
from kafkalite.env.seams import Clock

_T = TypeVar("_T")


class FairExecutor:
    """Runs functions in threads, in the turns of their owners.

    Args:
        run: runs a function in a thread (Disk.run_blocking).
        at_once: functions under way at the same time.
    """

    def __init__(self, run: Callable[[Callable[[], object]], Awaitable[object]], clock: Clock, *, at_once: int) -> None:
        self._run = run
        self._clock = clock
        self._free = at_once
        self._waiting: FairQueue[asyncio.Future[None]] = FairQueue()

    @property
    def waiting(self) -> int:
        """Functions that have not begun."""
        return len(self._waiting)

    async def run(self, owner: Owner, function: Callable[[], _T]) -> tuple[_T, float]:
        """The function's result, and the seconds that it took. Raises what the function raises; OSError.

        A caller that gives up does not end the thread: the turn is over when the function is. Otherwise clients that are impatient
        would have as many functions under way as there are threads, which others need.
        """
        await self._turn(owner)
        began = self._clock.monotonic()
        work = asyncio.ensure_future(self._run(function))
        work.add_done_callback(lambda _: self._over())
        try:
            result = await asyncio.shield(work)
        finally:
            del work  # an error has this frame, and would keep what the function worked on until the collector comes
        return cast("_T", result), self._clock.monotonic() - began

    @asynccontextmanager
    async def turn(self, owner: Owner) -> AsyncIterator[None]:
        """The owner's turn, for as long as the block takes."""
        await self._turn(owner)
        try:
            yield
        finally:
            self._over()

    def _over(self) -> None:
        self._free += 1
        self._admit()

    async def _turn(self, owner: Owner) -> None:
        if self._free and not self._waiting:
            self._free -= 1
            return
        turn: asyncio.Future[None] = asyncio.get_running_loop().create_future()
        self._waiting.put(owner, turn)
        self._admit()
        try:
            await turn
        except asyncio.CancelledError:
            if turn.done() and not turn.cancelled():  # its turn had come
                self._free += 1
                self._admit()
            raise

    def _admit(self) -> None:
        while self._free and self._waiting:
            turn = self._waiting.pop()
            if not turn.cancelled():
                self._free -= 1
                turn.set_result(None)
