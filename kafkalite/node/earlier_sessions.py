"""The last ZooKeeper sessions of this node.

The holder of the log directories' locks may remove the registration that a killed process left behind, instead of waiting for
its session to end. The lock of a copy of these directories says nothing about that process: it may still run.
"""

from __future__ import annotations

from kafkalite.env.seams import Disk
from kafkalite.log.pool import LogPool
from kafkalite.node.kept_list import KeptList

_FILE = "kafkalite-sessions.json"
_KEPT = 8


class EarlierSessions:
    """Not being able to keep them costs time at the next start, no more."""

    def __init__(self, disk: Disk, pool: LogPool) -> None:
        self._kept = KeptList(disk, pool, _FILE, is_lost_in_copies=True)
        self._ids: frozenset[int] = frozenset()

    def ids(self) -> frozenset[int]:
        """Of sessions that this node had, the present one included."""
        return self._ids

    def load(self) -> None:
        """Read them."""
        self._ids = self._kept.load(lambda each: int(str(each), 16))

    def add(self, session_id: int) -> None:
        """Remember the present session."""
        kept = [*sorted(self._ids - {session_id}), session_id][-_KEPT:]
        self._ids = frozenset(kept)
        self._kept.save(f"{session:x}" for session in kept)
