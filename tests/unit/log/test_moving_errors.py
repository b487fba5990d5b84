"""A move that fails: a disk that dies, descriptors that are short, a copy from another history."""

from __future__ import annotations

import asyncio
import errno
from collections.abc import Callable
from typing import Any, cast

import pytest

from kafkalite.env.seams import File
from kafkalite.errors import StorageError
from kafkalite.log import moving
from kafkalite.log.future_cuts import agree
from kafkalite.log.handles import HandleCache
from kafkalite.log.partition_log import PartitionLog
from kafkalite.model import Offset
from tests.support.logs import make_log
from tests.support.memory_disk import MemoryDisk
from tests.support.moving import T0, Host, fill, values
from tests.support.waiting import until


async def test_a_target_that_fails_in_the_exchange_changes_nothing() -> None:
    """Found by a fault at every disk operation: the move's task met a KeyError, and the sound old log was removed."""
    host = Host()
    manager = await host.start()
    log = host.create()
    fill(log, 10)
    manager.offsets.save_high_watermarks({T0: 10})
    write = host.disk.write_file_atomic

    def refuse(path: str, data: bytes, *, durable: bool = True) -> None:
        if path.startswith("/d2/replication-offset"):
            raise OSError(errno.EIO, "injected", path)
        write(path, data, durable=durable)

    host.disk.write_file_atomic = refuse  # type: ignore[method-assign]
    move = manager.moves.start(T0, "/d2")
    assert move is not None and move.task is not None
    await move.task
    assert move.state == "failed" and host.dead == ["/d2"]
    assert host.log is log and len(values(log)) == 10 and manager.pool.offline_partitions == {}
    fill(log, 1, start=10)
    await manager.removals.run_due()
    assert host.names("/d1") == ["t-0"]


async def test_a_new_disk_that_dies_before_the_copy_is_durable_leaves_the_old_one_as_a_stray() -> None:
    host = Host()
    manager = await host.start()
    fill(host.create(), 10)
    entered = asyncio.Event()
    run_blocking = host.disk.run_blocking

    async def hang(function: Callable[[], object], at: str = "") -> object:
        if at == "/d2/t-0":  # the flush after the exchange
            entered.set()
            await asyncio.Event().wait()
        return await run_blocking(function, at)

    host.disk.run_blocking = hang  # type: ignore[method-assign]
    manager.moves.start(T0, "/d2")
    async with asyncio.timeout(150):
        await entered.wait()
    assert host.log.directory == "/d2" and "t-0" in host.names("/d1")
    manager.failures.dir_failed(StorageError("dead", directory="/d2", path="/d2"))
    await manager.removals.run_due()
    (kept,) = host.names("/d1")
    assert kept.endswith("-stray") and manager.pool.offline_partitions == {T0: "/d2"}
    await host.supervisor.stop()


async def test_a_thread_that_reads_a_copy_again_leaves_the_handles_of_the_disk_to_the_loop(
    monkeypatch: pytest.MonkeyPatch,
) -> None:
    """A file that the thread closes could be the one to which the loop is just appending."""
    host = Host(replica_alter_log_dirs_io_max_bytes_per_second=4_096)
    manager = await host.start()
    log = host.create()
    fill(log, 200)
    move = manager.moves.start(T0, "/d2", throttle=80_000)
    assert move is not None
    await until(lambda: move.copied_bytes > 10_000)
    used: list[HandleCache] = []
    is_off_loop = False
    get, run_blocking = HandleCache.get, host.disk.run_blocking

    def counted(self: HandleCache, *arguments: Any, **options: Any) -> File:
        if is_off_loop:
            used.append(self)
        return get(self, *arguments, **options)

    async def off_loop(function: Callable[[], object], at: str = "") -> object:
        nonlocal is_off_loop
        is_off_loop = "DiskMoves" in getattr(function, "__qualname__", "")
        try:
            return await run_blocking(function, at)
        finally:
            is_off_loop = False

    monkeypatch.setattr(HandleCache, "get", counted)
    monkeypatch.setattr(host.disk, "run_blocking", off_loop)
    manager = await host.restart()
    (again,) = manager.moves.under_way()
    await until(lambda: again.future is not None)
    assert used and manager.pool.dirs["/d2"].handles not in used
    again.throttle = 0
    await until(lambda: again.state == "done")


async def test_a_copy_that_finds_no_descriptor_for_its_last_flush_tries_again(monkeypatch: pytest.MonkeyPatch) -> None:
    """The old copy kept its place and its name, for the next start to choose between two, and no other move was possible."""
    host = Host()
    manager = await host.start()
    fill(host.create(), 100)
    flush, refused = PartitionLog.flush, 0

    async def short(self: PartitionLog) -> Offset:
        nonlocal refused
        if self.path == "/d2/t-0" and refused < 2:
            refused += 1
            error = StorageError("flush failed", directory=self.directory, path=self.path)
            raise error from OSError(errno.EMFILE, "Too many open files")
        return await flush(self)

    monkeypatch.setattr(PartitionLog, "flush", short)
    monkeypatch.setattr(moving, "SHORTAGE_PAUSE_S", 0.001)
    manager.moves.start(T0, "/d2")
    await until(lambda: manager.moves.all()[0].state == "done" and not manager.moves._leaving)
    assert refused == 2 and "t-0" not in host.names("/d1") and len(values(host.log)) == 100
    assert manager.moves.start(T0, "/d1") is not None


async def test_a_copy_whose_epochs_the_log_never_had_is_begun_again() -> None:
    """After unclean elections back and forth: the comparison of the two did not end, on the loop, at each start."""
    source, future = make_log(MemoryDisk()), make_log(MemoryDisk())
    fill(source, 60, epoch=3)
    fill(source, 10, epoch=6)
    source.advance_log_start_offset(20)
    fill(future, 50, epoch=5)
    await agree(future, source, cast(Any, None))
    assert (future.log_start_offset, future.log_end_offset) == (20, 20)
