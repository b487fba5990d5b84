"""Producer ids: unique in the cluster, handed out from blocks that are reserved in ZooKeeper.

Blocks are reserved before they are needed: producers start also while ZooKeeper is away.
"""

from __future__ import annotations

import asyncio
from collections import deque
from collections.abc import Awaitable, Callable

from kafkalite.coordination.coordinator import CoordinatorError
from kafkalite.coordination.znode_json import ZnodeError
from kafkalite.errors import ErrorCode, api_error
from kafkalite.telemetry.logs import get_logger

_log = get_logger(__name__)

#: Blocks that are kept ready.
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
        #: The path of the znode while it cannot be read -> the reason. For `admin health`.
        self.malformed: dict[str, str] = {}
        self._taken = asyncio.Event()

    async def block(self) -> tuple[int, int]:
        """(first id, count) of a new block. Raises CoordinatorError, ApiError (Kafka's code while it has no ids: clients ask again)."""
        if self._spare:
            self._taken.set()
            return self._spare.popleft()
        try:
            return await self._reserved()
        except ZnodeError as error:
            raise api_error(ErrorCode.COORDINATOR_LOAD_IN_PROGRESS, str(error)) from None

    async def _reserved(self) -> tuple[int, int]:
        """Raises CoordinatorError, ZnodeError."""
        try:
            block = await self._reserve()
        except ZnodeError as error:
            reason = f"{error.reason}; do not remove it, or producer ids are given out twice: write a block beyond all that are in use"
            if self.malformed.get(error.path) != reason:
                _log.error("znode.malformed", path=error.path, reason=reason)
            self.malformed = {error.path: reason}
            raise
        self.malformed = {}
        return block

    async def run(self) -> None:
        """Until cancelled."""
        while True:
            while len(self._spare) < SPARE_BLOCKS:
                try:
                    self._spare.append(await self._reserved())
                except (CoordinatorError, ZnodeError) as error:
                    _log.debug("producer_ids.not_reserved", error=repr(error))
                    await asyncio.sleep(_RETRY_S)
            self._taken.clear()
            await self._taken.wait()
