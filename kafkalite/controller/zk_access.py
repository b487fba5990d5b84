"""ZooKeeper access of one elected epoch: reads that are repeated, transactions that are fenced.

Each transaction begins with a check of /controller_epoch: a controller that has been succeeded changes nothing any
more (KAFKA-6082). Reads are repeated until the session answers or ends; a write whose outcome is unknown is
reported as a conflict, and the caller reads before it decides again.
"""

from __future__ import annotations

import asyncio
from collections.abc import Awaitable, Callable, Collection, Coroutine, Iterable, Sequence
from typing import Any, TypeVar

from kafkalite.controller.stats import ControllerStats
from kafkalite.coordination import paths
from kafkalite.coordination.coordinator import (
    Check,
    Coordinator,
    CoordinatorError,
    Delete,
    MultiFailedError,
    NoNodeError,
    NotSentError,
    Op,
    OutcomeUnknownError,
    SessionExpiredError,
    SessionState,
    Stat,
    Watch,
)
from kafkalite.coordination.retry import side_by_side
from kafkalite.errors import KafkaliteError

T = TypeVar("T")

#: Operations of one transaction (a larger one would cut the connection for all requests).
MAX_OPS = 500
#: Bytes of one transaction, for the same reason.
MAX_BYTES = 512 * 1024
#: Single reads that are under way at once.
READS_AT_ONCE = 200
#: How long a read that found no connection waits at most before it is tried again.
RETRY_S = 0.25


class ControllerMovedError(KafkaliteError):
    """/controller_epoch has changed: another controller is active."""


class Connectivity:
    """Wakes tasks that wait until a session is connected again, or over."""

    def __init__(self, coordinator: Coordinator) -> None:
        self._coordinator = coordinator
        self._changed = asyncio.Event()
        coordinator.on_state(lambda _: self._changed.set())

    def holds_lease(self) -> bool:
        """False while the session's lease has run out: a controller that may have a successor is silent."""
        return self._coordinator.lease_left() > 0

    async def wait(self) -> None:
        """Wait for a change of state, but no longer than RETRY_S. Raises SessionExpiredError."""
        if self._coordinator.state is SessionState.EXPIRED:
            raise SessionExpiredError("the session is over")
        self._changed.clear()
        try:
            async with asyncio.timeout(RETRY_S):
                await self._changed.wait()
        except TimeoutError:
            return


class ZkAccess:
    """The access of one elected epoch to ZooKeeper.

    Args:
        epoch_version: zkVersion of /controller_epoch as our election left it.
    Every method raises SessionExpiredError; those that write also ControllerMovedError.
    """

    def __init__(
        self, coordinator: Coordinator, connectivity: Connectivity, epoch_version: int, stats: ControllerStats
    ) -> None:
        self._zk = coordinator
        self._connectivity = connectivity
        self._fence = Check(paths.CONTROLLER_EPOCH, epoch_version)
        self._stats = stats

    def forget(self, watches: Collection[Watch]) -> None:
        """The elected epoch is over: these watches are not for the next one."""
        self._zk.forget(watches)

    async def read(self, call: Callable[[], Awaitable[T]]) -> T:
        """Repeat a read until it is answered."""
        while True:
            try:
                return await call()
            except (NotSentError, OutcomeUnknownError):
                await self._connectivity.wait()

    async def get_many(self, where: Sequence[str]) -> list[tuple[bytes, Stat] | None]:
        """Data and stat by path, None where there is no znode."""
        self._stats.zk_ops["read"] += len(where)
        return await self.read(lambda: self._zk.get_many(where))

    async def _read_each(self, read: Callable[[str], Coroutine[Any, Any, T]], names: Sequence[str]) -> list[T]:
        """What `read` returns for each of them: for reads that set watches, of which `get_many` knows nothing."""
        found: list[T] = []
        for start in range(0, len(names), READS_AT_ONCE):
            async with side_by_side() as group:
                tasks = [group.create_task(read(name)) for name in names[start : start + READS_AT_ONCE]]
            found += [task.result() for task in tasks]
        return found

    async def _children(self, path: str, watch: Watch | None = None) -> list[str]:
        """The names; empty if the znode is missing (it is made, so that the watch can be armed)."""
        while True:
            try:
                self._stats.zk_ops["read"] += 1
                return (await self.read(lambda: self._zk.children(path, watch)))[0]
            except NoNodeError:
                if watch is None:
                    return []
                await self.read(lambda: self._zk.ensure_path(path))

    async def _children_if_there(self, path: str, watch: Watch) -> list[str]:
        try:
            self._stats.zk_ops["read"] += 1
            return (await self.read(lambda: self._zk.children(path, watch)))[0]
        except NoNodeError:
            return []

    async def read_request(self, path: str, watch: Watch) -> tuple[bytes, int] | None:
        """An admin znode's data and version, None if there is no request; the watch fires in both cases."""
        while True:
            self._stats.zk_ops["read"] += 2
            if await self.read(lambda: self._zk.exists(path, watch)) is None:
                return None
            try:
                data, stat = await self.read(lambda: self._zk.get(path))
            except NoNodeError:
                continue
            return data, stat.version

    def _raise_if_moved(self, error: CoordinatorError) -> None:
        """Raise the errors that end the elected epoch."""
        if isinstance(error, SessionExpiredError):
            raise error
        if isinstance(error, MultiFailedError) and error.index == 0:
            raise ControllerMovedError(f"{paths.CONTROLLER_EPOCH} has changed: {error.error!r}")

    async def _fenced(self, ops: Iterable[Op]) -> bool:
        """One fenced transaction; False if it failed, or if its outcome is unknown."""
        return await self._failure_of(ops) is None

    async def _failure_of(self, ops: Iterable[Op]) -> CoordinatorError | None:
        """Why a fenced transaction failed, or that its outcome is unknown; None: it was applied. Operation 0 is the fence."""
        self._stats.zk_ops["transaction"] += 1
        try:
            await self._zk.multi([self._fence, *ops])
        except CoordinatorError as error:
            self._raise_if_moved(error)
            return error
        return None

    async def verify(self) -> bool:
        """Whether we are certainly the controller; False if ZooKeeper has not answered. Raises ControllerMovedError if another controller is."""
        return await self._fenced([])

    async def _remove_if_empty(self, path: str | None) -> None:
        """A topic's node below /admin/partitions_*; one that has got new children meanwhile stays."""
        if path is not None and await self.read(lambda: self._zk.exists(path)) is not None:
            await self._fenced([Delete(path)])
