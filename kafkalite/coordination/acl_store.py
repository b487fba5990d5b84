"""The ACLs in ZooKeeper: read before the node serves, followed by every node, written by any (Kafka's layout).

Whoever changes a pattern's entries leaves a notification; every node watches the two parents of notifications, and
reads what they name again. While ZooKeeper is away the rules read last stand.
"""

from __future__ import annotations

import asyncio
from collections.abc import Callable, Iterable, Sequence

from kafkalite.coordination import paths
from kafkalite.coordination.acl_znodes import (
    RESOURCE_TYPES,
    change_prefix,
    decode_acls,
    decode_change,
    encode_acls,
    encode_change,
    pattern_path,
    type_path,
)
from kafkalite.coordination.coordinator import (
    BadVersionError,
    Coordinator,
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
    SetData,
)
from kafkalite.coordination.retry import retrying
from kafkalite.coordination.znodes import ZnodeError
from kafkalite.security.acl import Entry, Pattern, PatternType
from kafkalite.security.authorizer import Authorizer, Entries
from kafkalite.telemetry.logs import get_logger

_log = get_logger(__name__)

#: A notification that every live node has long seen is removed by whoever finds it (Kafka's 15 minutes).
_NOTIFICATION_LIFE_MS = 15 * 60 * 1000
_CHANGE_PARENTS = (paths.ACL_CHANGES, paths.ACL_EXTENDED_CHANGES)
_PATTERN_TYPES = (PatternType.LITERAL, PatternType.PREFIXED)

#: A pattern's entries before -> after.
Change = Callable[[Entries], Iterable[Entry]]


class AclStore:
    """Keeps an Authorizer's rules equal to what ZooKeeper holds.

    `load` in every new session, before the node serves; then `follow` as a task of that session.
    """

    def __init__(self, authorizer: Authorizer, wall_ms: Callable[[], int]) -> None:
        self._authorizer = authorizer
        self._wall_ms = wall_ms
        self._last: dict[str, int] = {}
        #: Path -> what is wrong there. A pattern that cannot be read denies everything it covers.
        self.malformed: dict[str, str] = {}

    async def load(self, coordinator: Coordinator) -> None:
        """Read everything. Raises SessionExpiredError."""
        for parent in _CHANGE_PARENTS:
            # What is notified from here on is read again by `follow`.
            numbers = [number for number, _ in _changes(parent, await _children(coordinator, parent, None))]
            self._last[parent] = max(numbers, default=-1)
        found: list[Pattern] = []
        for pattern_type in _PATTERN_TYPES:
            root = paths.ACL_PREFIXED if pattern_type is PatternType.PREFIXED else paths.ACL
            for title in sorted(await _children(coordinator, root, None)):
                kind = RESOURCE_TYPES.get(title)
                if kind is None:
                    self._report(f"{root}/{title}", "not a type of resource")
                    continue
                names = await _children(coordinator, type_path(pattern_type, kind), None)
                found += [Pattern(kind, name, pattern_type) for name in sorted(names)]
        await self._read(coordinator, sorted({*found, *self._authorizer.patterns()}))
        _log.info("acls.loaded", patterns=len(found), malformed=len(self.malformed))

    async def follow(self, coordinator: Coordinator) -> None:
        """Apply notifications until the session ends."""
        woken = asyncio.Event()
        coordinator.on_state(lambda state: woken.set() if state is SessionState.EXPIRED else None)
        try:
            while coordinator.state is not SessionState.EXPIRED:
                woken.clear()
                await self._apply_changes(coordinator, woken.set)
                await woken.wait()
        except SessionExpiredError:
            return

    async def catch_up(self, coordinator: Coordinator) -> None:
        """Know every change that was finished before this call, on whatever node. Raises SessionExpiredError."""
        await retrying(lambda: coordinator.sync(paths.ACL))
        await self._apply_changes(coordinator, None)

    async def _apply_changes(self, coordinator: Coordinator, watch: Callable[[], None] | None) -> None:
        for parent in _CHANGE_PARENTS:
            names = await _children(coordinator, parent, watch)
            await self._apply(coordinator, parent, _changes(parent, names))

    async def _apply(self, coordinator: Coordinator, parent: str, changes: Sequence[tuple[int, str]]) -> None:
        last = self._last.get(parent, -1)
        patterns: dict[Pattern, None] = {}
        expired: list[str] = []
        found = await retrying(lambda: coordinator.get_many([path for _, path in changes]))
        for (number, path), change in zip(changes, found, strict=True):
            if change is None:
                continue
            data, stat = change
            if stat.ctime_ms < self._wall_ms() - _NOTIFICATION_LIFE_MS:
                expired.append(path)
            if number <= last:
                continue
            try:
                patterns[decode_change(data, path)] = None
            except ZnodeError as error:
                # It named something that has changed, and nobody knows what: read all.
                self._report(path, error.reason)
                await self.load(coordinator)
        await self._read(coordinator, list(patterns))
        self._last[parent] = max([last, *(number for number, _ in changes)])
        for path in expired:
            self.malformed.pop(path, None)
            try:
                await coordinator.delete(path)
            except (NoNodeError, NotSentError, OutcomeUnknownError):
                continue  # somebody else's turn

    async def _read(self, coordinator: Coordinator, patterns: Sequence[Pattern]) -> None:
        znodes = [pattern_path(pattern) for pattern in patterns]
        found = await retrying(lambda: coordinator.get_many(znodes))
        for pattern, path, znode in zip(patterns, znodes, found, strict=True):
            try:
                entries = frozenset() if znode is None else decode_acls(znode[0], pattern)
            except ZnodeError as error:
                self._report(path, error.reason)
                self._authorizer.put(pattern, None)
                continue
            self.malformed.pop(path, None)
            self._authorizer.put(pattern, entries)

    def _report(self, path: str, reason: str) -> None:
        if self.malformed.get(path) != reason:
            self.malformed[path] = reason
            _log.error("znode.malformed", path=path, reason=reason)

    # --- writing ---

    async def update(self, coordinator: Coordinator, pattern: Pattern, change: Change) -> tuple[Entries, Entries]:
        """Change a pattern's entries by a conditional write, and tell every node; returns (before, after).

        Raises ZnodeError when what is there cannot be read, NotSentError when ZooKeeper is away.
        """
        path = pattern_path(pattern)
        while True:
            try:
                data, stat = await retrying(lambda: coordinator.get(path))
            except NoNodeError:
                before, version = frozenset[Entry](), None
            else:
                before, version = decode_acls(data, pattern), stat.version
            after = frozenset(change(before))
            if after == before:
                self._authorizer.put(pattern, after)
                return before, after
            write = _write(path, after, version)
            notification = Create(change_prefix(pattern), encode_change(pattern), sequential=True)
            try:
                await coordinator.multi([write, notification])
            except OutcomeUnknownError:
                continue  # whether it was written is seen by reading; the change made twice is the same
            except MultiFailedError as failed:
                if failed.index == 1 or not isinstance(failed.error, BadVersionError | NodeExistsError | NoNodeError):
                    raise
                if version is None and isinstance(failed.error, NoNodeError):
                    await coordinator.ensure_path(paths.parent(path))
                continue
            self.malformed.pop(path, None)
            self._authorizer.put(pattern, after)
            return before, after


def _write(path: str, entries: Entries, version: int | None) -> Op:
    if version is None:
        return Create(path, encode_acls(entries))
    return SetData(path, encode_acls(entries), version) if entries else Delete(path, version)


def _changes(parent: str, names: Sequence[str]) -> list[tuple[int, str]]:
    """(number, path) of the notifications, oldest first; other names are skipped."""
    changes: list[tuple[int, str]] = []
    for name in names:
        digits = name.removeprefix(paths.ACL_CHANGE_NAME)
        if digits != name and digits.isascii() and digits.isdigit() and len(digits) <= 10:
            changes.append((int(digits), f"{parent}/{name}"))
    return sorted(changes)


async def _children(coordinator: Coordinator, path: str, watch: Callable[[], None] | None) -> list[str]:
    while True:
        try:
            names, _ = await retrying(lambda: coordinator.children(path, watch))
            return names
        except NoNodeError:
            await retrying(lambda: coordinator.ensure_path(path))
