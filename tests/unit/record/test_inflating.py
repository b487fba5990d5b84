"""Content that a client has compressed: hostile frames are refused before they cost much; honest ones are read whole."""

from __future__ import annotations

import gzip
import os
import random
import struct
import tracemalloc

import cramjam
import pytest

from kafkalite.errors import ErrorCode
from kafkalite.record.compression import Codec, compress
from kafkalite.record.inflating import PIECE_CHARGE_BYTES, pieces
from tests.support.failing import fails_with

_LIMIT = 256 * PIECE_CHARGE_BYTES
#: Frame with independent blocks of at most 4 MB, without checksums.
_LZ4_HEAD = b"\x04\x22\x4d\x18\x60\x70\x00"
_LZ4_ONE_BYTE = struct.pack("<I", 2) + b"\x10A"
_ZSTD_SKIPPED = b"\x50\x2a\x4d\x18" + bytes(4)


@pytest.mark.parametrize(
    ("codec", "data"),
    [
        (Codec.GZIP, gzip.compress(b"") * 10_000),
        (Codec.ZSTD, bytes(cramjam.zstd.compress(b"")) * 10_000),
        (Codec.ZSTD, _ZSTD_SKIPPED * 10_000),
        (Codec.LZ4, _LZ4_HEAD + _LZ4_ONE_BYTE * 10_000 + bytes(4)),
        (Codec.LZ4, _LZ4_HEAD + (struct.pack("<I", 0x8000_0001) + b"A") * 10_000 + bytes(4)),
        (Codec.SNAPPY, b"\x82SNAPPY\x00" + struct.pack(">ii", 1, 1) + (struct.pack(">I", 1) + b"\0") * 10_000),
    ],
)
def test_ten_thousand_empty_pieces_are_refused(codec: Codec, data: bytes) -> None:
    """Each block, member or frame costs time, even if there is nothing in it."""
    seen = 0
    with fails_with(ErrorCode.CORRUPT_MESSAGE):
        for _ in pieces(codec, data, limit_bytes=_LIMIT):
            seen += 1
    assert seen <= _LIMIT // PIECE_CHARGE_BYTES + 1


def test_members_and_frames_follow_each_other() -> None:
    parts = [os.urandom(100_000), b"", b"x" * 300_000, os.urandom(10)]
    assert b"".join(pieces(Codec.GZIP, b"".join(map(gzip.compress, parts)))) == b"".join(parts)
    frames = [bytes(cramjam.zstd.compress(part)) for part in parts]
    assert b"".join(pieces(Codec.ZSTD, _ZSTD_SKIPPED.join(frames))) == b"".join(parts)


@pytest.mark.parametrize("codec", [Codec.GZIP, Codec.ZSTD, Codec.LZ4])
def test_what_is_cut_off_is_corrupt(codec: Codec) -> None:
    whole = compress(codec, os.urandom(200_000) + bytes(400_000))
    for cut in (len(whole) - 1, len(whole) // 2, 10):
        with fails_with(ErrorCode.CORRUPT_MESSAGE):
            list(pieces(codec, whole[:cut]))


def _linked(data: bytes) -> bytes:
    packer = cramjam.lz4.Compressor(content_checksum=False, block_linked=True)
    packer.compress(data)
    return bytes(packer.finish())


@pytest.mark.parametrize("seed", range(5))
def test_lz4_blocks_that_depend_on_each_other(seed: int) -> None:
    drawn = random.Random(seed)
    words = [drawn.randbytes(drawn.randint(1, 60)) for _ in range(200)]
    data = drawn.randbytes(1000) + b"".join(drawn.choices(words, k=drawn.randint(1, 40_000)))
    frame = _linked(data)
    assert not frame[4] & 0x20
    assert b"".join(pieces(Codec.LZ4, frame)) == data


def test_a_bomb_of_dependent_blocks_takes_little_memory() -> None:
    frame = _linked(bytes(100 * 2**20))
    assert len(frame) < 2**20
    tracemalloc.start()
    try:
        assert sum(map(len, pieces(Codec.LZ4, frame))) == 100 * 2**20
        assert tracemalloc.get_traced_memory()[1] < 16 * 2**20
    finally:
        tracemalloc.stop()


def test_small_blocks_of_lz4_take_little_memory_whatever_their_frame_announces() -> None:
    """A request may have a thousand such batches, which are looked into on the loop: 4 MB for each took a quarter of a millisecond."""
    frame = _LZ4_HEAD + _LZ4_ONE_BYTE + bytes(4)
    tracemalloc.start()
    try:
        assert b"".join(pieces(Codec.LZ4, frame)) == b"A"
        assert tracemalloc.get_traced_memory()[1] < 2**16
    finally:
        tracemalloc.stop()
    for size in (*range(600), 65_535, 65_536, 4 * 2**20 - 1, 4 * 2**20):  # as much as a block can stand for
        assert sum(map(len, pieces(Codec.LZ4, compress(Codec.LZ4, bytes(size))))) == size
