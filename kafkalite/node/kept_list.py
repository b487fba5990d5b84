"""A short list that a node keeps through a restart, in a small file of its first log directory that is online.

Not being able to read or write it is no error: what is kept so makes a start quicker, or safer.
"""

from __future__ import annotations

import json
from collections.abc import Callable, Iterable
from typing import TypeVar

from kafkalite.env.seams import Disk
from kafkalite.log.pool import LogPool
from kafkalite.telemetry.logs import get_logger

_log = get_logger(__name__)
T = TypeVar("T")


class KeptList:
    """`name`: of the file. A directory that is offline is not touched: an operation on it may never end, and would hold the loop."""

    def __init__(self, disk: Disk, pool: LogPool, name: str) -> None:
        self._disk = disk
        self._pool = pool
        self._name = name

    def load(self, element: Callable[[str | int], T]) -> frozenset[T]:
        """What the files in all directories that are online have; each element as `element` (ValueError, TypeError) makes it."""
        found: set[T] = set()
        for log_dir in self._pool.online():
            try:
                found.update(
                    [element(each) for each in json.loads(self._disk.read_file(f"{log_dir.path}/{self._name}"))]
                )
            except (OSError, ValueError, TypeError):
                continue
        return frozenset(found)

    def save(self, elements: Iterable[str | int]) -> None:
        """Replace the list."""
        data = json.dumps([*elements]).encode()
        for log_dir in self._pool.online()[:1]:
            try:
                self._disk.write_file_atomic(f"{log_dir.path}/{self._name}", data, durable=False)
            except OSError as error:
                _log.warning("list.not_written", file=self._name, error=str(error))
