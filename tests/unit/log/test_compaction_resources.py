"""What a pass of compaction holds: its file, however the pass ends; and the loop, while many batches stay."""

from __future__ import annotations

import os
import threading
from collections.abc import Callable
from pathlib import Path

import pytest

from kafkalite.env.real_disk import RealDisk
from kafkalite.errors import ApiError, StorageError
from kafkalite.log import checkpoints
from kafkalite.log.cleaner import compact
from kafkalite.log.handles import HandleCache
from kafkalite.log.loader import new_log
from kafkalite.log.local_log import LogPlace
from kafkalite.log.partition_log import PartitionLog
from kafkalite.log.segment import Segment
from tests.support.compaction import SETTINGS, fill
from tests.support.logs import PATH, TOPIC_ID, TP, batch, config, make_log
from tests.support.memory_disk import ManualClock, MemoryDisk


async def filled(disk: MemoryDisk) -> PartitionLog:
    """Some segments of batches with different keys."""
    log = make_log(disk, cleanup_policy="compact", segment_bytes=1024, min_cleanable_dirty_ratio=0.01)
    for number in range(12):
        log.append_as_leader(batch(["x" * 200], key=b"%d" % number), 1)
    await log.flush()
    return log


async def clean(log: PartitionLog, disk: MemoryDisk, dirty: int = 0) -> int:
    return await compact(log, disk, first_dirty_offset=dirty, high_watermark=log.log_end_offset, now_ms=2000)


async def test_a_full_disk_gets_back_what_the_pass_has_written() -> None:
    """A file that is removed, but still open, takes its room until the process ends."""
    disk = MemoryDisk()
    log = await filled(disk)
    before = disk.open_files, set(disk.entries)
    disk.fail_append_after = 10
    with pytest.raises(StorageError):
        await clean(log, disk)
    assert (disk.open_files, set(disk.entries)) == before


async def test_passes_over_damage_leave_no_file_open() -> None:
    """The damage is in the part that is clean: it is met while the copy is written, every fifteen seconds."""
    disk = MemoryDisk()
    log = await filled(disk)
    before = disk.open_files, set(disk.entries)
    disk.entries[f"{PATH}/{0:020d}.log"].data[100] ^= 1
    for _ in range(3):
        with pytest.raises((StorageError, ApiError)):
            await clean(log, disk, log.segments[1].base_offset)
    assert (disk.open_files, set(disk.entries)) == before


async def test_the_batches_that_stay_are_indexed_off_the_loop(monkeypatch: pytest.MonkeyPatch) -> None:
    disk = MemoryDisk()
    log = await filled(disk)
    is_off_loop = False
    indexed: list[bool] = []

    async def run_blocking(function: Callable[[], object], at: str = "") -> object:
        nonlocal is_off_loop
        is_off_loop = True
        try:
            return function()
        finally:
            is_off_loop = False

    recovered = Segment.recovered

    def counted(self: Segment, *arguments: int) -> None:
        indexed.append(is_off_loop)
        recovered(self, *arguments)  # type: ignore[arg-type]

    monkeypatch.setattr(disk, "run_blocking", run_blocking)
    monkeypatch.setattr(Segment, "recovered", counted)
    await clean(log, disk)
    assert len(indexed) > 5 and all(indexed)


async def test_the_loop_does_not_wait_for_the_disk(monkeypatch: pytest.MonkeyPatch, tmp_path: Path) -> None:
    """Each segment that was replaced took an fsync, and recording the compaction two more."""
    disk, real, on_loop = RealDisk(), os.fsync, []

    def fsync(descriptor: int) -> None:
        on_loop.append(threading.current_thread() is threading.main_thread())
        real(descriptor)

    path = str(tmp_path / "events-0")
    disk.makedirs(path)
    place = LogPlace(disk, HandleCache(disk, 64), str(tmp_path), path, ManualClock().wall_ms)
    log = new_log(TP, config(**SETTINGS), TOPIC_ID, place)
    fill(log)
    await log.flush()
    monkeypatch.setattr(os, "fsync", fsync)
    assert await compact(log, disk, first_dirty_offset=0, high_watermark=log.log_end_offset, now_ms=2000) > 0
    assert on_loop and not any(on_loop)
    assert checkpoints.decode_compacted((tmp_path / "events-0" / checkpoints.COMPACTED).read_bytes()) > 0
    log.close()
    disk.close()


async def test_a_compaction_is_recorded_whatever_becomes_of_the_log_meanwhile(monkeypatch: pytest.MonkeyPatch) -> None:
    """A copied gap is recorded on the loop while a thread records the compaction: the larger offset stays in the file."""
    disk = MemoryDisk()
    log = await filled(disk)
    run = disk.run_blocking

    async def between(function: Callable[[], object], at: str = "") -> object:
        result = await run(function, at)
        log._local.record_copied_gap()
        return result

    monkeypatch.setattr(disk, "run_blocking", between)
    await log.record_compaction(8)
    assert log._local.compacted_to == 8
    assert checkpoints.decode_compacted(disk.read_file(f"{PATH}/{checkpoints.COMPACTED}")) == 8
    monkeypatch.setattr(disk, "run_blocking", run)
    log.truncate_to(5)
    assert checkpoints.decode_compacted(disk.read_file(f"{PATH}/{checkpoints.COMPACTED}")) == 5
