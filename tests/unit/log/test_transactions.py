"""Idempotent and transactional producers through the log: retries, fencing, what readers of committed data may see."""

from __future__ import annotations

import errno
from typing import Any

import pytest

from kafkalite.errors import ApiError, ErrorCode, StorageError
from kafkalite.log import appendable_log
from kafkalite.log.partition_log import PartitionLog
from kafkalite.record.batch import MAX_SEQUENCE
from kafkalite.record.builder import end_transaction_marker
from tests.support.logs import batch, config, everything, make_log, reopen
from tests.support.memory_disk import ManualClock, MemoryDisk, MemoryFile


def write(log: PartitionLog, producer_id: int, sequence: int, *, epoch: int = 0, transactional: bool = True) -> int:
    made = batch(
        ["v"], producer_id=producer_id, producer_epoch=epoch, base_sequence=sequence, transactional=transactional
    )
    return log.append_as_leader(made, 1).first_offset


def end(log: PartitionLog, producer_id: int, *, commit: bool, epoch: int = 0, coordinator_epoch: int = 0) -> int:
    made = end_transaction_marker(
        producer_id, epoch, commit=commit, coordinator_epoch=coordinator_epoch, timestamp_ms=1
    )
    return log.append_as_leader(made, 1, origin="coordinator").first_offset


def code_of(write_it) -> ErrorCode:
    with pytest.raises(ApiError) as error:
        write_it()
    return error.value.code


@pytest.mark.checklist("F25")
def test_the_last_five_batches_of_a_producer_are_deduplicated_on_every_replica() -> None:
    disk, other = MemoryDisk(), MemoryDisk()
    leader, follower = make_log(disk), make_log(other)
    for sequence in range(8):
        write(leader, 7, sequence, transactional=False)
    follower.append_as_follower(everything(leader))
    for log in (leader, follower, reopen(disk), reopen(other)):
        for sequence in range(3, 8):
            retry = batch(["v"], producer_id=7, producer_epoch=0, base_sequence=sequence)
            info = log.append_as_leader(retry, 2)
            assert (info.duplicate, info.first_offset, info.last_offset) == (True, sequence, sequence)
        assert code_of(lambda log=log: write(log, 7, 2, transactional=False)) == ErrorCode.OUT_OF_ORDER_SEQUENCE_NUMBER
        assert code_of(lambda log=log: write(log, 7, 9, transactional=False)) == ErrorCode.OUT_OF_ORDER_SEQUENCE_NUMBER
        assert log.log_end_offset == 8


def test_markers_are_written_whatever_max_message_bytes_says() -> None:
    """A marker has 78 bytes. The limit was lowered while the transaction was open: it could never end."""
    log = make_log(MemoryDisk())
    write(log, 7, 0)
    for commit in (False, True):
        write(log, 8, int(commit))
        log.config = config(max_message_bytes=1)
        assert code_of(lambda: write(log, 9, 0)) == ErrorCode.MESSAGE_TOO_LARGE
        end(log, 8, commit=commit)
        log.config = config()
    assert end(log, 7, commit=True) == 5
    assert log.first_unstable_offset == 0, "until the high watermark passes"
    log.forget_ended(6)
    assert log.first_unstable_offset is None


@pytest.mark.checklist("F25")
def test_a_segment_that_ends_within_an_append_has_its_producers_in_the_snapshot() -> None:
    """A follower's append holds many batches. What is behind the roll was once missing in the snapshot at the roll."""
    leader = make_log(MemoryDisk())
    for sequence in range(40):
        write(leader, 7, sequence)
        write(leader, 8, sequence, transactional=False)
    end(leader, 7, commit=False)
    write(leader, 9, 0)
    disk = MemoryDisk()
    follower = make_log(disk, segment_bytes=1024)
    follower.append_as_follower(everything(leader))
    assert follower.segment_count > 2
    expected = {producer: entry.batches for producer, entry in leader.active_producers().items()}
    again = reopen(disk, clean=False, recovery_point=follower.segments[-1].base_offset, segment_bytes=1024)
    for log in (follower, again):
        assert {producer: entry.batches for producer, entry in log.active_producers().items()} == expected
        assert log.first_unstable_offset == leader.first_unstable_offset
        assert log.aborted_transactions(0, 99) == leader.aborted_transactions(0, 99)
        log.truncate_to(log.segments[2].base_offset)
        cut = {number: entry.last_sequence for number, entry in log.active_producers().items()}
        assert sum(last + 1 for last in cut.values()) == log.log_end_offset


@pytest.mark.checklist("F25")
@pytest.mark.parametrize("committed", [False, True])
def test_a_sequence_of_a_transaction_that_has_ended_is_no_retry(*, committed: bool) -> None:
    """librdkafka gives the sequence of a batch that it purged at an abort to the next transaction, whose record was lost."""
    disk, other = MemoryDisk(), MemoryDisk()
    leader, follower = make_log(disk), make_log(other)
    write(leader, 7, 0)
    write(leader, 7, 1)
    end(leader, 7, commit=committed)
    follower.append_as_follower(everything(leader))
    for log in (leader, follower, reopen(disk), reopen(other)):
        for sequence in (0, 1):  # no transaction is open
            assert code_of(lambda log=log, number=sequence: write(log, 7, number)) == ErrorCode.INVALID_TXN_STATE
        began = write(log, 7, 2)
        assert began == 3
        assert write(log, 7, 2) == began  # a retry within the transaction
        assert log.log_end_offset == 4
        assert code_of(lambda log=log: write(log, 7, 1)) == ErrorCode.INVALID_TXN_STATE
        end(log, 7, commit=True)


def test_an_older_epoch_is_fenced_and_a_newer_one_starts_at_zero() -> None:
    log = make_log(MemoryDisk())
    write(log, 7, 0, epoch=3)
    assert code_of(lambda: write(log, 7, 1, epoch=2)) == ErrorCode.INVALID_PRODUCER_EPOCH
    assert code_of(lambda: write(log, 7, 1, epoch=4)) == ErrorCode.OUT_OF_ORDER_SEQUENCE_NUMBER
    end(log, 7, commit=False, epoch=4)
    assert code_of(lambda: write(log, 7, 1, epoch=3)) == ErrorCode.INVALID_PRODUCER_EPOCH, "a marker fences too"
    assert write(log, 7, 0, epoch=4) == 2


def test_a_zombie_coordinator_is_fenced() -> None:
    log = make_log(MemoryDisk())
    write(log, 7, 0)
    end(log, 7, commit=True, coordinator_epoch=5)
    assert code_of(lambda: end(log, 7, commit=True, coordinator_epoch=4)) == ErrorCode.TRANSACTION_COORDINATOR_FENCED


def test_plain_records_do_not_enter_an_open_transaction() -> None:
    log = make_log(MemoryDisk())
    write(log, 7, 0)
    assert code_of(lambda: write(log, 7, 1, transactional=False)) == ErrorCode.INVALID_TXN_STATE


def test_the_last_stable_offset_waits_for_open_transactions_and_for_markers_to_be_committed() -> None:
    disk = MemoryDisk()
    log = make_log(disk)
    write(log, 7, 0)  # 0
    write(log, 8, 0)  # 1
    end(log, 7, commit=True)  # 2
    write(log, 9, 0)  # 3
    assert log.last_stable_offset(3) == 1
    end(log, 8, commit=False)  # 4
    assert log.first_unstable_offset == 1
    assert log.last_stable_offset(4) == 1, "the marker at 4 is not committed yet"
    assert log.last_stable_offset(5) == 3
    end(log, 9, commit=False)  # 5
    assert log.last_stable_offset(6) == 6 and log.first_unstable_offset is None
    aborted = [
        (a.producer_id, a.first_offset, a.last_offset, a.last_stable_offset) for a in log.aborted_transactions(0, 9)
    ]
    assert aborted == [(8, 1, 4, 3), (9, 3, 5, 6)]
    assert [a.producer_id for a in log.aborted_transactions(5, 9)] == [9]
    assert [a.producer_id for a in log.aborted_transactions(0, 2)] == [8]
    assert reopen(disk).aborted_transactions(0, 9) == log.aborted_transactions(0, 9)
    log.truncate_to(4)
    assert (log.aborted_transactions(0, 9), log.first_unstable_offset) == ([], 0)
    assert log.last_stable_offset(4) == 1


def test_silent_producers_are_forgotten_but_not_in_the_middle_of_a_transaction() -> None:
    log = make_log(MemoryDisk())
    write(log, 7, 0, transactional=False)
    write(log, 8, 0)
    assert log.expire_producers(1_000 + 101, 100, 5.0) == 0
    assert log.expire_producers(1_000 + 101, 100, 6.0) == 1
    assert sorted(log.active_producers()) == [8]
    write(log, 7, 55, transactional=False)  # unknown again: it may start anywhere (KIP-360)


def test_who_writes_of_long_ago_is_remembered_as_long_as_it_may_repeat_itself() -> None:
    """Its records' timestamps are its own, and the wall clock may jump by days: its batch was in the log twice."""
    log = make_log(MemoryDisk())
    day_ms, hour_s = 24 * 3_600_000, 3_600.0
    first = write(log, 7, 0, transactional=False)
    for now_s in (0.0, 300.0, hour_s - 1):
        assert log.expire_producers(400 * day_ms, day_ms, now_s) == 0
        assert write(log, 7, 0, transactional=False) == first
    second = write(log, 7, 1, transactional=False)
    assert log.expire_producers(400 * day_ms, day_ms, hour_s) == 0
    assert log.expire_producers(400 * day_ms, day_ms, 2 * hour_s - 1) == 0
    assert (write(log, 7, 1, transactional=False), log.log_end_offset) == (second, second + 1)
    assert log.expire_producers(400 * day_ms, day_ms, 2 * hour_s) == 1


def test_what_is_stable_ends_nowhere_before_the_log_begins() -> None:
    """DeleteRecords, or retention, may remove the beginning of an open transaction. `latest` of a reader of committed records was
    an offset below the log's start: out of range, so that it was reset to the same offset for ever."""
    log = make_log(MemoryDisk())
    write(log, 7, 0)
    for sequence in range(4):
        write(log, 8, sequence, transactional=False)
    log.advance_log_start_offset(3)
    assert (log.first_unstable_offset, log.last_stable_offset(5)) == (3, 3)
    end(log, 7, commit=False)
    assert log.last_stable_offset(5) == 3
    assert log.last_stable_offset(6) == 6
    assert log.aborted_transactions(3, 6) != []


def test_a_retry_is_answered_with_the_time_of_its_append() -> None:
    clock = ManualClock(77_000)
    log = make_log(MemoryDisk(), clock, message_timestamp_type="LogAppendTime")
    made = batch(["v"], timestamp_ms=5, producer_id=7, producer_epoch=0, base_sequence=0)
    first = log.append_as_leader(made, 1)
    clock.now_ms += 1_000
    again = log.append_as_leader(made, 1)
    assert (first.log_append_time_ms, again.log_append_time_ms, again.duplicate) == (77_000, 77_000, True)
    follower = make_log(MemoryDisk())
    follower.append_as_follower(everything(log))
    assert log.active_producers()[7].timestamp == follower.active_producers()[7].timestamp == 77_000


def test_a_truncation_of_a_log_without_producers_reads_none_of_it_again(monkeypatch: pytest.MonkeyPatch) -> None:
    log = make_log(MemoryDisk())
    for _ in range(5):
        log.append_as_leader(batch(["v"]), 1)
    monkeypatch.setattr(appendable_log, "replay", None)
    log.truncate_to(4)
    assert log.log_end_offset == 4


def test_an_append_that_is_undone_leaves_the_producers_as_they_were(monkeypatch: pytest.MonkeyPatch) -> None:
    """They are not looked for in the segment again: that would hold the loop for seconds."""
    disk = MemoryDisk()
    log = make_log(disk, segment_bytes=300)
    write(log, 7, 0)
    write(log, 8, 0, transactional=False)
    log.roll()
    write(log, 8, 1, transactional=False)
    before = log._producers.encode_snapshot()

    def never(*_: object) -> None:
        raise AssertionError("the segment is read")

    monkeypatch.setattr(appendable_log, "replay", never)
    append, appends = MemoryFile.append, 0

    def second(self: MemoryFile, buffers: Any) -> int:
        nonlocal appends
        appends += self.path.endswith(".log")
        if appends == 2:
            raise OSError(errno.EIO, "injected")
        return append(self, buffers)

    monkeypatch.setattr(MemoryFile, "append", second)
    large = [
        batch(["v" * 200], producer_id=number, producer_epoch=0, base_sequence=sequence, transactional=number == 7)
        for number, sequence in ((8, 2), (7, 1), (9, 0))
    ]
    with pytest.raises(StorageError):
        log.append_as_leader(b"".join(large), 1)
    assert appends == 2 and log.log_end_offset == 3
    assert log._producers.encode_snapshot() == before and log.last_stable_offset(3) == 0


def test_a_transaction_begins_with_its_first_batch_where_sequences_go_on_at_zero() -> None:
    """The batch with the sequence 0 waited for the coordinator, too, and counted as the one before all others."""
    log = make_log(MemoryDisk())
    write(log, 7, MAX_SEQUENCE - 1)
    end(log, 7, commit=True)
    guards = [log.begin_verification(7, 0, sequence) for sequence in (MAX_SEQUENCE, 0)]

    def append(sequence: int) -> int:
        made = batch(["v"], producer_id=7, producer_epoch=0, base_sequence=sequence, transactional=True)
        return log.append_as_leader(made, 1, guard=guards[0]).first_offset

    assert guards[0] == guards[1]
    assert code_of(lambda: append(0)) == ErrorCode.OUT_OF_ORDER_SEQUENCE_NUMBER
    assert [append(MAX_SEQUENCE), append(0)] == [2, 3]


@pytest.mark.parametrize("is_known", [False, True])
def test_a_producer_with_an_epoch_for_each_transaction_begins_at_zero(*, is_known: bool) -> None:
    """Its second batch came first where the leader had just changed, and the first one was out of order then."""
    log = make_log(MemoryDisk())
    if is_known:  # from a transaction that ended in the same epoch: of transaction.version 1
        write(log, 7, 0)
        end(log, 7, commit=True)
    first = log.log_end_offset
    guard = log.begin_verification(7, 0, 1, begins_at_zero=True)
    second = batch(["v"], producer_id=7, producer_epoch=0, base_sequence=1, transactional=True)
    if is_known:
        assert log.append_as_leader(second, 1, guard=guard).first_offset == first
        return
    assert code_of(lambda: log.append_as_leader(second, 1, guard=guard)) == ErrorCode.OUT_OF_ORDER_SEQUENCE_NUMBER
    assert log.begin_verification(7, 0, 0, begins_at_zero=True) == guard
    records = batch(["v"], producer_id=7, producer_epoch=0, base_sequence=0, transactional=True)
    assert log.append_as_leader(records, 1, guard=guard).first_offset == first
    assert log.append_as_leader(second, 1, guard=0).first_offset == first + 1
