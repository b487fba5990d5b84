"""The oracle of transactions and compacted keys: what it takes, and what it does not."""

import pytest

from kafkalite.testing.simulation.checkers.cluster import Violation
from kafkalite.testing.simulation.checkers.transactions import Outcome, Transaction, TransactionHistory

P = ("keyed", 0)


def history(*writes: tuple[str, Outcome, bool]) -> TransactionHistory:
    """One transaction per write of the key k: (record, outcome, is a deletion)."""
    made = TransactionHistory()
    for record, outcome, is_delete in writes:
        transaction: Transaction = made.begin(record)
        made.sends(transaction, P, record)
        made.writes(P, "k", record, is_delete=is_delete)
        transaction.outcome = outcome
    return made


def final(made: TransactionHistory, *records: str, compacted: bool = True) -> None:
    made.final(P, list(enumerate(records)), compacted=compacted, begin=0)


C, A, U = Outcome.COMMITTED, Outcome.ABORTED, Outcome.UNKNOWN


def test_the_last_committed_value_or_one_in_doubt_behind_it() -> None:
    writes = (("a", C, False), ("b", C, False), ("c", U, False), ("d", A, False))
    right: list[tuple[str, ...]] = [("a", "b"), ("b",), ("b", "c"), ("c",)]
    for there in right:
        final(history(*writes), *there)
    wrong: list[tuple[tuple[str, ...], str]] = [
        (("a",), "last value"), ((), "last committed value"), (("b", "d"), "aborted"),
    ]  # fmt: skip
    for there, what in wrong:
        with pytest.raises(Violation, match=what):
            final(history(*writes), *there)


def test_a_deleted_key_never_returns() -> None:
    writes = (("a", C, False), ("b", C, True))
    for there in (("a", "b"), ("b",), ()):
        final(history(*writes), *there)
    with pytest.raises(Violation, match="deleted key never returns"):
        final(history(*writes), "a")


def test_all_of_a_transaction_or_nothing() -> None:
    made = TransactionHistory()
    transaction = made.begin("t")
    for record in ("a", "b"):
        made.sends(transaction, P, record)
    transaction.outcome = Outcome.UNKNOWN
    final(made, compacted=False)
    with pytest.raises(Violation, match="as a whole"):
        final(made, "a", compacted=False)
    transaction.outcome = Outcome.COMMITTED
    with pytest.raises(Violation, match="visible"):
        final(made, "a", compacted=False)


def test_twice_is_once_too_often() -> None:
    made = history(("a", C, False))
    made.visible(P, 0, "a")
    with pytest.raises(Violation, match="once"):
        made.visible(P, 1, "a")
    with pytest.raises(Violation, match="never sent"):
        made.visible(P, 2, "x")
