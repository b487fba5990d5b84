"""Record batches to Arrow, a whole fetch at once and no Python object per record on the way.

How: the batch headers are read in a loop (see `batches`). Within a batch only the chain of record lengths is
serial: where record n+1 begins is known when the length of n is. That chain is guessed (all records of one size) and
verified, or walked in a tight loop. Everything else is numpy over all records of the fetch, and the keys and values
are copied once, by Arrow's `take` over slices of the fetched buffer.
"""

from __future__ import annotations

from collections.abc import Iterator, Sequence
from functools import partial

import numpy as np
import numpy.typing as npt
import pyarrow as pa

from kafkalite.errors import ApiError
from kafkalite.lazy_dataclass import dataclass
from kafkalite.record.compression import decompress
from pyspark_kafkalite import varints
from pyspark_kafkalite.arrays import no_bytes, numbers, repeated
from pyspark_kafkalite.arrow_types import HEADER_ARROW, arrow_schema
from pyspark_kafkalite.batches import BatchSpan, CorruptRecords
from pyspark_kafkalite.columns import Column

Buffer = bytes | bytearray | memoryview
Longs = npt.NDArray[np.int64]
Bools = npt.NDArray[np.bool_]

#: Decoded at once: bounds memory when a small fetch decompresses to a lot.
CHUNK_BYTES = 32 << 20
#: What Spark is handed at once (measured: 1 to 8 MiB are best).
ARROW_BATCH_BYTES = 4 << 20
#: A batch may not grow beyond this when it is decompressed; a chunk with it still fits Arrow's 32-bit offsets.
MAX_BATCH_BYTES = 1 << 30

#: Spark counts microseconds in 64 bits.
_LAST_MS = (2**63 - 1) // 1000

#: Columns that need no look at the records themselves, as long as compaction left no holes.
_HEADER_ONLY = frozenset({"topic", "partition", "offset", "timestampType"})


@dataclass(frozen=True, slots=True)
class WantedRows:
    """What to make of the records of one partition: offsets in [start_offset, end_offset), these columns."""

    topic: str
    partition: int
    start_offset: int
    end_offset: int
    columns: tuple[Column, ...]


def decode(records: Buffer, spans: Sequence[BatchSpan], wanted: WantedRows) -> Iterator[pa.RecordBatch]:
    """Rows of the batches `spans` of the buffer `records`, in offset order, as Arrow batches of a few MiB.

    Raises:
        CorruptRecords: a record's lengths contradict each other, or a batch does not decompress.
    """
    relevant = [s for s in spans if s.last_offset >= wanted.start_offset and s.base_offset < wanted.end_offset]
    if all(column.field in _HEADER_ONLY for column in wanted.columns) and all(span.is_dense for span in relevant):
        yield from _slices(_from_headers(relevant, wanted))
        return
    for chunk in _chunks(records, relevant):
        yield from _slices(_to_arrow(chunk, wanted))


# --- a chunk: uncompressed records of some batches in one buffer ---------------------------------


@dataclass(frozen=True, slots=True)
class _Chunk:
    """`bounds` gives the place of each span's records in `data`."""

    data: Buffer
    spans: list[BatchSpan]
    bounds: list[tuple[int, int]]


def _chunks(records: Buffer, spans: Sequence[BatchSpan]) -> Iterator[_Chunk]:
    """Runs of uncompressed batches stay where they are; compressed ones are unpacked, up to CHUNK_BYTES together."""
    view = memoryview(records)
    position = 0
    while position < len(spans):
        if spans[position].codec == 0:
            run = position
            while run < len(spans) and spans[run].codec == 0:
                run += 1
            yield from _plain_chunks(view, spans[position:run])
            position = run
            continue
        parts: list[Buffer] = []
        bounds: list[tuple[int, int]] = []
        taken: list[BatchSpan] = []
        size = 0
        while position < len(spans) and spans[position].codec != 0 and size < CHUNK_BYTES:
            span = spans[position]
            part = _unpacked(span, view)
            parts.append(part)
            bounds.append((size, size + len(part)))
            taken.append(span)
            size += len(part)
            position += 1
        yield _Chunk(b"".join(parts) if len(parts) > 1 else parts[0], taken, bounds)


def _unpacked(span: BatchSpan, view: memoryview) -> Buffer:
    try:
        return decompress(span.codec, view[span.start : span.end], limit_bytes=MAX_BATCH_BYTES)
    except ApiError as error:
        raise CorruptRecords(f"the batch at offset {span.base_offset}: {error}") from error


def _plain_chunks(view: memoryview, spans: Sequence[BatchSpan]) -> Iterator[_Chunk]:
    position = 0
    while position < len(spans):
        begin = spans[position].start
        last = position
        while last + 1 < len(spans) and spans[last + 1].end - begin <= CHUNK_BYTES:
            last += 1
        taken = list(spans[position : last + 1])
        yield _Chunk(view[begin : spans[last].end], taken, [(s.start - begin, s.end - begin) for s in taken])
        position = last + 1


# --- where the records begin ----------------------------------------------------------------------


#: Records walked one by one after a guess failed; doubles up to the largest while guesses keep failing.
_WALK_MIN, _WALK_MAX = 256, 4096
#: Records checked per guess; a guess is worth its fixed cost from about this many hits on.
_GUESS_MAX, _GUESS_WORTH = 16384, 64


def record_starts(data: Buffer, array: npt.NDArray[np.uint8], start: int, end: int, count: int) -> Longs:
    """Positions of the byte after each record's length, for `count` records in data[start:end].

    A guess is safe: if record n begins at p and its length bytes say that n+1 begins at q, then comparing the length
    bytes at q with those at p proves the next step, and so on by induction.
    """
    starts = np.empty(count, np.int64)
    done, position, walk = 0, start, _WALK_MIN
    while done < count:
        length, body = varints.read_one(data, position)
        prefix = body - position
        stride = prefix + length
        room = (end - position) // stride if length >= 0 else 0
        tries = min(count - done, room, _GUESS_MAX)
        hits = 0
        if tries >= _GUESS_WORTH:
            guessed = position + stride * np.arange(tries, dtype=np.int64)
            good = array[guessed] == array[position]
            for byte in range(1, prefix):
                good &= array[guessed + byte] == array[position + byte]
            hits = tries if good.all() else int(np.argmin(good))
            starts[done : done + hits] = guessed[:hits] + prefix
            done += hits
            position += stride * hits
        if hits >= _GUESS_WORTH:
            walk = _WALK_MIN
        else:
            steps = min(walk, count - done)
            position = _walk(data, position, end, steps, starts, done)
            done += steps
            walk = min(2 * walk, _WALK_MAX)
    if position != end:
        raise CorruptRecords(f"{count} records end at byte {position} of {end}")
    return starts


def _walk(data: Buffer, position: int, end: int, steps: int, starts: Longs, at: int) -> int:
    """Follow `steps` lengths one by one: the only loop over records. Lengths of one and two bytes are unrolled."""
    found = [0] * steps
    for n in range(steps):
        byte = data[position]
        if byte < 0x80:
            position += 1
            length = byte >> 1
        else:
            second = data[position + 1]
            if second < 0x80:
                position += 2
                length = ((byte & 0x7F) | (second << 7)) >> 1
            else:
                length, position = varints.read_one(data, position)
                if length < 0:
                    raise CorruptRecords("a record has a negative length")
        found[n] = position
        position += length
        if position > end:
            raise CorruptRecords("a record exceeds its batch")
    starts[at : at + steps] = found
    return position


#: Minimum number of small batches that are decoded side by side; a step costs the same for all.
_LANES_MIN, _LANE_RECORDS_MAX = 48, 1024


def _all_starts(chunk: _Chunk, array: npt.NDArray[np.uint8], counts: Longs) -> Longs:
    """`record_starts` of every batch of the chunk, one after the other."""
    if any(span.count > end - begin for span, (begin, end) in zip(chunk.spans, chunk.bounds)):
        raise CorruptRecords("a batch claims more records than it has bytes")  # before memory is taken for them
    starts = np.empty(int(counts.sum()), np.int64)
    into = np.cumsum(counts) - counts
    small = counts <= _LANE_RECORDS_MAX
    if int(small.sum()) < _LANES_MIN:
        small[:] = False
    for n in np.flatnonzero(~small).tolist():
        begin, end = chunk.bounds[n]
        count = int(counts[n])
        starts[into[n] : into[n] + count] = record_starts(chunk.data, array, begin, end, count)
    if small.any():
        bounds = np.array(chunk.bounds, np.int64)[small]
        _walk_side_by_side(array, bounds, counts[small], into[small], starts)
    return starts


def _walk_side_by_side(array: npt.NDArray[np.uint8], bounds: Longs, counts: Longs, into: Longs, starts: Longs) -> None:
    """One step of every batch at a time; the longest come first, so that those still walking are the first ones."""
    order = np.argsort(-counts, kind="stable")
    position, into, counts = bounds[order, 0], into[order], counts[order]
    walking = np.searchsorted(-counts, -np.arange(int(counts[0])), side="left")
    for step, lanes in enumerate(walking.tolist()):
        length, body = varints.decode(array, position[:lanes])
        starts[into[:lanes] + step] = body
        position[:lanes] = body + length
    if (position != bounds[order, 1]).any():
        raise CorruptRecords("the records of a batch do not end where it ends")


# --- the fields of the records --------------------------------------------------------------------


@dataclass(slots=True)
class _RecordFields:
    """One entry per record. `*_start` and `*_end` are positions in the chunk; a null has equal ones and its flag."""

    offset: Longs
    timestamp_ms: Longs
    log_append_time: Bools
    key_start: Longs
    key_end: Longs
    key_null: Bools
    value_start: Longs
    value_end: Longs
    value_null: Bools
    header_count: Longs
    headers_start: Longs

    def between(self, first: int, last: int) -> _RecordFields:
        """The records [first, last)."""
        return _RecordFields(*(getattr(self, name)[first:last] for name in self.__slots__))


def _fields(chunk: _Chunk, array: npt.NDArray[np.uint8]) -> _RecordFields:
    spans = chunk.spans
    counts = np.array([span.count for span in spans], np.int64)
    starts = _all_starts(chunk, array, counts)
    limits = np.empty(len(starts), np.int64)
    limits[:-1] = starts[1:]
    limits[np.cumsum(counts) - 1] = [end for _, end in chunk.bounds]

    timestamp_delta, position = varints.decode(array, starts + 1)  # the first byte holds attributes, none in use
    offset_delta, position = varints.decode(array, position)
    key_size, key_start = varints.decode(array, position)
    key_end = key_start + np.maximum(key_size, 0)
    value_size, value_start = varints.decode(array, np.minimum(key_end, len(array) - 1))
    value_end = value_start + np.maximum(value_size, 0)
    if (key_end >= limits).any() or (value_end >= limits).any():
        raise CorruptRecords("a key or value exceeds its record")
    header_count, headers_start = varints.decode(array, value_end)
    if ((header_count < 0) | (header_count > len(array))).any():
        raise CorruptRecords("a record has more headers than bytes, or a negative number of them")

    per_record = partial(np.repeat, repeats=counts)
    appended = np.array([span.log_append_time_ms is not None for span in spans])
    timestamp = per_record(np.array([span.base_timestamp_ms for span in spans], np.int64)) + timestamp_delta
    log_append_time = per_record(appended)
    if appended.any():
        broker_time = np.array([span.log_append_time_ms or 0 for span in spans], np.int64)
        timestamp = np.where(log_append_time, per_record(broker_time), timestamp)
    return _RecordFields(
        offset=per_record(np.array([span.base_offset for span in spans], np.int64)) + offset_delta,
        timestamp_ms=timestamp,
        log_append_time=log_append_time,
        key_start=key_start,
        key_end=key_end,
        key_null=key_size < 0,
        value_start=value_start,
        value_end=value_end,
        value_null=value_size < 0,
        header_count=header_count,
        headers_start=headers_start,
    )


# --- Arrow ----------------------------------------------------------------------------------------


def _to_arrow(chunk: _Chunk, wanted: WantedRows) -> pa.RecordBatch:
    array = np.frombuffer(chunk.data, np.uint8)
    try:
        fields = _fields(chunk, array)
        first, last = np.searchsorted(fields.offset, (wanted.start_offset, wanted.end_offset))
        if first > 0 or last < len(fields.offset):
            fields = fields.between(int(first), int(last))
        buffer = pa.py_buffer(chunk.data)
        arrays = [_column(column.field, fields, array, buffer, wanted) for column in wanted.columns]
    except IndexError as error:
        raise CorruptRecords(f"the batch at offset {chunk.spans[0].base_offset} or after it: {error}") from error
    return pa.RecordBatch.from_arrays(arrays, schema=arrow_schema(wanted.columns))


def _column(
    name: str, fields: _RecordFields, array: npt.NDArray[np.uint8], buffer: pa.Buffer, wanted: WantedRows
) -> pa.Array:
    rows = len(fields.offset)
    match name:
        case "key":
            return _gather(buffer, fields.key_start, fields.key_end, fields.key_null)
        case "value":
            return _gather(buffer, fields.value_start, fields.value_end, fields.value_null)
        case "topic":
            return repeated(wanted.topic, rows)
        case "partition":
            return numbers(np.full(rows, wanted.partition, np.int32))
        case "offset":
            return numbers(fields.offset)
        case "timestamp":
            micros = pa.py_buffer(np.clip(fields.timestamp_ms, -_LAST_MS, _LAST_MS) * 1000)
            return pa.Array.from_buffers(pa.timestamp("us", tz="UTC"), rows, [None, micros])
        case "timestampType":
            return numbers(fields.log_append_time.astype(np.int32))
        case "headers":
            return _headers(fields, array, buffer)
    raise AssertionError(f"no column {name}")


def _gather(buffer: pa.Buffer, start: Longs, end: Longs, null: Bools | None = None) -> pa.Array:
    """The slices [start, end) of `buffer` as one binary array, copied by Arrow in C++.

    An array over the whole buffer has every second element a slice that we want; those between are the gaps (whose
    lengths may even be negative: `take` never looks at them).
    """
    rows = len(start)
    if rows == 0:
        return no_bytes()
    offsets = np.empty(2 * rows + 1, np.int32)
    offsets[0:-1:2] = start
    offsets[1::2] = end
    offsets[-1] = end[-1]
    slices = pa.Array.from_buffers(pa.binary(), 2 * rows, [None, pa.py_buffer(offsets), buffer])
    indices = np.arange(0, 2 * rows, 2, dtype=np.int32)
    return slices.take(numbers(indices, null))


def _headers(fields: _RecordFields, array: npt.NDArray[np.uint8], buffer: pa.Buffer) -> pa.Array:
    """Headers, the first of every record, then the second of those that have two, and so on.

    A record without headers has null, as in Spark's Kafka source.
    """
    rows = len(fields.offset)
    first_of = np.zeros(rows + 1, np.int64)
    np.cumsum(fields.header_count, out=first_of[1:])
    total = int(first_of[-1])
    if total > len(array):  # a header takes two bytes at least: do not let a broken count ask for memory
        raise CorruptRecords("more headers than bytes")
    key_start, key_end, value_start, value_end = (np.empty(total, np.int64) for _ in range(4))
    value_null = np.empty(total, np.bool_)
    having = np.flatnonzero(fields.header_count)
    position = fields.headers_start[having]
    nth = 0
    while having.size:
        slot = first_of[having] + nth
        key_size, key_start[slot] = varints.decode(array, position)
        key_end[slot] = key_start[slot] + np.maximum(key_size, 0)
        value_size, value_start[slot] = varints.decode(array, key_end[slot])
        value_end[slot] = value_start[slot] + np.maximum(value_size, 0)
        value_null[slot] = value_size < 0
        # a size near 2^63 makes the sum negative
        if ((value_end[slot] > len(array)) | (value_end[slot] < value_start[slot])).any():
            raise CorruptRecords("a header exceeds the records")
        nth += 1
        more = fields.header_count[having] > nth
        position = value_end[slot][more]
        having = having[more]
    keys = _gather(buffer, key_start, key_end)
    values = _gather(buffer, value_start, value_end, value_null)
    structs = pa.StructArray.from_arrays([_as_text(keys), values], fields=list(HEADER_ARROW))
    offsets = numbers(first_of.astype(np.int32), np.append(fields.header_count == 0, False))
    return pa.ListArray.from_arrays(offsets, structs)


def _as_text(keys: pa.Array) -> pa.Array:
    """Header keys are UTF-8; what is not (nothing forbids it on the wire) is shown as Java shows it."""
    try:
        return keys.cast(pa.string())
    except pa.ArrowInvalid:
        return pa.array([key.decode("utf-8", "replace") for key in keys.to_pylist()], pa.string())


def _from_headers(spans: Sequence[BatchSpan], wanted: WantedRows) -> pa.RecordBatch:
    """Rows whose columns come from the batch headers: nothing is unpacked."""
    ranges = [np.arange(span.base_offset, span.last_offset + 1, dtype=np.int64) for span in spans]
    offset = np.concatenate(ranges) if ranges else np.empty(0, np.int64)
    counts = [span.count for span in spans]
    appended = np.repeat(np.array([span.log_append_time_ms is not None for span in spans], np.bool_), counts)
    first, last = np.searchsorted(offset, (wanted.start_offset, wanted.end_offset))
    nothing = np.empty(0, np.int64)
    flags = np.empty(0, np.bool_)
    fields = _RecordFields(
        offset[first:last],
        nothing,
        appended[first:last],
        nothing,
        nothing,
        flags,
        nothing,
        nothing,
        flags,
        nothing,
        nothing,
    )
    empty = np.empty(0, np.uint8)
    arrays = [_column(column.field, fields, empty, pa.py_buffer(b""), wanted) for column in wanted.columns]
    if not arrays:  # no column at all (a count): the number of rows must still arrive
        return pa.RecordBatch.from_struct_array(pa.array([{}] * len(fields.offset), pa.struct([])))
    return pa.RecordBatch.from_arrays(arrays, schema=arrow_schema(wanted.columns))


def _slices(batch: pa.RecordBatch) -> Iterator[pa.RecordBatch]:
    """Pieces of about ARROW_BATCH_BYTES; no piece for no rows."""
    if batch.num_rows == 0:
        return
    pieces = max(1, round(batch.nbytes / ARROW_BATCH_BYTES))
    rows = -(-batch.num_rows // pieces)
    for first in range(0, batch.num_rows, rows):
        yield batch.slice(first, rows)
