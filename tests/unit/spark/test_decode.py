"""The vectorised decoder says what the record package's plain one says, whatever the batches look like."""

from __future__ import annotations

import struct
from dataclasses import dataclass
from typing import Any

import numpy as np
import pyarrow as pa
import pytest
from hypothesis import given, settings
from hypothesis import strategies as st

from kafkalite.record.builder import RecordBatchBuilder, encode_batch, encode_record, end_transaction_marker
from kafkalite.record.compression import Codec, compress
from kafkalite.record.reader import read_records
from pyspark_kafkalite import decode as decoder
from pyspark_kafkalite.arrow_types import arrow_schema
from pyspark_kafkalite.batches import CorruptRecords, scan
from pyspark_kafkalite.columns import columns_of, spark_schema
from pyspark_kafkalite.decode import WantedRows, decode

ALL = columns_of(spark_schema(include_headers=True))
EVERYTHING = 1 << 62


def wanted(start: int = 0, end: int = EVERYTHING, columns=ALL) -> WantedRows:
    return WantedRows("t", 3, start, end, columns)


def rows_of(data: bytes, what: WantedRows, aborted=()) -> list[tuple[Any, ...]]:
    batches = list(decode(data, scan(data, aborted).spans, what))
    for batch in batches:
        batch.validate(full=True)
    return [
        tuple(row[c.name] for c in what.columns)
        for batch in batches
        for row in batch.set_column(5, "timestamp", batch["timestamp"].cast(pa.int64())).to_pylist()
    ]


def expected(data: bytes, start: int = 0, end: int = EVERYTHING) -> list[tuple[Any, ...]]:
    return [
        (
            r.key,
            r.value,
            "t",
            3,
            r.offset,
            r.timestamp * 1000,
            0,
            [{"key": k, "value": v} for k, v in r.headers] or None,
        )
        for r in read_records(data)
        if start <= r.offset < end
    ]


blobs = st.one_of(st.none(), st.binary(max_size=40), st.binary(min_size=120, max_size=400))
headers = st.lists(st.tuples(st.text(max_size=10), st.one_of(st.none(), st.binary(max_size=10))), max_size=3)
records = st.tuples(blobs, blobs, headers, st.integers(-(10**9), 10**9))


@st.composite
def logs(draw) -> bytes:
    """Several batches, every codec; some with holes as compaction leaves them."""
    data, offset = b"", draw(st.integers(0, 1000))
    for rows in draw(st.lists(st.lists(records, min_size=1, max_size=8), max_size=6)):
        base_ts = draw(st.integers(0, 2 * 10**12))
        repeat = draw(st.sampled_from([1, 1, 1, 40]))
        rows = rows * repeat
        steps = (
            [draw(st.integers(1, 3)) for _ in range(len(rows))]
            if repeat == 1 and draw(st.booleans())
            else [1] * len(rows)
        )
        deltas = [sum(steps[:n]) for n in range(len(rows))]
        payload = b"".join(encode_record(d, ts, k, v, h) for d, (k, v, h, ts) in zip(deltas, rows))
        codec = draw(st.sampled_from(list(Codec)))
        data += encode_batch(
            compress(codec, payload),
            record_count=len(rows),
            base_offset=offset,
            last_offset_delta=deltas[-1],
            attributes=codec,
            base_timestamp=base_ts,
            max_timestamp=base_ts,
        )
        offset += deltas[-1] + draw(st.integers(1, 3))
    return data


@given(logs(), st.integers(0, 1100), st.integers(0, 1100))
@settings(max_examples=150, deadline=None)
def test_agrees_with_the_plain_reader(data: bytes, start: int, end: int) -> None:
    assert rows_of(data, wanted()) == expected(data)
    assert rows_of(data, wanted(start, end)) == expected(data, start, end)


@given(logs(), st.lists(st.sampled_from([c.field for c in ALL]), min_size=1, unique=True))
@settings(max_examples=60, deadline=None)
def test_any_subset_of_columns_in_any_order(data: bytes, names: list[str]) -> None:
    columns = tuple(c for name in names for c in ALL if c.field == name)
    spans = scan(data).spans
    some = pa.Table.from_batches(decode(data, spans, wanted(columns=columns)), arrow_schema(columns))
    everything = pa.Table.from_batches(decode(data, spans, wanted()), arrow_schema(ALL))
    assert some.equals(everything.select(names))


@pytest.mark.parametrize("size", [1, 60, 63, 64, 127, 128, 8190, 8192, 20_000])
def test_guessed_and_walked_lengths_agree(size: int) -> None:
    """Equal sizes (guessed), then odd ones (walked), then equal again; offsets that need 1, 2 and 3 bytes."""
    payloads = [b"x" * size] * 300 + [b"y" * (n % 7) for n in range(600)] + [b"z" * size] * 300
    raw = b"".join(encode_record(n, n, None, value, ()) for n, value in enumerate(payloads))
    array = np.frombuffer(raw, np.uint8)
    starts = decoder.record_starts(raw, array, 0, len(raw), len(payloads))
    naive, at = [], 0
    for n, value in enumerate(payloads):
        record = encode_record(n, n, None, value, ())
        naive.append(at + _prefix(record))
        at += len(record)
    assert starts.tolist() == naive


def test_many_small_batches_walked_side_by_side() -> None:
    """Batches of every size from 1 to 200 records and one that is too large for it, in an order that is not sorted."""
    data, base = b"", 0
    for count in [*range(200, 0, -7), 2000, *range(1, 200, 3)]:
        builder = RecordBatchBuilder(base_offset=base)
        for n in range(count):
            builder.append(b"%d" % n, b"v" * (n * count % 300), [("h", b"")] if n % 5 == 0 else ())
        data += builder.build()
        base += count
    assert rows_of(data, wanted()) == expected(data)


def _prefix(record: bytes) -> int:
    return next(n for n, byte in enumerate(record) if byte < 0x80) + 1


def test_log_append_time_is_the_batch_s_for_every_record() -> None:
    batch = RecordBatchBuilder(log_append_time=True)
    batch.append(None, b"a", (), 5)
    batch.append(None, b"b", (), 9)
    assert [(row[5], row[6]) for row in rows_of(batch.build(), wanted())] == [(9000, 1), (9000, 1)]


def test_times_that_spark_cannot_hold_are_its_first_and_last() -> None:
    """A producer that gives nanoseconds for milliseconds: no other time must come of that."""
    builder = RecordBatchBuilder()
    for ms in (1_700_000_000_000_000_000, -(1 << 62), 1_700_000_000_000):
        builder.append(None, b"v", (), ms)
    last = (2**63 - 1) // 1000 * 1000
    assert [row[5] for row in rows_of(builder.build(), wanted())] == [last, -last, 1_700_000_000_000_000]


def test_header_keys_that_are_not_utf8_are_shown_not_refused() -> None:
    record = bytearray(encode_record(0, 0, None, b"v", [("k~", b"x")]))
    record[record.index(b"~")] = 0xFF
    data = encode_batch(bytes(record), record_count=1, last_offset_delta=0, base_timestamp=0, max_timestamp=0)
    assert rows_of(data, wanted())[0][7] == [{"key": "k�", "value": b"x"}]


@dataclass(frozen=True)
class Txn:
    producer: int

    def batch(self, base: int, *values: bytes) -> bytes:
        builder = RecordBatchBuilder(
            producer_id=self.producer, producer_epoch=0, base_sequence=0, transactional=True, base_offset=base
        )
        for value in values:
            builder.append(None, value)
        return builder.build()

    def end(self, base: int, *, commit: bool) -> bytes:
        marker = end_transaction_marker(
            commit=commit, producer_id=self.producer, producer_epoch=0, coordinator_epoch=0, timestamp_ms=0
        )
        return struct.pack(">q", base) + marker[8:]


def test_control_batches_are_skipped_and_aborted_transactions_too_when_told() -> None:
    one, two = Txn(1), Txn(2)
    data = (
        one.batch(0, b"1a")
        + two.batch(1, b"2a")
        + one.end(2, commit=False)
        + one.batch(3, b"1b")
        + two.end(4, commit=True)
        + one.end(5, commit=True)
    )
    assert [row[1] for row in rows_of(data, wanted())] == [b"1a", b"2a", b"1b"]
    assert [row[1] for row in rows_of(data, wanted(), aborted=[(1, 0)])] == [b"2a", b"1b"]
    assert scan(data).next_offset == 6


def test_a_torn_batch_is_left_for_the_next_fetch() -> None:
    one, two = Txn(1).batch(0, b"a"), Txn(1).batch(1, b"b")
    found = scan(one + two[:-1])
    assert (len(found.spans), found.next_offset) == (1, 1)
    assert scan(two[:30]).next_offset is None


@given(logs().filter(bool), st.data())
@settings(max_examples=100, deadline=None)
def test_flipped_bytes_are_told_or_harmless(data: bytes, draw) -> None:
    """With the CRC unchecked, so that the decoder itself meets every kind of nonsense."""
    broken = bytearray(data)
    for _ in range(draw.draw(st.integers(1, 3))):
        broken[draw.draw(st.integers(0, len(broken) - 1))] ^= 1 << draw.draw(st.integers(0, 7))
    try:
        for batch in decode(bytes(broken), scan(broken, check_crc=False).spans, wanted()):
            batch.validate(full=True)
    except CorruptRecords:
        pass


@given(logs().filter(bool), st.data())
@settings(max_examples=50, deadline=None)
def test_the_crc_finds_every_flip_behind_it(data: bytes, draw) -> None:
    broken = bytearray(data)
    first_end = 12 + struct.unpack_from(">i", data, 8)[0]
    broken[draw.draw(st.integers(21, first_end - 1))] ^= 1 << draw.draw(st.integers(0, 7))
    with pytest.raises(CorruptRecords):
        scan(broken)


def test_large_fetches_come_in_pieces_in_order(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(decoder, "CHUNK_BYTES", 20_000)
    monkeypatch.setattr(decoder, "ARROW_BATCH_BYTES", 4_000)
    data = b""
    for base in range(0, 1000, 100):
        builder = RecordBatchBuilder(Codec.LZ4 if base % 200 else Codec.NONE, base_offset=base)
        for n in range(100):
            builder.append(b"k", b"%05d" % (base + n) + b"." * 50)
        data += builder.build()
    pieces = list(decode(data, scan(data).spans, wanted()))
    assert len(pieces) > 10
    assert [int(v[:5]) for piece in pieces for v in piece["value"].to_pylist()] == list(range(1000))


def test_offsets_alone_need_no_look_at_the_records() -> None:
    """A count or a select of offsets reads headers only: a batch that cannot be unpacked does not disturb it."""
    builder = RecordBatchBuilder(base_offset=7)
    for _ in range(5):
        builder.append(None, b"v")
    data = bytearray(builder.build())
    data[61:] = b"\xff" * (len(data) - 61)
    columns = tuple(c for c in ALL if c.field in ("offset", "topic"))
    rows = list(decode(data, scan(data, check_crc=False).spans, wanted(8, 11, columns)))
    assert rows[0].to_pylist() == [
        {"topic": "t", "offset": 8},
        {"topic": "t", "offset": 9},
        {"topic": "t", "offset": 10},
    ]


def _varint(value: int) -> bytes:
    raw, written = (value << 1) ^ (value >> 63), bytearray()
    while raw > 0x7F:
        written.append(raw & 0x7F | 0x80)
        raw >>= 7
    return bytes([*written, raw])


@pytest.mark.parametrize(
    ("count", "first"),
    [
        (1, _varint(1) + b"k" + _varint(2**63 - 1)),
        (1, _varint(2**63 - 1) + b"k" + _varint(0)),
        (2**62, b""),
    ],
)
def test_headers_of_sizes_near_the_largest_number_are_corrupt(count: int, first: bytes) -> None:
    """Every client that can write to the topic can write them: the sums are beyond 64 bits."""
    fine = _varint(1) + b"k" + _varint(1) + b"v"
    records = b""
    for delta, headers in enumerate([_varint(count) + first, _varint(1) + fine, _varint(count) + fine]):
        body = b"\0" + _varint(0) + _varint(delta) + _varint(-1) + _varint(-1) + headers
        records += _varint(len(body)) + body
    data = encode_batch(
        records, record_count=3, last_offset_delta=2, attributes=0, base_timestamp=0, max_timestamp=0,
        producer_id=-1, producer_epoch=-1, base_sequence=-1,
    )  # fmt: skip
    with pytest.raises(CorruptRecords):
        rows_of(data, wanted())
