"""Reading records out of batches: clients, compaction, the coordinators, timestamp look-ups. Never the append path."""

from __future__ import annotations

import struct
from collections.abc import Iterable, Iterator
from hashlib import sha256
from typing import NamedTuple

from kafkalite.errors import ErrorCode, api_error
from kafkalite.lazy_dataclass import dataclass
from kafkalite.model import Buffer
from kafkalite.record.batch import HEADER_SIZE, BatchHeader, split_batches, verify_crc
from kafkalite.record.compression import DEFAULT_LIMIT_BYTES, decompress
from kafkalite.record.inflating import pieces
from kafkalite.record.varint import decode_varint

_CONTROL_KEY = struct.Struct(">hh")
_END_TXN_VALUE = struct.Struct(">hi")

#: A record's length, attributes, timestamp, offset and key length; also more than a length.
_HEAD_BYTES = 64

#: A longer key is compared by its digest: a few kB of a batch may stand for a key of 250 MB.
HELD_KEY_BYTES = 1024 * 1024

_EARLIEST, _LATEST = -(2**63), 2**63 - 1


class Record(NamedTuple):
    """One record; `timestamp` in ms since 1970."""

    offset: int
    timestamp: int
    key: bytes | None
    value: bytes | None
    headers: tuple[tuple[str, bytes | None], ...]


@dataclass(frozen=True, slots=True)
class EndTransactionMarker:
    """What a control batch says: the end of its producer's transaction."""

    commit: bool
    coordinator_epoch: int


def _as_long(timestamp: int) -> int:
    """What Java's clients make of a timestamp that overflows; it has to fit into a batch's head."""
    return timestamp if _EARLIEST <= timestamp <= _LATEST else (timestamp - _EARLIEST) % 2**64 + _EARLIEST


def _field(view: bytes, position: int, end: int) -> tuple[bytes | None, int]:
    size, position = decode_varint(view, position)
    if size < 0:
        return None, position
    stop = position + size
    if stop > end:
        raise api_error(ErrorCode.CORRUPT_MESSAGE, "a record's field exceeds the record")
    return view[position:stop], stop


def records_of(
    buffer: Buffer, position: int, header: BatchHeader, *, limit_bytes: int = DEFAULT_LIMIT_BYTES
) -> Iterator[Record]:
    """The records of the batch at `position`, control records too.

    Raises:
        ApiError: CORRUPT_MESSAGE when the records are not what the header says.
    """
    payload = memoryview(buffer)[position + HEADER_SIZE : position + header.size]
    # One copy of the batch: fields cut out of bytes are bytes, at half the cost of going through a memoryview.
    view = bytes(decompress(header.compression, payload, limit_bytes=limit_bytes))
    at, end = 0, len(view)
    base_offset = header.base_offset
    append_time = header.max_timestamp if header.is_log_append_time else None
    for _ in range(header.record_count):
        size, at = decode_varint(view, at)
        record_end = at + size
        if size < 0 or record_end > end:
            raise api_error(ErrorCode.CORRUPT_MESSAGE, "a record exceeds its batch")
        timestamp_delta, at = decode_varint(view, at + 1)
        offset_delta, at = decode_varint(view, at)
        key, at = _field(view, at, record_end)
        value, at = _field(view, at, record_end)
        count, at = decode_varint(view, at)
        if not 0 <= count <= record_end - at:
            raise api_error(ErrorCode.CORRUPT_MESSAGE, f"a record with {count} headers")
        headers: list[tuple[str, bytes | None]] = []
        for _ in range(count) if count else ():
            name, at = _field(view, at, record_end)
            content, at = _field(view, at, record_end)
            if name is None:
                raise api_error(ErrorCode.CORRUPT_MESSAGE, "a header without a name")
            headers.append((name.decode("utf-8", "replace"), content))
        if at != record_end:
            raise api_error(ErrorCode.CORRUPT_MESSAGE, "a record's length is not that of its fields")
        timestamp = _as_long(header.base_timestamp + timestamp_delta) if append_time is None else append_time
        yield Record(base_offset + offset_delta, timestamp, key, value, tuple(headers) if headers else ())
    if at != end:
        raise api_error(ErrorCode.CORRUPT_MESSAGE, "bytes after the last record of a batch")


class ScannedRecord(NamedTuple):
    """What `scan` says of a record. `key`: as `comparable_key` makes it."""

    offset: int
    timestamp: int
    key: bytes | None
    has_value: bool


def scan(buffer: Buffer, position: int, header: BatchHeader) -> Iterator[ScannedRecord]:
    """The records of the batch at `position` without their values: in little memory, whatever they decompress to.

    Only a key of up to HELD_KEY_BYTES is ever held as a whole. What follows the key is checked where it is part of the same piece.

    Raises:
        ApiError: CORRUPT_MESSAGE when the records are not what the header says.
    """
    payload = memoryview(buffer)[position + HEADER_SIZE : position + header.size]
    source = PieceWindow(pieces(header.compression, payload))
    append_time = header.max_timestamp if header.is_log_append_time else None
    for _ in range(header.record_count):
        source.need(_HEAD_BYTES)
        size, at = decode_varint(source.data, source.at)
        if size < 0:
            raise api_error(ErrorCode.CORRUPT_MESSAGE, "a record exceeds its batch")
        end = at + size
        timestamp_delta, at = decode_varint(source.data, at + 1)
        offset_delta, at = decode_varint(source.data, at)
        key_bytes, at = decode_varint(source.data, at)
        if at + max(key_bytes, 0) > end:
            raise api_error(ErrorCode.CORRUPT_MESSAGE, "a record's field exceeds the record")
        key: bytes | None = None
        shift = source.skip_to(at)
        end -= shift
        if key_bytes > HELD_KEY_BYTES:
            rest = end - source.at - key_bytes
            key = _digest(source.take(key_bytes))
            source.need(_HEAD_BYTES)
            end = source.at + rest
        elif key_bytes >= 0:
            shift = source.need(key_bytes + _HEAD_BYTES)
            end -= shift
            key = source.data[source.at : source.at + key_bytes]
            if len(key) < key_bytes:
                raise api_error(ErrorCode.CORRUPT_MESSAGE, "a record exceeds its batch")
            source.at += key_bytes
        value_bytes, at = decode_varint(source.data, source.at)
        if at + max(value_bytes, 0) > end:
            raise api_error(ErrorCode.CORRUPT_MESSAGE, "a record's field exceeds the record")
        if end <= len(source.data):
            _check_rest(source.data, at + max(value_bytes, 0), end)
        source.skip_to(end)
        timestamp = _as_long(header.base_timestamp + timestamp_delta) if append_time is None else append_time
        yield ScannedRecord(header.base_offset + offset_delta, timestamp, key, value_bytes >= 0)
    if not source.is_at_end():
        raise api_error(ErrorCode.CORRUPT_MESSAGE, "bytes after the last record of a batch")


def _check_rest(data: bytes, at: int, end: int) -> None:
    """A record's headers, which end where the record does. Raises ApiError CORRUPT_MESSAGE."""
    count, at = decode_varint(data, at)
    if not 0 <= count <= end - at:
        raise api_error(ErrorCode.CORRUPT_MESSAGE, f"a record with {count} headers")
    for _ in range(count):
        name, at = _field(data, at, end)
        _, at = _field(data, at, end)
        if name is None:
            raise api_error(ErrorCode.CORRUPT_MESSAGE, "a header without a name")
    if at != end:
        raise api_error(ErrorCode.CORRUPT_MESSAGE, "a record's length is not that of its fields")


def comparable_key(key: bytes) -> bytes:
    """The key itself, or, of one with more than HELD_KEY_BYTES, what stands for it."""
    return key if len(key) <= HELD_KEY_BYTES else _digest([key])


def _digest(parts: Iterable[Buffer]) -> bytes:
    found = sha256()
    for part in parts:
        found.update(part)
    return b"SHA-256 of a long key: " + found.digest()


class PieceWindow:
    """A window over pieces that come one after the other; `at` is where the reader is in `data`."""

    def __init__(self, source: Iterator[Buffer]) -> None:
        self._pieces = source
        self._is_over = False
        self.data = b""
        self.at = 0

    def need(self, size: int) -> int:
        """Have `size` bytes from `at` on in the window, or all there are; by how much positions have moved down."""
        if self._is_over or len(self.data) - self.at >= size:
            return 0
        moved = self.at
        parts: list[Buffer] = [self.data[self.at :]]
        have = len(parts[0])
        while have < size:
            piece = next(self._pieces, None)
            if piece is None:
                self._is_over = True
                break
            parts.append(piece)
            have += len(piece)
        self.data, self.at = b"".join(parts), 0
        return moved

    def skip_to(self, position: int) -> int:
        """Go on at `position`, which may lie beyond the window; by how much positions have moved down."""
        moved = 0
        while position - moved > len(self.data):
            moved += len(self.data)
            piece = next(self._pieces, None)
            if piece is None:
                self._is_over = True
                raise api_error(ErrorCode.CORRUPT_MESSAGE, "a record exceeds its batch")
            self.data = bytes(piece)
        self.at = position - moved
        return moved

    def take(self, size: int) -> Iterator[memoryview]:
        """Pass over the next `size` bytes, piece by piece. Raises ApiError CORRUPT_MESSAGE: there are fewer."""
        while size > 0:
            if self.at == len(self.data):
                piece = next(self._pieces, None)
                if piece is None:
                    self._is_over = True
                    raise api_error(ErrorCode.CORRUPT_MESSAGE, "a record exceeds its batch")
                self.data, self.at = bytes(piece), 0
                continue
            part = memoryview(self.data)[self.at : self.at + size]
            self.at += len(part)
            size -= len(part)
            yield part

    def is_at_end(self) -> bool:
        self.need(1)
        return self.at == len(self.data)


def read_records(buffer: Buffer, *, check_crc: bool = True, limit_bytes: int = DEFAULT_LIMIT_BYTES) -> Iterator[Record]:
    """The data records of all batches in `buffer`; control batches are passed over.

    Raises:
        ApiError: CORRUPT_MESSAGE.
    """
    for position, header in split_batches(buffer):
        if check_crc:
            verify_crc(buffer, position, header)
        if not header.is_control:
            yield from records_of(buffer, position, header, limit_bytes=limit_bytes)


def end_transaction_marker_of(buffer: Buffer, position: int, header: BatchHeader) -> EndTransactionMarker | None:
    """The marker in a control batch; None for control records of another type.

    Raises:
        ApiError: CORRUPT_MESSAGE.
    """
    assert header.is_control
    for record in records_of(buffer, position, header):
        if record.key is None or len(record.key) < _CONTROL_KEY.size:
            raise api_error(ErrorCode.CORRUPT_MESSAGE, "a control record without a type")
        _, kind = _CONTROL_KEY.unpack_from(record.key)
        if kind not in (0, 1):
            return None
        if record.value is None or len(record.value) < _END_TXN_VALUE.size:
            raise api_error(ErrorCode.CORRUPT_MESSAGE, "an end-of-transaction marker without a coordinator epoch")
        _, coordinator_epoch = _END_TXN_VALUE.unpack_from(record.value)
        return EndTransactionMarker(commit=kind == 1, coordinator_epoch=coordinator_epoch)
    return None
