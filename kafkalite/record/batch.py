"""RecordBatch v2: the 61-byte header, its CRC, and what may be changed in place (Kafka message format, magic 2).

    offset  size  field                    offset  size  field
    0       8     base offset              27      8     base timestamp
    8       4     batch length             35      8     max timestamp
    12      4     partition leader epoch   43      8     producer id
    16      1     magic (2)                51      2     producer epoch
    17      4     CRC32C of bytes 21..     53      4     base sequence
    21      2     attributes               57      4     record count
    23      4     last offset delta        61      ..    records

Base offset and leader epoch lie before the CRC's range, so a broker assigns them without touching the records.
"""

from __future__ import annotations

import struct
from collections.abc import Callable, Iterator
from functools import partial
from typing import NamedTuple

from kafkalite.errors import ErrorCode, api_error
from kafkalite.model import Buffer
from kafkalite.record.checksum import crc32c

HEADER_SIZE = 61
#: Base offset and batch length: the bytes that `batch_length` does not count.
LOG_OVERHEAD = 12
MAGIC = 2
CRC_START = 21
NO_SEQUENCE = -1
MAX_SEQUENCE = 2**31 - 1

COMPRESSION_MASK = 0x07
TIMESTAMP_TYPE_FLAG = 0x08
TRANSACTIONAL_FLAG = 0x10
CONTROL_FLAG = 0x20
DELETE_HORIZON_FLAG = 0x40

HEADER = struct.Struct(">qiibIhiqqqhii")
_CRC = struct.Struct(">I")
_OFFSET = struct.Struct(">q")
_INT = struct.Struct(">i")
_STAMP = struct.Struct(">hiqq")
#: Base offset, batch length, leader epoch: what a broker replaces if it may not write into the buffer.
_ASSIGNED = struct.Struct(">qii")
ASSIGNED_SIZE = _ASSIGNED.size


class BatchHeader(NamedTuple):
    """One batch's header, field by field as on disk."""

    base_offset: int
    batch_length: int
    partition_leader_epoch: int
    magic: int
    crc: int
    attributes: int
    last_offset_delta: int
    base_timestamp: int
    max_timestamp: int
    producer_id: int
    producer_epoch: int
    base_sequence: int
    record_count: int

    @property
    def size(self) -> int:
        """Bytes of the whole batch."""
        return self.batch_length + LOG_OVERHEAD

    @property
    def last_offset(self) -> int:
        return self.base_offset + self.last_offset_delta

    @property
    def next_offset(self) -> int:
        return self.base_offset + self.last_offset_delta + 1

    @property
    def compression(self) -> int:
        """Codec number; see kafkalite.record.compression."""
        return self.attributes & COMPRESSION_MASK

    @property
    def is_transactional(self) -> bool:
        return bool(self.attributes & TRANSACTIONAL_FLAG)

    @property
    def is_control(self) -> bool:
        return bool(self.attributes & CONTROL_FLAG)

    @property
    def is_log_append_time(self) -> bool:
        return bool(self.attributes & TIMESTAMP_TYPE_FLAG)

    @property
    def has_delete_horizon(self) -> bool:
        """A compacted batch whose `base_timestamp` says when its tombstones may go (KIP-534)."""
        return bool(self.attributes & DELETE_HORIZON_FLAG)

    @property
    def last_sequence(self) -> int:
        if self.base_sequence == NO_SEQUENCE:
            return NO_SEQUENCE
        return add_to_sequence(self.base_sequence, self.last_offset_delta)


#: From the fields that HEADER unpacks; `BatchHeader._make` without its check of their number.
new_header: Callable[[tuple[int, ...]], BatchHeader] = partial(tuple.__new__, BatchHeader)


def add_to_sequence(sequence: int, increment: int) -> int:
    """Sequence numbers wrap from 2**31 - 1 to 0."""
    return (sequence + increment) & MAX_SEQUENCE


def is_behind(sequence: int, other: int) -> bool:
    """Whether a producer gives out `sequence` after `other`."""
    return 0 < (sequence - other) & MAX_SEQUENCE <= MAX_SEQUENCE // 2


def parse_header(buffer: Buffer, position: int = 0) -> BatchHeader:
    """The header at `position`; the buffer must hold 61 bytes from there (else struct.error)."""
    return new_header(HEADER.unpack_from(buffer, position))


def crc_of(buffer: Buffer, position: int, size: int) -> int:
    """CRC32C over what the CRC of the batch at `position`, `size` bytes in all, covers."""
    return crc32c(memoryview(buffer)[position + CRC_START : position + size])


def split_batches(buffer: Buffer) -> Iterator[tuple[int, BatchHeader]]:
    """(position, header) of each batch in `buffer`, which must hold whole batches and nothing else.

    Checks magic and lengths only; see `verify_crc`.

    Raises:
        ApiError: CORRUPT_MESSAGE at the first byte that is not part of a whole v2 batch.
    """
    position, end = 0, len(buffer)
    while position < end:
        if end - position < HEADER_SIZE:
            raise api_error(ErrorCode.CORRUPT_MESSAGE, f"{end - position} bytes are too few for a batch header")
        header = new_header(HEADER.unpack_from(buffer, position))
        if header.magic != MAGIC:
            raise api_error(ErrorCode.CORRUPT_MESSAGE, f"magic {header.magic}: only record batches v2 are accepted")
        size = header.batch_length + LOG_OVERHEAD
        if size < HEADER_SIZE or position + size > end:
            raise api_error(
                ErrorCode.CORRUPT_MESSAGE, f"batch length {header.batch_length} at byte {position} of {end}"
            )
        yield position, header
        position += size


def verify_crc(buffer: Buffer, position: int, header: BatchHeader) -> None:
    """Raises ApiError CORRUPT_MESSAGE unless the batch's CRC is right."""
    actual = crc_of(buffer, position, header.size)
    if actual != header.crc:
        raise api_error(ErrorCode.CORRUPT_MESSAGE, f"CRC {actual:#010x}, the batch says {header.crc:#010x}")


def assign_in_place(view: memoryview, position: int, base_offset: int, leader_epoch: int) -> None:
    """Write base offset and leader epoch into a writable buffer."""
    _OFFSET.pack_into(view, position, base_offset)
    _INT.pack_into(view, position + 12, leader_epoch)


def assigned_head(header: BatchHeader, base_offset: int, leader_epoch: int) -> bytes:
    """The first 16 bytes with base offset and leader epoch assigned; the batch's rest (from byte 16) stays where it is."""
    return _ASSIGNED.pack(base_offset, header.batch_length, leader_epoch)


def stamped_header(view: memoryview, position: int, header: BatchHeader, now_ms: int) -> bytes:
    """The 61-byte header for LogAppendTime: the broker's clock as max timestamp, flag set, CRC new. Assigned fields stay.

    `now_ms` -1: for CreateTime, with the producer's max timestamp and without the flag. The base timestamp stays (record deltas count from it); readers take the max timestamp for every record.
    """
    head = bytearray(view[position : position + HEADER_SIZE])
    attributes, max_timestamp = header.attributes | TIMESTAMP_TYPE_FLAG, now_ms
    if now_ms < 0:
        attributes, max_timestamp = header.attributes & ~TIMESTAMP_TYPE_FLAG, header.max_timestamp
    _STAMP.pack_into(head, 21, attributes, header.last_offset_delta, header.base_timestamp, max_timestamp)
    crc = crc32c(view[position + HEADER_SIZE : position + header.size], crc32c(memoryview(head)[CRC_START:]))
    _CRC.pack_into(head, 17, crc)
    return bytes(head)
