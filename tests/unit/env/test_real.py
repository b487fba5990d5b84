"""The real seams do what `seams.py` promises."""

from __future__ import annotations

import asyncio
import contextlib
import errno
import os
import shutil
import socket
import sys
import threading
from collections.abc import Callable, Iterator
from pathlib import Path

import pytest
import uvloop

from kafkalite.env import mounts, real_file, residency
from kafkalite.env.real import SWITCH_S, RealClock, real_env
from kafkalite.env.real_disk import RealDisk
from kafkalite.env.real_network import RealNetwork
from kafkalite.large_buffer import LARGE_BYTES
from kafkalite.model import Buffer


@pytest.fixture
def disk() -> Iterator[RealDisk]:
    disk = RealDisk()
    yield disk
    disk.close()


def _fatal(error: BaseException) -> None:
    raise AssertionError from error


def test_a_large_read_is_not_cleared_first(disk: RealDisk, tmp_path: Path) -> None:
    """That took as long again, on the event loop."""
    file = disk.open(str(tmp_path / "f"), create=True)
    written = os.urandom(2**16) * (2 * LARGE_BYTES // 2**16)
    file.append([written])
    with residency.ResidentOnly():
        for size in (LARGE_BYTES - 1, LARGE_BYTES, 3 * LARGE_BYTES):
            found = file.read_at(5, size)
            assert found == written[5 : 5 + size]
            is_large = min(size, len(written) - 5) >= LARGE_BYTES
            assert isinstance(found, memoryview if is_large else bytearray)


def test_append_returns_bytes_and_read_at_sees_them(disk: RealDisk, tmp_path: Path) -> None:
    file = disk.open(str(tmp_path / "f"), create=True)
    assert file.append([b"abc", bytearray(b"de"), memoryview(b"fgh")]) == 8
    assert file.append([]) == 0
    assert file.size() == 8
    assert file.read_at(2, 4) == b"cdef"
    assert file.read_at(6, 100) == b"gh"
    assert file.read_at(8, 10) == b""
    file.close()


def test_more_buffers_than_one_system_call_takes(disk: RealDisk, tmp_path: Path) -> None:
    file = disk.open(str(tmp_path / "f"), create=True)
    buffers = [bytes([i % 251]) * (i % 7) for i in range(3000)]
    assert file.append(buffers) == len(b"".join(buffers))
    assert file.read_at(0, 1 << 20) == b"".join(buffers)
    file.close()


def test_short_writes_are_carried_on(disk: RealDisk, tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    file = disk.open(str(tmp_path / "f"), create=True)
    monkeypatch.setattr(os, "pwritev", lambda fd, buffers, at: os.pwrite(fd, b"".join(buffers)[:3], at))
    data: list[Buffer] = [b"ab", b"", b"cdefg", memoryview(b"hijk")]
    assert file.append(data) == 11
    assert file.read_at(0, 20) == b"abcdefghijk"
    file.close()


def test_a_failed_append_leaves_the_file_as_it_was(
    disk: RealDisk, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    path = tmp_path / "f"
    file = disk.open(str(path), create=True)
    file.append([b"keep"])

    def full(fd: int, buffers: list[bytes], at: int) -> int:
        if at > 4:
            raise OSError(errno.ENOSPC, "no space")
        return os.pwrite(fd, b"".join(buffers)[:2], at)

    monkeypatch.setattr(os, "pwritev", full)
    with pytest.raises(OSError, match="no space"):
        file.append([b"lost"])
    assert file.size() == 4
    assert path.read_bytes() == b"keep"
    file.close()


def test_write_at_and_truncate_move_the_end(disk: RealDisk, tmp_path: Path) -> None:
    file = disk.open(str(tmp_path / "f"), create=True)
    file.append([b"0123456789"])
    file.write_at(8, b"XYZ")
    assert file.size() == 11
    file.truncate(3)
    file.append([b"end"])
    assert file.read_at(0, 99) == b"012end"
    file.close()


def test_opening_what_is_not_there(disk: RealDisk, tmp_path: Path) -> None:
    with pytest.raises(FileNotFoundError):
        disk.open(str(tmp_path / "none"))
    with pytest.raises(FileNotFoundError):
        disk.read_file(str(tmp_path / "none"))


async def test_sync_survives_a_close_in_between(disk: RealDisk, tmp_path: Path) -> None:
    """The descriptor must stay ours until the thread is through with it."""
    file = disk.open(str(tmp_path / "f"), create=True)
    file.append([b"x"])
    async with asyncio.TaskGroup() as group:
        for _ in range(5):
            group.create_task(file.sync())
        await asyncio.sleep(0)
        file.close()
        file.close()
    with pytest.raises(OSError) as closed:
        await file.sync()
    assert closed.value.errno == errno.EBADF


async def test_a_cancelled_sync_still_lets_the_descriptor_go(disk: RealDisk, tmp_path: Path) -> None:
    before = len(os.listdir("/proc/self/fd"))
    for _ in range(20):
        file = disk.open(str(tmp_path / "f"), create=True)
        waiting = asyncio.create_task(file.sync())
        await asyncio.sleep(0)
        waiting.cancel()
        with pytest.raises(asyncio.CancelledError):
            await waiting
        file.close()
    for _ in range(8):  # each of the threads is done with what came before
        syncing = disk.open(str(tmp_path / "last"), create=True)
        await syncing.sync()
        syncing.close()
    assert len(os.listdir("/proc/self/fd")) <= before + 9


@pytest.mark.checklist(90)
async def test_a_disk_that_hangs_keeps_only_its_own_threads(disk: RealDisk, tmp_path: Path) -> None:
    hanging, sound = tmp_path / "a", tmp_path / "b"
    for path in (hanging, sound):
        path.mkdir()
        disk.separate(str(path))
    held = disk.open(str(hanging / "f"), create=True)
    before = threading.active_count()
    forever = threading.Event()
    stuck = [asyncio.ensure_future(disk.run_blocking(forever.wait, str(hanging))) for _ in range(50)]
    await disk.run_blocking(lambda: None, str(sound / "x"))
    file = disk.open(str(sound / "f"), create=True)
    await file.sync()
    assert threading.active_count() <= before + 6, "no thread per waiter"
    disk.abandon(str(hanging))
    held.close()  # in a thread that never comes: nobody waits for it
    disk.separate(str(hanging))
    await disk.run_blocking(lambda: None, str(hanging))
    assert not any(each.done() for each in stuck), "a new disk in the old place has threads of its own"
    file.close()
    forever.set()
    for each in stuck:
        await each


def test_write_file_atomic_replaces_and_leaves_nothing_beside(disk: RealDisk, tmp_path: Path) -> None:
    path = str(tmp_path / "meta")
    disk.write_file_atomic(path, b"one")
    disk.write_file_atomic(path, b"two", durable=False)
    assert disk.read_file(path) == b"two"
    assert disk.listdir(str(tmp_path)) == ["meta"]


def test_directories(disk: RealDisk, tmp_path: Path) -> None:
    base = str(tmp_path / "a" / "b")
    disk.makedirs(base)
    disk.makedirs(base)
    for name in ("z", "m", "a"):
        disk.open(f"{base}/{name}", create=True).close()
    assert disk.listdir(base) == ["a", "m", "z"]
    disk.rename(f"{base}/z", f"{base}/b")
    disk.remove(f"{base}/m")
    disk.remove(f"{base}/m")
    assert disk.listdir(base) == ["a", "b"]
    assert disk.modified_ms(f"{base}/a") > 1_600_000_000_000
    stat = os.statvfs(base)
    used = (stat.f_blocks - stat.f_bfree) * stat.f_frsize
    assert disk.free_bytes(base) > 0
    # As df: blocks kept for root are neither used nor free. Others write here too, so not to the byte.
    assert abs(disk.total_bytes(base) - disk.free_bytes(base) - used) < 1 << 30
    disk.sync_dir(base)
    disk.remove_tree(base)
    disk.remove_tree(base)
    assert not disk.exists(base)


def test_a_file_that_cannot_be_looked_at_is_not_missing(disk: RealDisk, tmp_path: Path) -> None:
    """An EIO of stat(2) made a checkpoint, or the marker of a clean stop, count as never written."""
    (tmp_path / "loop").symlink_to("loop")
    (tmp_path / "file").touch()
    assert not disk.exists(f"{tmp_path}/none") and not disk.exists(f"{tmp_path}/file/none")
    with pytest.raises(OSError, match="symbolic links"):
        disk.exists(f"{tmp_path}/loop")


def test_lock_excludes_a_second_taker(disk: RealDisk, tmp_path: Path) -> None:
    path = str(tmp_path / ".lock")
    release = disk.lock(path)
    with pytest.raises(BlockingIOError):
        disk.lock(path)
    release()
    release()
    disk.lock(path)()


async def test_run_blocking_leaves_the_loop(disk: RealDisk) -> None:
    import threading

    assert await disk.run_blocking(threading.get_ident) != threading.get_ident()


def test_clocks() -> None:
    clock = RealClock()
    assert clock.wall_ms() > 1_600_000_000_000
    first, second = clock.monotonic(), clock.monotonic()
    assert second >= first
    assert clock.boottime() >= first - 1


async def test_streams_both_ways_without_delay() -> None:
    network = RealNetwork(_fatal)

    async def echo(reader: asyncio.StreamReader, writer: asyncio.StreamWriter) -> None:
        assert writer.get_extra_info("socket").getsockopt(socket.IPPROTO_TCP, socket.TCP_NODELAY)
        while data := await reader.read(1 << 20):
            writer.write(data)
            await writer.drain()

    listener = await network.listen("127.0.0.1", 0, echo)
    reader, writer = await network.dial(listener.host, listener.port)
    assert writer.get_extra_info("socket").getsockopt(socket.IPPROTO_TCP, socket.TCP_NODELAY)
    block = os.urandom(3 << 20)
    writer.write(block)
    assert await reader.readexactly(len(block)) == block
    await listener.close()
    with pytest.raises(OSError):
        await network.dial(listener.host, listener.port)
    writer.write(b"still")
    assert await reader.readexactly(5) == b"still"
    writer.close()
    await writer.wait_closed()


async def test_connections_wait_while_the_loop_has_no_turn() -> None:
    """A group of 100 opens twice as many connections to a node at once: with a backlog of 100 the rest tried again after a second."""
    network = RealNetwork(_fatal)
    served = 0

    async def handler(reader: asyncio.StreamReader, writer: asyncio.StreamWriter) -> None:
        nonlocal served
        served += 1
        await reader.read()

    listener = await network.listen("127.0.0.1", 0, handler)
    # Not one turn of the loop meanwhile: what the kernel does not keep never comes.
    clients = [socket.create_connection((listener.host, listener.port), timeout=150) for _ in range(200)]
    try:
        async with asyncio.timeout(150):
            while served < len(clients):
                await asyncio.sleep(0.01)
    finally:
        for client in clients:
            client.close()
        await listener.close()


@pytest.mark.parametrize("steps", range(8))
async def test_a_connection_that_is_accepted_as_the_listener_closes_is_not_forgotten(steps: int) -> None:
    network = RealNetwork(_fatal)

    async def handler(reader: asyncio.StreamReader, writer: asyncio.StreamWriter) -> None:
        pass  # the connection ends with its handler

    listener = await network.listen("127.0.0.1", 0, handler)
    loop = asyncio.get_running_loop()
    with socket.socket() as client:
        client.settimeout(0)
        with contextlib.suppress(BlockingIOError):
            client.connect((listener.host, listener.port))
        for _ in range(steps):
            await asyncio.sleep(0)
        await listener.close()
        async with asyncio.timeout(150):
            with contextlib.suppress(ConnectionResetError):
                assert await loop.sock_recv(client, 1) == b""


async def test_a_failing_handler_ends_its_connection_only() -> None:
    network = RealNetwork(_fatal)

    async def handler(reader: asyncio.StreamReader, writer: asyncio.StreamWriter) -> None:
        if await reader.readexactly(1) == b"!":
            raise ValueError("bad peer")
        writer.write(b"ok")
        await writer.drain()

    listener = await network.listen("127.0.0.1", 0, handler)
    for sent, answer in ((b"!", b""), (b".", b"ok")):
        reader, writer = await network.dial(listener.host, listener.port)
        writer.write(sent)
        assert await reader.read() == answer
        writer.close()
        await writer.wait_closed()
    await listener.close()


async def test_an_assertion_in_a_handler_is_fatal() -> None:
    died: asyncio.Future[BaseException] = asyncio.get_running_loop().create_future()
    network = RealNetwork(died.set_result)

    async def handler(reader: asyncio.StreamReader, writer: asyncio.StreamWriter) -> None:
        raise AssertionError("a bug")

    listener = await network.listen("127.0.0.1", 0, handler)
    _, writer = await network.dial(listener.host, listener.port)
    assert isinstance(await died, AssertionError)
    writer.close()
    await writer.wait_closed()
    await listener.close()


async def test_protocol_listener() -> None:
    class Upper(asyncio.Protocol):
        def connection_made(self, transport: asyncio.BaseTransport) -> None:
            assert isinstance(transport, asyncio.Transport)
            self.transport = transport

        def data_received(self, data: bytes) -> None:
            self.transport.write(data.upper())

    network = RealNetwork(_fatal)
    listener = await network.listen_protocol("127.0.0.1", 0, Upper)
    reader, writer = await network.dial("127.0.0.1", listener.port)
    writer.write(b"hello")
    assert await reader.readexactly(5) == b"HELLO"
    writer.close()
    await writer.wait_closed()
    await listener.close()


async def test_a_taken_port_is_an_oserror() -> None:
    network = RealNetwork(_fatal)

    async def nobody(reader: asyncio.StreamReader, writer: asyncio.StreamWriter) -> None: ...

    listener = await network.listen("127.0.0.1", 0, nobody)
    with pytest.raises(OSError) as taken:
        await network.listen("127.0.0.1", listener.port, nobody)
    assert taken.value.errno == errno.EADDRINUSE
    await listener.close()


async def test_real_env_opens_sessions_with_what_it_was_given() -> None:
    asked: list[tuple[str, int]] = []

    async def connect(where: str, timeout_ms: int) -> object:
        asked.append((where, timeout_ms))
        return None

    env = real_env(connect_coordinator=connect, on_fatal=_fatal)  # type: ignore[arg-type]
    await env.connect_coordinator("h:1/chroot", 6000)
    assert asked == [("h:1/chroot", 6000)]
    assert isinstance(env.disk, RealDisk)
    assert 0 <= env.random.random() < 1


def test_without_head_copies_nothing() -> None:
    first, second = b"abc", memoryview(b"defg")
    rest = real_file._without_head([first, second], 4)
    assert [bytes(part) for part in rest] == [b"efg"]
    assert isinstance(rest[0], memoryview) and rest[0].obj is second.obj
    assert real_file._without_head([first, second], 3) == [second]


def test_a_file_carries_no_dict(disk: RealDisk, tmp_path: Path) -> None:
    """Ten thousand partitions hold thousands of these."""
    file = disk.open(str(tmp_path / "f"), create=True)
    assert not hasattr(file, "__dict__")
    file.close()


def test_a_copy_of_a_directory_has_an_id_of_its_own(disk: RealDisk, tmp_path: Path) -> None:
    (tmp_path / "a").mkdir()
    found = disk.directory_id(str(tmp_path / "a"))
    shutil.copytree(tmp_path / "a", tmp_path / "b")
    assert disk.directory_id(str(tmp_path / "b")) != found
    (tmp_path / "a").rename(tmp_path / "c")
    assert disk.directory_id(str(tmp_path / "c")) == found


def test_the_page_cache_is_the_same_for_every_process_and_directory_of_a_mount(disk: RealDisk, tmp_path: Path) -> None:
    (tmp_path / "a").mkdir()
    found = disk.page_cache_id(str(tmp_path))
    assert found.startswith(Path("/proc/sys/kernel/random/boot_id").read_text().strip())
    assert disk.page_cache_id(str(tmp_path / "a")) == RealDisk().page_cache_id(str(tmp_path)) == found


def test_each_mount_of_a_file_system_has_a_page_cache_of_its_own(
    disk: RealDisk, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    """The kernel's part is imitated: the device, and the directory that its file system has in sysfs while it is mounted."""
    (tmp_path / "fs" / "features").mkdir(parents=True)
    (tmp_path / "fs" / "ext4" / "disk7").mkdir(parents=True)
    (tmp_path / "devices" / "disk7").mkdir(parents=True)
    (tmp_path / "block").mkdir()
    device = os.stat(tmp_path).st_dev
    (tmp_path / "block" / f"{os.major(device)}:{os.minor(device)}").symlink_to(tmp_path / "devices" / "disk7")
    monkeypatch.setattr(mounts, "_SYS_BLOCK", str(tmp_path / "block"))
    monkeypatch.setattr(mounts, "_SYS_FS", str(tmp_path / "fs"))
    first = disk.page_cache_id(str(tmp_path))
    assert disk.page_cache_id(str(tmp_path)) == first
    (tmp_path / "fs" / "ext4" / "disk7").rename(tmp_path / "unmounted")
    unmounted = disk.page_cache_id(str(tmp_path))
    (tmp_path / "fs" / "ext4" / "disk7").mkdir()
    second = disk.page_cache_id(str(tmp_path))
    assert len({first, unmounted, second}) == 3


@pytest.mark.parametrize("new_loop", [asyncio.new_event_loop, uvloop.new_event_loop])
@pytest.mark.parametrize("host", ["a..b", "ü" * 70, "x" * 300, "a\0b"])
def test_a_name_that_no_host_can_have_is_an_oserror(
    host: str, new_loop: Callable[[], asyncio.AbstractEventLoop]
) -> None:
    """It may be what a broker's registration says; what dials it expects OSError, and ends a node for anything else."""
    with asyncio.Runner(loop_factory=new_loop) as runner, pytest.raises(OSError):
        runner.run(RealNetwork(_fatal).dial(host, 9))


def test_a_computing_thread_gives_the_interpreter_back_soon() -> None:
    began = sys.getswitchinterval()
    try:
        sys.setswitchinterval(0.005)
        real_env()
        assert sys.getswitchinterval() == pytest.approx(SWITCH_S)
    finally:
        sys.setswitchinterval(began)
