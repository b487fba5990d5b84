"""The ACLs in ZooKeeper: read before the node serves, followed by every node, written by any (Kafka's layout).

A writer of a pattern's entries leaves a notification; every node watches the two parents of notifications, and
reads what they name again. While ZooKeeper is away the rules read last stand.
"""

from __future__ import annotations

import asyncio
from collections.abc import Callable, Iterable, Sequence
from functools import partial
from itertools import count

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
from kafkalite.coordination.coordinator import Coordinator, Create, Delete, NoNodeError, Op, SetData
from kafkalite.coordination.followed_store import FollowedStore
from kafkalite.coordination.notifications import Notifications, children_of, write_and_notify
from kafkalite.coordination.retry import retrying
from kafkalite.coordination.znode_json import ZnodeError
from kafkalite.security.acl import AclEntry, Pattern, PatternType
from kafkalite.security.acl_rules import Entries
from kafkalite.security.authorizer import Authorizer
from kafkalite.telemetry.logs import get_logger

_log = get_logger(__name__)

_CHANGE_PARENTS = (paths.ACL_CHANGES, paths.ACL_EXTENDED_CHANGES)
_PATTERN_TYPES = (PatternType.LITERAL, PatternType.PREFIXED)
#: Patterns that are read at a time.
_READ_AT_ONCE = 500
#: Patterns and entries that are decoded in one turn of the loop: some milliseconds. (One pattern's entries are one document.)
_DECODED_AT_ONCE = 200

#: A pattern's entries before -> after.
Change = Callable[[Entries], Iterable[AclEntry]]


class AclStore(FollowedStore[Pattern]):
    """Keeps an Authorizer's rules equal to what ZooKeeper holds. A pattern that cannot be read denies everything it covers."""

    def __init__(self, authorizer: Authorizer, monotonic: Callable[[], float]) -> None:
        notifications = [Notifications(parent, paths.ACL_CHANGE_NAME, monotonic) for parent in _CHANGE_PARENTS]
        super().__init__(paths.ACL, notifications, reads_overlap=True)
        self._authorizer = authorizer
        #: For each read under way, by its number, the oldest first: patterns of which this node has put something newer into force,
        #: because it has written it or because a read that began later has found it.
        self._overtaken: dict[int, set[Pattern]] = {}
        self._numbers = count()

    async def _read_all(self, coordinator: Coordinator) -> None:
        pace = _Pace()
        found: dict[Pattern, None] = {}
        for pattern_type in _PATTERN_TYPES:
            root = paths.ACL_PREFIXED if pattern_type is PatternType.PREFIXED else paths.ACL
            for title in sorted(await children_of(coordinator, root)):
                kind = RESOURCE_TYPES.get(title)
                if kind is None:
                    self._report(f"{root}/{title}", "not a type of resource")
                    continue
                for name in sorted(await children_of(coordinator, type_path(pattern_type, kind))):
                    found[Pattern(kind, name, pattern_type)] = None
                    await pace.worked(1)
        for pattern in self._authorizer.patterns():  # those that are gone, too
            found[pattern] = None
            await pace.worked(1)
        await self._read(coordinator, list(found))
        _log.info("acls.loaded", patterns=len(found), malformed=len(self.malformed))

    def _keys_in(self, fresh: Sequence[tuple[str, bytes]]) -> Sequence[Pattern] | None:
        patterns: dict[Pattern, None] = {}
        is_clear = True
        for path, data in fresh:
            try:
                patterns[decode_change(data, path)] = None
            except ZnodeError as error:
                self._report(path, error.reason)
                is_clear = False
        return list(patterns) if is_clear else None

    async def _read(self, coordinator: Coordinator, keys: Sequence[Pattern]) -> None:
        earlier, number, overtaken = list(self._overtaken.values()), next(self._numbers), set[Pattern]()
        self._overtaken[number] = overtaken
        try:
            pace = _Pace()
            for begin in range(0, len(keys), _READ_AT_ONCE):
                piece = keys[begin : begin + _READ_AT_ONCE]
                znodes = [pattern_path(pattern) for pattern in piece]
                found = await retrying(partial(coordinator.get_many, znodes))
                for pattern, path, znode in zip(piece, znodes, found, strict=True):
                    if pattern not in overtaken:
                        for each in earlier:
                            each.add(pattern)
                        await pace.worked(1 + self._apply(pattern, path, None if znode is None else znode[0]))
        finally:
            del self._overtaken[number]

    def _apply(self, pattern: Pattern, path: str, data: bytes | None) -> int:
        """Put what was read (None: there is nothing) into force. Returns the number of entries."""
        try:
            entries = frozenset[AclEntry]() if data is None else decode_acls(data, pattern)
        except ZnodeError as error:
            self._report(path, error.reason)
            self._authorizer.put(pattern, None)
            return 0
        self.malformed.pop(path, None)
        self._authorizer.put(pattern, entries)
        return len(entries)

    # --- writing ---

    async def update(self, coordinator: Coordinator, pattern: Pattern, change: Change) -> tuple[Entries, Entries]:
        """Change a pattern's entries by a conditional write, and notify every node; returns (before, after).

        Raises ZnodeError when what is there cannot be read, NotSentError when ZooKeeper is away.
        """
        path = pattern_path(pattern)
        while True:
            try:
                data, stat = await retrying(lambda: coordinator.get(path))
            except NoNodeError:
                before, version = frozenset[AclEntry](), None
            else:
                before, version = decode_acls(data, pattern), stat.version
            after = frozenset(change(before))
            if after == before:
                self._put(pattern, after)
                return before, after
            write = _write(path, after, version)
            notification = Create(change_prefix(pattern), encode_change(pattern), sequential=True)
            if not await write_and_notify(coordinator, write, notification):
                continue  # what was written is seen by reading; the change made twice is the same
            self.malformed.pop(path, None)
            self._put(pattern, after)
            return before, after

    def _put(self, pattern: Pattern, entries: Entries) -> None:
        for overtaken in self._overtaken.values():
            overtaken.add(pattern)
        self._authorizer.put(pattern, entries)


class _Pace:
    """Lets the rest of the loop run between pieces of a long computation."""

    def __init__(self) -> None:
        self._done = 0

    async def worked(self, amount: int) -> None:
        """Another `amount` is done; after enough of them the loop turns."""
        self._done += amount
        if self._done >= _DECODED_AT_ONCE:
            self._done = 0
            await asyncio.sleep(0)


def _write(path: str, entries: Entries, version: int | None) -> Op:
    if version is None:
        return Create(path, encode_acls(entries))
    return SetData(path, encode_acls(entries), version) if entries else Delete(path, version)
