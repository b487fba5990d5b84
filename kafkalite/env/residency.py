"""Reads that may not wait for the disk: what is not in the page cache raises NotResident, at once.

A read on the event loop that has to wait for the disk stops everybody. So it is tried within `ResidentOnly()`: if it raises
NotResident, `Disk.load` brings the missing bytes into the page cache in a thread, and the whole read is done again. Nothing that
was read off the loop is ever used: what the second attempt decides and reads holds at its own moment, whatever truncation,
retention, compaction or a move have done meanwhile.
"""

from __future__ import annotations

import threading
from types import TracebackType


class NotResident(Exception):
    """Bytes of a file are not in the page cache. It leaves nothing half done."""

    def __init__(self, path: str, offset: int, size: int) -> None:
        super().__init__(f"{path}: {size} bytes from {offset} are not in the page cache")
        self.path = path
        self.offset = offset
        self.size = size


class _Scope(threading.local):
    """Per thread: a thread of a disk may wait for it while the loop may not."""

    is_on = False


_scope = _Scope()


def is_required() -> bool:
    """Whether reads of the running code may not wait for the disk."""
    return _scope.is_on


class ResidentOnly:
    """Reads within raise NotResident rather than wait. For synchronous code that starts no tasks."""

    __slots__ = ("_before",)

    def __enter__(self) -> None:
        self._before = _scope.is_on
        _scope.is_on = True

    def __exit__(
        self, kind: type[BaseException] | None, error: BaseException | None, trace: TracebackType | None
    ) -> None:
        _scope.is_on = self._before
