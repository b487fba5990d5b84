"""Producer ids, a block at a time."""

from __future__ import annotations

import asyncio

from kafkalite.coordinators.services import Services
from kafkalite.model import ProducerId


class ProducerIdsInUse:
    """Gives out each id once. Blocks come from ZooKeeper, so a node that dies loses at most the rest of one."""

    def __init__(self, services: Services) -> None:
        self._services = services
        self._next = 0
        self._end = 0
        self._lock = asyncio.Lock()

    async def take(self) -> ProducerId:
        """Raises CoordinatorError."""
        async with self._lock:
            if self._next == self._end:
                first, size = await self._services.allocate_producer_ids()
                self._next, self._end = first, first + size
            taken = ProducerId(self._next)
            self._next += 1
            return taken
