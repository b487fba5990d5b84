"""The guarantees of clients with transactions, and the records that a read_committed reader may see."""

from __future__ import annotations

from enum import Enum

from kafkalite.testing.simulation.checkers.cluster import Partition, Violation


class TransactionOutcome(Enum):
    """Of one transaction, as its client knows it."""

    OPEN = "open"
    COMMITTED = "committed"
    ABORTED = "aborted"
    #: The client asked for the commit and heard nothing: all of it is there, or nothing.
    UNKNOWN = "unknown"


class KnownTransaction:
    """Records by name: where each was written, and its offset if the leader returned it."""

    def __init__(self, name: str) -> None:
        self.name = name
        self.outcome = TransactionOutcome.OPEN
        #: Record -> its partition.
        self.records: dict[str, Partition] = {}
        #: Records that were sent once more, or for the first time, when the transaction was over.
        self.late: set[str] = set()


class TransactionWrite:
    """The last words about one key."""

    def __init__(self, record: str, *, is_delete: bool) -> None:
        self.record = record
        self.is_delete = is_delete


class TransactionHistory:
    """Follows clients and readers. Raises Violation."""

    def __init__(self) -> None:
        self._of: dict[str, KnownTransaction] = {}
        self.transactions: list[KnownTransaction] = []
        #: (partition, key) -> its writes, in the order sent; one client writes a key, one at a time.
        self.keys: dict[tuple[Partition, str], list[TransactionWrite]] = {}
        #: partition -> offset -> record seen by a read_committed reader.
        self.seen: dict[Partition, dict[int, str]] = {}
        self._places: dict[str, tuple[Partition, int]] = {}
        self.late_refused = 0
        self.late_taken = 0

    def begin(self, name: str) -> KnownTransaction:
        """A client begins a transaction."""
        transaction = KnownTransaction(name)
        self.transactions.append(transaction)
        return transaction

    def sends(self, transaction: KnownTransaction, partition: Partition, record: str) -> None:
        """A record is on its way."""
        transaction.records[record] = partition
        self._of[record] = transaction

    def writes(self, partition: Partition, key: str, record: str, *, is_delete: bool) -> None:
        """It is one of a key."""
        self.keys.setdefault((partition, key), []).append(TransactionWrite(record, is_delete=is_delete))

    @property
    def committed(self) -> int:
        return sum(each.outcome is TransactionOutcome.COMMITTED for each in self.transactions)

    @property
    def aborted(self) -> int:
        return sum(each.outcome is TransactionOutcome.ABORTED for each in self.transactions)

    def visible(self, partition: Partition, offset: int, record: str) -> None:
        """A read_committed reader was given `record`."""
        there = self.seen.setdefault(partition, {}).setdefault(offset, record)
        if there != record:
            raise Violation(f"readers agree: {partition} {offset}: read {there} and {record}")
        place = self._places.setdefault(record, (partition, offset))
        if place != (partition, offset):
            raise Violation(f"each record is there once: {record} at {place} and {(partition, offset)}")
        transaction = self._of.get(record)
        if transaction is None:
            raise Violation(f"a record that was never sent: {partition} {offset}: {record}")
        if transaction.outcome is TransactionOutcome.ABORTED:
            raise Violation(f"no record of an aborted transaction is ever visible: {partition} {offset}: {record}")

    def final(self, partition: Partition, records: list[tuple[int, str]], *, compacted: bool, begin: int) -> None:
        """All that a read_committed reader sees of a partition at the end, from offset `begin`."""
        found = {record: offset for offset, record in records}
        for offset, record in records:
            self.visible(partition, offset, record)
        if compacted:
            self._last_of_keys(partition, found, begin)
            return
        for transaction in self.transactions:
            mine = [record for record, there in transaction.records.items() if there == partition]
            missing = [record for record in mine if record not in found]
            if transaction.outcome is TransactionOutcome.COMMITTED and missing:
                raise Violation(f"what was committed is visible: {partition}: {missing[0]} of {transaction.name}")
            if transaction.outcome is TransactionOutcome.UNKNOWN and missing and len(missing) < len(mine):
                raise Violation(f"a transaction is there as a whole or not at all: {partition}: {missing[0]}")

    def replica(self, where: str, partition: Partition, records: list[tuple[int, str]]) -> None:
        """All that a replica has of a compacted partition, also of aborted transactions: it may lead."""
        found = {record: at for at, record in records if record in self._of and self._may_be_there_at_all(record)}
        try:
            self._last_of_keys(partition, found, begin=1)
        except Violation as violation:
            raise Violation(f"{violation}; in the log on {where}") from None

    def _may_be_there_at_all(self, record: str) -> bool:
        return self._of[record].outcome is not TransactionOutcome.ABORTED

    def _last_of_keys(self, partition: Partition, found: dict[str, int], begin: int) -> None:
        for (where, key), writes in self.keys.items():
            if where != partition:
                continue
            # From the last committed one on; those in doubt behind it may be there or not.
            last = next(
                (
                    at
                    for at in reversed(range(len(writes)))
                    if self._outcome(writes[at]) is TransactionOutcome.COMMITTED
                ),
                None,
            )
            allowed = [each for each in writes[0 if last is None else last :] if self._may_be_there(each)]
            there = [each for each in writes if each.record in found]
            if there and all(there[-1] is not each for each in allowed):
                what = "a deleted key never returns" if last is not None and writes[last].is_delete else "last value"
                raise Violation(
                    f"{what}: {partition} {key}: {there[-1].record} at {found[there[-1].record]} is there, the last "
                    f"committed is {None if last is None else writes[last].record}"
                )
            must = last is not None and not any(each.is_delete for each in allowed)
            if must and not there and begin == 0:
                assert last is not None
                raise Violation(
                    f"the last committed value of each key is there: {partition} {key}: {writes[last].record}"
                )

    def _outcome(self, write: TransactionWrite) -> TransactionOutcome:
        return self._of[write.record].outcome

    def _may_be_there(self, write: TransactionWrite) -> bool:
        return self._may_be_there_at_all(write.record)
