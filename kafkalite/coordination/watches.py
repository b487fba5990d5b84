"""The client's half of ZooKeeper's watches: which callbacks an event concerns. Pure; used by the real and the simulated client.

ZooKeeper knows three kinds: data (armed by get, and by exists on a znode that is there), exist (armed by exists on a
znode that is not there) and child (armed by children). An event takes them off; after a reconnect the client sends
the new server which ones it holds and what it has seen (SetWatches), and the server answers at once for those
that missed something.
"""

from __future__ import annotations

from collections.abc import Collection, Iterator
from enum import Enum

from kafkalite.coordination.coordinator import Watch


class WatchKind(Enum):
    """Which of the server's three tables a watch is in."""

    DATA = "data"
    EXIST = "exist"
    CHILD = "child"


class EventType(Enum):
    """What a server reports; the values are the wire's."""

    CREATED = 1
    DELETED = 2
    DATA_CHANGED = 3
    CHILDREN_CHANGED = 4


#: Which watches an event takes off.
KINDS_OF_EVENT = {
    EventType.CREATED: (WatchKind.EXIST, WatchKind.DATA),
    EventType.DATA_CHANGED: (WatchKind.DATA, WatchKind.EXIST),
    EventType.DELETED: (WatchKind.DATA, WatchKind.CHILD, WatchKind.EXIST),
    EventType.CHILDREN_CHANGED: (WatchKind.CHILD,),
}


class WatchTable:
    """The watches of one session, by kind and path. Everything is in the order of arming (simulation!)."""

    def __init__(self) -> None:
        self._armed: dict[WatchKind, dict[str, list[Watch]]] = {kind: {} for kind in WatchKind}

    def __len__(self) -> int:
        return sum(len(by_path) for by_path in self._armed.values())

    def arm(self, kind: WatchKind, path: str, watch: Watch) -> None:
        """Remember. Arming the same callback again changes nothing: it still fires once."""
        callbacks = self._armed[kind].setdefault(path, [])
        if watch not in callbacks:
            callbacks.append(watch)

    def take(self, event: EventType, path: str) -> list[Watch]:
        """The callbacks that this event fires; they are armed no more."""
        fired: list[Watch] = []
        for kind in KINDS_OF_EVENT[event]:
            for watch in self._armed[kind].pop(path, ()):
                if watch not in fired:
                    fired.append(watch)
        return fired

    def forget(self, watches: Collection[Watch]) -> None:
        """These fire no more. The server still reports the next event of their znodes, which then concerns nobody."""
        gone = frozenset(watches)
        for by_path in self._armed.values():
            for path in [path for path, callbacks in by_path.items() if not gone.isdisjoint(callbacks)]:
                if left := [watch for watch in by_path[path] if watch not in gone]:
                    by_path[path] = left
                else:
                    del by_path[path]

    def armed(self) -> Iterator[tuple[WatchKind, str]]:
        """What a new connection has to set again."""
        for kind, by_path in self._armed.items():
            for path in by_path:
                yield kind, path

    def clear(self) -> None:
        """The session is over."""
        for by_path in self._armed.values():
            by_path.clear()
