"""A compaction whose log changes meanwhile, which dies at each step, or finds no room."""

from __future__ import annotations

import asyncio
import contextlib
import dataclasses
import errno
import random
from collections.abc import Callable
from functools import partial
from typing import Any

import pytest

from kafkalite.config import TopicConfig
from kafkalite.errors import StorageError
from kafkalite.log import cleaner
from kafkalite.log.cleaner import compact
from kafkalite.log.loader import SWAP
from kafkalite.log.partition_log import PartitionLog
from kafkalite.record.batch import split_batches
from kafkalite.testing.simulation.plants import PLANTS
from tests.support.compaction import SETTINGS, clean, fill, keyed, state
from tests.support.log_host import host_of, manager_on
from tests.support.logs import PATH, TOPIC_ID, TP, batch, everything, make_log, reopen
from tests.support.memory_disk import MemoryDisk, MemoryFile


async def test_a_log_that_changes_under_the_cleaner_is_left_alone() -> None:
    disk = MemoryDisk()
    log = make_log(disk, **SETTINGS)
    fill(log)

    async def truncate() -> None:
        disk.during_sync = None
        log.truncate_to(5)

    disk.during_sync = truncate
    assert await clean(log, disk) == 0
    assert log.log_end_offset <= 5 and not [name for name in disk.listdir(PATH) if "cleaned" in name or "swap" in name]


@pytest.mark.parametrize("seed", range(12))
async def test_a_value_on_the_disk_goes_only_for_one_on_the_disk(seed: int, monkeypatch: pytest.MonkeyPatch) -> None:
    """The power went between two segments of a pass: the old value was removed, the new one not flushed. The key had neither."""
    disk = MemoryDisk()
    log = make_log(disk, **SETTINGS)
    log.append_as_leader(keyed([("k", "old" + "." * 700)]), 1)
    log.roll()
    await log.flush()
    disk.sync_dir("/data")
    log.append_as_leader(keyed([("k", "new" + "." * 700)]), 1)
    log.roll()
    write, written = cleaner.write_group, 0

    def ends_here(*arguments: Any) -> None:
        nonlocal written
        written += 1
        if written == 2:
            raise OSError(errno.EIO, "the power goes")
        write(*arguments)

    monkeypatch.setattr(cleaner, "write_group", ends_here)
    with pytest.raises(StorageError):
        await clean(log, disk)
    point = log.recovery_point
    disk.power_loss(random.Random(seed))
    assert state(reopen(disk, recovery_point=point, **SETTINGS)).keys() == {b"k"}


@pytest.mark.parametrize("is_clean", [False, True])
async def test_a_log_cut_behind_a_compacted_segment_ends_there_after_a_restart(*, is_clean: bool) -> None:
    """The segment's last records had gone. The next start took its last batch for the log's end, and gave offsets a second time."""
    disk = MemoryDisk()
    log = make_log(disk, **SETTINGS)
    log.append_as_leader(keyed([("a", "1"), ("b", "1")]), 1)
    log.append_as_leader(keyed([("b", None)]), 1)
    log.roll()
    log.append_as_leader(keyed([("c", "not committed")]), 2)
    for now_ms in (2_000, 3_000, 4_000):
        await compact(log, disk, first_dirty_offset=0, high_watermark=3, now_ms=now_ms)
    log.truncate_to(3)
    assert log.log_end_offset == 3
    for _ in range(2):
        if is_clean:
            await log.close_cleanly()
        else:
            await log.flush()
        point = log.recovery_point
        disk.process_crash()
        log = reopen(disk, clean=is_clean, recovery_point=point, **SETTINGS)
        assert log.log_end_offset == 3 and state(log) == {b"a": b"1"}
    assert log.append_as_leader(keyed([("d", "1")]), 3).first_offset == 3


@pytest.mark.parametrize("seed", range(4))
async def test_a_compaction_ends_while_a_flush_is_under_way(seed: int) -> None:
    """With log.flush.before.ack and steady traffic one nearly always is."""
    disk = MemoryDisk()
    log = make_log(disk, **SETTINGS)
    fill(log)
    await log.flush()  # what it reads; else it waits for that flush
    log.append_as_leader(keyed([("k0", "newest")]), 1)
    expected, end = state(log), log.segments[-1].base_offset
    reached: list[int] = []

    async def meanwhile() -> None:
        disk.during_sync = None
        reached.append(await clean(log, disk))

    disk.during_sync = meanwhile
    assert await log.flush() == log.log_end_offset
    assert reached == [end] and state(log) == expected
    await log.flush()
    point = log.recovery_point
    disk.power_loss(random.Random(seed))
    again = reopen(disk, recovery_point=point, **SETTINGS)
    assert state(again) == expected and again.log_end_offset == log.log_end_offset


class InThread(MemoryDisk):
    """Knows which directories were synced in a thread; calls `during` there, once."""

    def __init__(self) -> None:
        super().__init__()
        self.is_in_thread = False
        self.synced: list[bool] = []
        self.during: Callable[[], None] | None = None

    def sync_dir(self, path: str) -> None:
        self.synced.append(self.is_in_thread)
        super().sync_dir(path)

    async def run_blocking(self, function: Callable[[], object], at: str = "") -> object:
        self.is_in_thread = True
        synced = len(self.synced)
        try:
            result = function()
        finally:
            self.is_in_thread = False
        if len(self.synced) > synced and self.during is not None and self.names(SWAP):
            during, self.during = self.during, None
            during()
        return result

    def names(self, suffix: str) -> list[str]:
        return [name for name in self.listdir(PATH) if name.endswith(suffix)]


async def filled(disk: MemoryDisk) -> PartitionLog:
    """A log whose first segment keeps records in a compaction."""
    log = make_log(disk, **SETTINGS)
    for number in range(10):
        log.append_as_leader(keyed([(f"once-{number}", "v")]), 1)
    fill(log)
    await log.flush()
    return log


async def test_the_directory_of_a_compaction_is_synced_off_the_loop() -> None:
    disk = InThread()
    log = await filled(disk)
    disk.synced.clear()
    expected = state(log)
    await clean(log, disk)
    assert state(log) == expected and disk.synced and all(disk.synced)
    assert not disk.names(SWAP)


def cut(log: PartitionLog) -> None:
    log.truncate_to(5)


def cut_all(log: PartitionLog) -> None:
    log.truncate_fully_and_start_at(70)


def delete_old(log: PartitionLog) -> None:
    log.config = dataclasses.replace(log.config, cleanup_policy="delete", retention_bytes=1)
    log.delete_old_segments(log.log_end_offset, 10**12)


def fail(log: PartitionLog) -> None:
    raise asyncio.CancelledError


@pytest.mark.parametrize("change", [cut, cut_all, delete_old, fail])
async def test_what_cuts_a_log_before_a_swap_is_durable_undoes_the_swap(change: Callable[[PartitionLog], None]) -> None:
    """Otherwise the next start would finish it, and bring back what was cut."""
    disk = InThread()
    log = await filled(disk)
    disk.during = partial(change, log)
    before = len(log.segments)
    with contextlib.suppress(asyncio.CancelledError):
        assert await clean(log, disk) == 0
    assert disk.during is None and (change is fail or len(log.segments) < before)
    assert not disk.names(SWAP) and not disk.names(".cleaned")
    expected, end = everything(log), log.log_end_offset
    disk.process_crash()
    again = reopen(disk, recovery_point=0, **SETTINGS)
    assert (everything(again), again.log_end_offset) == (expected, end)
    # The next pass compacts what is there.
    assert again.append_as_leader(batch(["more"]), 1).first_offset == end
    kept = state(again)
    await clean(again, disk)
    assert state(again) == kept


async def test_a_swap_that_a_cut_leaves_brings_back_what_was_cut(monkeypatch: pytest.MonkeyPatch) -> None:
    """The error is put in, and is seen."""
    PLANTS["swap"](monkeypatch.setattr)
    disk = InThread()
    log = await filled(disk)
    disk.during = partial(cut, log)
    await clean(log, disk)
    end = log.log_end_offset
    disk.process_crash()
    assert end <= 5 < reopen(disk, recovery_point=0, **SETTINGS).log_end_offset


async def test_a_crash_at_each_step_of_the_swap_loses_nothing() -> None:
    reference = MemoryDisk()
    log = make_log(reference, **SETTINGS)
    fill(log)
    expected, calls = state(log), 0
    await clean(log, reference)
    for step in range(1, 200):
        disk = MemoryDisk()
        log = make_log(disk, **SETTINGS)
        fill(log)
        calls = 0

        class Stopped(BaseException):
            pass

        def count(original, step=step):
            def counted(*arguments):
                nonlocal calls
                calls += 1
                if calls == step:
                    raise Stopped
                return original(*arguments)

            return counted

        disk.rename = count(disk.rename)  # type: ignore[method-assign]
        disk.remove = count(disk.remove)  # type: ignore[method-assign]
        try:
            await clean(log, disk)
        except Stopped:
            del disk.rename, disk.remove
            disk.process_crash()
            again = reopen(disk, recovery_point=log.segments[-1].base_offset, **SETTINGS)
            assert state(again) == expected
            assert again.log_end_offset == 90
            assert not [name for name in disk.listdir(PATH) if name.endswith((".swap", ".cleaned"))]
            offsets = [header.base_offset for _, header in split_batches(everything(again))]
            assert offsets == sorted(set(offsets))
        else:
            assert step > 3
            return
    raise AssertionError("the swap never ended")


class Refusing(MemoryDisk):
    """Refuses what has to do with a name, with this error."""

    def __init__(self) -> None:
        super().__init__()
        self.refused, self.code = "", 0

    def open(self, path: str, *, create: bool = False) -> MemoryFile:
        if self.refused and path.endswith(self.refused):
            raise OSError(self.code, "injected", path)
        return super().open(path, create=create)

    def rename(self, old: str, new: str) -> None:
        if self.refused and new.endswith(self.refused):
            raise OSError(self.code, "injected", old)
        super().rename(old, new)


@pytest.mark.parametrize("code", [errno.ENOSPC, errno.EDQUOT, errno.EMFILE, errno.ENOMEM])
async def test_a_compaction_that_finds_no_room_leaves_the_log_in_service(code: int) -> None:
    disk, lost = Refusing(), []
    manager = await manager_on(disk, "/d", on_dir_failed=None, on_log_failed=lambda tp, error: lost.append(str(error)))
    log = manager.placing.create(TP, TOPIC_ID, TopicConfig(cleanup_policy="compact", segment_bytes=1024))
    last = fill(log)
    host_of(manager).hw_of = lambda _: log.log_end_offset
    disk.refused, disk.code = ".cleaned", code
    assert await manager.housekeeping.cleaning_pass() == 0
    assert manager.get(TP) is log and lost == []
    disk.refused = ".swap"  # the copy was written, and nothing has been replaced yet; what was replaced is not known
    assert await manager.housekeeping.cleaning_pass() == 0
    assert manager.get(TP) is None and len(lost) == 1
    disk.refused = ""
    assert log.is_failed and last
    await manager.close(clean=False)
