"""Notifications: sequential znodes that make every node read a change (Kafka's way).

A node watches the parent of the notifications only, so that its watches do not grow with what they are about.
"""

from __future__ import annotations

import asyncio
from collections.abc import Awaitable, Callable
from typing import NamedTuple

from kafkalite.coordination import paths
from kafkalite.coordination.coordinator import (
    BadVersionError,
    Coordinator,
    CoordinatorError,
    Create,
    Delete,
    MultiFailedError,
    NodeExistsError,
    NoNodeError,
    NotSentError,
    Op,
    OutcomeUnknownError,
    SessionExpiredError,
    SessionState,
    Stat,
)
from kafkalite.coordination.retry import retrying
from kafkalite.telemetry.logs import get_logger

_log = get_logger(__name__)

#: Age after which any node removes a notification, because every live node has seen it (Kafka's 15 minutes). They count from
#: when this node has first seen it, by its own clock: its wall clock may be ahead of ZooKeeper's, and who has a session
#: there sees it as soon as this node does.
_LIFE_S = 15 * 60.0
#: With more than the first number of notifications, the oldest are removed until the second number is left: each change costs
#: every node a list of all of them.
MOST = 1_000
KEPT = 900
#: Removed in one transaction.
_REMOVED_AT_ONCE = 100


class News(NamedTuple):
    """What `Notifications.news` found."""

    #: (path, data) of those not seen before, oldest first.
    fresh: list[tuple[str, bytes]]
    #: The paths of those that are to be removed.
    expired: list[str]
    last: int
    #: When their parent was created (czxid).
    born: int
    #: Whether some may have been removed that this node has not seen: it has to read everything.
    is_incomplete: bool


class Notifications:
    """Those under one parent, as one node has seen them.

    Args:
        name: what their names begin with; a number follows.
    """

    def __init__(self, parent: str, name: str, monotonic: Callable[[], float]) -> None:
        self._parent = parent
        self._name = name
        self._monotonic = monotonic
        self._last = -1
        #: When the parent was created (czxid). If somebody has removed it, it is created again, and the numbers begin again.
        self._born = -1
        #: Path -> when this node has first seen it; of those that are there.
        self._seen_at: dict[str, float] = {}

    async def begin(self, coordinator: Coordinator) -> None:
        """Notifications from here on are new; the caller reads everything after this."""
        changes, self._born = await self._listed(coordinator, None)
        self._last = max((number for number, _ in changes), default=-1)

    async def news(self, coordinator: Coordinator, watch: Callable[[], None] | None) -> News:
        """Those since `begin` and the last `seen`; `watch` is armed for the next."""
        changes, born = await self._listed(coordinator, watch)
        last = self._last if born == self._born else -1
        seen_at = self._seen_at  # another task may list them during the next await
        # Not those that were read before: there may be thousands, and each new one would cost them all.
        unread = [path for number, path in changes if number > last]
        found = await retrying(lambda: coordinator.get_many(unread)) if unread else []
        fresh = [(path, change[0]) for path, change in zip(unread, found, strict=True) if change is not None]
        now = self._monotonic()
        surplus = len(changes) - KEPT if len(changes) > MOST else 0
        expired = [
            path for position, (_, path) in enumerate(changes) if position < surplus or now - seen_at[path] > _LIFE_S
        ]
        # The oldest are removed first, and because of their number only if KEPT are left. So if there are fewer, or one that was
        # seen before, no unseen one was removed. (If they were too old for this node, its session has expired.)
        is_incomplete = born != self._born or (len(changes) >= KEPT and changes[0][0] > last + 1)
        return News(fresh, expired, max([last, *(number for number, _ in changes)]), born, is_incomplete)

    async def seen(self, coordinator: Coordinator, news: News) -> None:
        """All that they name has been read again. Removes the expired ones."""
        if news.born == self._born:
            self._last = max(self._last, news.last)
        for begin in range(0, len(news.expired), _REMOVED_AT_ONCE):
            piece = news.expired[begin : begin + _REMOVED_AT_ONCE]
            try:
                await coordinator.multi([Delete(path, -1) for path in piece])
            except MultiFailedError:  # other nodes remove them, too
                if not await self._remove_each(coordinator, piece):
                    return
            except (NotSentError, OutcomeUnknownError):
                return  # the oldest first, or nobody could say what was removed: somebody else's turn

    async def _remove_each(self, coordinator: Coordinator, expired: list[str]) -> bool:
        """Whether ZooKeeper answered for all of them."""
        for path in expired:
            try:
                await coordinator.delete(path)
            except (NotSentError, OutcomeUnknownError):
                return False
            except SessionExpiredError:
                raise
            except CoordinatorError as error:
                if not isinstance(error, NoNodeError):  # somebody gave it a child, or an ACL: it stays
                    _log.debug("notification.not_removed", path=path, error=repr(error))
        return True

    async def _listed(
        self, coordinator: Coordinator, watch: Callable[[], None] | None
    ) -> tuple[list[tuple[int, str]], int]:
        """(number, path), oldest first; other names are skipped. And the parent's czxid."""
        changes: list[tuple[int, str]] = []
        names, parent = await _children(coordinator, self._parent, watch)
        for name in names:
            digits = name.removeprefix(self._name)
            if digits != name and digits.isascii() and digits.isdigit() and len(digits) <= 10:
                changes.append((int(digits), f"{self._parent}/{name}"))
        now = self._monotonic()
        self._seen_at = {path: self._seen_at.get(path, now) for _, path in changes}
        return sorted(changes), parent.czxid


async def children_of(coordinator: Coordinator, path: str) -> list[str]:
    """The names, which may be none; a parent that is missing is made."""
    return (await _children(coordinator, path, None))[0]


async def _children(coordinator: Coordinator, path: str, watch: Callable[[], None] | None) -> tuple[list[str], Stat]:
    while True:
        try:
            return await retrying(lambda: coordinator.children(path, watch))
        except NoNodeError:
            await retrying(lambda: coordinator.ensure_path(path))


async def follow(
    coordinator: Coordinator,
    check: Callable[[Callable[[], None]], Awaitable[None]],
    *,
    until: Callable[[], bool] = lambda: False,
) -> None:
    """Look, and look again whenever the watch that `check` is given has fired, until the session ends, or `until` holds."""
    woken = asyncio.Event()
    coordinator.on_state(lambda state: woken.set() if state is SessionState.EXPIRED else None)
    try:
        while coordinator.state is not SessionState.EXPIRED and not until():
            woken.clear()
            await check(woken.set)
            await woken.wait()
    except SessionExpiredError:
        return


async def write_and_notify(coordinator: Coordinator, write: Op, notification: Create) -> bool:
    """Commit both. False: somebody else was faster, or nobody knows; read again, and decide again what to write.

    The write must be conditional: a Create, or one with a version. A Create gets the parents that it lacks.
    Raises MultiFailedError for any other refusal, NotSentError when ZooKeeper is away.
    """
    try:
        await coordinator.multi([write, notification])
    except OutcomeUnknownError:
        return False
    except MultiFailedError as failed:
        if failed.index == 1 or not isinstance(failed.error, BadVersionError | NodeExistsError | NoNodeError):
            raise
        if isinstance(write, Create) and isinstance(failed.error, NoNodeError):
            await coordinator.ensure_path(paths.parent(write.path))
        return False
    return True
