"""How many files the process may have open, and how many of them may be logs that are not in use just now."""

from __future__ import annotations

import contextlib
import errno
import os
import resource
import threading
from collections.abc import Callable
from typing import TypeVar

from kafkalite.env.seams import LEAST_LOG_FILES

T = TypeVar("T")

#: The process, or the host, has no descriptor left: that says nothing of any disk.
SHORTAGE = frozenset({errno.EMFILE, errno.ENFILE})
#: At least as many as threads that may want one at the same time.
_SPARE = 8

#: What each node of a process may keep open, of the process's limit: the rest is for connections, and for other nodes.
_SHARE = 4
_MOST = 8192
#: "Unlimited" is none of our business beyond this.
_ENOUGH = 1 << 20


def raise_limit() -> None:
    """As far as the process is allowed to. Many systems begin with 1,024, which a few hundred partitions and clients fill."""
    soft, hard = resource.getrlimit(resource.RLIMIT_NOFILE)
    wanted = _ENOUGH if hard == resource.RLIM_INFINITY else min(hard, _ENOUGH)
    if soft != resource.RLIM_INFINITY and soft < wanted:
        resource.setrlimit(resource.RLIMIT_NOFILE, (wanted, hard))


def log_files() -> int:
    """How many log files a node keeps open: opening one again and reading its indexes costs several times what an append does."""
    soft, _ = resource.getrlimit(resource.RLIMIT_NOFILE)
    if soft == resource.RLIM_INFINITY:
        return _MOST
    # Of a small limit no more than half: connections would take the rest, and appends would fail for want of a file.
    return max(min(LEAST_LOG_FILES, soft // 2), min(_MOST, soft // _SHARE))


def in_use() -> tuple[int, int]:
    """About how many descriptors the process has, and its limit. A new one gets the lowest free number: all below it are in use."""
    soft, _ = resource.getrlimit(resource.RLIMIT_NOFILE)
    try:
        lowest_free = os.open(os.devnull, os.O_RDONLY | os.O_CLOEXEC)
    except OSError:
        return soft, soft
    os.close(lowest_free)
    return lowest_free, _ENOUGH if soft == resource.RLIM_INFINITY else soft


class Reserve:
    """Descriptors for file operations that need one for a moment, held back for when clients have used up the others.

    From the first operation on, until it is closed.
    """

    def __init__(self) -> None:
        self._lock = threading.Lock()
        self._held: list[int] = []
        self._is_begun = False

    def _fill(self) -> None:
        with self._lock, contextlib.suppress(OSError):
            while len(self._held) < _SPARE:
                self._held.append(os.open(os.devnull, os.O_RDONLY | os.O_CLOEXEC))

    def _let_go_of_one(self) -> bool:
        with self._lock:
            if not self._held:
                return False
            os.close(self._held.pop())
            return True

    def run(self, operation: Callable[[], T]) -> T:
        """Its result; a second time from the start, with a descriptor of ours, if there was none. Raises OSError."""
        if not self._is_begun:
            self._is_begun = True
            self._fill()
        try:
            return operation()
        except OSError as error:
            if error.errno not in SHORTAGE:
                raise
        is_left = True
        try:
            while is_left:
                is_left = self._let_go_of_one()
                try:
                    return operation()
                except OSError as error:  # another thread may have been quicker
                    if error.errno not in SHORTAGE or not is_left:
                        raise
            raise AssertionError("unreachable")
        finally:
            self._fill()

    def close(self) -> None:
        """Give them back for good."""
        with self._lock:
            while self._held:
                os.close(self._held.pop())
