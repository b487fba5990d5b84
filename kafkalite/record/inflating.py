"""Decompression in pieces: what a client has compressed is read without ever being in memory as a whole.

A batch of 8 kB may stand for 250 MB. `pieces` gives them out one bounded piece after the other, and stops at a limit.
Frames of LZ4 whose blocks depend on each other are the exception: they are decompressed at once, up to the limit. (Java's
client refuses them, librdkafka and Kafka's other clients do not write them.)
"""

from __future__ import annotations

import struct
import zlib
from collections.abc import Iterator
from typing import Any

import cramjam

from kafkalite.errors import ErrorCode, api_error
from kafkalite.model import Buffer
from kafkalite.record.compression import DEFAULT_LIMIT_BYTES, Codec, decompress, snappy_blocks

#: Largest piece, except for one block of snappy or LZ4 (which are at most some MB).
PIECE_BYTES = 256 * 1024
_GZIP = 31
_LZ4_MAGIC = b"\x04\x22\x4d\x18"
_LZ4_BLOCK_BYTES = {4: 64 * 1024, 5: 256 * 1024, 6: 1024 * 1024, 7: 4 * 1024 * 1024}
_LITTLE = struct.Struct("<I")


def pieces(codec: int, data: Buffer, *, limit_bytes: int = DEFAULT_LIMIT_BYTES) -> Iterator[Buffer]:
    """The records under `codec`, in order.

    Raises:
        ApiError: CORRUPT_MESSAGE (not in that format, or more than `limit_bytes`), UNSUPPORTED_COMPRESSION_TYPE.
    """
    match codec:
        case Codec.GZIP:
            found = _gzip(data)
        case Codec.ZSTD:
            found = _zstd(data)
        case Codec.LZ4:
            found = _lz4(memoryview(data), limit_bytes)
        case Codec.SNAPPY:
            found = snappy_blocks(memoryview(data), limit_bytes)
        case _:
            found = iter([decompress(codec, data, limit_bytes=limit_bytes)])
    left = limit_bytes
    for piece in found:
        left -= len(piece)
        if left < 0:
            raise api_error(ErrorCode.CORRUPT_MESSAGE, f"decompresses to over {limit_bytes} bytes")
        yield piece


def _corrupt(reason: object) -> Exception:
    return api_error(ErrorCode.CORRUPT_MESSAGE, f"cannot decompress: {reason}")


def _gzip(data: Buffer) -> Iterator[Buffer]:
    rest: Buffer = data
    while rest:  # members may follow each other
        stream = zlib.decompressobj(_GZIP)
        try:
            while not stream.eof:
                piece = stream.decompress(rest, PIECE_BYTES)
                rest = stream.unconsumed_tail
                if piece:
                    yield piece
                elif not rest and not stream.eof:
                    raise _corrupt("it is cut off")
        except zlib.error as error:
            raise _corrupt(error) from None
        rest = stream.unused_data


def _zstd(data: Buffer) -> Iterator[Buffer]:
    zstd = zstd_module()
    rest: Buffer = data
    while rest:  # frames may follow each other
        stream = zstd.ZstdDecompressor()
        given: Buffer = rest
        try:
            while not stream.eof:
                piece = stream.decompress(given, PIECE_BYTES)
                given = b""
                if piece:
                    yield piece
                elif stream.needs_input and not stream.eof:
                    raise _corrupt("it is cut off")
        except zstd.ZstdError as error:
            raise _corrupt(error) from None
        rest = stream.unused_data


def zstd_module() -> Any:
    """The standard library's from Python 3.14 on, its backport before. (Neither is loaded before it is needed.)"""
    try:
        from compression import zstd  # type: ignore[import-not-found, unused-ignore]
    except ImportError:
        from backports import zstd
    return zstd


def _lz4(view: memoryview, limit_bytes: int) -> Iterator[Buffer]:
    """One frame (its specification: https://github.com/lz4/lz4/blob/dev/doc/lz4_Frame_format.md)."""
    if len(view) < 7 or view[:4] != _LZ4_MAGIC:
        raise _corrupt("no LZ4 frame")
    flags, largest = view[4], _LZ4_BLOCK_BYTES.get(view[5] >> 4 & 7)
    is_independent = flags & 0x20
    if not is_independent or largest is None or flags & 0x01:
        yield decompress(Codec.LZ4, view, limit_bytes=limit_bytes)
        return
    position = 7 + (8 if flags & 0x08 else 0)
    checksum_bytes = 4 if flags & 0x10 else 0
    while True:
        if position + 4 > len(view):
            raise _corrupt("it is cut off")
        (word,) = _LITTLE.unpack_from(view, position)
        if not word:
            return
        size, is_stored = word & 0x7FFFFFFF, word >> 31
        position += 4
        if position + size > len(view):
            raise _corrupt("it is cut off")
        block = view[position : position + size]
        position += size + checksum_bytes
        if is_stored:
            yield block
            continue
        room = bytearray(largest)
        try:
            written = int(cramjam.lz4.decompress_block_into(block, room))
        except cramjam.DecompressionError as error:
            raise _corrupt(error) from None
        yield memoryview(room)[:written]
