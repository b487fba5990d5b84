"""A partition's log on a disk in memory: append, read, truncate, roll, retention, flush, close and reopen."""

from __future__ import annotations

import asyncio
import tracemalloc
from collections.abc import Callable

import pytest

from kafkalite.errors import ApiError, ErrorCode, StorageError
from kafkalite.model import TopicId
from kafkalite.record.batch import HEADER_SIZE, parse_header, split_batches
from kafkalite.record.builder import encode_batch, encode_record, end_transaction_marker
from kafkalite.record.compression import Codec, compress
from kafkalite.record.reader import read_records
from tests.support.logs import PATH, TP, batch, cold_reads, everything, find_timestamp, make_log, reopen, values
from tests.support.memory_disk import ManualClock, MemoryDisk


@pytest.fixture
def disk() -> MemoryDisk:
    return MemoryDisk()


def refused(error: pytest.ExceptionInfo[ApiError]) -> ErrorCode:
    return error.value.code


def test_a_leader_gives_offsets_and_epoch_and_leaves_the_rest_alone(disk: MemoryDisk) -> None:
    log = make_log(disk)
    log.append_as_leader(batch(["a", "b"]), 3)
    info = log.append_as_leader(batch(["c"]) + batch(["d", "e"]), 3)
    assert (info.first_offset, info.last_offset, info.batches, log.log_end_offset) == (2, 4, 2, 5)
    assert values(log) == [(0, b"a"), (1, b"b"), (2, b"c"), (3, b"d"), (4, b"e")]
    assert [header.partition_leader_epoch for _, header in split_batches(everything(log))] == [3, 3, 3]
    assert log.latest_epoch == 3


def test_a_writable_buffer_is_written_as_it_is_without_a_copy(disk: MemoryDisk) -> None:
    log = make_log(disk)
    log.append_as_leader(batch(["a"]), 1)
    buffer = bytearray(batch(["b"]))
    log.append_as_leader(memoryview(buffer), 7)
    assert parse_header(buffer)[:3] == (1, len(buffer) - 12, 7)
    assert everything(log)[-len(buffer) :] == buffer


def test_one_append_is_one_write_however_many_batches(disk: MemoryDisk) -> None:
    log = make_log(disk)
    log.append_as_leader(batch(["a"]), 1)
    disk.calls.clear()
    log.append_as_leader(batch(["b"]) * 20, 1)
    assert [call[0] for call in disk.calls] == ["append"]


@pytest.mark.parametrize(
    ("spoil", "code"),
    [
        (lambda b: b[:-1], ErrorCode.CORRUPT_MESSAGE),
        (lambda b: b[:70] + bytes([b[70] ^ 1]) + b[71:], ErrorCode.CORRUPT_MESSAGE),
        (lambda b: b[:16] + b"\x01" + b[17:], ErrorCode.CORRUPT_MESSAGE),
        (lambda b: b"", ErrorCode.INVALID_RECORD),
        (lambda b: b + b"x", ErrorCode.CORRUPT_MESSAGE),
        (lambda b: batch(["x" * 2000]), ErrorCode.MESSAGE_TOO_LARGE),
        (
            lambda b: end_transaction_marker(1, 0, commit=True, coordinator_epoch=0, timestamp_ms=1),
            ErrorCode.INVALID_RECORD,
        ),
        (lambda b: batch(["x"], producer_id=5, producer_epoch=0), ErrorCode.INVALID_RECORD),
        (lambda b: batch(["x"], transactional=True), ErrorCode.INVALID_RECORD),
    ],
)
def test_a_bad_batch_is_refused_and_nothing_is_written(disk: MemoryDisk, spoil, code) -> None:
    log = make_log(disk, max_message_bytes=1000)
    log.append_as_leader(batch(["a"]), 1)
    before = everything(log)
    with pytest.raises(ApiError) as error:
        log.append_as_leader(batch(["good"]) + spoil(batch(["bad", "bad"])) if spoil(b"x" * 80) else b"", 1)
    assert refused(error) == code
    assert everything(log) == before and log.log_end_offset == 1


def test_wrong_counts_are_refused(disk: MemoryDisk) -> None:
    from kafkalite.record.builder import encode_batch, encode_record

    log = make_log(disk)
    # Two claims fit each other, but not the bytes that are there: the log would go on at an offset of the producer's choice.
    for count, delta in ((2, 0), (1, 1), (0, -1), (0, 0), (-1, 0), (2, 1), ((1 << 31) - 1, (1 << 31) - 2)):
        bad = encode_batch(
            encode_record(0, 0, None, b"v", ()),
            record_count=count,
            last_offset_delta=delta,
            base_timestamp=1,
            max_timestamp=1,
        )
        with pytest.raises(ApiError) as error:
            log.append_as_leader(bad, 1)
        assert refused(error) == ErrorCode.INVALID_RECORD


def test_a_producer_chooses_no_offset(disk: MemoryDisk) -> None:
    log = make_log(disk)
    bad = (7).to_bytes(8, "big") + bytes(batch(["a"]))[8:]
    with pytest.raises(ApiError) as error:
        log.append_as_leader(bad, 1)
    assert refused(error) == ErrorCode.INVALID_RECORD


def test_a_compacted_topic_wants_keys(disk: MemoryDisk) -> None:
    log = make_log(disk, cleanup_policy="compact")
    with pytest.raises(ApiError) as error:
        log.append_as_leader(batch(["a"], key=None), 1)
    assert refused(error) == ErrorCode.INVALID_RECORD


@pytest.mark.checklist(32)
def test_reads_are_bounded_by_what_is_committed_and_refused_outside_the_log(disk: MemoryDisk) -> None:
    log = make_log(disk)
    for number in range(10):
        log.append_as_leader(batch([f"v{number}"]), 1)
    assert log.read(4, 1 << 20, max_offset=4).records == []
    assert [r.offset for r in read_records(log.read(4, 1 << 20, max_offset=6).records[0])] == [4, 5]
    assert log.read(10, 1 << 20).records == []
    assert log.read(9, 1 << 20, max_offset=5).records == [], "between HW and the log end: empty, no error"
    for outside in (11, -1):
        with pytest.raises(ApiError) as error:
            log.read(outside, 100)
        assert refused(error) == ErrorCode.OFFSET_OUT_OF_RANGE


def test_reads_return_whole_batches_within_the_limit(disk: MemoryDisk) -> None:
    log = make_log(disk)
    for _ in range(10):
        log.append_as_leader(batch(["x" * 100]), 1)
    one = len(batch(["x" * 100]))
    assert log.read(0, 2 * one).size_bytes == 2 * one
    assert log.read(0, 2 * one + one // 2).size_bytes == 2 * one
    assert log.read(0, 10).size_bytes == one, "one batch at least"
    assert log.read(0, 10, min_one_batch=False).size_bytes == 0


def test_every_offset_is_found_in_every_segment_with_and_without_the_tail(disk: MemoryDisk) -> None:
    log = make_log(disk, segment_bytes=4000, index_interval_bytes=200)
    for number in range(300):
        log.append_as_leader(batch([f"{number}-{k}" for k in range(number % 4 + 1)]), 1)
    assert log.segment_count > 3
    for twin in (log, reopen(disk, segment_bytes=4000, handle_capacity=2)):
        for offset in range(log.log_end_offset):
            info = twin.read(offset, 1)
            header = parse_header(info.records[0])
            assert header.base_offset <= offset <= header.last_offset


@pytest.mark.checklist(58)
def test_damage_on_disk_is_never_served(disk: MemoryDisk) -> None:
    log = make_log(disk)
    for number in range(5):
        log.append_as_leader(batch([f"v{number}"]), 1)
    size = len(batch(["v0"]))
    disk.entries[f"{PATH}/00000000000000000000.log"].data[2 * size + HEADER_SIZE + 3] ^= 4
    assert [r.offset for r in read_records(log.read(0, 1 << 20).records[0])] == [0, 1]
    with pytest.raises(ApiError) as error:
        log.read(2, 1 << 20)
    assert refused(error) == ErrorCode.CORRUPT_MESSAGE and log.damaged_at == 2
    assert [r.offset for r in read_records(log.read(3, 1 << 20).records[0])] == [3, 4]


def test_segments_end_at_the_same_batches_on_leader_and_follower(disk: MemoryDisk) -> None:
    leader = make_log(disk, segment_bytes=2000)
    for number in range(100):
        leader.append_as_leader(batch(["x" * (number % 90)]) + batch(["y"]), 1)
    other = MemoryDisk()
    follower = make_log(other, segment_bytes=2000)
    data = everything(leader)
    follower.append_as_follower(data)
    assert follower.log_end_offset == leader.log_end_offset
    logs = {name: bytes(inode.data) for name, inode in disk.entries.items() if name.endswith(".log")}
    assert {name: bytes(inode.data) for name, inode in other.entries.items() if name.endswith(".log")} == logs
    assert len(logs) > 3


def test_a_follower_takes_only_what_continues(disk: MemoryDisk) -> None:
    log = make_log(disk)
    log.append_as_follower(batch(["a", "b"], base_offset=0, leader_epoch=2))
    assert (log.log_end_offset, log.latest_epoch) == (2, 2)
    for refused_ones in (
        batch(["c"], base_offset=1, leader_epoch=2),
        batch(["c"], base_offset=2, leader_epoch=2) * 2,
        batch(["c"], base_offset=9, leader_epoch=2) + batch(["d"], base_offset=8, leader_epoch=2),
    ):
        with pytest.raises(ApiError) as error:
            log.append_as_follower(refused_ones)
        assert refused(error) == ErrorCode.OFFSET_OUT_OF_RANGE and log.log_end_offset == 2
    spoiled = bytearray(batch(["c"], base_offset=2, leader_epoch=2))
    spoiled[-1] ^= 1
    with pytest.raises(ApiError) as error:
        log.append_as_follower(batch(["good"], base_offset=2, leader_epoch=2) + spoiled)
    assert refused(error) == ErrorCode.CORRUPT_MESSAGE and log.log_end_offset == 2
    # The leader's log was compacted, whatever the topic's policy is today: offsets are missing there, and so here.
    log.append_as_follower(batch(["c"], base_offset=7, leader_epoch=2))
    assert [r.offset for r in read_records(everything(log))] == [0, 1, 7]
    assert [r.offset for r in read_records(everything(reopen(disk)))] == [0, 1, 7]


def test_a_follower_begins_with_the_batch_in_which_the_leaders_log_starts(disk: MemoryDisk) -> None:
    leader = make_log(disk)
    leader.append_as_leader(batch(["a"]), 1)
    leader.append_as_leader(batch(["b", "c", "d"]), 2)
    leader.append_as_leader(batch(["e"]), 2)
    leader.advance_log_start_offset(2)  # DeleteRecords, in the middle of a batch
    other = MemoryDisk()
    follower = make_log(other)
    follower.truncate_fully_and_start_at(2)
    follower.append_as_follower(b"".join(leader.read(2, 10_000).records))
    assert (follower.log_start_offset, follower.log_end_offset, follower.latest_epoch) == (2, 5, 2)
    assert [record.offset for record in read_records(everything(follower))] == [1, 2, 3, 4]
    again = reopen(other)
    assert again.log_end_offset == 5
    # Only an empty log begins within a batch, and only within one that goes on behind its end.
    for log, refused_ones in (
        (follower, batch(["x", "y"], base_offset=4, leader_epoch=3)),
        (make_log(MemoryDisk()), batch(["x"], base_offset=-1, leader_epoch=3)),
    ):
        end = log.log_end_offset
        with pytest.raises(ApiError) as error:
            log.append_as_follower(refused_ones)
        assert refused(error) in (ErrorCode.OFFSET_OUT_OF_RANGE, ErrorCode.CORRUPT_MESSAGE)
        assert log.log_end_offset == end


def test_log_append_time_restamps_the_batch(disk: MemoryDisk) -> None:
    clock = ManualClock(77_000)
    log = make_log(disk, clock, message_timestamp_type="LogAppendTime")
    info = log.append_as_leader(batch(["a"], timestamp_ms=5), 1)
    assert info.log_append_time_ms == 77_000
    assert [record.timestamp for record in read_records(everything(log))] == [77_000]


def test_a_failed_write_leaves_no_trace_and_stops_the_log(disk: MemoryDisk) -> None:
    log = make_log(disk)
    log.append_as_leader(batch(["a"]), 1)
    size = log.size_bytes
    disk.fail_append_after = 30
    with pytest.raises(StorageError) as error:
        log.append_as_leader(batch(["b"]), 1)
    assert error.value.directory == "/data"
    assert len(disk.entries[f"{PATH}/00000000000000000000.log"].data) == size
    with pytest.raises(StorageError):
        log.append_as_leader(batch(["c"]), 1)
    assert values(log) == [(0, b"a")]


def test_truncation_drops_whole_batches(disk: MemoryDisk) -> None:
    log = make_log(disk, segment_bytes=1024)
    for epoch in (1, 2, 3):
        for _ in range(10):
            log.append_as_leader(batch(["x" * 60, "y"]), epoch)
    assert log.epoch_entries == [(1, 0), (2, 20), (3, 40)]
    log.truncate_to(31)
    assert log.log_end_offset == 30, "offset 31 lies inside a batch, which goes as a whole"
    assert log.epoch_entries == [(1, 0), (2, 20)]
    log.append_as_leader(batch(["z"]), 4)
    assert values(reopen(disk, segment_bytes=1024)) == values(log)
    log.truncate_fully_and_start_at(500)
    assert (log.log_start_offset, log.log_end_offset, log.epoch_entries) == (500, 500, [])
    assert reopen(disk).log_end_offset == 500


@pytest.mark.checklist("F2")
def test_epochs_answer_with_the_largest_not_above_the_question(disk: MemoryDisk) -> None:
    log = make_log(disk)
    log.append_as_leader(batch(["a"] * 3), 1)
    log.append_as_leader(batch(["b"] * 2), 4)
    log.assign_epoch_start(6, log.log_end_offset)
    assert log.epoch_and_end_offset_for(1) == (1, 3)
    assert log.epoch_and_end_offset_for(3) == (1, 3)
    assert log.epoch_and_end_offset_for(4) == (4, 5)
    assert log.epoch_and_end_offset_for(9) == (6, 5)
    assert log.epoch_and_end_offset_for(0) == (-1, -1)
    assert reopen(disk).epoch_and_end_offset_for(6) == (4, 5), "a crash forgets an epoch without a record, no answer"
    log.prepare_clean_close()
    assert reopen(disk).epoch_and_end_offset_for(6) == (6, 5), "it survives a clean restart"


@pytest.mark.checklist("F2")
def test_a_leaders_epoch_is_in_its_file_before_its_first_batch(disk: MemoryDisk) -> None:
    log = make_log(disk)
    log.append_as_leader(batch(["a"]), 1)
    log.assign_epoch_start(3, 1)
    log.append_as_leader(batch(["b"]), 3)
    again = reopen(disk)  # a crash: had the file not known epoch 3, recovery would have cut its batch
    assert (again.log_end_offset, again.epoch_entries) == (2, [(1, 0), (3, 1)])


def test_retention_by_time_size_and_log_start(disk: MemoryDisk) -> None:
    clock = ManualClock(100_000)
    log = make_log(disk, clock, segment_bytes=1024, retention_ms=1000)
    for number in range(40):
        log.append_as_leader(batch(["x" * 100], timestamp_ms=number * 1000), 1)
    count = log.segment_count
    assert log.delete_old_segments(0, 100_000) == [], "nothing above the high watermark goes"
    removed = log.delete_old_segments(log.log_end_offset, 21_500)
    assert removed and all(path.endswith(".deleted") for path in removed)
    assert 0 < log.log_start_offset <= 21 and log.segment_count < count
    with pytest.raises(ApiError):
        log.read(0, 100)
    log.config = type(log.config)(retention_bytes=1024, retention_ms=-1, segment_bytes=1024)
    log.delete_old_segments(log.log_end_offset, 0)
    assert 1024 <= log.size_bytes < 3 * 1024
    log.advance_log_start_offset(log.log_end_offset)
    log.delete_old_segments(log.log_end_offset, 0)
    assert (log.size_bytes, log.log_start_offset, log.log_end_offset) == (0, 40, 40)
    log.append_as_leader(batch(["next"]), 1)
    assert values(log) == [(40, b"next")]


async def test_timestamps_are_found(disk: MemoryDisk) -> None:
    log = make_log(disk, segment_bytes=2000, index_interval_bytes=100)
    stamps = [10, 30, 20, 50, 40, 60, 60, 55]
    for number, stamp in enumerate(stamps * 5):
        log.append_as_leader(batch([f"{number}"], timestamp_ms=stamp + 100 * (number // 8)), 2)
    expected_by_offset = [stamp + 100 * (number // 8) for number, stamp in enumerate(stamps * 5)]
    for twin in (log, reopen(disk, segment_bytes=2000)):
        for wanted in range(480):
            first = next(((t, o, 2) for o, t in enumerate(expected_by_offset) if t >= wanted), None)
            assert await find_timestamp(twin, wanted) == first
        assert await twin.max_timestamp_offset(cold_reads(twin), (0, 0)) == (460, 37, 2)


async def test_the_end_of_a_transaction_can_be_the_newest_of_all(disk: MemoryDisk) -> None:
    """As in Kafka (ListOffsets with timestamp -3); a look-up of a time finds records only."""
    log = make_log(disk)
    log.append_as_leader(
        batch(["a"], timestamp_ms=10, producer_id=7, producer_epoch=0, base_sequence=0, transactional=True), 2
    )
    marker = end_transaction_marker(7, 0, commit=True, coordinator_epoch=0, timestamp_ms=50)
    log.append_as_leader(marker, 2, origin="coordinator")
    assert await log.max_timestamp_offset(cold_reads(log), (0, 0)) == (50, 1, 2)
    assert await find_timestamp(log, 20) is None


async def test_a_header_may_say_more_than_its_records_have(disk: MemoryDisk) -> None:
    """A producer writes the largest timestamp of a batch into its header. Kafka: the broker's own count of it."""
    log = make_log(disk)
    log.append_as_leader(batch(["a"], timestamp_ms=10), 2)
    log.append_as_leader(batch(["b"], timestamp_ms=30), 2)
    record = encode_record(0, 0, None, b"c", ())
    claims = encode_batch(record, record_count=1, last_offset_delta=0, base_timestamp=20, max_timestamp=90)
    log.append_as_leader(claims, 2)
    assert await log.max_timestamp_offset(cold_reads(log), (0, 0)) == (30, 1, 2)
    assert await find_timestamp(log, 25) == (30, 1, 2)
    assert await find_timestamp(log, 40) is None


@pytest.mark.parametrize("segment_bytes", [1 << 20, 300])
async def test_the_newest_record_is_one_that_is_still_there(disk: MemoryDisk, segment_bytes: int) -> None:
    log = make_log(disk, segment_bytes=segment_bytes)
    for stamp in (10, 90, 40, 60, 60, 30):
        log.append_as_leader(batch(["x"], timestamp_ms=stamp), 2)
    expected = [(90, 1, 2), (90, 1, 2), (60, 3, 2), (60, 3, 2), (60, 4, 2), (30, 5, 2), None]
    for start, newest in enumerate(expected):
        log.advance_log_start_offset(start)
        assert await log.max_timestamp_offset(cold_reads(log), (0, 0)) == newest


async def test_the_newest_record_of_a_batch_was_deleted(disk: MemoryDisk) -> None:
    log = make_log(disk)
    two = encode_record(0, 80, None, b"a", ()) + encode_record(1, 0, None, b"b", ())
    log.append_as_leader(encode_batch(two, record_count=2, last_offset_delta=1, base_timestamp=10, max_timestamp=90), 2)
    log.append_as_leader(batch(["c"], timestamp_ms=50), 2)
    for start, newest in enumerate([(90, 0, 2), (50, 2, 2), (50, 2, 2)]):
        log.advance_log_start_offset(start)
        assert await log.max_timestamp_offset(cold_reads(log), (0, 0)) == newest


async def test_a_look_for_the_newest_record_does_not_hold_the_records(disk: MemoryDisk) -> None:
    """A few kB may be a million of them."""
    log = make_log(disk)
    records = b"".join(encode_record(number, number % 7, b"k" * 20, b"", ()) for number in range(20_000))
    packed = compress(Codec.GZIP, records)
    log.append_as_leader(
        encode_batch(
            packed, record_count=20_000, last_offset_delta=19_999, attributes=Codec.GZIP, base_timestamp=10, max_timestamp=16
        ),
        2,
    )  # fmt: skip
    tracemalloc.start()
    try:
        assert await log.max_timestamp_offset(cold_reads(log), (0, 0)) == (16, 6, 2)
        assert tracemalloc.get_traced_memory()[1] < 2_000_000
    finally:
        tracemalloc.stop()


async def test_a_look_up_begins_again_if_the_log_changes_under_it(
    disk: MemoryDisk, monkeypatch: pytest.MonkeyPatch
) -> None:
    log = make_log(disk)
    for number in range(10):
        log.append_as_leader(batch([f"{number}"], timestamp_ms=number), 1)
    real, changes = disk.run_blocking, ["truncate", "", "remove"]

    async def racing(function: Callable[[], object], at: str = "") -> object:
        match changes.pop(0):
            case "truncate":
                log.truncate_to(5)
                log.append_as_leader(batch(["other"], timestamp_ms=50), 2)
            case "remove":
                log.truncate_fully_and_start_at(100)
        return await real(function, at)

    monkeypatch.setattr(disk, "run_blocking", racing)
    assert await find_timestamp(log, 7) == (50, 5, 2)
    assert await find_timestamp(log, 7) is None


async def test_flush_makes_durable_what_was_there_when_it_began(disk: MemoryDisk) -> None:
    log = make_log(disk, segment_bytes=1024)
    for _ in range(20):
        log.append_as_leader(batch(["x" * 100]), 1)

    async def append_meanwhile() -> None:
        disk.during_sync = None
        log.append_as_leader(batch(["late"]), 1)

    disk.during_sync = append_meanwhile
    assert await log.flush() == 20
    assert (log.synced_offset, log.recovery_point, log.log_end_offset) == (20, 20, 21)
    assert await log.flush() == 21


async def test_concurrent_flushes_share_one_fsync(disk: MemoryDisk) -> None:
    log = make_log(disk)
    log.append_as_leader(batch(["a"]), 1)
    await log.flush()
    log.append_as_leader(batch(["b"]), 1)
    disk.calls.clear()

    async def yield_once() -> None:
        await asyncio.sleep(0)

    disk.during_sync = yield_once
    async with asyncio.TaskGroup() as group:
        tasks = [group.create_task(log.flush()) for _ in range(10)]
    assert [task.result() for task in tasks] == [2] * 10
    assert [call[0] for call in disk.calls] == ["sync"]


async def test_a_flush_proves_nothing_about_what_a_truncation_replaced(disk: MemoryDisk) -> None:
    log = make_log(disk)
    for _ in range(10):
        log.append_as_leader(batch(["a"]), 1)

    async def diverge() -> None:
        disk.during_sync = None
        log.truncate_to(4)
        for _ in range(4):
            log.append_as_leader(batch(["b"]), 2)

    disk.during_sync = diverge
    await log.flush()
    assert log.log_end_offset == 8
    assert log.synced_offset in (4, 8)
    await log.flush()
    assert log.synced_offset == 8
    assert bytes(disk.entries[f"{PATH}/00000000000000000000.log"].durable) == everything(log)


async def test_a_failed_fsync_is_final(disk: MemoryDisk) -> None:
    log = make_log(disk)
    log.append_as_leader(batch(["a"]), 1)
    disk.fail_sync = True
    with pytest.raises(StorageError):
        await log.flush()
    disk.fail_sync = False
    with pytest.raises(StorageError):
        await log.flush()
    assert log.synced_offset == 0


async def test_metadata_is_durable_before_data(disk: MemoryDisk) -> None:
    log = make_log(disk)
    log.append_as_leader(batch(["a"]), 1)
    await log.flush()
    assert f"{PATH}/partition.metadata" in disk.durable_entries
    order = [path.rsplit("/", 1)[1] for call, path, _ in disk.calls if call == "sync"]
    assert order == ["partition.metadata", "leader-epoch-checkpoint", "00000000000000000000.log"]


async def test_a_new_log_is_only_a_directory(disk: MemoryDisk) -> None:
    log = make_log(disk)
    assert not disk.calls and not disk.entries
    log.append_as_leader(batch(["a"]), 1)
    written = [path.rsplit("/", 1)[1] for call, path, _ in disk.calls if call in ("write_file", "append")]
    assert written.index("partition.metadata") < written.index("00000000000000000000.log")
    assert reopen(disk).topic_id == log.topic_id


@pytest.mark.parametrize("how", ["flush", "close_cleanly", "truncate"])
async def test_a_log_without_records_has_its_topics_id_on_disk_before_anything_relies_on_it(
    disk: MemoryDisk, how: str
) -> None:
    log = make_log(disk)
    if how == "truncate":
        log.truncate_fully_and_start_at(5)
    else:
        await getattr(log, how)()
    assert f"{PATH}/partition.metadata" in (disk.entries if how == "truncate" else disk.durable_entries)
    assert reopen(disk, clean=how == "close_cleanly").topic_id == log.topic_id


@pytest.mark.checklist("F18")
async def test_an_empty_log_takes_the_id_of_the_topic_it_is_given_to(disk: MemoryDisk) -> None:
    make_log(disk)
    disk.process_crash()
    log = reopen(disk)
    assert log.topic_id == ""
    other = TopicId("b" * 22)
    log.take_topic_id(other)
    log.append_as_leader(batch(["a"]), 1)
    disk.process_crash()
    log = reopen(disk)
    assert log.topic_id == other
    log.take_topic_id(TopicId("c" * 22))  # it has records: they stay the other topic's
    assert log.topic_id == other


async def test_clean_close_and_reopen_reads_little(disk: MemoryDisk) -> None:
    log = make_log(disk, segment_bytes=100_000, index_interval_bytes=4096)
    for number in range(1000):
        log.append_as_leader(batch(["x" * 200], producer_id=9, producer_epoch=0, base_sequence=number), 1)
    await log.flush()
    log.prepare_clean_close()
    log.close()
    disk.calls.clear()
    twin = reopen(disk, clean=True, segment_bytes=100_000)
    read = sum(size for call, _, size in disk.calls if call == "read")
    assert read <= 64 * 1024
    assert (twin.log_end_offset, twin.synced_offset, twin.clean_start) == (1000, 1000, True)
    assert [kept.last_sequence for kept in twin.active_producers()[9].batches] == [995, 996, 997, 998, 999]
    assert values(twin) == values(reopen(disk))


def test_idle_handles_are_closed(disk: MemoryDisk) -> None:
    log = make_log(disk, segment_bytes=1024)
    for _ in range(100):
        log.append_as_leader(batch(["x" * 100]), 1)
    disk.open_files = 0
    twin = reopen(disk, segment_bytes=1024, handle_capacity=3)
    for offset in range(0, 100, 3):
        twin.read(offset, 100)
    assert twin.segment_count > 10 and disk.open_files <= 3
    assert twin.topic_partition == TP


def test_a_deposed_leader_that_appended_nothing_forgets_its_epoch(disk: MemoryDisk) -> None:
    """Found by simulation (seeds 40 and 60): the new leader answered "epoch 1 ends at 2", we truncated to 2 where our
    log ended already, asked again with our own epoch 2, and so on for ever."""
    log = make_log(disk)
    log.append_as_leader(batch(["a", "b"]), 1)
    log.assign_epoch_start(2, 2)
    assert log.latest_epoch == 2
    log.truncate_to(2)
    assert (log.latest_epoch, log.log_end_offset) == (1, 2)
    assert reopen(disk).latest_epoch == 1


@pytest.mark.checklist(58)
@pytest.mark.parametrize("bit", range(8 * 12))
def test_no_flipped_bit_outside_the_crc_makes_a_reader_miss_records(disk: MemoryDisk, bit: int) -> None:
    """Base offset and length of the middle batch: a reader is told of the damage there, and passes over nothing."""
    log = make_log(disk)
    for number in range(3):
        log.append_as_leader(batch([f"{number}a", f"{number}b"]), 1)
    size = len(batch(["0a", "0b"]))
    disk.entries[f"{PATH}/00000000000000000000.log"].data[size + bit // 8] ^= 1 << bit % 8
    assert [r.offset for r in read_records(log.read(0, 1 << 20).records[0])] == [0, 1]
    with pytest.raises(ApiError) as error:
        log.read(2, 1 << 20)
    assert refused(error) == ErrorCode.CORRUPT_MESSAGE and log.damaged_at == 2


def test_a_wall_clock_that_is_put_back_does_not_put_off_the_flush(disk: MemoryDisk) -> None:
    clock = ManualClock()
    log = make_log(disk, clock=clock, flush_ms=1_000)
    log.append_as_leader(batch(["a"]), 1)
    assert not log.is_flush_due(clock.now_ms + 999)
    assert log.is_flush_due(clock.now_ms + 1_000)
    assert log.is_flush_due(clock.now_ms - 3_600_000)
