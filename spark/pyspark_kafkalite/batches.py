"""The headers of a fetch: which record batches are in it, which of them a reader may see, where the next fetch begins.

Costs per batch, not per record. The layout is Kafka's RecordBatch v2 (KIP-98): 61 bytes of header, then the
records, compressed or not.
"""

from __future__ import annotations

import heapq
import struct
from collections.abc import Sequence

from kafkalite.errors import KafkaliteError
from kafkalite.lazy_dataclass import dataclass
from kafkalite.record.checksum import crc32c

#: base offset, batch length, leader epoch, magic, CRC, attributes, last offset delta, base timestamp, max timestamp,
#: producer id, producer epoch, base sequence, record count.
HEADER = struct.Struct(">qiibIhiqqqhii")
HEADER_BYTES = HEADER.size
#: Bytes before the ones that `batch length` counts.
LENGTH_PREFIX_BYTES = 12
#: The CRC covers everything from the attributes on.
CRC_START = 21

_CODEC_MASK = 0x07
_LOG_APPEND_TIME = 0x08
_TRANSACTIONAL = 0x10
_CONTROL = 0x20
#: A control record's key: version, type (0 abort, 1 commit).
_ABORT = 0


class CorruptRecords(KafkaliteError):
    """The bytes that were fetched are not what the writer wrote. The message gives the offset."""


@dataclass(frozen=True, slots=True)
class BatchSpan:
    """One batch that a reader may see. `start` and `end` bound its records (after the header) in the buffer."""

    start: int
    end: int
    codec: int
    base_offset: int
    last_offset: int
    base_timestamp_ms: int
    #: The broker's time for the whole batch (timestampType 1), or None: each record has its own (timestampType 0).
    log_append_time_ms: int | None
    count: int

    @property
    def is_dense(self) -> bool:
        """Every offset from the first to the last is there: compaction took none."""
        return self.count == self.last_offset - self.base_offset + 1


@dataclass(frozen=True, slots=True)
class Scan:
    """`next_offset` is where the next fetch begins; None if there was no whole batch."""

    spans: tuple[BatchSpan, ...]
    next_offset: int | None


def scan(
    records: bytes | bytearray | memoryview, aborted: Sequence[tuple[int, int]] = (), *, check_crc: bool = True
) -> Scan:
    """Find the batches of one fetch, without control batches and without those of aborted transactions.

    Args:
        records: whole batches one after the other; a torn one at the end is left for the next fetch.
        aborted: (producer id, first offset) of the aborted transactions that reach into this fetch.
    Raises:
        CorruptRecords: bad magic, length or CRC.
    Source: Kafka's CompletedFetch.nextFetchedRecord.
    """
    view = memoryview(records)
    pending = [(first_offset, producer_id) for producer_id, first_offset in aborted]
    heapq.heapify(pending)
    aborting: set[int] = set()
    spans: list[BatchSpan] = []
    next_offset: int | None = None
    position, size = 0, len(view)
    while position + HEADER_BYTES <= size:
        (base, length, _epoch, magic, crc, attributes, last_delta, base_ts, max_ts, producer_id, _pe, _seq, count) = (
            HEADER.unpack_from(view, position)
        )
        end = position + LENGTH_PREFIX_BYTES + length
        if magic != 2 or length < HEADER_BYTES - LENGTH_PREFIX_BYTES or count < 0 or last_delta < 0:
            raise CorruptRecords(
                f"no record batch of version 2 at offset {base} (magic {magic}, length {length}, count {count})"
            )
        if end > size:
            break
        if check_crc and crc32c(view[position + CRC_START : end]) != crc:
            raise CorruptRecords(f"the batch at offset {base} fails its CRC")
        next_offset = base + last_delta + 1
        while pending and pending[0][0] < next_offset:
            aborting.add(heapq.heappop(pending)[1])
        if attributes & _CONTROL:
            if _is_abort_marker(view[position + HEADER_BYTES : end]):
                aborting.discard(producer_id)
        elif count and not (attributes & _TRANSACTIONAL and producer_id in aborting):
            spans.append(
                BatchSpan(
                    start=position + HEADER_BYTES,
                    end=end,
                    codec=attributes & _CODEC_MASK,
                    base_offset=base,
                    last_offset=base + last_delta,
                    base_timestamp_ms=base_ts,
                    log_append_time_ms=max_ts if attributes & _LOG_APPEND_TIME else None,
                    count=count,
                )
            )
        position = end
    return Scan(tuple(spans), next_offset)


def mean_bytes(records: bytes | bytearray | memoryview, begin: int) -> float:
    """Bytes per offset from `begin` on, over the whole batches in `records`; 1.0 if there is none."""
    view = memoryview(records)
    position, first, after = 0, None, begin
    while position + HEADER_BYTES <= len(view):
        base, length = struct.unpack_from(">qi", view, position)
        end = position + LENGTH_PREFIX_BYTES + length
        if end > len(view) or length < HEADER_BYTES - LENGTH_PREFIX_BYTES:
            break
        first = base if first is None else first
        after = base + struct.unpack_from(">i", view, position + 23)[0] + 1
        position = end
    return position / (after - first) if first is not None and after > first else 1.0


def _is_abort_marker(records: memoryview) -> bool:
    """A control batch holds one record whose key is (int16 version, int16 type); its prefix is 5 one-byte fields."""
    # length, attributes, timestamp delta, offset delta, key length: the first and third may take more than one byte
    position = 0
    position = _skip_varint(records, position) + 1
    position = _skip_varint(records, position)
    position = _skip_varint(records, position)
    position = _skip_varint(records, position)
    return bool(struct.unpack_from(">hh", records, position)[1] == _ABORT)


def _skip_varint(data: memoryview, position: int) -> int:
    while data[position] & 0x80:
        position += 1
    return position + 1
