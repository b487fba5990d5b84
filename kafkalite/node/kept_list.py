"""A short list that a node keeps through a restart, in a small file of its first log directory that is online.

Not being able to read or write it is no error: what is kept so makes a start quicker, or safer.
"""

from __future__ import annotations

import json
from collections.abc import Callable, Iterable
from typing import TypeVar, cast

from kafkalite.env.seams import Disk
from kafkalite.log.pool import LogPool
from kafkalite.telemetry.logs import get_logger

_log = get_logger(__name__)
T = TypeVar("T")
#: Fields of a file that a copy of its directory shall not have: the directory's id, and the list.
_OWNER, _LIST = "directory", "list"


class KeptList:
    """A directory that is offline is not touched: an operation on it may never end, and would hold the loop.

    Args:
        name: of the file.
        is_lost_in_copies: in a copy of the directory the list is empty.
    """

    def __init__(self, disk: Disk, pool: LogPool, name: str, *, is_lost_in_copies: bool = False) -> None:
        self._disk = disk
        self._pool = pool
        self._name = name
        self._is_lost_in_copies = is_lost_in_copies

    def load(self, element: Callable[[str | int], T]) -> frozenset[T]:
        """What the files in all directories that are online have; each element as `element` (ValueError, TypeError) makes it."""
        found: set[T] = set()
        for log_dir in self._pool.online():
            try:
                found.update([element(each) for each in self._read(log_dir.path)])
            except (OSError, ValueError, TypeError, KeyError):
                continue
        return frozenset(found)

    def _read(self, directory: str) -> Iterable[str | int]:
        read = json.loads(self._disk.read_file(f"{directory}/{self._name}"))
        if not self._is_lost_in_copies or isinstance(read, list):  # a list: of an earlier version
            return cast(Iterable[str | int], read)
        return cast(Iterable[str | int], read[_LIST]) if read[_OWNER] == self._disk.directory_id(directory) else []

    def save(self, elements: Iterable[str | int]) -> None:
        """Replace the list."""
        kept = [*elements]
        for log_dir in self._pool.online()[:1]:
            try:
                owner = self._disk.directory_id(log_dir.path) if self._is_lost_in_copies else ""
                data = json.dumps({_OWNER: owner, _LIST: kept} if owner else kept).encode()
                self._disk.write_file_atomic(f"{log_dir.path}/{self._name}", data, durable=False)
            except OSError as error:
                _log.warning("list.not_written", file=self._name, error=str(error))
