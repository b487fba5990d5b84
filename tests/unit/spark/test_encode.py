"""What the vectorised encoder writes, the plain reader reads."""

from __future__ import annotations

from typing import Any

import numpy as np
import pyarrow as pa
import pytest
from hypothesis import given, settings
from hypothesis import strategies as st

from kafkalite.record.batch import parse_header
from kafkalite.record.compression import Codec
from kafkalite.record.reader import read_records
from pyspark_kafkalite import varints
from pyspark_kafkalite.arrow_types import HEADER_ARROW
from pyspark_kafkalite.encode import Rows, encode

blobs = st.one_of(st.none(), st.binary(max_size=100))
headers = st.one_of(
    st.none(), st.lists(st.fixed_dictionaries({"key": st.text(max_size=6), "value": blobs}), max_size=3)
)
rows = st.lists(st.tuples(blobs, blobs, headers, st.integers(0, 3)), max_size=30)


def as_rows(given_rows: list[tuple[Any, ...]], *, with_headers: bool) -> Rows:
    return Rows(
        pa.array([r[0] for r in given_rows], pa.binary()),
        pa.array([r[1] for r in given_rows], pa.binary()),
        pa.array([r[2] for r in given_rows], pa.list_(HEADER_ARROW)) if with_headers else None,
    )


def seal(batch, codec: int = 0) -> bytes:
    sealed: bytes = batch.seal(timestamp_ms=1234, codec=codec, producer_id=7, producer_epoch=1, base_sequence=0)
    return sealed


@given(
    given_rows=rows,
    with_headers=st.booleans(),
    batch_bytes=st.integers(60, 500),
    codec=st.sampled_from(list(Codec)),
    skip=st.integers(0, 5),
)
@settings(max_examples=150, deadline=None)
def test_the_reader_reads_what_was_written(
    given_rows, *, with_headers: bool, batch_bytes: int, codec: Codec, skip: int
) -> None:
    given_rows = sorted(given_rows, key=lambda r: r[3])
    whole = as_rows(given_rows, with_headers=with_headers)
    # slices of Arrow arrays have an offset of their own
    sliced = Rows(whole.keys[skip:], whole.values[skip:], whole.headers[skip:] if whole.headers is not None else None)
    kept = given_rows[skip:]
    read = []
    for batch in encode(sliced, np.array([r[3] for r in kept], np.int64), batch_bytes):
        data = seal(batch, codec)
        assert parse_header(data).record_count == batch.count
        for record in read_records(data):
            assert record.timestamp == 1234
            read.append((record.key, record.value, list(record.headers), batch.destination))
    expected = [
        (k, v, [(h["key"], h["value"]) for h in hs or []] if with_headers else [], destination)
        for k, v, hs, destination in kept
    ]
    assert read == expected


def test_batches_keep_to_their_size_unless_a_single_record_is_larger() -> None:
    sizes = [10] * 50 + [5000] + [10] * 50
    encoded = list(
        encode(as_rows([(None, b"x" * n, None) for n in sizes], with_headers=False), np.zeros(101, np.int64), 1000)
    )
    assert sum(batch.count for batch in encoded) == 101
    assert [batch.count for batch in encoded if len(batch.records) > 1000] == [1]
    assert len(encoded) <= 8


@given(given_rows=rows.filter(lambda r: len(r) > 1), with_headers=st.booleans(), codec=st.sampled_from(list(Codec)))
@settings(max_examples=100, deadline=None)
def test_halves_have_the_records_of_the_whole(given_rows, *, with_headers: bool, codec: Codec) -> None:
    (whole,) = encode(as_rows(given_rows, with_headers=with_headers), np.zeros(len(given_rows), np.int64), 1 << 20)
    halves = whole.halves()
    assert [half.count for half in halves] == [len(given_rows) // 2, len(given_rows) - len(given_rows) // 2]
    first, second = (list(read_records(seal(half, codec))) for half in halves)
    assert [r.offset for r in first + second] == [*range(len(first)), *range(len(second))]
    wanted = list(read_records(seal(whole, codec)))
    assert [(r.key, r.value, r.headers) for r in first + second] == [(r.key, r.value, r.headers) for r in wanted]


def test_a_header_without_a_key_is_refused() -> None:
    with pytest.raises(ValueError, match="header without a key"):
        list(
            encode(
                as_rows([(None, b"v", [{"key": None, "value": b""}])], with_headers=True), np.zeros(1, np.int64), 1000
            )
        )


@given(st.lists(st.integers(-(2**63), 2**63 - 1), min_size=1))
def test_varints_both_ways(values: list[int]) -> None:
    numbers = np.array(values, np.int64)
    sizes = varints.sizes(numbers)
    data = np.zeros(int(sizes.sum()), np.uint8)
    at = np.cumsum(sizes) - sizes
    varints.write(numbers, sizes, data, at)
    again, after = varints.decode(data, at)
    assert again.tolist() == values
    assert after.tolist() == (at + sizes).tolist()
    assert [varints.read_one(data.tobytes(), int(p))[0] for p in at] == values


def test_a_varint_of_eleven_bytes_is_refused() -> None:
    with pytest.raises(IndexError):
        varints.decode(np.full(20, 0xFF, np.uint8), np.zeros(1, np.int64))
