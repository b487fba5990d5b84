"""What the state of a partition's producers refuses, forgets and writes down."""

from __future__ import annotations

import struct

import pytest

from kafkalite.errors import ErrorCode
from kafkalite.log.producer_state import PreparedAppend, ProducerStates
from kafkalite.log.verification import NO_GUARD
from kafkalite.record.batch import BatchHeader, parse_header
from kafkalite.record.builder import end_transaction_marker
from kafkalite.record.checksum import crc32c
from kafkalite.record.reader import EndTransactionMarker
from tests.support.failing import fails_with
from tests.support.logs import batch

PRODUCER = 7


def header_of(sequence: int, *, epoch: int = 0, transactional: bool = False, timestamp_ms: int = 1000) -> BatchHeader:
    return parse_header(
        batch(
            ["a"],
            producer_id=PRODUCER,
            producer_epoch=epoch,
            base_sequence=sequence,
            transactional=transactional,
            timestamp_ms=timestamp_ms,
        )
    )


def take(states: ProducerStates, header: BatchHeader, offset: int) -> None:
    prepared = PreparedAppend()
    states.prepare(prepared, header, offset, None, from_client=True, replicated=False)
    states.apply(prepared)


def end(states: ProducerStates, offset: int, *, epoch: int, coordinator_epoch: int = 3, version: int = 1) -> None:
    """The transaction's commit marker."""
    prepared = PreparedAppend()
    made = end_transaction_marker(
        producer_id=PRODUCER, producer_epoch=epoch, commit=True, coordinator_epoch=coordinator_epoch, timestamp_ms=2000
    )
    marker = EndTransactionMarker(commit=True, coordinator_epoch=coordinator_epoch)
    states.prepare(
        prepared, parse_header(made), offset, marker, from_client=False, replicated=False, transaction_version=version
    )
    states.apply(prepared)


def test_the_coordinator_epoch_is_that_of_the_last_marker() -> None:
    states = ProducerStates()
    assert states.coordinator_epoch(PRODUCER) == -1
    take(states, header_of(0, transactional=True), 0)
    assert states.coordinator_epoch(PRODUCER) == -1
    end(states, 1, epoch=0, coordinator_epoch=3)
    assert states.coordinator_epoch(PRODUCER) == 3


def test_only_a_batch_that_begins_a_transaction_needs_its_guard() -> None:
    states = ProducerStates()
    states.check_verified(header_of(0), NO_GUARD)
    marker = parse_header(
        end_transaction_marker(
            producer_id=PRODUCER, producer_epoch=0, commit=True, coordinator_epoch=0, timestamp_ms=1000
        )
    )
    states.check_verified(marker, NO_GUARD)
    first = header_of(0, transactional=True)
    guard = states.begin_verification(PRODUCER, 0, 0)
    for wrong in (NO_GUARD, guard + 1):
        with fails_with(ErrorCode.INVALID_TXN_STATE):
            states.check_verified(first, wrong)
    states.check_verified(first, guard)
    take(states, first, 0)
    states.check_verified(header_of(1, transactional=True), NO_GUARD)


@pytest.mark.parametrize(
    ("version", "epoch", "is_open", "refused"),
    [
        (2, 0, True, True),  # a repeated marker of the transaction before (KIP-1228)
        (2, 0, False, False),
        (2, 1, True, False),
        (1, 0, True, False),
    ],
)
def test_a_marker_of_version_2_has_an_epoch_above_its_transactions(
    *, version: int, epoch: int, is_open: bool, refused: bool
) -> None:
    states = ProducerStates()
    take(states, header_of(0, transactional=is_open), 0)
    if refused:
        with fails_with(ErrorCode.INVALID_PRODUCER_EPOCH):
            end(states, 1, epoch=epoch, version=version)
        assert states.first_unstable_offset == 0
    else:
        end(states, 1, epoch=epoch, version=version)
        assert states.active()[PRODUCER].coordinator_epoch == 3


@pytest.mark.parametrize("until", [1, 2, 3])
def test_a_followers_batches_are_taken_in_two_parts_whatever_their_sequences_and_epochs(until: int) -> None:
    """A follower has what its leader has: gaps after a compaction, and an older epoch after a newer one."""
    states, prepared = ProducerStates(), PreparedAppend()
    for offset, header in enumerate([header_of(0), header_of(5), header_of(6, epoch=2), header_of(9, epoch=1)]):
        states.prepare(prepared, header, offset, None, from_client=False, replicated=True)
    states.apply_until(prepared, until)
    assert [base for _, base, _ in prepared.batches] == list(range(until, 4))
    states.apply(prepared)
    assert states.active()[PRODUCER].last_sequence == 9


def test_a_producer_whose_last_record_is_as_old_as_allowed_is_kept() -> None:
    states = ProducerStates()
    take(states, header_of(0, timestamp_ms=1000), 0)
    for before_ms, forgotten in ((1000, 0), (1001, 1)):
        states.expire(before_ms, now_s=0, patience_s=10)
        assert states.expire(before_ms, now_s=10, patience_s=10) == forgotten


def test_the_snapshot_of_a_producer_without_batches_is_kafkas() -> None:
    states = ProducerStates()
    take(states, header_of(0, transactional=True), 0)
    end(states, 1, epoch=1, coordinator_epoch=3, version=2)
    data = states.encode_snapshot()
    fields = struct.unpack_from(">qhiqiqiq", data, 10)
    assert fields == (PRODUCER, 1, -1, -1, 0, 2000, 3, -1)
    twin = ProducerStates.decode_snapshot(data)
    assert twin is not None and twin.active()[PRODUCER].batches == () and twin.active()[PRODUCER].producer_epoch == 1


def test_a_snapshot_of_another_version_is_not_read() -> None:
    states = ProducerStates()
    take(states, header_of(0), 0)
    data = bytearray(states.encode_snapshot())
    struct.pack_into(">h", data, 0, 2)
    assert struct.unpack_from(">I", data, 2) == (crc32c(memoryview(data)[6:]),)
    assert ProducerStates.decode_snapshot(bytes(data)) is None
