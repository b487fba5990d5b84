"""Which timestamps are taken, and how old a segment is: what retention by time rests on."""

from __future__ import annotations

import pytest

from kafkalite.log.cleaner import compact
from kafkalite.log.partition_log import PartitionLog
from tests.support.logs import batch, config, make_log
from tests.support.memory_disk import MemoryDisk


@pytest.fixture
def disk() -> MemoryDisk:
    return MemoryDisk()


def test_records_without_a_timestamp_are_as_old_as_their_file(disk: MemoryDisk) -> None:
    log = make_log(disk, segment_bytes=1024, retention_ms=100)
    for _ in range(8):
        log.append_as_leader(batch(["x" * 300], timestamp_ms=-1), 1)
    disk.modified = 5_000
    log.config = config(segment_bytes=1024, retention_ms=100)
    assert log.delete_old_segments(8, 5_100) == []
    assert log.delete_old_segments(8, 5_101) != []
    assert log.segment_count == 1


async def test_an_empty_compacted_segment_holds_up_neither_retention_nor_deleted_records(disk: MemoryDisk) -> None:
    settings = {
        "cleanup_policy": "compact,delete", "segment_bytes": 1024, "min_cleanable_dirty_ratio": 0.01, "retention_ms": 10_000,
    }  # fmt: skip

    async def compacted() -> PartitionLog:
        log = make_log(MemoryDisk(), **settings)
        for number in range(30):
            log.append_as_leader(batch(["." * 300], key=b"k%d" % max(0, number - 19), timestamp_ms=1_000), 1)
        log.roll()
        await compact(log, log.disk, first_dirty_offset=0, high_watermark=30, now_ms=2_000)
        assert [segment.size for segment in log.segments][:3] == [0, 0, 0]
        return log

    log = await compacted()
    assert log.delete_old_segments(30, 11_000) == []
    assert log.delete_old_segments(30, 11_001) != []
    assert (log.size_bytes, log.log_start_offset, log.segment_count) == (0, 30, 1)
    log = await compacted()
    log.advance_log_start_offset(4)
    assert log.delete_old_segments(30, 0) != []
    assert log.first_offset == 4, "two segments of two records each, both empty"
    log.advance_log_start_offset(30)
    log.delete_old_segments(30, 0)
    assert (log.size_bytes, log.segment_count) == (0, 1)
