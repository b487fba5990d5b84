"""Building record batches: producers, transaction markers, compaction."""

from __future__ import annotations

import struct
from collections.abc import Sequence

from kafkalite.model import Buffer
from kafkalite.record.batch import (
    COMPRESSION_MASK,
    CONTROL_FLAG,
    CRC_START,
    DELETE_HORIZON_FLAG,
    HEADER,
    HEADER_SIZE,
    LOG_OVERHEAD,
    MAGIC,
    NO_SEQUENCE,
    TIMESTAMP_TYPE_FLAG,
    TRANSACTIONAL_FLAG,
    BatchHeader,
)
from kafkalite.record.checksum import crc32c
from kafkalite.record.compression import Codec, compress
from kafkalite.record.varint import encode_varint

Headers = Sequence[tuple[str, bytes | None]]

_CRC = struct.Struct(">I")
_NULL = encode_varint(-1)
_NO_HEADERS = encode_varint(0)
_CONTROL_KEY = struct.Struct(">hh")
_END_TXN_VALUE = struct.Struct(">hi")
ABORT_MARKER = 0
COMMIT_MARKER = 1


def encode_record(
    offset_delta: int, timestamp_delta: int, key: Buffer | None, value: Buffer | None, headers: Headers
) -> bytes:
    """One record as it lies inside a batch, its length in front."""
    # Once per record of every producer here: no loop and one join for what most records are.
    times = encode_varint(timestamp_delta)
    offsets = encode_varint(offset_delta)
    size = 1 + len(times) + len(offsets)
    if key is None:
        key_size, key = _NULL, b""
    else:
        key_size = encode_varint(len(key))
    if value is None:
        value_size, value = _NULL, b""
    else:
        value_size = encode_varint(len(value))
    size += len(key_size) + len(key) + len(value_size) + len(value)
    tail = _encode_headers(headers) if headers else _NO_HEADERS
    return b"".join((encode_varint(size + len(tail)), b"\x00", times, offsets, key_size, key, value_size, value, tail))


def _encode_headers(headers: Headers) -> bytes:
    parts: list[Buffer] = [encode_varint(len(headers))]
    for name, content in headers:
        raw = name.encode()
        parts += [encode_varint(len(raw)), raw]
        parts += [_NULL] if content is None else [encode_varint(len(content)), content]
    return b"".join(parts)


def encode_batch(
    payload: Buffer,
    *,
    record_count: int,
    base_offset: int = 0,
    last_offset_delta: int,
    leader_epoch: int = -1,
    attributes: int = 0,
    base_timestamp: int,
    max_timestamp: int,
    producer_id: int = -1,
    producer_epoch: int = -1,
    base_sequence: int = NO_SEQUENCE,
) -> bytes:
    """A whole batch around records that are encoded (and compressed) already."""
    head = bytearray(HEADER_SIZE)
    HEADER.pack_into(
        head, 0, base_offset, HEADER_SIZE - LOG_OVERHEAD + len(payload), leader_epoch, MAGIC, 0, attributes,
        last_offset_delta, base_timestamp, max_timestamp, producer_id, producer_epoch, base_sequence, record_count,
    )  # fmt: skip
    _CRC.pack_into(head, 17, crc32c(payload, crc32c(memoryview(head)[CRC_START:])))
    return b"".join((head, payload))


class RecordBatchBuilder:
    """Collects records, then makes one batch of them.

    Args:
        compression: a codec for the records as a whole.
        producer_id, producer_epoch, base_sequence: of an idempotent producer; -1 otherwise.
        transactional: the batch belongs to the producer's open transaction.
        log_append_time: readers are to take the batch's max timestamp for every record.
    """

    def __init__(
        self,
        compression: Codec = Codec.NONE,
        *,
        producer_id: int = -1,
        producer_epoch: int = -1,
        base_sequence: int = NO_SEQUENCE,
        transactional: bool = False,
        base_offset: int = 0,
        leader_epoch: int = -1,
        log_append_time: bool = False,
    ) -> None:
        self.producer_id = producer_id
        self.producer_epoch = producer_epoch
        self.base_sequence = base_sequence
        self._compression = compression
        self._attributes = (
            compression | (TRANSACTIONAL_FLAG if transactional else 0) | (TIMESTAMP_TYPE_FLAG if log_append_time else 0)
        )
        self._base_offset = base_offset
        self._leader_epoch = leader_epoch
        self._records: list[bytes] = []
        self._base_timestamp = 0
        self._max_timestamp = -1
        self._size = HEADER_SIZE

    @property
    def record_count(self) -> int:
        return len(self._records)

    @property
    def size_bytes(self) -> int:
        """Size of the batch before compression."""
        return self._size

    def append(self, key: Buffer | None, value: Buffer | None, headers: Headers = (), timestamp_ms: int = 0) -> int:
        """Add one record; return the batch's size so far, before compression."""
        if not self._records:
            self._base_timestamp = timestamp_ms
        record = encode_record(len(self._records), timestamp_ms - self._base_timestamp, key, value, headers)
        self._records.append(record)
        self._max_timestamp = max(self._max_timestamp, timestamp_ms)
        self._size += len(record)
        return self._size

    def build(self) -> bytes:
        """The batch. There must be a record in it."""
        assert self._records, "a batch holds at least one record"
        return encode_batch(
            compress(self._compression, b"".join(self._records)),
            record_count=len(self._records),
            base_offset=self._base_offset,
            last_offset_delta=len(self._records) - 1,
            leader_epoch=self._leader_epoch,
            attributes=self._attributes,
            base_timestamp=self._base_timestamp,
            max_timestamp=self._max_timestamp,
            producer_id=self.producer_id,
            producer_epoch=self.producer_epoch,
            base_sequence=self.base_sequence,
        )


def end_transaction_marker(
    producer_id: int, producer_epoch: int, *, commit: bool, coordinator_epoch: int, timestamp_ms: int
) -> bytes:
    """The control batch that ends a producer's transaction on one partition (KIP-98)."""
    key = _CONTROL_KEY.pack(0, COMMIT_MARKER if commit else ABORT_MARKER)
    return encode_batch(
        encode_record(0, 0, key, _END_TXN_VALUE.pack(0, coordinator_epoch), ()),
        record_count=1,
        last_offset_delta=0,
        attributes=TRANSACTIONAL_FLAG | CONTROL_FLAG,
        base_timestamp=timestamp_ms,
        max_timestamp=timestamp_ms,
        producer_id=producer_id,
        producer_epoch=producer_epoch,
    )


def rebuilt_batch(
    header: BatchHeader,
    payload: Buffer,
    *,
    record_count: int,
    attributes: int,
    base_timestamp: int,
    max_timestamp: int,
) -> bytes:
    """A batch in the place of another one: it keeps that one's offsets, leader epoch, producer and sequence."""
    return encode_batch(
        payload,
        record_count=record_count,
        base_offset=header.base_offset,
        last_offset_delta=header.last_offset_delta,
        leader_epoch=header.partition_leader_epoch,
        attributes=attributes,
        base_timestamp=base_timestamp,
        max_timestamp=max_timestamp,
        producer_id=header.producer_id,
        producer_epoch=header.producer_epoch,
        base_sequence=header.base_sequence,
    )


def empty_batch(header: BatchHeader) -> bytes:
    """A batch without records that keeps offsets, producer and sequence of the one it stands for (compaction)."""
    attributes = header.attributes & ~DELETE_HORIZON_FLAG & ~COMPRESSION_MASK
    return rebuilt_batch(
        header, b"", record_count=0, attributes=attributes, base_timestamp=-1, max_timestamp=header.max_timestamp
    )
