"""A long computation that many ask for at the same time."""

from __future__ import annotations

import asyncio
from collections.abc import Awaitable, Callable
from typing import Generic, TypeVar

_T = TypeVar("_T")


class Shared(Generic[_T]):
    """One computation runs at a time, and those who ask meanwhile share the next one: however many ask, two are made.

    What somebody gets was begun after the question, so it shows everything that happened before. Nothing is kept when nobody waits.
    """

    def __init__(self, compute: Callable[[], Awaitable[_T]]) -> None:
        self._compute = compute
        self._running = asyncio.Lock()
        #: How many were begun.
        self._begun = 0
        #: The number and the result of the last one that ended.
        self._latest: tuple[int, _T] | None = None
        self._waiting = 0

    async def result(self) -> _T:
        """Raises what the computation raises; the next of those who wait then begins another one."""
        before = self._begun
        self._waiting += 1
        try:
            async with self._running:
                if self._latest is None or self._latest[0] <= before:
                    self._begun += 1
                    self._latest = self._begun, await self._compute()
                return self._latest[1]
        finally:
            self._waiting -= 1
            if not self._waiting:
                self._latest = None
