"""The znodes of the simulated ZooKeeper: what a committed transaction does to the tree. Pure.

Behaves as a ZooKeeper 3.9 server does (the contract suite compares): versions, zxids, sequence numbers that count
every child ever created, ephemerals without children, transactions that are all or nothing.
"""

from __future__ import annotations

import dataclasses
from collections.abc import Callable, Sequence
from dataclasses import field

from kafkalite.coordination.coordinator import (
    BadVersionError,
    Check,
    CoordinatorError,
    Create,
    Delete,
    MultiFailedError,
    NodeExistsError,
    NoNodeError,
    NotEmptyError,
    Op,
    OpResult,
    SetData,
    Stat,
)
from kafkalite.coordination.watches import EventType, WatchKind
from kafkalite.lazy_dataclass import dataclass

Event = tuple[EventType, str]


@dataclass(slots=True)
class _Znode:
    data: bytes
    czxid: int
    mzxid: int
    pzxid: int
    ctime_ms: int
    mtime_ms: int
    owner: int = 0
    version: int = 0
    #: Children ever created: the next sequence number.
    created: int = 0
    children: dict[str, None] = field(default_factory=dict)

    def stat(self) -> Stat:
        return Stat(self.version, self.czxid, self.mzxid, self.ctime_ms, self.mtime_ms, self.owner, len(self.children))


class ZnodeTree:
    """All znodes, by path. The parent of "/" is not there."""

    def __init__(self) -> None:
        self._nodes: dict[str, _Znode] = {"/": _Znode(b"", 0, 0, 0, 0, 0)}
        #: session id -> its ephemerals, in the order of creation
        self._ephemerals: dict[int, dict[str, None]] = {}
        self.zxid = 0

    def copy(self) -> ZnodeTree:
        """The same znodes, apart from these."""
        made = ZnodeTree()
        made.zxid = self.zxid
        made._nodes = {
            path: dataclasses.replace(node, children=dict(node.children)) for path, node in self._nodes.items()
        }
        made._ephemerals = {session: dict(owned) for session, owned in self._ephemerals.items()}
        return made

    def get(self, path: str) -> tuple[bytes, Stat] | None:
        """Data and stat, None if there is no such znode."""
        node = self._nodes.get(path)
        return None if node is None else (node.data, node.stat())

    def children(self, path: str) -> list[str] | None:
        """Names, sorted; None if there is no such znode."""
        node = self._nodes.get(path)
        return None if node is None else sorted(node.children)

    def paths(self) -> list[str]:
        """Every path, sorted."""
        return sorted(self._nodes)

    def persistent(self) -> list[tuple[str, bytes]]:
        """(path, data) of every znode that no session owns, parents first."""
        return [(path, self._nodes[path].data) for path in sorted(self._nodes) if not self._nodes[path].owner]

    def ephemerals(self, session_id: int) -> list[str]:
        """What dies with the session."""
        return list(self._ephemerals.get(session_id, ()))

    def missed(self, kind: WatchKind, path: str, seen_zxid: int) -> EventType | None:
        """What the holder of a watch has missed since `seen_zxid` (the server's half of SetWatches)."""
        node = self._nodes.get(path)
        if kind is WatchKind.EXIST:
            return EventType.CREATED if node is not None else None
        if node is None:
            return EventType.DELETED
        if kind is WatchKind.DATA:
            return EventType.DATA_CHANGED if node.mzxid > seen_zxid else None
        return EventType.CHILDREN_CHANGED if node.pzxid > seen_zxid else None

    def commit(self, ops: Sequence[Op], session_id: int, now_ms: int) -> tuple[list[OpResult], list[Event]]:
        """Apply all operations under one new zxid, or none. Raises MultiFailedError."""
        undo: list[Callable[[], object]] = []
        results: list[OpResult] = []
        events: list[Event] = []
        zxid = self.zxid + 1
        for index, op in enumerate(ops):
            try:
                results.append(self._apply(op, session_id, zxid, now_ms, undo, events))
            except CoordinatorError as error:
                for step in reversed(undo):
                    step()
                raise MultiFailedError(index, error) from None
        self.zxid = zxid
        return results, events

    def end_session(self, session_id: int) -> list[Event]:
        """Remove the session's ephemerals under one new zxid."""
        paths = self.ephemerals(session_id)
        _, events = self.commit([Delete(path) for path in paths], session_id, 0)
        self._ephemerals.pop(session_id, None)
        return events

    def _apply(
        self, op: Op, session: int, zxid: int, now_ms: int, undo: list[Callable[[], object]], events: list[Event]
    ) -> OpResult:
        match op:
            case Check(path, version):
                self._versioned(path, version)
                return None
            case SetData(path, data, version):
                node = self._versioned(path, version)
                old = (node.data, node.version, node.mzxid, node.mtime_ms)
                undo.append(lambda: self._restore(node, old))
                node.data, node.version, node.mzxid, node.mtime_ms = data, node.version + 1, zxid, now_ms
                events.append((EventType.DATA_CHANGED, path))
                return node.version
            case Delete(path, version):
                self._delete(path, version, zxid, undo, events)
                return None
            case Create():
                return self._create(op, session, zxid, now_ms, undo, events)

    def _versioned(self, path: str, version: int) -> _Znode:
        node = self._nodes.get(path)
        if node is None:
            raise NoNodeError(path)
        if version not in (-1, node.version):
            raise BadVersionError(path)
        return node

    @staticmethod
    def _restore(node: _Znode, old: tuple[bytes, int, int, int]) -> None:
        node.data, node.version, node.mzxid, node.mtime_ms = old

    def _create(
        self, op: Create, session: int, zxid: int, now_ms: int, undo: list[Callable[[], object]], events: list[Event]
    ) -> str:
        parent_path, _, name = op.path.rpartition("/")
        parent_path = parent_path or "/"
        parent = self._nodes.get(parent_path)
        if parent is None:
            raise NoNodeError(parent_path)
        if op.sequential:
            name = f"{name}{parent.created:010d}"
        path = f"{'' if parent_path == '/' else parent_path}/{name}"
        if path in self._nodes:
            raise NodeExistsError(path)
        if parent.owner:
            raise CoordinatorError(f"{parent_path}: an ephemeral znode has no children")
        owner = session if op.ephemeral else 0
        old_pzxid = parent.pzxid
        self._nodes[path] = _Znode(op.data, zxid, zxid, zxid, now_ms, now_ms, owner)
        parent.children[name] = None
        parent.created += 1
        parent.pzxid = zxid
        if owner:
            self._ephemerals.setdefault(owner, {})[path] = None

        def undone() -> None:
            del self._nodes[path]
            del parent.children[name]
            parent.created -= 1
            parent.pzxid = old_pzxid
            if owner:
                del self._ephemerals[owner][path]

        undo.append(undone)
        events += [(EventType.CREATED, path), (EventType.CHILDREN_CHANGED, parent_path)]
        return path

    def _delete(
        self, path: str, version: int, zxid: int, undo: list[Callable[[], object]], events: list[Event]
    ) -> None:
        if path == "/":
            raise CoordinatorError("the root cannot be deleted")
        node = self._versioned(path, version)
        if node.children:
            raise NotEmptyError(path)
        parent_path, _, name = path.rpartition("/")
        parent_path = parent_path or "/"
        parent = self._nodes[parent_path]
        old_pzxid = parent.pzxid
        del self._nodes[path]
        del parent.children[name]
        parent.pzxid = zxid
        if node.owner:
            del self._ephemerals[node.owner][path]

        def undone() -> None:
            self._nodes[path] = node
            parent.children[name] = None
            parent.pzxid = old_pzxid
            if node.owner:
                self._ephemerals[node.owner][path] = None

        undo.append(undone)
        events += [(EventType.DELETED, path), (EventType.CHILDREN_CHANGED, parent_path)]
