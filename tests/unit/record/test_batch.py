"""Record batches: bytes fixed by the format, round trips, refusals."""

from __future__ import annotations

import struct

import pytest
from hypothesis import given
from hypothesis import strategies as st

from kafkalite.errors import ApiError, ErrorCode
from kafkalite.record.batch import (
    CRC_START,
    MAX_SEQUENCE,
    add_to_sequence,
    assign_in_place,
    crc_of,
    parse_header,
    split_batches,
    verify_crc,
)
from kafkalite.record.builder import RecordBatchBuilder, empty_batch, end_transaction_marker
from kafkalite.record.checksum import crc32c
from kafkalite.record.compression import Codec, codec_named, compress, decompress
from kafkalite.record.reader import EndTransactionMarker, end_transaction_marker_of, read_records, records_of
from kafkalite.record.varint import decode_varint, encode_varint
from tests.support.failing import fails_with
from tests.support.logs import build_batch

GOLDEN = bytes.fromhex(
    "0000000000000000"  # base offset
    "00000045"  # batch length: 69
    "ffffffff"  # partition leader epoch
    "02"  # magic
    "d31d1665"  # CRC32C of the rest
    "0010"  # attributes: transactional
    "00000001"  # last offset delta
    "00000000000003e8"  # base timestamp 1000
    "00000000000003ed"  # max timestamp 1005
    "0000000000000007"  # producer id
    "0002"  # producer epoch
    "0000002a"  # base sequence
    "00000002"  # records
    "16000000026b027602026800"  # length 11, attributes, deltas, key k, value v, header h ""
    "0e000a0201027700"  # length 7, delta 5 ms, offset delta 1, null key, value w, no headers
)  # fmt: skip


def golden_builder() -> RecordBatchBuilder:
    builder = RecordBatchBuilder(producer_id=7, producer_epoch=2, base_sequence=42, transactional=True)
    builder.append(b"k", b"v", [("h", b"")], 1000)
    builder.append(None, b"w", (), 1005)
    return builder


def test_golden_batch() -> None:
    built = golden_builder().build()
    assert built.hex() == GOLDEN.hex()
    header = parse_header(built)
    assert (header.size, header.last_offset, header.last_sequence) == (len(built), 1, 43)
    assert (header.is_transactional, header.is_control, header.compression) == (True, False, 0)
    assert [tuple(record) for record in read_records(built)] == [
        (0, 1000, b"k", b"v", (("h", b""),)),
        (1, 1005, None, b"w", ()),
    ]


def naive_crc32c(data: bytes) -> int:
    """Bit by bit, polynomial 0x1EDC6F41 reflected."""
    crc = 0xFFFFFFFF
    for byte in data:
        crc ^= byte
        for _ in range(8):
            crc = crc >> 1 ^ (0x82F63B78 if crc & 1 else 0)
    return crc ^ 0xFFFFFFFF


def test_the_crc_is_castagnoli() -> None:
    assert naive_crc32c(b"123456789") == 0xE3069283 == crc32c(b"123456789") == crc32c(b"56789", crc32c(b"1234"))
    assert naive_crc32c(GOLDEN[CRC_START:]) == parse_header(GOLDEN).crc


def test_size_estimate_is_exact_without_compression() -> None:
    builder = golden_builder()
    assert builder.size_bytes == len(builder.build())


texts = st.text(st.characters(exclude_categories=["Cs"]), max_size=8)
maybe_bytes = st.none() | st.binary(max_size=40)
records = st.lists(
    st.tuples(
        maybe_bytes,
        maybe_bytes,
        st.lists(st.tuples(texts, maybe_bytes), max_size=3),
        st.integers(0, 2**45),
    ),
    min_size=1,
    max_size=8,
)


@given(records, st.sampled_from(Codec), st.integers(0, 2**40), st.integers(0, 2**31 - 1))
def test_round_trip(content, codec: Codec, base_offset: int, epoch: int) -> None:
    builder = RecordBatchBuilder(codec)
    for key, value, headers, timestamp in content:
        builder.append(key, value, headers, timestamp)
    buffer = bytearray(builder.build())
    crc = crc_of(buffer, 0, len(buffer))
    assign_in_place(memoryview(buffer), 0, base_offset, epoch)
    assert crc_of(buffer, 0, len(buffer)) == crc, "offset and epoch lie outside the CRC"
    assert list(read_records(buffer + buffer)) == 2 * [
        (base_offset + number, timestamp, key, value, tuple(headers))
        for number, (key, value, headers, timestamp) in enumerate(content)
    ]


@given(st.integers(-(2**63), 2**63 - 1))
def test_varints(value: int) -> None:
    encoded = encode_varint(value)
    assert decode_varint(b"x" + encoded + b"y", 1) == (value, 1 + len(encoded))
    assert len(encoded) <= 10


@pytest.mark.parametrize("bad", [b"", b"\x80", b"\xff" * 11])
def test_bad_varints(bad: bytes) -> None:
    with pytest.raises(ApiError):
        decode_varint(bad, 0)


@given(st.binary(max_size=200))
def test_rubbish_is_refused_not_read(data: bytes) -> None:
    try:
        list(read_records(data))
    except ApiError as error:
        assert error.code == ErrorCode.CORRUPT_MESSAGE
    else:
        assert data == b""


@given(st.binary(max_size=120), st.sampled_from(Codec), st.integers(0, 20), st.integers(-1, 2**31 - 1))
def test_rubbish_inside_a_batch_is_refused(payload: bytes, codec: Codec, attributes: int, count: int) -> None:
    from kafkalite.record.builder import encode_batch

    made = encode_batch(
        payload, record_count=count, last_offset_delta=0, attributes=codec, base_timestamp=0, max_timestamp=0
    )
    try:
        for record in read_records(made, limit_bytes=1 << 16):
            assert record.offset is not None
    except ApiError as error:
        assert error.code == ErrorCode.CORRUPT_MESSAGE


@pytest.mark.parametrize("codec", list(Codec))
def test_a_bomb_is_refused(codec: Codec) -> None:
    packed = compress(codec, bytes(3_000_000))
    assert len(decompress(codec, packed, limit_bytes=4_000_000)) == 3_000_000
    if codec is not Codec.NONE:
        with fails_with(ErrorCode.CORRUPT_MESSAGE):
            decompress(codec, packed, limit_bytes=1_000_000)


def test_snappy_of_other_clients() -> None:
    import cramjam

    raw = bytes(cramjam.snappy.compress_raw(b"hello" * 100))
    assert bytes(decompress(Codec.SNAPPY, raw)) == b"hello" * 100
    framed = compress(Codec.SNAPPY, b"hello" * 100)
    assert framed[:16] == b"\x82SNAPPY\x00" + struct.pack(">ii", 1, 1)
    with pytest.raises(ApiError):
        decompress(Codec.SNAPPY, framed[:-2])


def test_unknown_codecs() -> None:
    for number in (5, 6, 7):
        with fails_with(ErrorCode.UNSUPPORTED_COMPRESSION_TYPE):
            decompress(number, b"x")
    with pytest.raises(ApiError):
        codec_named("brotli")
    assert codec_named("zstd") is Codec.ZSTD and codec_named(None) is Codec.NONE


def test_damage_shows_in_the_crc_at_each_bit_behind_it() -> None:
    for position in range(CRC_START, len(GOLDEN)):
        spoiled = bytearray(GOLDEN)
        spoiled[position] ^= 0x20
        with pytest.raises(ApiError):
            verify_crc(spoiled, 0, parse_header(spoiled))


def test_torn_batches_are_refused() -> None:
    for size in range(1, len(GOLDEN)):
        with pytest.raises(ApiError):
            list(split_batches(GOLDEN[:size]))


def test_sequences_wrap() -> None:
    assert add_to_sequence(MAX_SEQUENCE, 1) == 0
    assert add_to_sequence(MAX_SEQUENCE - 1, 3) == 1


@pytest.mark.parametrize("commit", [True, False])
def test_markers(*, commit: bool) -> None:
    made = end_transaction_marker(7, 3, commit=commit, coordinator_epoch=9, timestamp_ms=5)
    header = parse_header(made)
    assert header.is_control and header.is_transactional and header.record_count == 1
    assert end_transaction_marker_of(made, 0, header) == EndTransactionMarker(commit, 9)
    assert list(read_records(made)) == [], "control records are not data"
    assert len(list(records_of(made, 0, header))) == 1


def test_an_empty_batch_keeps_its_place() -> None:
    made = empty_batch(parse_header(GOLDEN))
    header = parse_header(made)
    assert header[:1] + header[6:7] + header[9:13] == (0, 1, 7, 2, 42, 0)
    verify_crc(made, 0, header)
    assert next(iter(read_records(build_batch([(b"k", b"v")]) + made))).value == b"v"
