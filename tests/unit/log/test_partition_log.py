"""A partition's log on a disk in memory: append, read, truncate, roll, retention, close and reopen."""

from __future__ import annotations

import pytest

from kafkalite.errors import ApiError, ErrorCode, StorageError
from kafkalite.record.batch import HEADER_SIZE, parse_header, split_batches, stamped_header
from kafkalite.record.builder import encode_batch, encode_record, end_transaction_marker
from kafkalite.record.reader import read_records
from tests.support.failing import fails_with
from tests.support.logs import PATH, TP, batch, everything, make_log, reopen, values
from tests.support.memory_disk import ManualClock, MemoryDisk


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
    with fails_with(code):
        log.append_as_leader(batch(["good"]) + spoil(batch(["bad", "bad"])) if spoil(b"x" * 80) else b"", 1)
    assert everything(log) == before and log.log_end_offset == 1


def test_wrong_counts_are_refused(disk: MemoryDisk) -> None:

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
        with fails_with(ErrorCode.INVALID_RECORD):
            log.append_as_leader(bad, 1)


def test_a_producer_chooses_no_offset(disk: MemoryDisk) -> None:
    log = make_log(disk)
    bad = (7).to_bytes(8, "big") + bytes(batch(["a"]))[8:]
    with fails_with(ErrorCode.INVALID_RECORD):
        log.append_as_leader(bad, 1)


def test_a_compacted_topic_wants_keys(disk: MemoryDisk) -> None:
    log = make_log(disk, cleanup_policy="compact")
    with fails_with(ErrorCode.INVALID_RECORD):
        log.append_as_leader(batch(["a"], key=None), 1)


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
        with fails_with(ErrorCode.OFFSET_OUT_OF_RANGE):
            log.read(outside, 100)


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
    with fails_with(ErrorCode.CORRUPT_MESSAGE):
        log.read(2, 1 << 20)
    assert log.damaged_at == 2
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
        with fails_with(ErrorCode.OFFSET_OUT_OF_RANGE):
            log.append_as_follower(refused_ones)
        assert log.log_end_offset == 2
    spoiled = bytearray(batch(["c"], base_offset=2, leader_epoch=2))
    spoiled[-1] ^= 1
    with fails_with(ErrorCode.CORRUPT_MESSAGE):
        log.append_as_follower(batch(["good"], base_offset=2, leader_epoch=2) + spoiled)
    assert log.log_end_offset == 2
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
        assert error.value.code in (ErrorCode.OFFSET_OUT_OF_RANGE, ErrorCode.CORRUPT_MESSAGE)
        assert log.log_end_offset == end


def test_log_append_time_restamps_the_batch(disk: MemoryDisk) -> None:
    clock = ManualClock(77_000)
    log = make_log(disk, clock, message_timestamp_type="LogAppendTime")
    info = log.append_as_leader(batch(["a"], timestamp_ms=5), 1)
    assert info.log_append_time_ms == 77_000
    assert [record.timestamp for record in read_records(everything(log))] == [77_000]


@pytest.mark.parametrize("buffer", [bytes, bytearray])
def test_a_producers_records_keep_their_timestamps_whatever_it_calls_them(
    disk: MemoryDisk, buffer: type[bytes | bytearray]
) -> None:
    """Readers would take the batch's largest timestamp for that of each record. As Kafka 4.4.0."""
    log = make_log(disk)
    said = stamped_header(memoryview(one := batch(["a", "b"], timestamp_ms=5)), 0, parse_header(one), 90)
    info = log.append_as_leader(memoryview(buffer(said + one[HEADER_SIZE:])), 1)
    assert (info.max_timestamp, info.log_append_time_ms) == (90, -1)
    assert [record.timestamp for record in read_records(everything(log))] == [5, 5]
    assert parse_header(everything(log)).max_timestamp == 90


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
    """Base offset and length of the middle batch: a reader gets an error there, and passes over nothing."""
    log = make_log(disk)
    for number in range(3):
        log.append_as_leader(batch([f"{number}a", f"{number}b"]), 1)
    size = len(batch(["0a", "0b"]))
    disk.entries[f"{PATH}/00000000000000000000.log"].data[size + bit // 8] ^= 1 << bit % 8
    assert [r.offset for r in read_records(log.read(0, 1 << 20).records[0])] == [0, 1]
    with fails_with(ErrorCode.CORRUPT_MESSAGE):
        log.read(2, 1 << 20)
    assert log.damaged_at == 2
