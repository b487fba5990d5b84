"""Producer ids: unique in the cluster, handed out from blocks that are reserved in ZooKeeper."""

from __future__ import annotations

import asyncio
from collections.abc import Awaitable, Callable

from kafkalite.model import ProducerId


class ProducerIds:
    """Hands out producer ids.

    Args:
        reserve: reserves the next block durably; returns (first id, how many). A block that was reserved and
            not used up when the node dies is lost, which costs nothing.
    """

    def __init__(self, reserve: Callable[[], Awaitable[tuple[int, int]]]) -> None:
        self._reserve = reserve
        self._next = 0
        self._end = 0
        self._lock = asyncio.Lock()

    async def allocate(self) -> ProducerId:
        """A producer id that nobody has. Raises CoordinatorError."""
        async with self._lock:
            if self._next >= self._end:
                first, count = await self._reserve()
                self._next, self._end = first, first + count
            self._next += 1
            return ProducerId(self._next - 1)
