"""Arrow rows to record batches: the opposite of `decode`, likewise without a Python object per record.

Rows arrive sorted by destination. The lengths of all fields are computed at once, the varints are written at once,
and Arrow's element-wise join puts prefix, key, value and headers of each row together: its output buffer IS the
records, one after the other.
"""

from __future__ import annotations

from collections.abc import Iterator

import numpy as np
import numpy.typing as npt
import pyarrow as pa
import pyarrow.compute as pc

from kafkalite.lazy_dataclass import dataclass
from kafkalite.record.batch import TRANSACTIONAL_FLAG
from kafkalite.record.builder import encode_batch
from kafkalite.record.compression import compress
from kafkalite.record.varint import encode_varint
from pyspark_kafkalite import varints
from pyspark_kafkalite.partitioner import binary_buffers

Longs = npt.NDArray[np.int64]

#: The most that a record's varints, attributes and header count take besides key, value and headers.
RECORD_OVERHEAD_BYTES = 32


class HeaderWithoutKey(ValueError):
    """The header of a row, or its key, is null: the format has no place for that."""

    def __init__(self, row: int) -> None:
        super().__init__(f"row {row}: a header without a key cannot be written")
        self.row = row


@dataclass(frozen=True, slots=True)
class Rows:
    """Rows of one destination after the other. Keys and values are binary arrays; nulls are null on the wire.

    `headers` is list<struct<key: string, value: binary>> or None.
    """

    keys: pa.Array
    values: pa.Array
    headers: pa.Array | None

    def __len__(self) -> int:
        return len(self.values)


@dataclass(frozen=True, slots=True)
class EncodedBatch:
    """The records of one batch, ready for `seal`. `destination` is the index that the caller gave."""

    destination: int
    count: int
    records: memoryview

    def halves(self) -> tuple[EncodedBatch, EncodedBatch]:
        """Two batches with these records, of which there are at least two: a topic may take less at once than the writer puts together."""
        first = self.count // 2
        middle = 0
        for _ in range(first):
            length, body = varints.read_one(self.records, middle)
            middle = body + length
        return (
            EncodedBatch(self.destination, first, self.records[:middle]),
            EncodedBatch(self.destination, self.count - first, self._counted_again(middle)),
        )

    def _counted_again(self, position: int) -> memoryview:
        """The records from `position` on, as those of a batch of their own: their offset deltas begin at 0."""
        counted = bytearray()
        delta = 0
        while position < len(self.records):
            length, body = varints.read_one(self.records, position)
            position = body + length
            # attributes and the timestamp delta take a byte each
            _, rest = varints.read_one(self.records, body + 2)
            offset_delta = encode_varint(delta)
            counted += encode_varint(2 + len(offset_delta) + position - rest)
            counted += self.records[body : body + 2]
            counted += offset_delta
            counted += self.records[rest:position]
            delta += 1
        return memoryview(counted)

    def seal(
        self,
        *,
        timestamp_ms: int,
        codec: int,
        producer_id: int,
        producer_epoch: int,
        base_sequence: int,
        transactional: bool = False,
    ) -> bytes:
        """The batch as it goes over the wire. All records have one timestamp: the time of writing."""
        return encode_batch(
            self.records if codec == 0 else compress(codec, self.records),
            record_count=self.count,
            last_offset_delta=self.count - 1,
            attributes=codec | (TRANSACTIONAL_FLAG if transactional else 0),
            base_timestamp=timestamp_ms,
            max_timestamp=timestamp_ms,
            producer_id=producer_id,
            producer_epoch=producer_epoch,
            base_sequence=base_sequence,
        )


def lengths(array: pa.Array) -> Longs:
    """Bytes of each element; 0 for null."""
    offsets, _ = binary_buffers(array)
    sizes = np.diff(offsets).astype(np.int64)
    return np.where(_nulls(array), 0, sizes) if array.null_count else sizes


def encode(rows: Rows, destinations: npt.NDArray[np.int64], batch_bytes: int) -> Iterator[EncodedBatch]:
    """Cut `rows` into batches of one destination each and of at most about `batch_bytes` (or one record), in order.

    Args:
        destinations: one number per row, ascending.
    """
    if not len(rows):
        return
    sections = None if rows.headers is None else _header_sections(rows.headers)
    sizes = lengths(rows.keys) + lengths(rows.values) + RECORD_OVERHEAD_BYTES
    if sections is not None:
        sizes = sizes + lengths(sections)
    first = _batch_starts(sizes, destinations, batch_bytes)
    last = np.append(first[1:], len(rows))
    delta = np.arange(len(rows), dtype=np.int64) - np.repeat(first, last - first)
    records = _records(rows, sections, delta)
    offsets, data = binary_buffers(records)
    content = memoryview(data.data)
    for begin, end in zip(first.tolist(), last.tolist()):
        yield EncodedBatch(int(destinations[begin]), end - begin, content[offsets[begin] : offsets[end]])


def _batch_starts(sizes: Longs, destinations: npt.NDArray[np.int64], batch_bytes: int) -> Longs:
    """Indices of the rows that begin a batch: a new destination, or the batch would be over its size."""
    turns = np.flatnonzero(np.diff(destinations)) + 1
    ends = np.append(turns, len(sizes)).tolist()
    filled = np.concatenate(([0], np.cumsum(sizes)))
    starts: list[int] = []
    begin = 0
    for end in ends:
        while begin < end:
            starts.append(begin)
            fits = int(np.searchsorted(filled, filled[begin] + batch_bytes, side="right")) - 1
            begin = min(max(fits, begin + 1), end)
    return np.array(starts, np.int64)


def _records(rows: Rows, headers: pa.Array | None, offset_delta: Longs) -> pa.Array:
    """Each row as a record (with its length in front), as one binary array."""
    count = len(rows)
    key_null, value_null = _nulls(rows.keys), _nulls(rows.values)
    key_size, value_size = lengths(rows.keys), lengths(rows.values)
    key_field, value_field = np.where(key_null, -1, key_size), np.where(value_null, -1, value_size)
    key_field_size, value_field_size = varints.sizes(key_field), varints.sizes(value_field)
    delta_size = varints.sizes(offset_delta)
    headers_size: Longs = lengths(headers) if headers is not None else np.ones(count, np.int64)
    # attributes and the timestamp delta (0: all records of a batch have its time) take a byte each
    body = 2 + delta_size + key_field_size + key_size + value_field_size + value_size + headers_size
    body_size = varints.sizes(body)

    prefix_size = body_size + 2 + delta_size + key_field_size
    prefix_end = np.cumsum(prefix_size)
    at = prefix_end - prefix_size
    prefix = np.zeros(int(prefix_end[-1]), np.uint8)
    varints.write(body, body_size, prefix, at)
    varints.write(offset_delta, delta_size, prefix, at + body_size + 2)
    varints.write(key_field, key_field_size, prefix, at + body_size + 2 + delta_size)
    middle = _varint_array(value_field, value_field_size)
    tail: pa.Array | pa.Scalar = headers if headers is not None else pa.scalar(b"\x00", pa.binary())
    return _join(_binary_array(prefix_end, prefix), rows.keys, middle, rows.values, tail)


def _header_sections(headers: pa.Array) -> pa.Array:
    """For each row its number of headers and the headers, encoded."""
    counts = pc.fill_null(pc.list_value_length(headers), 0).to_numpy(zero_copy_only=False).astype(np.int64)
    flat = headers.flatten()  # what null lists may hide is left out
    keys, values = pc.cast(flat.field("key"), pa.binary()), flat.field("value")
    if flat.null_count or keys.null_count:
        wrong = np.flatnonzero(_nulls(flat) | _nulls(keys))[0]
        raise HeaderWithoutKey(int(np.searchsorted(np.cumsum(counts), wrong, side="right")))
    key_size, value_size = lengths(keys), np.where(_nulls(values), -1, lengths(values))
    encoded = _join(
        _varint_array(key_size, varints.sizes(key_size)),
        keys,
        _varint_array(value_size, varints.sizes(value_size)),
        values,
    )
    offsets, data = binary_buffers(encoded)
    # the headers of a row lie one after the other: each row's section is a slice of that buffer
    ends = offsets[np.cumsum(counts)] if len(flat) else np.zeros(len(counts), np.int32)
    sections = _binary_array(ends.astype(np.int64), data, begin=int(offsets[0]))
    return _join(_varint_array(counts, varints.sizes(counts)), sections)


def _varint_array(values: Longs, sizes: Longs) -> pa.Array:
    ends = np.cumsum(sizes)
    data = np.empty(int(ends[-1]) if len(ends) else 0, np.uint8)
    varints.write(values, sizes, data, ends - sizes)
    return _binary_array(ends, data)


def _binary_array(ends: Longs, data: npt.NDArray[np.uint8], begin: int = 0) -> pa.Array:
    offsets = np.empty(len(ends) + 1, np.int32)
    offsets[0] = begin
    offsets[1:] = ends
    return pa.Array.from_buffers(pa.binary(), len(ends), [None, pa.py_buffer(offsets), pa.py_buffer(data)])


def _join(*parts: pa.Array | pa.Scalar) -> pa.Array:
    nothing = pa.scalar(b"", pa.binary())
    return pc.binary_join_element_wise(*parts, nothing, null_handling="replace", null_replacement=b"")


def _nulls(array: pa.Array) -> npt.NDArray[np.bool_]:
    if not array.null_count:
        return np.zeros(len(array), np.bool_)
    return np.asarray(array.is_null().to_numpy(zero_copy_only=False), np.bool_)
