"""Transitions of a transactional id, and their form in the log."""

from __future__ import annotations

from dataclasses import replace

import pytest

from kafkalite.coordinators.transactions import state as rules
from kafkalite.coordinators.transactions.state import MAX_PRODUCER_EPOCH, Transaction, TransactionState
from kafkalite.errors import ApiError, ErrorCode
from kafkalite.model import ProducerId, TopicPartition
from kafkalite.protocol.errors import WireError

P0, P1 = TopicPartition("t", 0), TopicPartition("t", 1)
FRESH = ProducerId(900)
NEW = rules.begin("id", ProducerId(7), 60_000, 1)
OPEN = rules.add_partitions(NEW, 7, 0, [P0], 5)
ANY = (-1, -1)


class _Refused:
    def __init__(self, code: ErrorCode) -> None:
        self.code = code

    def __enter__(self) -> None:
        return None

    def __exit__(self, kind: object, error: BaseException | None, trace: object) -> bool:
        assert isinstance(error, ApiError), f"{self.code.name} expected, nothing refused"
        assert error.code is self.code, error.code.name
        return True


def test_a_commit_from_beginning_to_end() -> None:
    assert (OPEN.state, OPEN.partitions, OPEN.started_ms) == (TransactionState.ONGOING, frozenset({P0}), 5)
    more = rules.add_partitions(OPEN, 7, 0, [P1], 9)
    assert (more.partitions, more.started_ms) == (frozenset({P0, P1}), 5)
    assert rules.add_partitions(more, 7, 0, [P0], 10) is more
    prepared = rules.end(more, 7, 0, 11, is_commit=True)
    assert prepared.state is TransactionState.PREPARE_COMMIT
    done = rules.complete(prepared, 12)
    assert (done.state, done.partitions) == (TransactionState.COMPLETE_COMMIT, frozenset())
    assert rules.end(done, 7, 0, 13, is_commit=True) is done  # a repeated EndTxn
    again = rules.add_partitions(done, 7, 0, [P1], 20)
    assert (again.partitions, again.started_ms) == (frozenset({P1}), 20)


def test_who_is_not_the_producer_is_fenced() -> None:
    with _Refused(ErrorCode.INVALID_PRODUCER_ID_MAPPING):
        rules.add_partitions(None, 7, 0, [P0], 1)
    with _Refused(ErrorCode.INVALID_PRODUCER_ID_MAPPING):
        rules.end(None, 7, 0, 1, is_commit=True)
    with _Refused(ErrorCode.INVALID_PRODUCER_ID_MAPPING):
        rules.add_partitions(NEW, 8, 0, [P0], 1)
    with _Refused(ErrorCode.PRODUCER_FENCED):
        rules.end(replace(OPEN, producer_epoch=1), 7, 0, 1, is_commit=True)


def test_ends_that_do_not_fit() -> None:
    prepared = rules.end(OPEN, 7, 0, 2, is_commit=False)
    with _Refused(ErrorCode.INVALID_TXN_STATE):
        rules.end(NEW, 7, 0, 2, is_commit=True)
    for is_commit in (False, True):
        with _Refused(ErrorCode.CONCURRENT_TRANSACTIONS):
            rules.end(prepared, 7, 0, 2, is_commit=is_commit)
    with _Refused(ErrorCode.CONCURRENT_TRANSACTIONS):
        rules.add_partitions(prepared, 7, 0, [P0], 2)
    with _Refused(ErrorCode.INVALID_TXN_STATE):
        rules.end(rules.complete(prepared, 3), 7, 0, 4, is_commit=True)


def test_a_new_incarnation_gets_the_next_epoch() -> None:
    after = rules.init_producer(NEW, ANY, 30_000, FRESH, 9)
    assert (after.producer_id, after.producer_epoch, after.timeout_ms) == (7, 1, 30_000)
    assert after.state is TransactionState.EMPTY


def test_a_new_incarnation_aborts_what_is_open_and_fences_it() -> None:
    aborting = rules.init_producer(OPEN, ANY, 60_000, FRESH, 9)
    assert (aborting.state, aborting.producer_epoch) == (TransactionState.PREPARE_ABORT, 1)
    with _Refused(ErrorCode.CONCURRENT_TRANSACTIONS):
        rules.init_producer(aborting, ANY, 60_000, FRESH, 10)
    with _Refused(ErrorCode.PRODUCER_FENCED):
        rules.end(aborting, 7, 0, 10, is_commit=True)
    granted = rules.init_producer(rules.complete(aborting, 11), ANY, 60_000, FRESH, 12)
    assert granted.producer_epoch == 2


def test_a_producer_that_tells_its_epoch() -> None:
    bumped = rules.init_producer(NEW, (7, 0), 60_000, FRESH, 2)
    assert bumped.producer_epoch == 1
    assert rules.init_producer(bumped, (7, 0), 60_000, FRESH, 3) is bumped  # its answer was lost
    with _Refused(ErrorCode.PRODUCER_FENCED):
        rules.init_producer(replace(bumped, producer_epoch=5, last_producer_epoch=-1), (7, 0), 60_000, FRESH, 3)
    with _Refused(ErrorCode.PRODUCER_FENCED):
        rules.init_producer(NEW, (8, 0), 60_000, FRESH, 3)


def test_epochs_that_are_used_up_bring_a_new_producer_id() -> None:
    last = replace(NEW, producer_epoch=MAX_PRODUCER_EPOCH)
    after = rules.init_producer(last, ANY, 60_000, FRESH, 3)
    assert (after.producer_id, after.producer_epoch) == (FRESH, 0)
    # A fence still has an epoch left, and what fits the wire.
    fenced = rules.fence(replace(OPEN, producer_epoch=MAX_PRODUCER_EPOCH), 3)
    assert fenced.producer_epoch == 2**15 - 1
    assert rules.parse(rules.key_of("id"), rules.value_of(fenced))[1] == fenced


def test_nobody_gets_the_epoch_that_only_fences() -> None:
    """Behind it there is none: the next bump did not fit the log, and brought down every node that coordinated the id."""
    open_last = replace(OPEN, producer_epoch=MAX_PRODUCER_EPOCH, client_version=2)
    fenced = rules.complete(rules.fence(open_last, 3), 4)
    assert (fenced.producer_epoch, fenced.last_producer_epoch) == (2**15 - 1, MAX_PRODUCER_EPOCH)
    after = rules.init_producer(fenced, (7, MAX_PRODUCER_EPOCH), 60_000, FRESH, 5)
    assert (after.producer_id, after.producer_epoch, after.state) == (FRESH, 0, TransactionState.EMPTY)
    assert rules.init_producer(after, (7, MAX_PRODUCER_EPOCH), 60_000, FRESH, 6) is after  # its answer was lost
    with _Refused(ErrorCode.PRODUCER_FENCED):
        rules.add_partitions(fenced, 7, 2**15 - 1, [P0], 5)
    with _Refused(ErrorCode.PRODUCER_FENCED):
        rules.end_and_bump(fenced, 7, 2**15 - 1, FRESH, 5, is_commit=False)


def test_a_producer_that_aborts_what_was_aborted_under_the_last_epoch_gets_another_id() -> None:
    """The coordinator has aborted its overdue transaction under the epoch that only fences. The answer to its own abort had that epoch,
    with which it could begin nothing, and not even end anything: it was fenced, and nobody had taken its place."""
    aborted = rules.complete(rules.fence(replace(OPEN, producer_epoch=MAX_PRODUCER_EPOCH, client_version=2), 3), 4)
    after = rules.end_and_bump(aborted, 7, MAX_PRODUCER_EPOCH, FRESH, 5, is_commit=False)
    assert (rules.producer_after(after), after.state) == ((FRESH, 0), TransactionState.COMPLETE_ABORT)
    assert rules.add_partitions(after, FRESH, 0, [P0], 6, 2).is_open
    for stored in (after, rules.parse(rules.key_of(after.transactional_id), rules.value_of(after))[1]):
        assert stored is not None
        assert rules.end_and_bump(stored, 7, MAX_PRODUCER_EPOCH, FRESH, 6, is_commit=False) is stored, "it is repeated"
    assert rules.init_producer(after, (7, MAX_PRODUCER_EPOCH), 60_000, FRESH, 6) is after
    with _Refused(ErrorCode.INVALID_TXN_STATE):
        rules.end_and_bump(aborted, 7, MAX_PRODUCER_EPOCH, FRESH, 5, is_commit=True)


def test_verification() -> None:
    assert rules.verify_partition(OPEN, 7, 0, P0) is ErrorCode.NONE
    assert rules.verify_partition(OPEN, 7, 0, P1) is ErrorCode.INVALID_TXN_STATE
    assert rules.verify_partition(NEW, 7, 0, P0) is ErrorCode.INVALID_TXN_STATE


def test_the_log_holds_kafkas_records() -> None:
    assert rules.key_of("id").hex() == "0000" + "0002" + b"id".hex()
    value = rules.value_of(OPEN)
    assert value.hex() == (
        "0000000000000000000700000000ea6001"
        "000000010001740000000100000000"
        "00000000000000050000000000000005"
    )  # fmt: skip
    assert rules.parse(rules.key_of("id"), value) == ("id", OPEN)
    assert rules.parse(rules.key_of("id"), None) == ("id", None)
    assert rules.parse(rules.key_of("id"), rules.value_of(NEW)) == ("id", NEW)
    for key, raw in ((b"\0\x09", b""), (None, b""), (rules.key_of("id"), b"\0\x07"), (rules.key_of("id"), b"")):
        with pytest.raises(WireError):
            rules.parse(key, raw)


def test_only_what_is_under_way_is_open() -> None:
    assert OPEN.is_open and not NEW.is_open


def test_states_have_kafkas_names() -> None:
    assert TransactionState.PREPARE_COMMIT.wire_name == "PrepareCommit"
    assert isinstance(OPEN, Transaction)


@pytest.mark.parametrize(("version", "last"), [(0, -1), (1, -1), (2, 0), (3, 0)])
def test_a_fence_remembers_the_epoch_where_the_coordinator_bumps(version: int, last: int) -> None:
    """KIP-890: the client may end its transaction once more with the epoch that it has."""
    assert rules.fence(replace(OPEN, client_version=version), 3).last_producer_epoch == last
    assert rules.fence(OPEN, 3, version).last_producer_epoch == last


@pytest.mark.parametrize(("version", "goes_on"), [(0, False), (1, False), (2, True)])
def test_a_producer_gets_the_next_epoch_after_its_own_transaction_was_aborted(version: int, *, goes_on: bool) -> None:
    """KIP-360, whatever its own version: the transaction took too long, or was open when it asked for the next epoch."""
    asked = rules.init_producer(OPEN, (7, 0), 60_000, FRESH, 3, version)
    for aborting in (asked, rules.fence(OPEN, 3, version)):
        aborted = rules.complete(aborting, 4)
        assert rules.parse(rules.key_of("id"), rules.value_of(aborted))[1] == aborted
        if goes_on:
            assert rules.init_producer(aborted, (7, 0), 60_000, FRESH, 5, version) is aborted
        else:
            with _Refused(ErrorCode.PRODUCER_FENCED):
                rules.init_producer(aborted, (7, 0), 60_000, FRESH, 5, version)


@pytest.mark.parametrize("epoch", [0, MAX_PRODUCER_EPOCH])
def test_only_who_has_told_its_epoch_can_repeat_itself(epoch: int) -> None:
    known = replace(NEW, producer_epoch=epoch)
    assert rules.init_producer(known, ANY, 60_000, FRESH, 3).last_producer_epoch == -1
    after = rules.init_producer(known, (7, epoch), 60_000, FRESH, 3)
    assert after.last_producer_epoch == epoch
    assert rules.init_producer(after, (7, epoch), 60_000, FRESH, 4) is after
    with _Refused(ErrorCode.PRODUCER_FENCED):
        rules.init_producer(after, (7, epoch - 1), 60_000, FRESH, 4)


def test_an_end_while_the_markers_are_under_way() -> None:
    """As seen with Kafka 4.4.0: whoever asks for whatever, it is early."""
    prepared = rules.end_and_bump(replace(OPEN, producer_epoch=5), 7, 5, FRESH, 9, is_commit=True)
    assert (prepared.state, prepared.producer_epoch) == (TransactionState.PREPARE_COMMIT, 6)
    for producer_id, epoch in ((7, 4), (7, 5), (7, 6), (7, 7), (8, 6), (FRESH, 0)):
        for is_commit in (True, False):
            with _Refused(ErrorCode.CONCURRENT_TRANSACTIONS):
                rules.end_and_bump(prepared, producer_id, epoch, FRESH, 10, is_commit=is_commit)
        with _Refused(ErrorCode.CONCURRENT_TRANSACTIONS):
            rules.add_partitions(prepared, producer_id, epoch, [P0], 10)
        with _Refused(ErrorCode.CONCURRENT_TRANSACTIONS):
            rules.init_producer(prepared, (ProducerId(producer_id), epoch), 60_000, FRESH, 10)
    for producer_id, epoch, code in (
        (7, 5, ErrorCode.PRODUCER_FENCED), (7, 6, ErrorCode.CONCURRENT_TRANSACTIONS), (8, 6, ErrorCode.INVALID_PRODUCER_ID_MAPPING),
    ):  # fmt: skip
        with _Refused(code):
            rules.end(prepared, producer_id, epoch, 10, is_commit=True)


def test_an_end_after_the_markers_is_repeated_with_the_epoch_before_only() -> None:
    prepared = rules.end_and_bump(replace(OPEN, producer_epoch=5), 7, 5, FRESH, 9, is_commit=True)
    done = rules.complete(prepared, 10)
    assert rules.end_and_bump(done, 7, 5, FRESH, 11, is_commit=True) is done
    for producer_id, epoch, code in (
        (7, 4, ErrorCode.PRODUCER_FENCED), (7, 7, ErrorCode.PRODUCER_FENCED), (8, 6, ErrorCode.INVALID_PRODUCER_ID_MAPPING),
    ):  # fmt: skip
        with _Refused(code):
            rules.end_and_bump(done, producer_id, epoch, FRESH, 11, is_commit=True)
    with _Refused(ErrorCode.INVALID_TXN_STATE):
        rules.end_and_bump(done, 7, 5, FRESH, 11, is_commit=False)
    # The producer id has changed: the last epoch of the one before counts as the epoch before.
    moved = replace(done, producer_id=FRESH, producer_epoch=0, previous_producer_id=ProducerId(7))
    assert rules.end_and_bump(moved, 7, MAX_PRODUCER_EPOCH, FRESH, 12, is_commit=True) is moved
    with _Refused(ErrorCode.INVALID_PRODUCER_ID_MAPPING):
        rules.end_and_bump(replace(moved, producer_epoch=1), 7, MAX_PRODUCER_EPOCH, FRESH, 12, is_commit=True)


@pytest.mark.parametrize(
    ("version", "state", "is_repeated"),
    [
        (2, TransactionState.COMPLETE_COMMIT, True), (2, TransactionState.COMPLETE_ABORT, True),
        (1, TransactionState.COMPLETE_COMMIT, True), (1, TransactionState.COMPLETE_ABORT, True),
        (2, TransactionState.ONGOING, False), (1, TransactionState.ONGOING, False), (1, TransactionState.EMPTY, True),
    ],
)  # fmt: skip
def test_an_epoch_that_was_given_already(version: int, state: TransactionState, *, is_repeated: bool) -> None:
    known = replace(NEW, producer_epoch=6, last_producer_epoch=5, client_version=version, state=state)
    if is_repeated:
        assert rules.init_producer(known, (7, 5), 60_000, FRESH, 3) is known
    else:
        with _Refused(ErrorCode.PRODUCER_FENCED):
            rules.init_producer(known, (7, 5), 60_000, FRESH, 3)


def test_a_producer_with_its_next_id_waits_for_the_markers() -> None:
    prepared = replace(rules.end(OPEN, 7, 0, 2, is_commit=True), next_producer_id=FRESH)
    for producer_id, epoch, code in (
        (FRESH, 0, ErrorCode.CONCURRENT_TRANSACTIONS), (8, 0, ErrorCode.INVALID_PRODUCER_ID_MAPPING),
        (7, 3, ErrorCode.PRODUCER_FENCED),
    ):  # fmt: skip
        with _Refused(code):
            rules.end(prepared, producer_id, epoch, 3, is_commit=True)


def test_what_an_end_that_bumps_the_epoch_leaves_to_the_markers() -> None:
    ended = rules.end_and_bump(OPEN, 7, 0, FRESH, 9, is_commit=True)
    assert (ended.partitions, ended.started_ms, ended.last_producer_epoch) == (frozenset({P0}), 5, 0)
    # An abort without an open transaction: nothing gets a marker.
    done = replace(ended, state=TransactionState.COMPLETE_COMMIT)
    empty = rules.end_and_bump(done, 7, 1, FRESH, 20, is_commit=False)
    assert (empty.state, empty.partitions, empty.started_ms) == (TransactionState.PREPARE_ABORT, frozenset(), 20)
    with _Refused(ErrorCode.INVALID_TXN_STATE):
        rules.end_and_bump(done, 7, 1, FRESH, 20, is_commit=True)
