"""Threads for file work, a few per disk: a disk that never answers keeps its own threads, and nobody else's.

The threads are daemons: unlike those of `concurrent.futures` they keep no process from ending.
"""

from __future__ import annotations

import errno
import queue
import threading
from collections.abc import Callable, Iterator
from concurrent.futures import Future
from contextlib import AbstractContextManager, contextmanager, nullcontext
from typing import Any

_Job = tuple[Future[Any], Callable[[], Any]]


class _Own(threading.local):
    """The workers that a thread belongs to. The loop asks at each append, and a missing attribute would take ten times as long as this default."""

    workers: Workers | None = None


_own = _Own()

_NO_THREAD = nullcontext()


def change(path: str) -> AbstractContextManager[None]:
    """Around each operation that changes a disk. In a thread that was left behind it raises OSError instead."""
    workers = _own.workers
    return _NO_THREAD if workers is None else workers.change(path)


def is_disk_thread() -> bool:
    """Whether this is one of these threads, so that `change` has anything to do."""
    return _own.workers is not None


class Workers:
    """At most `count` threads, started when there is work for them; jobs in the order of their coming."""

    def __init__(self, count: int, name: str) -> None:
        self._count = count
        self._name = name
        self._jobs: queue.SimpleQueue[_Job | None] = queue.SimpleQueue()
        self._lock = threading.Lock()
        self._threads: list[threading.Thread] = []
        #: Jobs that were submitted and have not ended.
        self._under_way = 0
        #: An OSError came out of one of them.
        self.has_failed = False
        #: The disk was given up while it hung, and has been taken into service again since.
        self.is_left_behind = False
        #: Threads within an operation that changes the disk.
        self.changing = 0

    @property
    def is_idle(self) -> bool:
        """Nothing that was submitted is still under way."""
        return self._under_way == 0

    @contextmanager
    def change(self, path: str) -> Iterator[None]:
        """See the function `change`."""
        with self._lock:
            self.changing += 1
        try:
            if self.is_left_behind:
                raise OSError(errno.ESTALE, "the disk was given up before this could begin", path)
            yield
        finally:
            with self._lock:
                self.changing -= 1

    def submit(self, function: Callable[[], Any]) -> Future[Any]:
        """Do it in one of the threads. Raises OSError, EAGAIN, if there is none and none can be started: nothing was tried."""
        future: Future[Any] = Future()
        with self._lock:
            self._under_way += 1
            # Not by the threads that rest: one that is about to take a job still seems to.
            if len(self._threads) < min(self._under_way, self._count):
                self._start_thread()
            self._jobs.put((future, function))
        return future

    def _start_thread(self) -> None:
        name = f"{self._name}-{len(self._threads)}"
        thread = threading.Thread(target=self._work, name=name, daemon=True)
        try:
            thread.start()
        except RuntimeError as error:
            if not self._threads:
                self._under_way -= 1
                raise OSError(errno.EAGAIN, f"no thread can be started: {error}") from error
        else:
            self._threads.append(thread)

    def _work(self) -> None:
        _own.workers = self
        while True:
            job = self._jobs.get()
            if job is None:
                return
            self._do(*job)
            del job
            with self._lock:
                self._under_way -= 1

    def _do(self, future: Future[Any], function: Callable[[], Any]) -> None:
        if not future.set_running_or_notify_cancel():
            return
        try:
            result = function()
        except BaseException as error:  # noqa: BLE001 - it is the waiter's, as in concurrent.futures
            self.has_failed = self.has_failed or isinstance(error, OSError)
            future.set_exception(error)
            del future  # the error has this frame: what the function worked on would wait for the collector
        else:
            future.set_result(result)

    def close(self) -> None:
        """The threads end when what was submitted is done. They are not waited for."""
        for _ in self._threads:
            self._jobs.put(None)


class DiskThreads:
    """The threads of one disk: those that wait for fsync, for reads, and those that do what may take hours (recovery, deletion)."""

    def __init__(self, name: str, *, sync_threads: int, read_threads: int, work_threads: int) -> None:
        self.syncs = Workers(sync_threads, f"disk-sync {name}")
        self.reads = Workers(read_threads, f"disk-read {name}")
        self.works = Workers(work_threads, f"disk-work {name}")
        #: Its file system can say what is in the page cache; found out by the first read that asks.
        self.knows_nowait = True
        #: The disk was given up: its files are closed in its threads, since even that may never return.
        self.is_abandoned = False
        #: The file system on which they work, as `mounts.mount_of` names it; None: nothing was locked there yet.
        self.mount: tuple[int, str] | None = None

    @property
    def is_idle(self) -> bool:
        """See Workers.is_idle."""
        return self.syncs.is_idle and self.reads.is_idle and self.works.is_idle

    @property
    def is_changing(self) -> bool:
        """Whether an operation that changes the disk has begun and not ended."""
        return self.syncs.changing + self.reads.changing + self.works.changing > 0

    def reuse(self) -> None:
        """The disk is back, and nothing hangs: what was found out about it is forgotten."""
        self.knows_nowait, self.is_abandoned = True, False
        for workers in (self.syncs, self.reads, self.works):
            workers.has_failed = False

    def leave_behind(self) -> None:
        """Others take their place. What hangs may go on one day, and must not meet what they do."""
        for workers in (self.syncs, self.reads, self.works):
            workers.is_left_behind = True

    def close(self) -> None:
        """See Workers.close."""
        self.syncs.close()
        self.reads.close()
        self.works.close()
