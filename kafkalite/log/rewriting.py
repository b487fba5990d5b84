"""What stays of each batch in a pass of compaction, and the batch that is written in its place. No I/O.

A batch may stand for much more than it takes: one that does is read, and built again, in pieces (ADR 60).
"""

from __future__ import annotations

from collections.abc import Iterable

from kafkalite.errors import ApiError
from kafkalite.log.index import AbortedTxn
from kafkalite.log.kept_producers import KeptBatches
from kafkalite.record.batch import DELETE_HORIZON_FLAG, BatchHeader
from kafkalite.record.builder import empty_batch, encode_record, rebuilt_batch
from kafkalite.record.compression import Codec, compress
from kafkalite.record.reader import (
    Record,
    ScannedRecord,
    comparable_key,
    end_transaction_marker_of,
    records_of,
    scan,
)
from kafkalite.record.recompressing import recompressed
from kafkalite.record.selecting import Selection, selected_records

_ENTRY_OVERHEAD_BYTES = 120
#: Batches that decompress to more, or have more records, are never in memory as a whole.
_WHOLE_BYTES = 8 * 1024 * 1024
_WHOLE_RECORDS = 50_000
_LEAST_TIMESTAMP = -(2**63)
#: A delete horizon in 146 million years: no record is further from it than 64 bits can say.
_LAST_HORIZON_MS = 2**62


class OffsetMap:
    """The last offset of each key, up to `latest_offset`."""

    def __init__(self, limit_bytes: int) -> None:
        self._offsets: dict[bytes, int] = {}
        self._room = limit_bytes
        self.latest_offset = -1

    @property
    def is_full(self) -> bool:
        return self._room <= 0

    def put(self, key: bytes, offset: int) -> None:
        if key not in self._offsets:
            self._room -= len(key) + _ENTRY_OVERHEAD_BYTES
        self._offsets[key] = offset

    def replaces(self, key: bytes, offset: int) -> bool:
        """Whether a record behind `offset` has the same key."""
        return self._offsets.get(key, -1) > offset


class CleanedTransactions:
    """Follows transactions through one pass, batch by batch in offset order."""

    def __init__(self, aborted: list[AbortedTxn]) -> None:
        self._to_come = sorted(aborted, key=lambda entry: entry.first_offset, reverse=True)
        #: Producer id -> the marker's offset of its aborted transaction. Records behind the marker are not part of it, even
        #: if the pass never meets the marker, or only the marker is left of the transaction.
        self._aborting: dict[int, int] = {}
        self._has_data: set[int] = set()

    def is_aborted(self, header: BatchHeader) -> bool:
        """Whether the data batch is of a transaction that was aborted."""
        while self._to_come and self._to_come[-1].first_offset <= header.base_offset:
            entry = self._to_come.pop()
            self._aborting[entry.producer_id] = entry.last_offset
        if not header.is_transactional:
            return False
        self._has_data.add(header.producer_id)
        return header.base_offset < self._aborting.get(header.producer_id, -1)

    def is_spent(self, header: BatchHeader) -> bool:
        """Whether the marker ends a transaction of which no record is left."""
        spent = header.producer_id not in self._has_data
        self._has_data.discard(header.producer_id)
        return spent


class Rewriter:
    """Decides what stays, batch by batch, through one pass."""

    def __init__(
        self,
        offsets: OffsetMap,
        transactions: CleanedTransactions,
        producers: KeptBatches,
        *,
        now_ms: int,
        delete_retention_ms: int,
        keeps_tombstones: bool = False,
    ) -> None:
        """`keeps_tombstones`: and transaction markers, also those whose time is over."""
        self._offsets = offsets
        self._transactions = transactions
        self._producers = producers
        #: Delete horizons up to here are over.
        self._expired_ms = _LEAST_TIMESTAMP if keeps_tombstones else now_ms
        # "For ever" is a value that users set: the sum must fit into a batch's head, and so must its distance from any record.
        self._new_horizon_ms = min(now_ms + delete_retention_ms, _LAST_HORIZON_MS)

    def keep(self, header: BatchHeader, data: memoryview) -> bytes | memoryview | None:
        """The batch as it is to be written; None if nothing of it stays."""
        horizon = header.base_timestamp if header.has_delete_horizon else None
        expired = horizon is not None and horizon <= self._expired_ms
        if header.is_control:
            return self._keep_marker(header, data, expired=expired, has_horizon=horizon is not None)
        has_data = not self._transactions.is_aborted(header) and header.record_count != 0
        whole = _small(header, data) if has_data else None
        kept, tombstones, largest = self._select(
            header, _facts(header, data, whole) if has_data else (), expired=expired
        )
        if not kept.count:
            if not self._producers.has(header):
                return None
            return empty_batch(header) if header.record_count else data
        # A tombstone's time begins with the pass that removes what it deletes: beyond the map nothing is removed yet.
        begins = tombstones and horizon is None and header.last_offset <= self._offsets.latest_offset
        if kept.count == header.record_count and not begins:
            return data
        if begins:
            horizon = self._new_horizon_ms
        if not tombstones:
            horizon = None
        if whole is None:
            return _rebuilt_in_pieces(header, data, kept, horizon, largest)
        return _rebuilt(header, [record for number, record in enumerate(whole) if number in kept], horizon)

    def _select(
        self, header: BatchHeader, records: Iterable[ScannedRecord], *, expired: bool
    ) -> tuple[Selection, bool, int]:
        """The records that stay, whether there are tombstones among them, and their largest timestamp."""
        kept = Selection()
        tombstones = False
        largest = _LEAST_TIMESTAMP
        for record in records:
            # The deltas of a batch that nobody has looked into may be anything.
            offset = min(record.offset, header.last_offset)
            stays = offset > self._offsets.latest_offset or (
                record.key is not None
                and not self._offsets.replaces(record.key, offset)
                and (record.has_value or not expired)
            )
            kept.add(is_in=stays)
            if stays:
                tombstones = tombstones or not record.has_value
                largest = max(largest, record.timestamp)
        return kept, tombstones, largest

    def _keep_marker(
        self, header: BatchHeader, data: memoryview, *, expired: bool, has_horizon: bool
    ) -> bytes | memoryview | None:
        marker = end_transaction_marker_of(data, 0, header)
        if marker is None or not self._transactions.is_spent(header):
            return data
        if expired:
            return data if self._producers.has(header) else None
        if has_horizon:
            return data
        return _rebuilt(header, list(records_of(data, 0, header)), self._new_horizon_ms)


def _small(header: BatchHeader, data: memoryview) -> list[Record] | None:
    """The records of a batch; None if they take more memory than there should be for one (or it is damaged)."""
    if header.record_count > _WHOLE_RECORDS:
        return None
    try:
        return list(records_of(data, 0, header, limit_bytes=_WHOLE_BYTES))
    except ApiError:
        return None


def _facts(header: BatchHeader, data: memoryview, whole: list[Record] | None) -> Iterable[ScannedRecord]:
    """What decides about each record. Raises ApiError CORRUPT_MESSAGE."""
    if whole is None:  # a few kB may stand for hundreds of MB: they are never held
        return scan(data, 0, header)
    return (
        ScannedRecord(
            record.offset,
            record.timestamp,
            None if record.key is None else comparable_key(record.key),
            record.value is not None,
        )
        for record in whole
    )


def _rebuilt(header: BatchHeader, records: list[Record], horizon_ms: int | None) -> bytes:
    """A batch in the same place with these records."""
    base = records[0].timestamp if horizon_ms is None else horizon_ms
    payload = b"".join(
        encode_record(
            record.offset - header.base_offset, record.timestamp - base, record.key, record.value, record.headers
        )
        for record in records
    )
    packed = compress(Codec(header.compression), payload)
    return _batch_of(header, packed, len(records), horizon_ms, base, max(record.timestamp for record in records))


def _rebuilt_in_pieces(
    header: BatchHeader, data: memoryview, kept: Selection, horizon_ms: int | None, largest: int
) -> bytes:
    """The same of a batch that stands for much: never more than one piece of it is in memory, and the result."""
    base = header.base_timestamp if horizon_ms is None else horizon_ms
    records = selected_records(data, 0, header, kept, base)
    packed = recompressed(records, Codec(header.compression))
    return _batch_of(header, packed, kept.count, horizon_ms, base, largest)


def _batch_of(header: BatchHeader, packed: bytes, count: int, horizon_ms: int | None, base: int, largest: int) -> bytes:
    attributes = header.attributes & ~DELETE_HORIZON_FLAG | (DELETE_HORIZON_FLAG if horizon_ms is not None else 0)
    return rebuilt_batch(
        header, packed, record_count=count, attributes=attributes, base_timestamp=base, max_timestamp=largest
    )
