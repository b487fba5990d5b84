"""What a node knows of some znodes: read before it serves, then kept up to date by notifications (`notifications`)."""

from __future__ import annotations

import asyncio
from abc import ABC, abstractmethod
from collections.abc import Callable, Sequence
from contextlib import nullcontext
from typing import Generic, TypeVar

from kafkalite.coordination.coordinator import Coordinator
from kafkalite.coordination.notifications import Notifications, follow
from kafkalite.coordination.retry import retrying
from kafkalite.telemetry.logs import get_logger

_log = get_logger(__name__)

Key = TypeVar("Key")


class FollowedStore(ABC, Generic[Key]):
    """See the module. `load` in every new session, before the node serves; then `follow` as a task of that session.

    Args:
        root: a znode that ZooKeeper is asked to sync before the node catches up.
        notifications: of the changes, one for each of their parents.
        reads_overlap: the store itself sees to it that of two reads the one that began later holds.
    """

    def __init__(self, root: str, notifications: Sequence[Notifications], *, reads_overlap: bool = False) -> None:
        self._root = root
        self._notifications = notifications
        #: One reads at a time: of two that overlap, the later one could report what it has read earlier.
        self._reading: asyncio.Lock | nullcontext[None] = nullcontext() if reads_overlap else asyncio.Lock()
        #: Path -> what is wrong there. For `admin health`.
        self.malformed: dict[str, str] = {}

    @abstractmethod
    async def _read_all(self, coordinator: Coordinator) -> None:
        """Read what there is, and what was known and is gone."""

    @abstractmethod
    def _keys_in(self, fresh: Sequence[tuple[str, bytes]]) -> Sequence[Key] | None:
        """What these notifications, (path, data), are about. None: it cannot be said, so all has to be read."""

    @abstractmethod
    async def _read(self, coordinator: Coordinator, keys: Sequence[Key]) -> None:
        """Read these."""

    async def load(self, coordinator: Coordinator) -> None:
        """Read everything. Raises SessionExpiredError."""
        async with self._reading:
            await self._load(coordinator)

    async def _load(self, coordinator: Coordinator) -> None:
        for notifications in self._notifications:
            await notifications.begin(coordinator)
        await self._read_all(coordinator)

    async def follow(self, coordinator: Coordinator) -> None:
        """Apply notifications until the session ends."""
        await follow(coordinator, lambda watch: self._apply_changes(coordinator, watch))

    async def catch_up(self, coordinator: Coordinator) -> None:
        """Know every change that was finished before this call, on whatever node. Raises SessionExpiredError."""
        await retrying(lambda: coordinator.sync(self._root))
        await self._apply_changes(coordinator, None)

    async def _apply_changes(self, coordinator: Coordinator, watch: Callable[[], None] | None) -> None:
        async with self._reading:
            for notifications in self._notifications:
                news = await notifications.news(coordinator, watch)
                keys = self._keys_in(news.fresh)
                if keys is None or news.is_incomplete:
                    await self._load(coordinator)
                else:
                    await self._read(coordinator, keys)
                for path in news.expired:
                    self.malformed.pop(path, None)
                await notifications.seen(coordinator, news)

    def _report(self, path: str, reason: str) -> None:
        if self.malformed.get(path) != reason:
            self.malformed[path] = reason
            _log.error("znode.malformed", path=path, reason=reason)
