"""The seams on the operating system: asyncio's sockets, POSIX files, the kernel's clocks."""

from __future__ import annotations

import asyncio
import contextlib
import errno
import fcntl
import importlib
import os
import random
import shutil
import socket
import threading
import time
from collections.abc import Awaitable, Callable, Iterator, Sequence
from concurrent.futures import Future
from contextlib import contextmanager
from itertools import count
from typing import TYPE_CHECKING, cast

from kafkalite.env import open_files, residency
from kafkalite.env.disk_threads import DiskThreads
from kafkalite.env.open_files import Reserve
from kafkalite.env.seams import Clock, ConnectionHandler, Disk, Env, Listener, Network
from kafkalite.env.streams import open_stream, stream_protocol
from kafkalite.env.supervisor import Policy, Supervisor
from kafkalite.model import Buffer
from kafkalite.telemetry.logs import get_logger

if TYPE_CHECKING:
    from kafkalite.config import BrokerConfig
    from kafkalite.coordination.coordinator import Coordinator
    from kafkalite.security.tls import ClientTls, ServerTls

_log = get_logger(__name__)

#: Of a StreamReader: it stops reading from the socket at twice this. A replica fetch of 1 MiB fits whole.
STREAM_LIMIT_BYTES = 4 * 1024 * 1024
#: The same for accepted connections: there may be thousands, and what waits here no listener's bound counts.
ACCEPTED_LIMIT_BYTES = 256 * 1024
#: Buffers per pwritev (Linux's UIO_MAXIOV).
_IOV_MAX = 1024
#: Threads per disk that wait for fdatasync.
_SYNC_THREADS = 8
#: Threads per disk that read what is not in the page cache.
_READ_THREADS = 4
#: Such a thread copies this much at a time, to nowhere.
_LOAD_BYTES = 256 * 1024
#: The kernel's flag for reads that may not wait; file systems that do not know it are read as ever.
_NOWAIT = getattr(os, "RWF_NOWAIT", 0)
_UNKNOWN_FLAG = frozenset({errno.EOPNOTSUPP, errno.EINVAL, errno.ENOSYS})
#: Threads per disk for recovery and deletion, apart from the others: hours of recovery must not delay an fsync.
_BLOCKING_THREADS = 4


class RealClock:
    """The kernel's clocks."""

    def wall_ms(self) -> int:
        return time.time_ns() // 1_000_000

    def monotonic(self) -> float:
        return time.monotonic()

    def processor(self) -> float:
        return time.thread_time()

    def boottime(self) -> float:
        return time.clock_gettime(time.CLOCK_BOOTTIME)


class RealListener:
    """A listening asyncio server."""

    def __init__(self, server: asyncio.Server) -> None:
        name = server.sockets[0].getsockname()
        self.host: str = name[0]
        self.port: int = name[1]
        self._server = server

    async def close(self) -> None:
        # asyncio forgets sockets, unclosed, that it accepted a moment before its server is closed: first none are
        # accepted any more, and those that were become connections.
        loop = asyncio.get_running_loop()
        for listening in self._server.sockets:
            loop.remove_reader(listening.fileno())
        await asyncio.sleep(0)
        # Not wait_closed(): since Python 3.12 that waits for the connections too, and they go on.
        self._server.close()


def _die(error: BaseException) -> None:
    """An AssertionError in a connection's task is a bug: the process ends (errors.py)."""
    _log.critical("process.aborted", error=repr(error), exc_info=error)
    os._exit(70)


class RealNetwork:
    """TCP through asyncio streams, without Nagle's delay.

    Args:
        on_fatal: told of an AssertionError in a connection handler; any other exception ends that connection only.
    """

    def __init__(self, on_fatal: Callable[[BaseException], None] = _die) -> None:
        self._supervisor = Supervisor(on_fatal)

    async def dial(
        self, host: str, port: int, tls: ClientTls | None = None
    ) -> tuple[asyncio.StreamReader, asyncio.StreamWriter]:
        reader, writer = await open_stream(host, port, STREAM_LIMIT_BYTES, tls.context() if tls is not None else None)
        _no_delay(writer.transport)
        return reader, writer

    async def listen(self, host: str, port: int, handler: ConnectionHandler, tls: ServerTls | None = None) -> Listener:
        def accepted(reader: asyncio.StreamReader, writer: asyncio.StreamWriter) -> None:
            _no_delay(writer.transport)
            task = self._supervisor.spawn("connection", handler(reader, writer), Policy.ISOLATED)
            # Not in the task: one that is cancelled before its first step runs nothing.
            task.add_done_callback(lambda _: writer.close())

        return await self.listen_protocol(host, port, lambda: stream_protocol(accepted, ACCEPTED_LIMIT_BYTES), tls)

    async def listen_protocol(
        self, host: str, port: int, factory: Callable[[], asyncio.BaseProtocol], tls: ServerTls | None = None
    ) -> Listener:
        # asyncio's and uvloop's transports set TCP_NODELAY themselves.
        if tls is None:
            return RealListener(await asyncio.get_running_loop().create_server(factory, host, port))
        from kafkalite.env.handshakes import TlsListener  # only who uses TLS loads it

        listener = TlsListener(tls, factory, self._supervisor)
        await listener.start(host, port)
        return listener


def _no_delay(transport: asyncio.BaseTransport) -> None:
    sock = transport.get_extra_info("socket")
    if sock is not None:
        sock.setsockopt(socket.IPPROTO_TCP, socket.TCP_NODELAY, 1)


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
        self._assert_open()
        start = self._size
        if self._modified_ns:
            self.version()  # notices what others have written, before our write hides it
        try:
            for first in range(0, len(buffers), _IOV_MAX):
                self._write_fully(buffers[first : first + _IOV_MAX])
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

    def _write_fully(self, buffers: Sequence[Buffer]) -> None:
        total = sum(map(_length, buffers))
        while total:
            written = os.pwritev(self._descriptor, buffers, self._size)
            self._size += written
            total -= written
            if total:  # a short write: signals do that, and disks that run full
                buffers = _without_head(buffers, written)

    def _cut_off(self, size: int) -> None:
        try:
            os.ftruncate(self._descriptor, size)
        except OSError as error:  # the write's own error matters more; the next append overwrites the rest anyway
            _log.warning("file.cut_off_failed", path=self.path, error=repr(error))

    def read_at(self, offset: int, size: int) -> bytes:
        self._assert_open()
        if residency.is_required() and self._threads.knows_nowait:
            try:
                found = _read_resident(self._descriptor, self.path, offset, size, self._size)
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
        while view:
            written = os.pwrite(self._descriptor, view, offset)
            offset += written
            view = view[written:]
        self._size = max(self._size, offset)

    def truncate(self, size: int) -> None:
        self._assert_open()
        os.ftruncate(self._descriptor, size)
        self._size = size
        self._modified_ns = 0

    async def sync(self) -> None:
        self._assert_open()
        with self._lock:
            self._syncing += 1
        future: Future[None] = self._threads.syncs.submit(lambda: os.fdatasync(self._descriptor))
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
            self._threads.works.submit(lambda: os.close(self._descriptor))
        elif now:
            os.close(self._descriptor)

    def _assert_open(self) -> None:
        if self._closed:
            raise OSError(errno.EBADF, "file is closed", self.path)


def _read_resident(descriptor: int, path: str, offset: int, size: int, end: int) -> bytes | None:
    """The bytes, if all of them are in the page cache; None: the file system cannot tell. Raises NotResident, OSError."""
    wanted = max(0, min(size, end - offset))
    # Not copied into bytes: callers only read it.
    data = bytearray(wanted)
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


def _load(path: str, offset: int, size: int, ahead: int) -> None:
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


class RealDisk:
    """POSIX files. A few threads per disk do what must not block the loop."""

    def __init__(self) -> None:
        self._common = self._new_threads("")
        #: Directory with a slash at the end -> the threads of its disk.
        self._by_prefix: dict[str, DiskThreads] = {}
        #: Directory -> where the kernel counts what its device completes.
        self._counters: dict[str, str] = {}
        self._reserve = Reserve()
        #: File -> the numbers of its present writers.
        self._writing: dict[str, set[int]] = {}
        self._writing_lock = threading.Lock()

    def _new_threads(self, name: str) -> DiskThreads:
        return DiskThreads(name, sync_threads=_SYNC_THREADS, read_threads=_READ_THREADS, work_threads=_BLOCKING_THREADS)

    def separate(self, path: str) -> None:
        # Threads that hang from an earlier time stay with the lane that is replaced.
        self._by_prefix[f"{path.rstrip('/')}/"] = self._new_threads(os.path.basename(path.rstrip("/")))

    def completed(self, path: str) -> int | None:
        try:
            with open(self._counters[path.rstrip("/")], "rb") as file:
                fields = file.read().split()
            return int(fields[0]) + int(fields[4])  # reads and writes
        except (OSError, LookupError, ValueError):
            return None  # no block device (tmpfs, NFS, FUSE, an overlay), or no such view of it

    def abandon(self, path: str) -> None:
        self._threads(path).is_abandoned = True

    def _threads(self, path: str) -> DiskThreads:
        for prefix, threads in self._by_prefix.items():
            if path.startswith(prefix) or path == prefix[:-1]:
                return threads
        return self._common

    def open(self, path: str, *, create: bool = False) -> RealFile:
        flags = os.O_RDWR | os.O_CLOEXEC | (os.O_CREAT if create else 0)
        return RealFile(path, os.open(path, flags, 0o644), self._threads(path))

    def exists(self, path: str) -> bool:
        return os.path.exists(path)

    def read_file(self, path: str) -> bytes:
        is_resident_only = residency.is_required()

        def read() -> bytes:
            with open(path, "rb") as file:
                if is_resident_only:
                    size = os.fstat(file.fileno()).st_size
                    found = _read_resident(file.fileno(), path, 0, size, size)
                    if found is not None:
                        return found
                return file.read()

        return self._reserve.run(read)

    def write_file_atomic(self, path: str, data: bytes, *, durable: bool = True) -> None:
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
        try:
            os.mkdir(path)  # nearly always the parent is there: half of what makedirs costs
        except FileNotFoundError:
            os.makedirs(path, exist_ok=True)
        except FileExistsError:
            if not os.path.isdir(path):
                raise

    def make_dir(self, path: str) -> bool:
        try:
            os.mkdir(path)
        except FileExistsError:
            return False
        return True

    def rename(self, old: str, new: str) -> None:
        os.rename(old, new)

    def remove(self, path: str) -> None:
        try:
            os.unlink(path)
        except FileNotFoundError:
            return

    def remove_tree(self, path: str) -> None:
        try:
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
                return f"{file.read().strip()}{_mount_id(path)}"
        except OSError:
            return ""

    def total_bytes(self, path: str) -> int:
        stat = os.statvfs(path)
        return stat.f_blocks * stat.f_frsize

    def modified_ms(self, path: str) -> int:
        return os.stat(path).st_mtime_ns // 1_000_000

    def lock(self, path: str) -> Callable[[], None]:
        # flock, not lockf: two opens within one process exclude each other too, and the kernel
        # releases it with the process, however that ends.
        descriptor = os.open(path, os.O_RDWR | os.O_CREAT | os.O_CLOEXEC, 0o644)
        try:
            fcntl.flock(descriptor, fcntl.LOCK_EX | fcntl.LOCK_NB)
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

    async def run_blocking(self, function: Callable[[], object], at: str = "") -> object:
        return await asyncio.wrap_future(self._threads(at).works.submit(function))

    async def load(self, path: str, offset: int, size: int, ahead: int = 0) -> None:
        await asyncio.wrap_future(self._threads(path).reads.submit(lambda: _load(path, offset, size, ahead)))

    def close(self) -> None:
        """End the threads when their work is done. The disk cannot be used after this."""
        for threads in (self._common, *self._by_prefix.values()):
            threads.close()
        self._reserve.close()


def real_env(
    *,
    connect_coordinator: Callable[[str, int], Awaitable[Coordinator]] | None = None,
    on_fatal: Callable[[BaseException], None] = _die,
    config: BrokerConfig | None = None,
) -> Env:
    """The environment of a process on this machine.

    Args:
        connect_coordinator: opens one session; by default the aiozk adapter on this environment's own seams.
        on_fatal: told of an AssertionError in a connection handler.
        config: says how to authenticate to ZooKeeper; None: not at all.
    """
    access: list[object] = []
    clock: Clock = RealClock()
    network: Network = RealNetwork(on_fatal)
    disk: Disk = RealDisk()
    source = random.Random()

    async def connect(connect_string: str, session_timeout_ms: int) -> Coordinator:
        # By name and late: `coordination` is above `env`, and tools that never connect need not load aiozk.
        adapter = importlib.import_module("kafkalite.coordination.aiozk_adapter")
        if not access:
            access.append(adapter.ZooKeeperAccess() if config is None else adapter.access_of(config))
        session: Coordinator = await adapter.connect(
            connect_string, session_timeout_ms, clock=clock, network=network, rng=source, access=access[0]
        )
        return session

    return Env(
        clock=clock,
        network=network,
        disk=disk,
        random=source,
        connect_coordinator=connect_coordinator or connect,
        log_files=open_files.log_files(),
    )


#: Where the kernel lists block devices by number, and mounted file systems by kind and device.
_SYS_BLOCK, _SYS_FS = "/sys/dev/block", "/sys/fs"


def _mount_id(path: str) -> str:
    """A new number that the kernel gives to each mount of a file system on a block device; empty if it gives none.

    ext4, xfs and others have a directory in sysfs while they are mounted. Its inode number is never used again. A bind mount,
    hence the restart of a container, leaves it as it is.
    """
    device = os.stat(path).st_dev
    try:
        name = os.path.basename(os.path.realpath(f"{_SYS_BLOCK}/{os.major(device)}:{os.minor(device)}", strict=True))
        for kind in sorted(os.listdir(_SYS_FS)):
            with contextlib.suppress(FileNotFoundError, NotADirectoryError):
                return f"/{os.stat(f'{_SYS_FS}/{kind}/{name}').st_ino}"
    except OSError:
        pass  # no block device, or no sysfs: the boot alone has to do
    return ""
