"""The last ZooKeeper sessions of this node, in its first log directory.

The holder of the directory's lock may remove the registration that a killed process left behind, instead of waiting for
its session to end.
"""

from __future__ import annotations

import json

from kafkalite.env.seams import Disk
from kafkalite.telemetry.logs import get_logger

_log = get_logger(__name__)

_FILE = "kafkalite-sessions.json"
_KEPT = 8


class EarlierSessions:
    """Not being able to keep them costs time at the next start, no more."""

    def __init__(self, disk: Disk, directory: str) -> None:
        self._disk = disk
        self._path = f"{directory}/{_FILE}"
        self._ids: frozenset[int] = frozenset()

    def ids(self) -> frozenset[int]:
        """Of sessions that this node had, the present one included."""
        return self._ids

    def load(self) -> None:
        """Read the file."""
        try:
            self._ids = frozenset(int(session, 16) for session in json.loads(self._disk.read_file(self._path)))
        except (OSError, ValueError, TypeError):
            self._ids = frozenset()

    def add(self, session_id: int) -> None:
        """Remember the present session."""
        kept = [*sorted(self._ids - {session_id}), session_id][-_KEPT:]
        self._ids = frozenset(kept)
        text = json.dumps([f"{session:x}" for session in kept])
        try:
            self._disk.write_file_atomic(self._path, text.encode(), durable=False)
        except OSError as error:
            _log.warning("sessions_file.not_written", error=str(error))
