"""What was written under other settings is read, copied, recovered, compacted and moved all the same."""

from __future__ import annotations

import random
from typing import Any

import pytest

from kafkalite.errors import ErrorCode
from kafkalite.log.checkpoints import COMPACTED, encode_partition_metadata
from kafkalite.log.cleaner import compact
from kafkalite.log.log_manager import LogManager
from kafkalite.log.partition_log import PartitionLog
from kafkalite.record.builder import RecordBatchBuilder
from kafkalite.record.compression import Codec
from kafkalite.record.reader import read_records
from tests.support.committed import committed_state
from tests.support.failing import fails_with
from tests.support.log_host import host_of, log_manager
from tests.support.logs import PATH, TOPIC_ID, TP, batch, config, everything, make_log, reopen
from tests.support.memory_disk import ManualClock, MemoryDisk

COMPACT: dict[str, Any] = {"cleanup_policy": "compact", "segment_bytes": 1024, "min_cleanable_dirty_ratio": 0.01}
DELETE = COMPACT | {"cleanup_policy": "delete"}


def write(log: PartitionLog, key: str, value: str, codec: Codec = Codec.NONE) -> None:
    builder = RecordBatchBuilder(codec)
    builder.append(key.encode(), value.encode(), (), 1_000)
    log.append_as_leader(builder.build(), 1)


def offsets(log: PartitionLog) -> list[int]:
    return [record.offset for record in read_records(everything(log))]


async def compacted(disk: MemoryDisk, *, keys: int = 4, rounds: int = 60) -> PartitionLog:
    log = make_log(disk, **COMPACT)
    for number in range(rounds):
        write(log, f"k{number % keys}", f"v{number}" + "." * 60)
    await compact(log, disk, first_dirty_offset=0, high_watermark=log.log_end_offset, now_ms=2_000)
    assert len(offsets(log)) < rounds // 2
    return log


async def test_a_log_that_was_compacted_is_read_under_the_policy_delete() -> None:
    disk = MemoryDisk()
    log = await compacted(disk)
    before = offsets(log)
    log.config = config(**DELETE)
    assert offsets(log) == before and log.damaged_at is None
    for offset in range(log.log_end_offset):
        [first, *_] = read_records(b"".join(log.read(offset, 1).records))
        assert first.offset == min(each for each in before if each >= offset)


@pytest.mark.parametrize("chunk", [1, 300, 1 << 20])
async def test_a_follower_copies_it_and_both_survive_an_unclean_stop(chunk: int) -> None:
    disk, other = MemoryDisk(), MemoryDisk()
    log, follower = await compacted(disk), make_log(other, **DELETE)
    before = offsets(log)
    while follower.log_end_offset < log.log_end_offset:
        follower.append_as_follower(b"".join(log.read(follower.log_end_offset, chunk, verify=chunk > 1).records))
    assert offsets(follower) == before
    # The checkpoint of the recovery points is lost: everything is checked. (A loss of power first takes what it may.)
    await follower.flush()
    await log.flush()
    for one, seed in ((disk, 1), (other, 2)):
        one.power_loss(random.Random(seed))
        again = reopen(one, recovery_point=0, **DELETE)
        assert offsets(again) == before and again.log_end_offset == log.log_end_offset


async def test_a_log_that_an_older_version_compacted_is_recovered_under_the_policy_delete() -> None:
    """It has left no mark but the gaps themselves."""
    disk = MemoryDisk()
    log = await compacted(disk)
    before = offsets(log)
    disk.remove(f"{PATH}/.kafkalite-compacted")
    disk.write_file_atomic(f"{PATH}/partition.metadata", encode_partition_metadata(TOPIC_ID, records_compactions=False))
    disk.process_crash()
    assert offsets(reopen(disk, recovery_point=0, **DELETE)) == before


async def test_a_hole_that_no_compaction_made_is_none_of_a_compaction() -> None:
    """The end of a file that had not reached the disk, at the end of a batch, while the next file had."""
    disk = MemoryDisk()
    log = make_log(disk, **DELETE)
    for number in range(40):
        write(log, f"k{number}", "." * 90)
    second = log.segments[1]
    await log.flush()
    last = list(second.headers())[-1][0]
    del disk.entries[second.log_path].data[last:]
    disk.process_crash()
    again = reopen(disk, recovery_point=second.base_offset, **DELETE)
    assert offsets(again) == list(range(again.log_end_offset))
    assert second.base_offset < again.log_end_offset < second.next_offset


@pytest.mark.parametrize("bit", range(64))
async def test_a_wrong_base_offset_is_found_where_offsets_are_missing(bit: int) -> None:
    """Of a batch in the middle of a compacted log, at a gap or not: no reader gets it, nor misses those around it."""
    for number in (1, 2, 3):
        disk = MemoryDisk()
        log = await compacted(disk, keys=6)
        before = everything(log)
        segment = next(one for one in log.segments if len(list(one.headers())) > number + 1)
        heads = list(segment.headers())
        position, header = heads[number]
        data = disk.entries[segment.log_path].data
        data[position + bit // 8] ^= 1 << bit % 8
        found: list[int] = []
        offset = 0
        with fails_with(ErrorCode.CORRUPT_MESSAGE):
            while offset < log.log_end_offset:
                info = log.read(offset, 100)
                found += [record.offset for record in read_records(b"".join(info.records))]
                offset = info.next_offset
        sound = [record.offset for record in read_records(before)]
        expected = [each for each in sound if each < header.base_offset]
        # Where the wrong one fits what is missing before its neighbour, either of the two may be the wrong one.
        assert found in (expected, expected[:-1])


async def test_smaller_limits_than_what_is_stored() -> None:
    """max.message.bytes, segment.bytes, segment.index.bytes, index.interval.bytes: of what comes, not of what is there."""
    large = DELETE | {"segment_bytes": 1 << 20, "index_interval_bytes": 1, "cleanup_policy": "compact,delete"}
    small = DELETE | {
        "segment_bytes": 1024, "max_message_bytes": 200, "segment_index_bytes": 4096, "index_interval_bytes": 100_000,
    }  # fmt: skip
    disk, other = MemoryDisk(), MemoryDisk()
    log, follower = make_log(disk, **large), make_log(other, **small)
    for number in range(300):
        write(log, f"k{number}", "x" * (5_000 if number % 50 == 7 else 30), Codec(number % 5))
    log.config = config(**small)
    with fails_with(ErrorCode.MESSAGE_TOO_LARGE):
        write(log, "k", "x" * 5_000)
    before = offsets(log)
    assert before == list(range(300))
    while follower.log_end_offset < log.log_end_offset:
        follower.append_as_follower(b"".join(log.read(follower.log_end_offset, 1_000, verify=False).records))
    assert offsets(follower) == before
    write(log, "after", "y")
    assert log.segment_count > 1, "today's limits hold for what comes"
    await log.flush()
    end = log.log_end_offset
    for clean, point in ((True, end), (False, 0), (False, end)):
        again = reopen(disk, clean=clean, recovery_point=point, **small)
        assert offsets(again) == [*before, 300]
        for offset in (0, 7, 57, 100, 299, 300):
            assert next(iter(read_records(b"".join(again.read(offset, 1).records)))).offset == offset
        again.config = config(**small | {"cleanup_policy": "compact"})
        again.roll()
        await compact(again, disk, first_dirty_offset=0, high_watermark=end, now_ms=2_000)
        assert len(committed_state(again)) == 301
        again.truncate_to(end)


@pytest.mark.parametrize(("then", "now"), [("CreateTime", "LogAppendTime"), ("LogAppendTime", "CreateTime")])
async def test_whose_clock_a_record_carries_is_in_its_batch(then: str, now: str) -> None:
    disk = MemoryDisk()
    log = make_log(disk, ManualClock(77_000), message_timestamp_type=then)
    log.append_as_leader(batch(["a"], timestamp_ms=5), 1)
    log.config = config(message_timestamp_type=now)
    log.append_as_leader(batch(["b"], timestamp_ms=6), 1)
    stamps = [5, 77_000] if then == "CreateTime" else [77_000, 6]
    assert [record.timestamp for record in read_records(everything(log))] == stamps
    again = reopen(disk, message_timestamp_type=now)
    assert [record.timestamp for record in read_records(everything(again))] == stamps
    follower = make_log(MemoryDisk(), message_timestamp_type=now)
    follower.append_as_follower(everything(log))
    assert [record.timestamp for record in read_records(everything(follower))] == stamps


async def test_a_policy_that_goes_to_and_fro_loses_nothing() -> None:
    disk = MemoryDisk()
    log = await compacted(disk)
    state = committed_state(log)
    dirty = 60
    for number in range(6):
        log.config = config(**(DELETE if number % 2 else COMPACT), retention_ms=-1)
        for key in ("k1", f"new{number}"):
            write(log, key, f"{number}" + "." * 60)
            state[key.encode()] = f"{number}".encode() + b"." * 60
        log.roll()
        dirty = await compact(log, disk, first_dirty_offset=dirty, high_watermark=log.log_end_offset, now_ms=3_000)
        assert committed_state(log) == state
        log = reopen(disk, recovery_point=log.recovery_point, **DELETE)
        assert committed_state(log) == state


async def test_what_is_cut_and_written_again_is_compacted_again() -> None:
    """How far compaction was is lowered with the log's end, on the disk too, before anything is written above it."""
    disk = MemoryDisk()

    async def started() -> LogManager:
        manager = log_manager(disk, "/d")
        await manager.opening.start(
            "c", 1, {TP.topic: {key.replace("_", "."): str(value) for key, value in COMPACT.items()}}
        )
        found = manager.get(TP)
        if found is not None:
            host_of(manager).hw_of = lambda _: found.log_end_offset
        return manager

    manager = await started()
    log = manager.placing.create(TP, TOPIC_ID, config(**COMPACT))
    host_of(manager).hw_of = lambda _: log.log_end_offset
    for number in range(40):
        write(log, f"k{number % 8}", f"v{number}" + "." * 60)
    assert await manager.housekeeping.cleaning_pass() == 1
    log.truncate_to(10)
    assert int(disk.read_file("/d/cleaner-offset-checkpoint").split()[-1]) == log.log_end_offset <= 10
    for number in range(40):
        write(log, f"k{number % 4}", f"w{number}" + "." * 60)
    state = committed_state(log)
    disk.process_crash()
    disk.locks.clear()
    manager = await started()
    again = manager.get(TP)
    assert again is not None
    assert await manager.housekeeping.cleaning_pass() == 1
    assert committed_state(again) == state
    active = again.segments[-1].base_offset
    below = [record.key for record in read_records(everything(again)) if record.offset < active]
    assert len(below) == len(set(below)), "none of it was left out"
    await manager.close()


async def test_how_far_a_cut_log_was_compacted_is_known_after_a_loss_of_power() -> None:
    """The file was written and its name flushed, and its content was not. An empty one says that there were no compactions here, and the
    first hole between two segments ended the log."""
    disk = MemoryDisk()
    log = make_log(disk, **COMPACT)
    for number in range(60):
        write(log, f"k{number}" if number % 12 == 3 else "k", f"v{number}" + "." * 60)
    await compact(log, disk, first_dirty_offset=0, high_watermark=log.log_end_offset, now_ms=2_000)
    log.truncate_to(40)
    await log.flush()
    before = offsets(log)
    assert len(before) > 2 and log.segment_count > 2
    end = disk.entries[f"{PATH}/{COMPACTED}"]
    end.data[:] = end.durable
    assert offsets(reopen(disk, **COMPACT)) == before


async def test_a_segment_that_was_cut_off_does_not_come_back_behind_a_hole() -> None:
    """A compacted log is truncated, and written again; the power goes before the removal of the last segment is durable."""
    disk = MemoryDisk()
    log = await compacted(disk)
    for number in range(20):
        write(log, f"n{number}", "." * 60)
    await log.flush()
    last = log.segments[-1]
    stale = bytes(disk.entries[last.log_path].data)
    log.truncate_to(log.segments[-2].base_offset + 3)
    write(log, "new", "x")
    end, before = log.log_end_offset, offsets(log)
    assert end < last.base_offset
    disk.process_crash()
    disk.write_file_atomic(last.log_path, stale)
    again = reopen(disk, recovery_point=log.recovery_point, **COMPACT)
    assert again.log_end_offset == end and offsets(again) == before
