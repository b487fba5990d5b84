"""POSIX files and directories, and the threads that wait for them."""

from __future__ import annotations

import asyncio
import contextlib
import errno
import fcntl
import os
import threading
from collections.abc import Callable, Iterator
from contextlib import contextmanager
from itertools import count

from kafkalite.env import residency
from kafkalite.env.disk_threads import DiskThreads, change
from kafkalite.env.mounts import mount_id, mount_of
from kafkalite.env.open_files import Reserve
from kafkalite.env.real_file import RealFile, load, read_resident
from kafkalite.env.seams import DiskOutcome

#: Threads per disk that wait for fdatasync.
_SYNC_THREADS = 8
#: Threads per disk that read what is not in the page cache.
_READ_THREADS = 4
#: Threads per disk for recovery and deletion, apart from the others: hours of recovery must not delay an fsync.
_BLOCKING_THREADS = 4


class RealDisk:
    """POSIX files. A few threads per disk do what must not block the loop."""

    def __init__(self) -> None:
        self._common = self._new_threads("")
        #: Directory with a slash at the end -> the threads of its disk.
        self._by_prefix: dict[str, DiskThreads] = {}
        #: The same -> threads from before the disk failed, which were left behind.
        self._left_behind: dict[str, list[DiskThreads]] = {}
        #: Directory -> where the kernel counts what its device completes.
        self._counters: dict[str, str] = {}
        self._reserve = Reserve()
        #: File -> the numbers of its present writers.
        self._writing: dict[str, set[int]] = {}
        self._writing_lock = threading.Lock()

    def _new_threads(self, name: str) -> DiskThreads:
        return DiskThreads(name, sync_threads=_SYNC_THREADS, read_threads=_READ_THREADS, work_threads=_BLOCKING_THREADS)

    def separate(self, path: str) -> None:
        prefix = f"{path.rstrip('/')}/"
        known = self._by_prefix.get(prefix)
        if known is not None and known.is_idle:
            known.reuse()
            return
        if known is not None:  # threads that hang keep what they were given
            known.leave_behind()
            self._left_behind.setdefault(prefix, []).append(known)
        self._by_prefix[prefix] = self._new_threads(os.path.basename(path.rstrip("/")))

    def completed(self, path: str) -> int | None:
        try:
            with open(self._counters[path.rstrip("/")], "rb") as file:
                fields = file.read().split()
            return int(fields[0]) + int(fields[4])  # reads and writes
        except (OSError, LookupError, ValueError):
            return None  # no block device (tmpfs, NFS, FUSE, an overlay), or no such view of it

    def abandon(self, path: str) -> None:
        self._threads(path).is_abandoned = True

    def outcome(self, path: str) -> DiskOutcome | None:
        threads = self._threads(path)
        everything = [threads, *self._former(path, threads.mount)]
        if not all(each.is_idle for each in everything):
            return None
        return DiskOutcome(any(each.syncs.has_failed for each in everything))

    def _former(self, path: str, mount: tuple[int, str] | None) -> list[DiskThreads]:
        """Threads that were left behind and work, or worked, on this very file system."""
        left = self._left_behind.get(f"{path.rstrip('/')}/", ())
        return [each for each in left if mount is not None and each.mount == mount]

    def _threads(self, path: str) -> DiskThreads:
        for prefix, threads in self._by_prefix.items():
            if path.startswith(prefix) or path == prefix[:-1]:
                return threads
        return self._common

    def open(self, path: str, *, create: bool = False) -> RealFile:
        flags = os.O_RDWR | os.O_CLOEXEC | (os.O_CREAT if create else 0)
        if not create:
            return RealFile(path, os.open(path, flags), self._threads(path))
        with change(path):
            return RealFile(path, os.open(path, flags, 0o644), self._threads(path))

    def exists(self, path: str) -> bool:
        try:
            os.stat(path)
        except (FileNotFoundError, NotADirectoryError):
            return False
        return True

    def read_file(self, path: str) -> bytes:
        is_resident_only = residency.is_required()

        def read() -> bytes:
            with open(path, "rb") as file:
                if is_resident_only:
                    size = os.fstat(file.fileno()).st_size
                    found = read_resident(file.fileno(), path, 0, size, size)
                    if found is not None:
                        return found
                return file.read()

        return self._reserve.run(read)

    def write_file_atomic(self, path: str, data: bytes, *, durable: bool = True) -> None:
        with change(path):
            self._reserve.run(lambda: self._replace(path, data, durable=durable))

    def _replace(self, path: str, data: bytes, *, durable: bool) -> None:
        with self._beside(path) as beside:
            descriptor = os.open(beside, os.O_WRONLY | os.O_CREAT | os.O_TRUNC | os.O_CLOEXEC, 0o644)
            try:
                view = memoryview(data)
                while view:
                    view = view[os.write(descriptor, view) :]
                if durable:
                    os.fsync(descriptor)
            finally:
                os.close(descriptor)
            os.replace(beside, path)
        if durable:
            self.sync_dir(os.path.dirname(path))

    @contextmanager
    def _beside(self, path: str) -> Iterator[str]:
        """The name of a file beside `path` that no other writer uses at the same time."""
        with self._writing_lock:
            taken = self._writing.setdefault(path, set())
            number = next(n for n in count() if n not in taken)
            taken.add(number)
        try:
            yield f"{path}.{number}.tmp" if number else f"{path}.tmp"
        finally:
            with self._writing_lock:
                taken.discard(number)
                if not taken:
                    self._writing.pop(path, None)

    def listdir(self, path: str) -> list[str]:
        return sorted(self._reserve.run(lambda: os.listdir(path)))

    def makedirs(self, path: str) -> None:
        with change(path):
            try:
                os.mkdir(path)  # nearly always the parent is there: half of what makedirs costs
            except FileNotFoundError:
                os.makedirs(path, exist_ok=True)
            except FileExistsError:
                if not os.path.isdir(path):
                    raise

    def make_dir(self, path: str) -> bool:
        try:
            with change(path):
                os.mkdir(path)
        except FileExistsError:
            return False
        return True

    def rename(self, old: str, new: str) -> None:
        with change(old):
            os.rename(old, new)

    def remove(self, path: str) -> None:
        try:
            with change(path):
                os.unlink(path)
        except FileNotFoundError:
            return

    def remove_tree(self, path: str) -> None:
        import shutil  # also loads the modules of archives

        try:
            with change(path):
                self._reserve.run(lambda: shutil.rmtree(path))
        except FileNotFoundError:
            return

    def sync_dir(self, path: str) -> None:
        self._reserve.run(lambda: self._sync_dir(path))

    def _sync_dir(self, path: str) -> None:
        descriptor = os.open(path, os.O_RDONLY | os.O_DIRECTORY | os.O_CLOEXEC)
        try:
            os.fsync(descriptor)
        finally:
            os.close(descriptor)

    def free_bytes(self, path: str) -> int:
        stat = os.statvfs(path)
        return stat.f_bavail * stat.f_frsize

    def page_cache_id(self, path: str) -> str:
        try:
            with open("/proc/sys/kernel/random/boot_id", encoding="ascii") as file:
                return f"{file.read().strip()}{mount_id(path)}"
        except OSError:
            return ""

    def directory_id(self, path: str) -> str:
        stat = os.stat(path)
        return f"{stat.st_dev:x}-{stat.st_ino:x}"

    def total_bytes(self, path: str) -> int:
        stat = os.statvfs(path)
        return (stat.f_blocks - stat.f_bfree + stat.f_bavail) * stat.f_frsize

    def modified_ms(self, path: str) -> int:
        return os.stat(path).st_mtime_ns // 1_000_000

    def lock(self, path: str) -> Callable[[], None]:
        # flock, not lockf: two opens within one process exclude each other too, and the kernel
        # releases it with the process, however that ends.
        descriptor = os.open(path, os.O_RDWR | os.O_CREAT | os.O_CLOEXEC, 0o644)
        try:
            fcntl.flock(descriptor, fcntl.LOCK_EX | fcntl.LOCK_NB)
            with change(path):  # it may have hung in the line above
                self._refuse_two_lives(os.path.dirname(path))
        except OSError:
            os.close(descriptor)
            raise
        device = os.fstat(descriptor).st_dev
        self._counters[os.path.dirname(path)] = f"/sys/dev/block/{os.major(device)}:{os.minor(device)}/stat"
        held = [descriptor]

        def release() -> None:
            while held:
                os.close(held.pop())

        return release

    def _refuse_two_lives(self, directory: str) -> None:
        """Raises OSError if a change is under way that was begun before this disk was given up: it may still come.

        On another disk at the same place it cannot: the kernel finishes an operation where it began it. No other change comes
        from threads that were left behind (`change`).
        """
        threads = self._threads(directory)
        threads.mount = mount_of(directory)
        if any(each.is_changing for each in self._former(directory, threads.mount)):
            raise OSError(errno.EBUSY, "a write that was begun before it went offline has not ended yet", directory)
        prefix = f"{directory}/"
        self._left_behind[prefix] = [each for each in self._left_behind.get(prefix, ()) if not each.is_idle]

    async def run_blocking(self, function: Callable[[], object], at: str = "") -> object:
        return await asyncio.wrap_future(self._threads(at).works.submit(function))

    async def load(self, path: str, offset: int, size: int, ahead: int = 0) -> None:
        with contextlib.suppress(OSError):  # no thread
            future = self._threads(path).reads.submit(lambda: load(path, offset, size, ahead))
            await asyncio.wrap_future(future)

    def close(self) -> None:
        """End the threads when their work is done. The disk cannot be used after this."""
        for threads in (self._common, *self._by_prefix.values()):
            threads.close()
        self._reserve.close()
