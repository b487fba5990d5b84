"""Idempotent and transactional producers of one partition (KIP-98, KIP-360): duplicates, sequences, open transactions.

Pure: no I/O, no clock. An append is prepared (validated against copies), and applied after it has been written.
"""

from __future__ import annotations

import struct
from collections import OrderedDict
from collections.abc import Iterator, Sequence
from typing import NamedTuple

from kafkalite.errors import ErrorCode, api_error
from kafkalite.lazy_dataclass import dataclass
from kafkalite.log.verification import NO_GUARD, Verifications
from kafkalite.model import NO_OFFSET
from kafkalite.record.batch import MAX_SEQUENCE, BatchHeader, is_behind
from kafkalite.record.checksum import crc32c
from kafkalite.record.reader import EndTransactionMarker

#: Batches remembered per producer: a producer may have five requests in flight.
BATCHES_KEPT = 5
#: Longer than a producer repeats a batch (delivery.timeout.ms, two minutes by default).
REPEATS_S = 3600.0

_SNAPSHOT_VERSION = 1
_SNAPSHOT_HEAD = struct.Struct(">hIi")
_SNAPSHOT_ENTRY = struct.Struct(">qhiqiqiq")
_CRC_FROM = 6
#: Our extension behind Kafka's array (Kafka's reader stops before it, its CRC covers it): the older kept batches.
_EXTENSION_MAGIC = b"kafkalite1"
_EXTENSION_COUNT = struct.Struct(">i")
_EXTENSION_ENTRY = struct.Struct(">qiqiq")


class KeptBatch(NamedTuple):
    """A batch that a producer wrote; sequences and offsets are of its first and last record."""

    last_sequence: int
    last_offset: int
    offset_delta: int
    timestamp: int

    @property
    def first_offset(self) -> int:
        return self.last_offset - self.offset_delta


class ProducerEntry:
    """What is known of one producer. `batches`: oldest first, at most BATCHES_KEPT, all of `producer_epoch`."""

    __slots__ = (
        "batches",
        "coordinator_epoch",
        "producer_epoch",
        "quiet_since_s",
        "timestamp",
        "transaction_first_offset",
    )

    def __init__(self) -> None:
        self.producer_epoch = -1
        self.batches: tuple[KeptBatch, ...] = ()
        self.coordinator_epoch = -1
        #: Of the open transaction on this partition; NO_OFFSET if there is none.
        self.transaction_first_offset: int = NO_OFFSET
        #: Largest timestamp of the last thing written: for expiry.
        self.timestamp = -1
        #: The first look (`ProducerStates.expire`) since it wrote, by the process's own clock; None: there was none yet.
        self.quiet_since_s: float | None = None

    def copy(self) -> ProducerEntry:
        twin = ProducerEntry()
        twin.producer_epoch, twin.batches, twin.coordinator_epoch = (
            self.producer_epoch,
            self.batches,
            self.coordinator_epoch,
        )
        twin.transaction_first_offset, twin.timestamp = self.transaction_first_offset, self.timestamp
        return twin

    @property
    def last_sequence(self) -> int:
        return self.batches[-1].last_sequence if self.batches else -1

    def enter_epoch(self, producer_epoch: int) -> None:
        if producer_epoch != self.producer_epoch:
            self.producer_epoch, self.batches = producer_epoch, ()


@dataclass(frozen=True, slots=True)
class CompletedTransaction:
    """A transaction whose marker is at `last_offset`."""

    producer_id: int
    first_offset: int
    last_offset: int
    aborted: bool


class PreparedAppend:
    """The entries as they will be once the append is in the log."""

    __slots__ = ("batches", "completed", "entries", "started")

    def __init__(self) -> None:
        #: What was prepared, in order: header, base offset, marker.
        self.batches: list[tuple[BatchHeader, int, EndTransactionMarker | None]] = []
        self.entries: dict[int, ProducerEntry] = {}
        self.started: list[tuple[int, int]] = []
        self.completed: list[CompletedTransaction] = []


class ProducerStates:
    """All producers of one partition."""

    __slots__ = ("_completed", "_entries", "_open", "_verifications")

    def __init__(self) -> None:
        #: By producer id, the one that wrote last at the end.
        self._entries: OrderedDict[int, ProducerEntry] = OrderedDict()
        #: Open transactions: first offset -> producer id, in offset order (they start in offset order).
        self._open: dict[int, int] = {}
        #: Ended transactions whose marker may be above the high watermark: first offset -> marker's offset.
        self._completed: dict[int, int] = {}
        self._verifications = Verifications()

    def __len__(self) -> int:
        return len(self._entries)

    def copy(self) -> ProducerStates:
        """As they are now; an append puts new entries in the place of those that it changes."""
        twin = ProducerStates()
        twin._entries, twin._open, twin._completed = self._entries.copy(), dict(self._open), dict(self._completed)
        twin._verifications = self._verifications
        return twin

    def active(self) -> dict[int, ProducerEntry]:
        """Producer id -> entry. Not to be changed."""
        return self._entries

    @property
    def has_any_open(self) -> bool:
        """Whether any transaction is open here."""
        return bool(self._open)

    def in_transaction(self) -> Iterator[tuple[int, ProducerEntry]]:
        """(producer id, entry) of each one whose transaction is open here, by first offset."""
        return ((producer_id, self._entries[producer_id]) for producer_id in self._open.values())

    # --- before an append -----------------------------------------------------------------------

    def begin_verification(
        self, producer_id: int, producer_epoch: int, sequence: int, *, begins_at_zero: bool = False
    ) -> int:
        """The guard with which to append once the coordinator has answered; NO_GUARD: the transaction is open, no need.

        Args:
            begins_at_zero: a producer that is not known here begins with the sequence 0 (transaction.version 2, Kafka 4.4).
        """
        if self._has_open(producer_id, producer_epoch):
            return NO_GUARD
        entry = self._entries.get(producer_id)
        if begins_at_zero and (entry is None or not entry.batches):
            sequence = 0
        return self._verifications.begin(producer_id, producer_epoch, sequence)

    def end_verification(self, producer_id: int, guard: int) -> None:
        """The coordinator has refused."""
        self._verifications.refuse(producer_id, guard)

    def coordinator_epoch(self, producer_id: int) -> int:
        """Of the coordinator that wrote the producer's last marker here; -1: none is known."""
        entry = self._entries.get(producer_id)
        return -1 if entry is None else entry.coordinator_epoch

    def _has_open(self, producer_id: int, producer_epoch: int) -> bool:
        entry = self._entries.get(producer_id)
        return (
            entry is not None and entry.transaction_first_offset != NO_OFFSET and entry.producer_epoch == producer_epoch
        )

    def check_verified(self, header: BatchHeader, guard: int) -> None:
        """Raises ApiError INVALID_TXN_STATE for a batch that would begin a transaction that the coordinator may not know."""
        if not header.is_transactional or header.is_control:
            return
        if self._has_open(header.producer_id, header.producer_epoch):
            return
        if guard == NO_GUARD or not self._verifications.holds(header.producer_id, guard):
            raise api_error(
                ErrorCode.INVALID_TXN_STATE,
                f"producer {header.producer_id} epoch {header.producer_epoch} has no transaction that goes on here",
            )

    def find_duplicate(self, header: BatchHeader) -> KeptBatch | None:
        """The kept batch that `header` repeats: same producer, epoch and sequences.

        Raises ApiError INVALID_TXN_STATE if that one belongs to a transaction that has ended here. No producer repeats such a batch:
        it ends a transaction only when it knows what became of each batch. But librdkafka gives the sequence of a batch that it
        purged in abort_transaction() to the next transaction's record. A success would lose that record (ADR 17).
        """
        entry = self._entries.get(header.producer_id)
        if entry is None or entry.producer_epoch != header.producer_epoch:
            return None
        last_sequence = header.last_sequence
        for kept in entry.batches:
            if kept.last_sequence == last_sequence and kept.offset_delta == header.last_offset_delta:
                if header.is_transactional and not NO_OFFSET != entry.transaction_first_offset <= kept.first_offset:
                    raise api_error(
                        ErrorCode.INVALID_TXN_STATE,
                        f"producer {header.producer_id}: sequence {header.base_sequence} is that of a batch at"
                        f" {kept.first_offset}, whose transaction has ended",
                    )
                return kept
        return None

    def prepare(
        self,
        prepared: PreparedAppend,
        header: BatchHeader,
        base_offset: int,
        marker: EndTransactionMarker | None,
        *,
        from_client: bool,
        replicated: bool,
        transaction_version: int = 0,
    ) -> None:
        """Check a batch of a producer and put its effects into `prepared`; nothing here changes.

        Args:
            from_client: check sequences (a leader does; what a leader accepted, followers and recovery take).
            replicated: take it whatever epochs say.
            transaction_version: of a marker. From version 2 on its epoch is above that of the transaction (KIP-1228).

        Raises:
            ApiError: INVALID_PRODUCER_EPOCH, OUT_OF_ORDER_SEQUENCE_NUMBER, INVALID_TXN_STATE,
                TRANSACTION_COORDINATOR_FENCED.
        """
        entry = prepared.entries.pop(header.producer_id, None)  # it goes to the end
        if entry is None:
            known = self._entries.get(header.producer_id)
            entry = known.copy() if known is not None else ProducerEntry()
        if header.producer_epoch < entry.producer_epoch and not replicated:
            raise api_error(
                ErrorCode.INVALID_PRODUCER_EPOCH,
                f"producer {header.producer_id} epoch {header.producer_epoch}, current is {entry.producer_epoch}",
            )
        if header.is_control:
            if (
                transaction_version >= 2
                and header.producer_epoch == entry.producer_epoch
                and entry.transaction_first_offset != NO_OFFSET
            ):
                # It ended the previous transaction, and is repeated.
                raise api_error(
                    ErrorCode.INVALID_PRODUCER_EPOCH,
                    f"producer {header.producer_id}: a marker of epoch {header.producer_epoch} for a transaction of this epoch",
                )
            if marker is not None:
                self._end_transaction(prepared, entry, header, base_offset, marker, replicated=replicated)
        else:
            if from_client:
                self._check_first(header)
                _check_sequence(entry, header)
            self._add_batch(prepared, entry, header, base_offset, replicated=replicated)
        prepared.entries[header.producer_id] = entry
        prepared.batches.append((header, base_offset, marker))

    def _check_first(self, header: BatchHeader) -> None:
        """While a lower sequence waits to be verified, a higher one may not open the transaction before it."""
        if not self._verifications:
            return
        lowest = self._verifications.lowest_sequence(header.producer_id, header.producer_epoch)
        if lowest is not None and is_behind(header.base_sequence, lowest):
            raise api_error(
                ErrorCode.OUT_OF_ORDER_SEQUENCE_NUMBER,
                f"producer {header.producer_id}: sequence {header.base_sequence} before {lowest}",
            )

    @staticmethod
    def _add_batch(
        prepared: PreparedAppend, entry: ProducerEntry, header: BatchHeader, base_offset: int, *, replicated: bool
    ) -> None:
        entry.enter_epoch(header.producer_epoch)
        last_offset = base_offset + header.last_offset_delta
        kept = KeptBatch(header.last_sequence, last_offset, header.last_offset_delta, header.max_timestamp)
        entry.batches = (*entry.batches[1 - BATCHES_KEPT :], kept)
        entry.timestamp = header.max_timestamp
        if header.is_transactional:
            if entry.transaction_first_offset == NO_OFFSET:
                entry.transaction_first_offset = base_offset
                prepared.started.append((base_offset, header.producer_id))
        elif entry.transaction_first_offset != NO_OFFSET and not replicated:
            raise api_error(
                ErrorCode.INVALID_TXN_STATE, f"producer {header.producer_id} has an open transaction on this partition"
            )

    @staticmethod
    def _end_transaction(
        prepared: PreparedAppend,
        entry: ProducerEntry,
        header: BatchHeader,
        offset: int,
        marker: EndTransactionMarker,
        *,
        replicated: bool,
    ) -> None:
        if marker.coordinator_epoch < entry.coordinator_epoch and not replicated:
            raise api_error(
                ErrorCode.TRANSACTION_COORDINATOR_FENCED,
                f"coordinator epoch {marker.coordinator_epoch}, {entry.coordinator_epoch} has been seen",
            )
        if entry.transaction_first_offset != NO_OFFSET:
            prepared.completed.append(
                CompletedTransaction(
                    header.producer_id, entry.transaction_first_offset, offset, aborted=not marker.commit
                )
            )
        entry.enter_epoch(header.producer_epoch)
        entry.transaction_first_offset = NO_OFFSET
        entry.coordinator_epoch = marker.coordinator_epoch
        entry.timestamp = header.max_timestamp

    # --- after an append ------------------------------------------------------------------------

    def apply(self, prepared: PreparedAppend) -> list[tuple[CompletedTransaction, int]]:
        """The append is in the log. Returns each aborted transaction with the last stable offset at its end."""
        entries = self._entries
        for producer_id, entry in prepared.entries.items():
            entries[producer_id] = entry
            entries.move_to_end(producer_id)
        if self._verifications:
            for producer_id in prepared.entries:
                self._verifications.end(producer_id)
        for first_offset, producer_id in prepared.started:
            self._open[first_offset] = producer_id
        aborted: list[tuple[CompletedTransaction, int]] = []
        for done in prepared.completed:
            if self._open.pop(done.first_offset, None) is None:
                continue
            self._completed[done.first_offset] = done.last_offset
            if done.aborted:
                aborted.append((done, next(iter(self._open), done.last_offset + 1)))
        return aborted

    def apply_until(self, prepared: PreparedAppend, offset: int) -> list[tuple[CompletedTransaction, int]]:
        """The batches below `offset` are in the log, the others not yet: those stay in `prepared`. Returns as `apply`.

        For the snapshot at a segment's end that an append goes beyond.
        """
        part, rest = PreparedAppend(), PreparedAppend()
        batches = prepared.batches
        for header, base, marker in batches:
            if base < offset:
                self.prepare(part, header, base, marker, from_client=False, replicated=True)
        aborted = self.apply(part)
        for header, base, marker in batches:
            if base >= offset:
                self.prepare(rest, header, base, marker, from_client=False, replicated=True)
        prepared.batches, prepared.entries = rest.batches, rest.entries
        prepared.started, prepared.completed = rest.started, rest.completed
        return aborted

    # --- what readers may see -------------------------------------------------------------------

    def forget_replicated(self, high_watermark: int) -> None:
        """Transactions whose marker is below the high watermark hold nothing back any more."""
        if self._completed:
            for first_offset in [first for first, last in self._completed.items() if last < high_watermark]:
                del self._completed[first_offset]

    @property
    def first_unstable_offset(self) -> int | None:
        """First offset of the earliest transaction that is open, or ended by a marker above the high watermark."""
        earliest = next(iter(self._open), None)
        if self._completed:
            ended = min(self._completed)
            return ended if earliest is None else min(earliest, ended)
        return earliest

    def expire(self, before_ms: int, now_s: float, patience_s: float) -> int:
        """Forget producers silent since before `before_ms` that have no open transaction; return how many.

        The timestamps are the records' own: a producer may write of long ago, and the wall clock may jump. Hence none is
        forgotten that has written since the look an hour (or `patience_s`, if that is less) before `now_s`: it may be about
        to repeat its last batches.
        """
        patience_s = min(patience_s, REPEATS_S)
        silent = []
        for producer_id, entry in self._entries.items():
            if entry.timestamp >= before_ms or entry.transaction_first_offset != NO_OFFSET:
                continue
            if entry.quiet_since_s is None:
                entry.quiet_since_s = now_s
            elif now_s - entry.quiet_since_s >= patience_s:
                silent.append(producer_id)
        for producer_id in silent:
            del self._entries[producer_id]
        return len(silent)

    def drop_silent(self, most: int) -> int:
        """Forget producers until at most `most` are left whose transaction is not open; return how many. Those go that have not written for longest.

        What is left follows from the log alone: each replica keeps the same ones, also after a restart.
        """
        entries = self._entries
        excess = len(entries) - len(self._open) - most
        if excess <= 0:
            return 0
        dropped = 0
        for _ in range(len(entries)):
            if dropped == excess:
                break
            producer_id, entry = next(iter(entries.items()))
            if entry.transaction_first_offset == NO_OFFSET:
                del entries[producer_id]
                dropped += 1
            else:  # out of the way of the next search: when its transaction ends, its place is at the end as well
                entries.move_to_end(producer_id)
        return dropped

    # --- snapshots ------------------------------------------------------------------------------

    def encode_snapshot(self) -> bytes:
        """Kafka's producer snapshot, version 1; kept batches but each producer's last go into an extension."""
        out = bytearray(_SNAPSHOT_HEAD.pack(_SNAPSHOT_VERSION, 0, len(self._entries)))
        older: list[bytes] = []
        for producer_id, entry in self._entries.items():  # in the order in which they would be dropped
            last = entry.batches[-1] if entry.batches else KeptBatch(-1, NO_OFFSET, 0, entry.timestamp)
            out += _SNAPSHOT_ENTRY.pack(
                producer_id, entry.producer_epoch, last.last_sequence, last.last_offset, last.offset_delta,
                entry.timestamp, entry.coordinator_epoch, entry.transaction_first_offset,
            )  # fmt: skip
            older += [_EXTENSION_ENTRY.pack(producer_id, *kept) for kept in entry.batches[:-1]]
        if older:
            out += _EXTENSION_MAGIC + _EXTENSION_COUNT.pack(len(older)) + b"".join(older)
        struct.pack_into(">I", out, 2, crc32c(memoryview(out)[_CRC_FROM:]))
        return bytes(out)

    @classmethod
    def decode_snapshot(cls, data: bytes) -> ProducerStates | None:
        """The states in a snapshot file; None if it is damaged (the caller then takes an older one)."""
        states = cls()
        try:
            version, crc, count = _SNAPSHOT_HEAD.unpack_from(data)
            if version != _SNAPSHOT_VERSION or crc != crc32c(memoryview(data)[_CRC_FROM:]):
                return None
            at = _SNAPSHOT_HEAD.size
            opened: list[tuple[int, int]] = []
            for _ in range(count):
                producer_id, epoch, sequence, offset, delta, timestamp, coordinator_epoch, first = (
                    _SNAPSHOT_ENTRY.unpack_from(data, at)
                )
                at += _SNAPSHOT_ENTRY.size
                entry = ProducerEntry()
                entry.producer_epoch, entry.coordinator_epoch = epoch, coordinator_epoch
                entry.timestamp, entry.transaction_first_offset = timestamp, first
                if offset != NO_OFFSET:
                    entry.batches = (KeptBatch(sequence, offset, delta, timestamp),)
                states._entries[producer_id] = entry
                if first != NO_OFFSET:
                    opened.append((first, producer_id))
            states._open = dict(sorted(opened))
            if data[at : at + len(_EXTENSION_MAGIC)] == _EXTENSION_MAGIC:
                states._decode_extension(data, at + len(_EXTENSION_MAGIC))
        except struct.error:
            return None
        return states

    def _decode_extension(self, data: bytes, at: int) -> None:
        (count,) = _EXTENSION_COUNT.unpack_from(data, at)
        at += _EXTENSION_COUNT.size
        older: dict[int, list[KeptBatch]] = {}
        for _ in range(count):
            producer_id, *fields = _EXTENSION_ENTRY.unpack_from(data, at)
            at += _EXTENSION_ENTRY.size
            older.setdefault(producer_id, []).append(KeptBatch._make(fields))
        for producer_id, batches in older.items():
            entry = self._entries[producer_id]
            entry.batches = (*batches, *entry.batches)


def largest_share(counts: Sequence[int], most: int) -> int:
    """The largest number of producers that a log may have, so that logs with such counts have `most` in all: those with few keep them."""
    left, share = most, 0
    for position, count in enumerate(sorted(counts)):
        share = left // (len(counts) - position)
        if count > share:
            break
        left -= count
    return share


def _check_sequence(entry: ProducerEntry, header: BatchHeader) -> None:
    """Kafka's rules: a new epoch starts at 0; within one, no gap; an unknown producer may start anywhere (KIP-360)."""
    if entry.producer_epoch == -1:
        return
    if header.producer_epoch != entry.producer_epoch:
        if header.base_sequence != 0:
            raise api_error(
                ErrorCode.OUT_OF_ORDER_SEQUENCE_NUMBER,
                f"producer {header.producer_id} starts epoch {header.producer_epoch} at sequence {header.base_sequence}",
            )
        return
    last = entry.last_sequence
    expected = (last + 1) & MAX_SEQUENCE
    if header.base_sequence != expected:
        raise api_error(
            ErrorCode.OUT_OF_ORDER_SEQUENCE_NUMBER,
            f"producer {header.producer_id}: sequence {header.base_sequence} after {last}",
        )
