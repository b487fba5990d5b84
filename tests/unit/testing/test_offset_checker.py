"""The oracles of committed offsets, and of share groups that have an administrator: what they take, and what they do not."""

import pytest

from kafkalite.testing.simulation.checkers.administered import AdministeredShares
from kafkalite.testing.simulation.checkers.cluster import Violation
from kafkalite.testing.simulation.checkers.offsets import CommittedOffsets, OffsetKey
from kafkalite.testing.simulation.checkers.transactions import TransactionOutcome

A, B = OffsetKey("g", "t", 0), OffsetKey("h", "t", 0)
P = ("topic", 0)


def test_an_offset_counts_when_its_transaction_commits() -> None:
    made = CommittedOffsets()
    commit = made.begin("t.1")
    offset = made.next_offset(commit, A)
    nothing = made.floor(A)
    made.read(A, -1, nothing, is_stable=True)
    for outcome in (TransactionOutcome.OPEN, TransactionOutcome.ABORTED):
        commit.outcome = outcome
        with pytest.raises(Violation, match="no offset of an open or aborted transaction"):
            made.read(A, offset, nothing, is_stable=False)
    made.is_committed(commit, is_visible=False)
    # A reader that waits for transactions sees it. One that does not wait, or that asked earlier, may still be shown the offset before.
    made.read(A, -1, made.floor(A), is_stable=False)
    made.read(A, -1, nothing, is_stable=True)
    with pytest.raises(Violation, match="committed offsets stay"):
        made.read(A, -1, made.floor(A), is_stable=True)


def test_what_one_reader_was_shown_the_next_one_is_shown_too() -> None:
    made = CommittedOffsets()
    commit = made.begin("t.1")
    offset = made.next_offset(commit, A)
    made.next_offset(commit, B)
    commit.outcome = TransactionOutcome.UNKNOWN
    made.read(A, -1, made.floor(A), is_stable=True)
    made.read(A, offset, made.floor(A), is_stable=False)
    with pytest.raises(Violation, match="committed offsets stay"):
        made.read(A, -1, made.floor(A), is_stable=False)
    # So it has committed, in the other group as well.
    made.read(B, -1, made.floor(B), is_stable=False)
    with pytest.raises(Violation, match="committed offsets stay"):
        made.read(B, -1, made.floor(B), is_stable=True)


def test_an_offset_that_nobody_has_sent() -> None:
    made = CommittedOffsets()
    with pytest.raises(Violation, match="nobody has sent"):
        made.read(A, 3, made.floor(A), is_stable=False)


def test_a_share_group_begins_where_its_administrator_says() -> None:
    made = AdministeredShares(10)
    made.write(P, 0, 4)
    made.begin(1.0, {P: 2})
    assert made.missing() == "('topic', 0): 2 records, from 2 on"
    with pytest.raises(Violation, match="begins where its administrator says"):
        made.confirm(P, 1, is_rejected=False)
    made.doubt(P, 2, is_rejected=False)
    made.doubt(P, 3, is_rejected=False)
    assert made.missing() is None


def test_where_a_share_group_begins_is_not_known_after_an_act_without_an_answer() -> None:
    made = AdministeredShares(10)
    made.write(P, 0, 4)
    made.begin(1.0, None)
    assert made.missing() is None
    made.doubt(P, 1, is_rejected=False)
    made.write(P, 4, 2)
    assert made.missing() == "('topic', 0): 2 records, from 4 on"
    made.is_another_topic()
    assert made.missing() is None
