"""One open POSIX file, and reads that take only what is in the page cache."""

from __future__ import annotations

import asyncio
import contextlib
import errno
import os
import threading
from collections.abc import Sequence
from concurrent.futures import Future
from itertools import count
from typing import cast

from kafkalite.env import allocation, residency
from kafkalite.env.disk_threads import DiskThreads, change, is_disk_thread
from kafkalite.large_buffer import LARGE_BYTES, large_buffer
from kafkalite.model import Buffer
from kafkalite.telemetry.logs import get_logger

_log = get_logger(__name__)

#: Buffers per pwritev (Linux's UIO_MAXIOV).
_IOV_MAX = 1024
#: A thread that brings bytes into the page cache copies this much at a time, to nowhere.
_LOAD_BYTES = 256 * 1024
#: The kernel's flag for reads that may not wait; file systems that do not know it are read as ever.
_NOWAIT = getattr(os, "RWF_NOWAIT", 0)
_UNKNOWN_FLAG = frozenset({errno.EOPNOTSUPP, errno.EINVAL, errno.ENOSYS})


#: Of files that are open, see `File.version`.
_versions = count(1)


class RealFile:
    """A file descriptor and the length that we know the file to have: we are its only writer."""

    __slots__ = (
        "_closed", "_descriptor", "_lock", "_modified_ns", "_size", "_syncing", "_threads", "_version", "path",
    )  # fmt: skip

    def __init__(self, path: str, descriptor: int, threads: DiskThreads) -> None:
        self.path = path
        #: When the file was modified last, as far as we know of it (0: nobody has asked for the version since it changed).
        self._modified_ns = 0
        self._version = 0
        self._descriptor = descriptor
        self._size = os.fstat(descriptor).st_size
        self._threads = threads
        #: Guards the two below: a sync ends in its thread, and a descriptor closed under it may be somebody else's next.
        self._lock = threading.Lock()
        self._syncing = 0
        self._closed = False

    def size(self) -> int:
        return self._size

    def append(self, buffers: Sequence[Buffer]) -> int:
        """All or nothing, as far as the disk lets us: what a failed write left behind is cut off again."""
        if self._closed:
            self._assert_open()
        start = self._size
        if self._modified_ns:
            self.version()  # notices what others have written, before our write hides it
        try:
            if is_disk_thread():
                with change(self.path):
                    self._write(buffers)
            else:  # the loop, for each append
                self._write(buffers)
        except OSError:
            self._size = start
            self._modified_ns = 0
            self._cut_off(start)
            raise
        if self._modified_ns:
            self._modified_ns = os.fstat(self._descriptor).st_mtime_ns
        return self._size - start

    def version(self) -> int:
        modified_ns = os.fstat(self._descriptor).st_mtime_ns
        if modified_ns != self._modified_ns:
            self._modified_ns = modified_ns
            self._version = next(_versions)
        return self._version

    def _write(self, buffers: Sequence[Buffer]) -> None:
        if len(buffers) > _IOV_MAX:
            for first in range(0, len(buffers), _IOV_MAX):
                self._write(buffers[first : first + _IOV_MAX])
            return
        total = 0
        for buffer in buffers:
            total += buffer.nbytes if isinstance(buffer, memoryview) else len(buffer)
        while total:
            written = os.pwritev(self._descriptor, buffers, self._size)
            self._size += written
            total -= written
            if total:  # a short write: signals do that, and disks that run full
                buffers = _without_head(buffers, written)

    def _cut_off(self, size: int) -> None:
        try:
            with change(self.path):
                os.ftruncate(self._descriptor, size)
        except OSError as error:  # the write's own error matters more; the next append overwrites the rest anyway
            _log.warning("file.cut_off_failed", path=self.path, error=repr(error))

    def read_at(self, offset: int, size: int) -> bytes:
        self._assert_open()
        if residency.is_required() and self._threads.knows_nowait:
            try:
                found = read_resident(self._descriptor, self.path, offset, size, self._size)
            except residency.NotResident:
                self._modified_ns = 0  # the disk will give it again, and may give something else
                raise
            if found is not None:
                return found
            self._threads.knows_nowait = False
        self._modified_ns = 0  # it may come from the disk
        data = os.pread(self._descriptor, size, offset)
        while len(data) < size:  # short only at the end of the file
            more = os.pread(self._descriptor, size - len(data), offset + len(data))
            if not more:
                break
            data += more
        return data

    def write_at(self, offset: int, data: Buffer) -> None:
        self._assert_open()
        self._modified_ns = 0
        view = memoryview(data).cast("B")
        with change(self.path):
            while view:
                written = os.pwrite(self._descriptor, view, offset)
                offset += written
                view = view[written:]
        self._size = max(self._size, offset)

    def reserve(self, size: int) -> bool:
        self._assert_open()
        return allocation.reserve(self._descriptor, size)

    def truncate(self, size: int) -> None:
        self._assert_open()
        with change(self.path):
            os.ftruncate(self._descriptor, size)
        self._size = size
        self._modified_ns = 0

    async def sync(self) -> None:
        self._assert_open()
        with self._lock:
            self._syncing += 1
        try:
            future: Future[None] = self._threads.syncs.submit(lambda: os.fdatasync(self._descriptor))
        except OSError:
            with self._lock:
                self._syncing -= 1
            raise
        # On the thread's future, not asyncio's: a cancelled waiter does not stop the thread.
        future.add_done_callback(self._synced)
        await asyncio.wrap_future(future)

    def _synced(self, _future: Future[None]) -> None:
        with self._lock:
            self._syncing -= 1
            last = self._closed and self._syncing == 0
        if last:
            os.close(self._descriptor)

    def close(self) -> None:
        with self._lock:
            if self._closed:
                return
            self._closed = True
            now = self._syncing == 0
        if now and self._threads.is_abandoned:
            with contextlib.suppress(OSError):  # it stays open: here the disk would be waited for
                self._threads.works.submit(lambda: os.close(self._descriptor))
        elif now:
            os.close(self._descriptor)

    def _assert_open(self) -> None:
        if self._closed:
            raise OSError(errno.EBADF, "file is closed", self.path)


def read_resident(descriptor: int, path: str, offset: int, size: int, end: int) -> bytes | None:
    """The bytes, if all of them are in the page cache; None: the file system cannot answer. Raises NotResident, OSError."""
    wanted = max(0, min(size, end - offset))
    # Not copied into bytes: callers only read it.
    data = large_buffer(wanted) if wanted >= LARGE_BYTES else bytearray(wanted)
    try:
        count = os.preadv(descriptor, [data], offset, _NOWAIT)
    except BlockingIOError:
        raise residency.NotResident(path, offset, wanted) from None
    except OSError as error:
        if error.errno in _UNKNOWN_FLAG:
            return None
        raise
    if count < wanted:
        raise residency.NotResident(path, offset + count, wanted - count)
    return cast("bytes", data)


def load(path: str, offset: int, size: int, ahead: int) -> None:
    """Read, and throw away: the page cache keeps it. In a thread of the disk."""
    try:
        descriptor = os.open(path, os.O_RDONLY | os.O_CLOEXEC)
    except OSError:
        return
    try:
        if ahead:
            os.posix_fadvise(descriptor, offset, size + ahead, os.POSIX_FADV_WILLNEED)
        scratch = bytearray(min(size, _LOAD_BYTES))
        while size > 0:
            count = os.preadv(descriptor, [memoryview(scratch)[:size]], offset)
            if not count:
                return
            offset += count
            size -= count
    except OSError:
        return
    finally:
        os.close(descriptor)


def _length(buffer: Buffer) -> int:
    return buffer.nbytes if isinstance(buffer, memoryview) else len(buffer)


def _without_head(buffers: Sequence[Buffer], size: int) -> list[Buffer]:
    """`buffers` less their first `size` bytes, nothing copied."""
    rest: list[Buffer] = []
    for buffer in buffers:
        length = _length(buffer)
        if size >= length:
            size -= length
            continue
        rest.append(memoryview(buffer).cast("B")[size:] if size else buffer)
        size = 0
    return rest
