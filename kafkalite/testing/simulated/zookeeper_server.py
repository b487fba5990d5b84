"""The servers of the simulated ZooKeeper: what each has applied, and the watches of its connections.

One server has every transaction at once. Others may be behind: their clients read the past, and hear of changes late. Writes
go through, but a server answers one, or a sync, only when it has applied it, and a connection's later reads wait for that answer.
"""

from __future__ import annotations

import asyncio
import contextvars
from collections import deque
from collections.abc import Callable, Sequence
from typing import Any, Generic, TypeVar

from kafkalite.coordination.coordinator import NoNodeError
from kafkalite.coordination.watches import EventType, WatchKind
from kafkalite.testing.simulated.zookeeper_tree import Event, ZnodeTree
from kafkalite.testing.simulated.zookeeper_wire import Read

#: A connection; equal to itself only.
L = TypeVar("L")
#: A transaction: changes a tree, and returns what has changed.
Change = Callable[[ZnodeTree], Sequence[Event]]


class SimServer(Generic[L]):
    """The server that has everything.

    Args:
        notify: sends what a watch has to tell: connection, event, path.
    """

    is_present = True

    def __init__(self, tree: ZnodeTree, notify: Callable[[L, EventType, str], None]) -> None:
        self.tree = tree
        self._notify = notify
        self._data_watches: dict[str, dict[L, None]] = {}
        self._child_watches: dict[str, dict[L, None]] = {}

    def when_applied(self, answer: Callable[[], None]) -> None:
        """Call `answer` when this server has applied all that is committed now."""
        answer()

    def read(self, link: L, request: Read) -> Any:
        """Raises NoNodeError."""
        path, found = request.path, self.tree.get(request.path)
        match request.verb:
            case "get":
                if found is None:
                    raise NoNodeError(path)
                self._watch(self._data_watches, link, request)
                return found
            case "exists":
                self._watch(self._data_watches, link, request)
                return None if found is None else found[1]
            case "children":
                if found is None:
                    raise NoNodeError(path)
                self._watch(self._child_watches, link, request)
                return self.tree.children(path), found[1]
            case _:
                return None

    # --- watches ---------------------------------------------------------------------------------------------

    @staticmethod
    def _watch(watches: dict[str, dict[L, None]], link: L, request: Read) -> None:
        if request.watch:
            watches.setdefault(request.path, {})[link] = None

    def set_watches(self, link: L, seen_zxid: int, watches: Sequence[tuple[WatchKind, str]]) -> None:
        """SetWatches: notify at once of what was missed, arm the others."""
        for kind, path in watches:
            event = self.tree.missed(kind, path, seen_zxid)
            if event is not None:
                self._notify(link, event, path)
            else:
                by_path = self._child_watches if kind is WatchKind.CHILD else self._data_watches
                by_path.setdefault(path, {})[link] = None

    def fire(self, events: Sequence[Event]) -> None:
        """Notify who watches."""
        for event, path in events:
            to_notify: dict[L, None] = {}
            if event is not EventType.CHILDREN_CHANGED:
                to_notify |= self._data_watches.pop(path, {})
            if event in (EventType.CHILDREN_CHANGED, EventType.DELETED):
                to_notify |= self._child_watches.pop(path, {})
            for link in to_notify:
                self._notify(link, event, path)

    def forget(self, link: L) -> None:
        """Its watches are gone."""
        for watches in (self._data_watches, self._child_watches):
            for path in [path for path, links in watches.items() if link in links]:
                del watches[path][link]
                if not watches[path]:
                    del watches[path]

    def hand_over(self, link: L, to: SimServer[L]) -> None:
        """The watches of the connection go to a server that has applied exactly as much."""
        for watches, theirs in ((self._data_watches, to._data_watches), (self._child_watches, to._child_watches)):
            for path, links in watches.items():
                if link in links:
                    theirs.setdefault(path, {})[link] = None
        self.forget(link)

    def watch_count(self) -> int:
        """Armed watches."""
        return sum(map(len, self._data_watches.values())) + sum(map(len, self._child_watches.values()))


class ServerBehind(SimServer[L]):
    """A server that applies what is committed `behind_s` seconds later.

    Args:
        context: in which it acts.
    """

    is_present = False

    def __init__(
        self,
        tree: ZnodeTree,
        notify: Callable[[L, EventType, str], None],
        behind_s: float,
        context: contextvars.Context,
    ) -> None:
        super().__init__(tree.copy(), notify)
        self._behind_s = behind_s
        self._context = context
        self._waiting: deque[Change | Callable[[], None]] = deque()
        #: Whether each of those is a transaction.
        self._is_change: deque[bool] = deque()
        self._arrived = self._applied = 0

    def follow(self, change: Change) -> None:
        """A transaction was committed."""
        self._later(change, is_change=True)

    def when_applied(self, answer: Callable[[], None]) -> None:
        """Its own message from the leader comes as late as everything."""
        self._later(answer, is_change=False)

    def _later(self, what: Change | Callable[[], None], *, is_change: bool) -> None:
        self._waiting.append(what)
        self._is_change.append(is_change)
        self._arrived += 1
        loop = asyncio.get_running_loop()
        loop.call_later(self._behind_s, self._apply_up_to, self._arrived, context=self._context)

    def _apply_up_to(self, number: int) -> None:
        while self._applied < number and self._waiting:
            self._applied += 1
            what: Any = self._waiting.popleft()
            if self._is_change.popleft():
                self.fire(what(self.tree))
            else:
                what()

    def catch_up(self) -> None:
        """Apply all that waits, now."""
        self._apply_up_to(self._arrived)
