"""Producer ids: unique in the cluster, handed out from blocks that are reserved in ZooKeeper.

Blocks are reserved before they are needed: producers start also while ZooKeeper is away.
"""

from __future__ import annotations

import asyncio
from collections import deque
from collections.abc import Awaitable, Callable

from kafkalite.coordination.coordinator import CoordinatorError
from kafkalite.coordination.znode_json import ZnodeError
from kafkalite.telemetry.logs import get_logger

_log = get_logger(__name__)

#: Blocks that are kept ready: one for each of the two listeners, which hand out ids independently.
SPARE_BLOCKS = 2
_RETRY_S = 1.0


class ProducerIds:
    """Hands out blocks of producer ids. `run` is the task that keeps blocks ready.

    Args:
        reserve: reserves the next block durably; returns (first id, how many). A block that was reserved and
            not used up when the node dies is lost, which costs nothing.
    """

    def __init__(self, reserve: Callable[[], Awaitable[tuple[int, int]]]) -> None:
        self._reserve = reserve
        self._spare: deque[tuple[int, int]] = deque()
        self._taken = asyncio.Event()

    async def block(self) -> tuple[int, int]:
        """(first id, count) of a new block. Raises CoordinatorError."""
        if self._spare:
            self._taken.set()
            return self._spare.popleft()
        return await self._reserve()

    async def run(self) -> None:
        """Until cancelled."""
        while True:
            while len(self._spare) < SPARE_BLOCKS:
                try:
                    self._spare.append(await self._reserve())
                except (CoordinatorError, ZnodeError) as error:
                    _log.debug("producer_ids.not_reserved", error=repr(error))
                    await asyncio.sleep(_RETRY_S)
            self._taken.clear()
            await self._taken.wait()
