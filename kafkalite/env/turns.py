"""Long computations on the event loop, a slice per turn of the loop, those who cause them in turn.

A long computation takes a turn, computes for some milliseconds, and takes the next one. One slice runs per turn of the
loop, whatever the number of those who wait: everybody else's work waits for one slice.
"""

from __future__ import annotations

import asyncio
from collections import deque
from collections.abc import Callable, Generator, Hashable
from typing import TypeVar

_T = TypeVar("_T")

#: A slice is over when it has taken this long (seconds).
SLICE_S = 0.004


class Turns:
    """
    Args:
        monotonic: the clock.
    """

    def __init__(self, monotonic: Callable[[], float]) -> None:
        self.monotonic = monotonic
        #: Owner -> those who wait; the owners in the order of their turns.
        self._waiting: dict[Hashable, deque[asyncio.Future[None]]] = {}
        self._is_due = False

    async def take(self, owner: Hashable) -> None:
        """Wait for a turn."""
        loop = asyncio.get_running_loop()
        turn: asyncio.Future[None] = loop.create_future()
        self._waiting.setdefault(owner, deque()).append(turn)
        if not self._is_due:
            self._is_due = True
            loop.call_soon(self._next)
        await turn

    def _next(self) -> None:
        self._is_due = False
        while self._waiting:
            owner, turns = next(iter(self._waiting.items()))
            del self._waiting[owner]
            turn = turns.popleft()
            if turns:
                self._waiting[owner] = turns  # behind the others
            if not turn.done():
                turn.set_result(None)
                break
        if self._waiting:
            self._is_due = True
            asyncio.get_running_loop().call_soon(self._next)


class Slices:
    """One computation's slices. `spent`: the seconds of the loop that it has had, up to the last turn."""

    def __init__(self, turns: Turns, owner: Hashable) -> None:
        self._turns = turns
        self._owner = owner
        self._began: float | None = None
        self.spent = 0.0

    @property
    def is_over(self) -> bool:
        """Whether it is somebody else's turn."""
        return self._began is None or self._turns.monotonic() - self._began >= SLICE_S

    async def next(self) -> None:
        """Take the next turn."""
        self.end()
        await self._turns.take(self._owner)
        self._began = self._turns.monotonic()

    def end(self) -> None:
        """The slice is over: what follows is not the loop's time, or somebody else counts it."""
        if self._began is not None:
            self.spent += self._turns.monotonic() - self._began
            self._began = None

    async def run(self, steps: Generator[None, None, _T]) -> _T:
        """Run a generator to its end; what it returns. Raises what it raises."""
        while True:
            if self.is_over:
                await self.next()
            try:
                next(steps)
            except StopIteration as stop:
                result: _T = stop.value
                return result
