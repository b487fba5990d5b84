"""Record batches on their way into a backup and out of it. Pure."""

from __future__ import annotations

from collections import deque
from collections.abc import Iterable, Iterator
from typing import NamedTuple

from kafkalite.client.consumed import committed_batches
from kafkalite.errors import ErrorCode, api_error
from kafkalite.model import Buffer
from kafkalite.partition_values import AbortedTransaction
from kafkalite.record.batch import (
    COMPRESSION_MASK,
    HEADER_SIZE,
    NO_SEQUENCE,
    TIMESTAMP_TYPE_FLAG,
    BatchHeader,
    parse_header,
)
from kafkalite.record.builder import encode_batch, encode_record
from kafkalite.record.compression import Codec, compress
from kafkalite.record.reader import Record, records_of

#: Smaller batches are joined before they are sent: each is a round trip to the leader.
_SMALL_BYTES = 16 << 10
#: Size of a joined batch, before compression.
_JOINED_BYTES = 256 << 10


class BatchesToKeep(NamedTuple):
    """Batches to keep, and the position after everything that was fetched."""

    batches: list[tuple[BatchHeader, Buffer]]
    position: int


def batches_to_keep(
    records: memoryview, position: int, end: int, aborted: Iterable[AbortedTransaction]
) -> BatchesToKeep:
    """The committed data batches of `records` from `position` up to `end`, as they are.

    A batch that begins before `position` is cut: what was deleted before it is not the backup's business.

    Raises:
        ApiError: CORRUPT_MESSAGE.
    """
    found: list[tuple[BatchHeader, Buffer]] = []
    start = position
    for at, header, is_data in committed_batches(records, start, aborted):
        if header.base_offset >= end:
            return BatchesToKeep(found, max(position, end))
        position = max(position, header.next_offset)
        if not is_data or header.record_count == 0:
            continue
        if header.base_offset < start:
            if (cut := _cut(records, at, header, start)) is not None:
                found.append((parse_header(cut), cut))
        else:
            found.append((header, records[at : at + header.size]))
    return BatchesToKeep(found, position)


def _cut(buffer: Buffer, at: int, header: BatchHeader, start: int) -> bytes | None:
    """The batch without its records before `start`, with the offsets of the rest as they were; None: nothing is left."""
    kept = [record for record in records_of(buffer, at, header) if record.offset >= start]
    if not kept:
        return None
    base = kept[0].timestamp
    encoded = [
        encode_record(each.offset - start, each.timestamp - base, each.key, each.value, each.headers) for each in kept
    ]
    return encode_batch(
        compress(header.compression, b"".join(encoded)),
        record_count=len(kept), base_offset=start, last_offset_delta=header.last_offset - start,
        attributes=header.attributes & (COMPRESSION_MASK | TIMESTAMP_TYPE_FLAG),
        base_timestamp=base, max_timestamp=max(each.timestamp for each in kept),
    )  # fmt: skip


class SentBatch(NamedTuple):
    """Records as they are sent: (compressed) payload, and the fields of the header that belong to it."""

    payload: Buffer
    record_count: int
    codec: int
    base_timestamp: int
    max_timestamp: int

    def encoded(self, producer_id: int, producer_epoch: int, sequence: int) -> bytes:
        """For a produce request of an idempotent producer."""
        return encode_batch(
            self.payload, record_count=self.record_count, last_offset_delta=self.record_count - 1,
            attributes=self.codec, base_timestamp=self.base_timestamp, max_timestamp=self.max_timestamp,
            producer_id=producer_id, producer_epoch=producer_epoch,
            base_sequence=sequence if producer_id >= 0 else NO_SEQUENCE,
        )  # fmt: skip

    def records(self) -> Iterator[Record]:
        """Their offsets count from 0. Raises ApiError CORRUPT_MESSAGE."""
        batch = self.encoded(-1, -1, NO_SEQUENCE)
        return records_of(batch, 0, parse_header(batch))


def batches_to_send(stored: Iterable[tuple[BatchHeader, Buffer]], skip: int = 0) -> Iterator[SentBatch]:
    """Batches that a broker takes from a producer, without the first `skip` records.

    A broker wants a batch's offsets without gaps and the times of its records in the records. So a batch that was compacted, or has the
    broker's time, is built again; small ones are joined. All others are sent as they are, with another header.
    """
    pending = _Joined()
    for header, batch in stored:
        if skip >= header.record_count:
            skip -= header.record_count
            continue
        is_whole = header.record_count == header.last_offset_delta + 1 and not header.is_log_append_time
        if is_whole and not skip and header.size >= _SMALL_BYTES:
            yield from pending.flush()
            payload = memoryview(batch)[HEADER_SIZE : header.size]
            yield SentBatch(
                payload, header.record_count, header.compression, header.base_timestamp, header.max_timestamp
            )
            continue
        if header.compression != pending.codec:
            yield from pending.flush()
            pending.codec = header.compression
        for record in records_of(batch, 0, header):
            if skip:
                skip -= 1
            elif pending.add(record) >= _JOINED_BYTES:
                yield from pending.flush()
    yield from pending.flush()


class _Joined:
    """Records that become one batch."""

    def __init__(self) -> None:
        self.codec: int = Codec.NONE
        self._records: list[bytes] = []
        self._size = 0
        self._base = self._latest = -1

    def add(self, record: Record) -> int:
        if not self._records:
            self._base = self._latest = record.timestamp
        self._latest = max(self._latest, record.timestamp)
        encoded = encode_record(
            len(self._records), record.timestamp - self._base, record.key, record.value, record.headers
        )
        self._records.append(encoded)
        self._size += len(encoded)
        return self._size

    def flush(self) -> Iterator[SentBatch]:
        if self._records:
            payload = compress(self.codec, b"".join(self._records))
            yield SentBatch(payload, len(self._records), self.codec, self._base, self._latest)
        self._records, self._size = [], 0


class Comparison:
    """Compares what a cluster has with what was to be restored, batch by batch; record by record where they are cut differently."""

    def __init__(self, wanted: Iterator[SentBatch]) -> None:
        self._wanted = wanted
        self._records: deque[Record] = deque()
        self.records = 0

    def take(self, buffer: Buffer, at: int, header: BatchHeader) -> None:
        """The next batch that the cluster has. Raises ApiError CORRUPT_MESSAGE: another one was expected."""
        if not self._records:
            wanted = next(self._wanted, None)
            if wanted is None:
                raise _different(self.records, "the cluster has more records than the backup")
            if _is_same(wanted, buffer, at, header):
                self.records += header.record_count
                return
            self._records.extend(wanted.records())
        for record in records_of(buffer, at, header):
            while not self._records:
                more = next(self._wanted, None)
                if more is None:
                    raise _different(self.records, "the cluster has more records than the backup")
                self._records.extend(more.records())
            if self._records.popleft()[1:] != record[1:]:
                raise _different(self.records, "the record is not the one in the backup")
            self.records += 1

    def finish(self) -> None:
        """Raises ApiError: the cluster has too few records."""
        if self._records or next(self._wanted, None) is not None:
            raise _different(self.records, "the cluster has fewer records than the backup")


def _is_same(wanted: SentBatch, buffer: Buffer, at: int, header: BatchHeader) -> bool:
    mine = (wanted.record_count, wanted.codec, wanted.base_timestamp, wanted.max_timestamp)
    its = (header.record_count, header.compression, header.base_timestamp, header.max_timestamp)
    if mine != its or header.is_log_append_time:
        return False
    return memoryview(buffer)[at + HEADER_SIZE : at + header.size] == memoryview(wanted.payload)


def _different(position: int, text: str) -> Exception:
    return api_error(ErrorCode.CORRUPT_MESSAGE, f"offset {position}: {text}")
