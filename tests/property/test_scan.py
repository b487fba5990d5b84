"""`scan` against `records_of`, its obviously right twin: the same records, in pieces of any size, under every codec."""

from __future__ import annotations

import gzip
from typing import Any

import cramjam
import pytest
from hypothesis import given
from hypothesis import strategies as st

from kafkalite.errors import ApiError, ErrorCode
from kafkalite.record import inflating
from kafkalite.record.batch import parse_header
from kafkalite.record.builder import RecordBatchBuilder
from kafkalite.record.compression import Codec, compress
from kafkalite.record.inflating import pieces
from kafkalite.record.reader import records_of, scan

_BYTES = st.none() | st.binary(max_size=300) | st.integers(0, 3000).map(lambda size: b"x" * size)
_HEADERS = st.lists(st.tuples(st.text(max_size=5), _BYTES), max_size=2)
_RECORDS = st.lists(st.tuples(st.integers(-5, 5), _BYTES, _BYTES, _HEADERS), min_size=1, max_size=30)


def _batch(records: list[Any], codec: Codec) -> bytes:
    builder = RecordBatchBuilder(codec)
    for timestamp, key, value, headers in records:
        builder.append(key, value, timestamp_ms=1000 + timestamp, headers=headers)
    return bytes(builder.build())


@given(records=_RECORDS, codec=st.sampled_from(Codec), piece=st.sampled_from([1, 7, 100, 256 * 1024]))
def test_scan_finds_what_records_of_finds(records: list[Any], codec: Codec, piece: int) -> None:
    data = _batch(records, codec)
    header = parse_header(data)
    with pytest.MonkeyPatch.context() as patch:
        patch.setattr(inflating, "PIECE_BYTES", piece)
        patch.setattr(inflating, "PIECE_CHARGE_BYTES", 0)
        found = list(scan(data, 0, header))
    expected = [(each.offset, each.timestamp, each.key, each.value is not None) for each in records_of(data, 0, header)]
    assert [tuple(record) for record in found] == expected


@given(records=_RECORDS, codec=st.sampled_from(Codec), data=st.data())
def test_damaged_batches_end_in_corrupt_message_and_nothing_else(
    records: list[Any], codec: Codec, data: st.DataObject
) -> None:
    raw = bytearray(_batch(records, codec))
    position = data.draw(st.integers(61, len(raw) - 1))
    raw[position] = data.draw(st.integers(0, 255))
    try:
        list(scan(bytes(raw), 0, parse_header(raw)))
    except ApiError as error:
        assert error.code is ErrorCode.CORRUPT_MESSAGE


@given(data=st.binary(max_size=200_000), codec=st.sampled_from(Codec))
def test_pieces_are_the_whole(data: bytes, codec: Codec) -> None:
    assert b"".join(pieces(codec, compress(codec, data))) == data


@given(data=st.binary(min_size=1, max_size=1000))
def test_frames_may_follow_each_other_and_lz4_blocks_may_depend_on_each_other(data: bytes) -> None:
    data = data * 300
    assert b"".join(pieces(Codec.GZIP, gzip.compress(data) * 2)) == data * 2
    assert b"".join(pieces(Codec.ZSTD, bytes(cramjam.zstd.compress(data)) * 2)) == data * 2
    assert b"".join(pieces(Codec.LZ4, bytes(cramjam.lz4.compress(data)))) == data


@pytest.mark.parametrize("codec", [Codec.GZIP, Codec.ZSTD, Codec.LZ4])
def test_a_few_bytes_that_stand_for_many_come_in_small_pieces_up_to_the_limit(codec: Codec) -> None:
    small = compress(codec, bytes(32 * 2**20))
    sizes = [len(piece) for piece in pieces(codec, small)]
    assert sum(sizes) == 32 * 2**20
    assert max(sizes) <= 4 * 2**20
    with pytest.raises(ApiError, match="over 1000 bytes"):
        list(pieces(codec, small, limit_bytes=1000))


@pytest.mark.parametrize("codec", [Codec.GZIP, Codec.ZSTD, Codec.LZ4, Codec.SNAPPY])
def test_what_is_cut_off_is_corrupt(codec: Codec) -> None:
    whole = compress(codec, bytes(range(256)) * 500)
    with pytest.raises(ApiError, match=r"decompress|cut off"):
        list(pieces(codec, whole[: len(whole) // 2]))
