"""Which timestamps are taken, and how old a segment is: what retention by time rests on."""

from __future__ import annotations

from typing import Any

import pytest

from kafkalite.config import TopicConfig, broker_config, topic_config
from kafkalite.errors import ConfigError, ErrorCode
from kafkalite.log.cleaner import compact
from kafkalite.log.partition_log import PartitionLog
from kafkalite.record.builder import RecordBatchBuilder
from kafkalite.record.reader import read_records
from tests.support.failing import fails_with
from tests.support.logs import PATH, batch, config, everything, make_log, reopen
from tests.support.memory_disk import ManualClock, MemoryDisk


@pytest.mark.parametrize(
    ("first", "largest", "is_taken"),
    [
        (0, 0, True),
        (0, 3_600_000, True),
        (0, 3_600_001, False),
        (3_600_001, 0, False),
        (-900_000_000, 0, True),
        (-900_000_001, 0, False),
        (None, None, True),
    ],
)
def test_a_producers_timestamps_are_near_the_brokers_clock(
    disk: MemoryDisk, first: int | None, largest: int | None, *, is_taken: bool
) -> None:
    """Relative to the broker's clock; one record in microseconds would keep its segment, and all later ones, for ever."""
    clock = ManualClock(1_700_000_000_000)
    log = make_log(disk, clock, message_timestamp_before_max_ms=900_000_000)
    now = clock.now_ms
    stamps = [-1 if each is None else now + each for each in (first, largest)]
    builder = RecordBatchBuilder()
    for stamp in stamps:
        builder.append(b"k", b"v", (), stamp)
    if is_taken:
        log.append_as_leader(builder.build(), 1)
        follower = make_log(MemoryDisk(), ManualClock(0))
        follower.append_as_follower(everything(log))  # what a leader took, a follower takes
    else:
        with fails_with(ErrorCode.INVALID_TIMESTAMP):
            log.append_as_leader(builder.build(), 1)
        assert log.log_end_offset == 0
        log.config = config(message_timestamp_type="LogAppendTime")
        log.append_as_leader(builder.build(), 1)
        assert [record.timestamp for record in read_records(everything(log))] == [now, now]


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
    settings: dict[str, Any] = {
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


def test_the_limits_have_kafkas_names_and_defaults() -> None:
    default = TopicConfig()
    assert default.message_timestamp_after_max_ms == 3_600_000
    assert default.message_timestamp_before_max_ms == 2**63 - 1
    names = ("log.message.timestamp.before.max.ms", "log.message.timestamp.after.max.ms")
    node, _ = broker_config(dict(zip(names, (5, 7), strict=True)))
    assert (node.topic.message_timestamp_before_max_ms, node.topic.message_timestamp_after_max_ms) == (5, 7)
    with pytest.raises(ConfigError):
        topic_config(default, {"message.timestamp.after.max.ms": "-1"})


@pytest.mark.checklist("F25")
def test_a_snapshot_that_a_loss_of_power_brings_back_is_not_believed() -> None:
    """Retention had removed it with the batches behind it: it knows an older sequence of the producer than the others do."""
    disk = MemoryDisk()
    log = make_log(disk, retention_ms=1)
    log.append_as_leader(batch(["0"], producer_id=9, producer_epoch=0, base_sequence=0), 1)
    log.roll()
    name = f"{PATH}/{1:020d}.snapshot"
    old = disk.read_file(name)
    log.append_as_leader(batch(["1"], producer_id=9, producer_epoch=0, base_sequence=1), 1)
    for path in log.delete_old_segments(2, 10_000):
        disk.remove(path)
    assert not disk.exists(name)
    log.close()
    disk.write_file_atomic(name, old)
    disk.remove(f"{PATH}/{2:020d}.snapshot")
    again = reopen(disk, log_start_offset=2, retention_ms=1)
    assert again.log_end_offset == 2
    again.append_as_leader(batch(["2"], producer_id=9, producer_epoch=0, base_sequence=2), 2)
