"""What happens to a log while a flush of it is under way."""

from __future__ import annotations

from kafkalite.log.partition_log import PartitionLog
from tests.support.logs import batch, make_log, reopen
from tests.support.memory_disk import MemoryDisk


def fill(log: PartitionLog) -> None:
    """Three segments."""
    for _ in range(12):
        log.append_as_leader(batch(["x" * 200]), 1)


async def test_records_that_come_during_a_flush_of_rolled_segments_wait_for_theirs() -> None:
    """After an unclean start nothing is known to wait. With flush.ms, new records were not flushed before the next ones came."""
    disk = MemoryDisk()
    fill(make_log(disk, segment_bytes=1_024))
    disk.process_crash()
    log = reopen(disk, segment_bytes=1_024, flush_ms=1_000)

    async def append() -> None:
        disk.during_sync = None
        log.append_as_leader(batch(["new"]), 1)

    disk.during_sync = append
    await log.flush_rolled()
    assert log.synced_offset < log.log_end_offset
    assert log.is_flush_due(1_000_000 + 1_000)


async def test_a_log_that_is_closed_meanwhile_opens_no_file_again() -> None:
    """Nobody would close it. A log that is opened again would write through it, and it knows an old length of the file."""
    disk = MemoryDisk()
    log = make_log(disk, segment_bytes=1_024)
    fill(log)

    async def close() -> None:
        disk.during_sync = None
        log.close()

    disk.during_sync = close
    synced = log.synced_offset
    assert await log.flush() == synced, "what was not synced does not count as such"
    assert disk.open_files == 0
