"""Decompression in pieces: what a client has compressed is read without ever being in memory as a whole.

A batch of 8 kB may stand for 250 MB. `pieces` gives them out one bounded piece after the other, and stops at a limit. Each
piece counts as PIECE_CHARGE_BYTES at least, because a block, a member or a frame costs time even if it is empty.
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
#: What a piece counts for at least: 1 MB of empty blocks would take minutes.
PIECE_CHARGE_BYTES = 16 * 1024
#: What a decompressor gets at a time. It copies what is behind the end of its stream.
_FEED_BYTES = 64 * 1024
_GZIP = 31
_LZ4_MAGIC = b"\x04\x22\x4d\x18"
_LZ4_BLOCK_BYTES = {4: 64 * 1024, 5: 256 * 1024, 6: 1024 * 1024, 7: 4 * 1024 * 1024}
_LITTLE = struct.Struct("<I")
_LZ4_OFFSET = struct.Struct("<H")
#: A byte of a block of LZ4 stands for at most this number of them.
_LZ4_RATIO = 255
#: How far back a match of LZ4 reaches.
_LZ4_WINDOW_BYTES = 65_535


def pieces(codec: int, data: Buffer, *, limit_bytes: int = DEFAULT_LIMIT_BYTES) -> Iterator[Buffer]:
    """The records under `codec`, in order.

    Raises:
        ApiError: CORRUPT_MESSAGE (not in that format, or more than `limit_bytes`), UNSUPPORTED_COMPRESSION_TYPE.
    """
    match codec:
        case Codec.GZIP:
            found = _gzip(memoryview(data))
        case Codec.ZSTD:
            found = _zstd(memoryview(data))
        case Codec.LZ4:
            found = _lz4(memoryview(data))
        case Codec.SNAPPY:
            found = snappy_blocks(memoryview(data), limit_bytes)
        case _:
            found = iter([decompress(codec, data, limit_bytes=limit_bytes)])
    left, charge = limit_bytes, limit_bytes
    for piece in found:
        left -= len(piece)
        charge -= max(len(piece), PIECE_CHARGE_BYTES)
        if left < 0:
            raise api_error(ErrorCode.CORRUPT_MESSAGE, f"decompresses to over {limit_bytes} bytes")
        if charge < -PIECE_CHARGE_BYTES:  # the last piece of an honest stream is small
            raise api_error(ErrorCode.CORRUPT_MESSAGE, f"decompresses to {limit_bytes - left} bytes in too many pieces")
        yield piece


def _corrupt(reason: object) -> Exception:
    return api_error(ErrorCode.CORRUPT_MESSAGE, f"cannot decompress: {reason}")


def _gzip(view: memoryview) -> Iterator[Buffer]:
    at = 0
    while at < len(view):  # members may follow each other
        stream = zlib.decompressobj(_GZIP)
        given: Buffer = b""
        is_empty = True
        try:
            while not stream.eof:
                if not given:
                    given = view[at : at + _FEED_BYTES]
                    at += len(given)
                piece = stream.decompress(given, PIECE_BYTES)
                if piece:
                    is_empty = False
                    yield piece
                elif not given and not stream.eof:
                    raise _corrupt("it is cut off")
                given = stream.unconsumed_tail
        except zlib.error as error:
            raise _corrupt(error) from None
        if is_empty:
            yield b""
        at -= len(stream.unused_data)


def _zstd(view: memoryview) -> Iterator[Buffer]:
    zstd = zstd_module()
    at = 0
    while at < len(view):  # frames may follow each other
        stream = zstd.ZstdDecompressor()
        is_empty = True
        try:
            while not stream.eof:
                given = view[at : at + _FEED_BYTES] if stream.needs_input else b""
                at += len(given)
                is_at_end = stream.needs_input and not given
                piece = stream.decompress(given, PIECE_BYTES)
                if piece:
                    is_empty = False
                    yield piece
                elif is_at_end and not stream.eof:
                    raise _corrupt("it is cut off")
        except zstd.ZstdError as error:
            raise _corrupt(error) from None
        if is_empty:
            yield b""
        at -= len(stream.unused_data)


def zstd_module() -> Any:
    """The standard library's from Python 3.14 on, its backport before. (Neither is loaded before it is needed.)"""
    try:
        from compression import zstd  # type: ignore[import-not-found, unused-ignore]
    except ImportError:
        from backports import zstd
    return zstd


def _lz4(view: memoryview) -> Iterator[Buffer]:
    """One frame (its specification: https://github.com/lz4/lz4/blob/dev/doc/lz4_Frame_format.md)."""
    if len(view) < 7 or view[:4] != _LZ4_MAGIC:
        raise _corrupt("no LZ4 frame")
    flags, largest = view[4], _LZ4_BLOCK_BYTES.get(view[5] >> 4 & 7)
    if largest is None or flags & 0x01:
        raise _corrupt("an LZ4 frame with a dictionary, or with blocks of no size that there is")
    is_linked = not flags & 0x20
    position = 7 + (8 if flags & 0x08 else 0)
    checksum_bytes = 4 if flags & 0x10 else 0
    room = bytearray()
    window = b""
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
        most = min(largest, _LZ4_RATIO * size) + (4 + _LZ4_WINDOW_BYTES if is_linked else 0)
        if most > len(room):  # by what has come, and not by what the frame announces
            room = bytearray(most)
        piece: Buffer = block if is_stored else _lz4_block(block, window, room)
        if is_linked:
            window = (window + bytes(piece[-_LZ4_WINDOW_BYTES:]))[-_LZ4_WINDOW_BYTES:]
        yield piece


def _lz4_block(block: memoryview, window: bytes, room: bytearray) -> bytes:
    """A block whose matches may reach back into `window`, what came before it. Raises ApiError CORRUPT_MESSAGE."""
    given, begin = (block, 0) if len(window) < 4 else (_lz4_prefix(window) + bytes(block), len(window) + 4)
    try:
        written = int(cramjam.lz4.decompress_block_into(given, room, output_len=len(room)))
    except cramjam.DecompressionError as error:
        raise _corrupt(error) from None
    return bytes(memoryview(room)[begin:written])


def _lz4_prefix(window: bytes) -> bytes:
    """The beginning of a block that decompresses to the window's last four bytes and then the window.

    A block begins with literals, and each run of them is followed by a match of four bytes at least. So the window's end comes first,
    and the match repeats it.
    """
    more = len(window) - 15
    token = b"\xf0" + b"\xff" * (more // 255) + bytes([more % 255]) if more >= 0 else bytes([len(window) << 4])
    return token + window[-4:] + window[:-4] + _LZ4_OFFSET.pack(len(window))
