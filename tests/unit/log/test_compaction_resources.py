"""What a pass of compaction holds: its file, however the pass ends; and the loop, while many batches stay."""

from __future__ import annotations

from collections.abc import Callable

import pytest

from kafkalite.errors import ApiError, StorageError
from kafkalite.log.cleaner import compact
from kafkalite.log.partition_log import PartitionLog
from kafkalite.log.segment import Segment
from tests.support.logs import PATH, batch, make_log
from tests.support.memory_disk import MemoryDisk


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
