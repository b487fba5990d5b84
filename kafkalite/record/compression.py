"""The codecs of a record batch, at the edges only: a broker stores batches as they arrive.

Every decompression is bounded: a few bytes that claim to be gigabytes end in CORRUPT_MESSAGE, not in memory.
"""

from __future__ import annotations

import struct
from collections.abc import Iterator
from enum import IntEnum

import cramjam

from kafkalite.errors import ErrorCode, api_error
from kafkalite.model import Buffer


class Codec(IntEnum):
    """Numbers as in the batch's attributes."""

    NONE = 0
    GZIP = 1
    SNAPPY = 2
    LZ4 = 3
    ZSTD = 4


#: Largest result of one decompression unless the caller says otherwise.
DEFAULT_LIMIT_BYTES = 256 * 1024 * 1024

_XERIAL_MAGIC = b"\x82SNAPPY\x00"
_XERIAL_HEADER = struct.Struct(">8sii")
_XERIAL_BLOCK_BYTES = 32 * 1024
_LENGTH = struct.Struct(">I")


def codec_named(name: str | None) -> Codec:
    """The codec for a configuration's word. Raises ApiError UNSUPPORTED_COMPRESSION_TYPE."""
    try:
        return Codec[(name or "none").upper()]
    except KeyError:
        raise api_error(ErrorCode.UNSUPPORTED_COMPRESSION_TYPE, f"{name}: no such compression") from None


def compress(codec: int, data: Buffer) -> bytes:
    """`data` under `codec`, in the framing that Kafka's own clients write (snappy: xerial blocks)."""
    match codec:
        case Codec.NONE:
            return bytes(data)
        case Codec.GZIP:
            return bytes(cramjam.gzip.compress(data))
        case Codec.SNAPPY:
            return _compress_xerial(memoryview(data))
        case Codec.LZ4:
            # Java's client refuses frames whose blocks depend on each other, cramjam's default.
            packer = cramjam.lz4.Compressor(content_checksum=False, block_linked=False)
            packer.compress(bytes(data))
            return bytes(packer.finish())
        case Codec.ZSTD:
            return bytes(cramjam.zstd.compress(data))
        case _:
            raise api_error(ErrorCode.UNSUPPORTED_COMPRESSION_TYPE, f"compression codec {codec}")


def decompress(codec: int, data: Buffer, *, limit_bytes: int = DEFAULT_LIMIT_BYTES) -> Buffer:
    """The records under `codec`.

    Raises:
        ApiError: CORRUPT_MESSAGE (not in that format, or more than `limit_bytes`), UNSUPPORTED_COMPRESSION_TYPE.
    """
    match codec:
        case Codec.NONE:
            return data
        case Codec.GZIP:
            return _bounded(cramjam.gzip.decompress_into, data, limit_bytes)
        case Codec.SNAPPY:
            return b"".join(snappy_blocks(memoryview(data), limit_bytes))
        case Codec.LZ4:
            return _bounded(cramjam.lz4.decompress_into, data, limit_bytes)
        case Codec.ZSTD:
            return _bounded(cramjam.zstd.decompress_into, data, limit_bytes)
        case _:
            raise api_error(ErrorCode.UNSUPPORTED_COMPRESSION_TYPE, f"compression codec {codec}")


def _bounded(decompress_into: object, data: Buffer, limit_bytes: int) -> Buffer:
    """Decompress into room that doubles until it suffices or passes the limit."""
    assert callable(decompress_into)
    room = min(max(len(data) * 4, 4096), limit_bytes)
    while True:
        out = bytearray(room)
        try:
            written = int(decompress_into(data, out))
        except cramjam.DecompressionError as error:
            if "whole buffer" not in str(error):
                raise api_error(ErrorCode.CORRUPT_MESSAGE, f"cannot decompress: {error}") from None
            if room >= limit_bytes:
                raise api_error(ErrorCode.CORRUPT_MESSAGE, f"decompresses to over {limit_bytes} bytes") from None
            room = min(room * 4, limit_bytes)
            continue
        return memoryview(out)[:written]


def _compress_xerial(view: memoryview) -> bytes:
    packer = XerialPacker()
    return packer.add(view) + packer.finish()


class XerialPacker:
    """Snappy in the framing of Java's clients, piece by piece."""

    def __init__(self) -> None:
        self._parts = [_XERIAL_HEADER.pack(_XERIAL_MAGIC, 1, 1)]

    def add(self, piece: Buffer) -> bytes:
        """What has become of it so far."""
        view = memoryview(piece)
        for start in range(0, len(view), _XERIAL_BLOCK_BYTES):
            block = bytes(cramjam.snappy.compress_raw(view[start : start + _XERIAL_BLOCK_BYTES]))
            self._parts += [_LENGTH.pack(len(block)), block]
        return self.finish()

    def finish(self) -> bytes:
        """The rest."""
        parts, self._parts = self._parts, []
        return b"".join(parts)


def _raw_snappy(view: memoryview, limit_bytes: int) -> bytes:
    try:
        if cramjam.snappy.decompress_raw_len(view) > limit_bytes:
            raise api_error(ErrorCode.CORRUPT_MESSAGE, f"decompresses to over {limit_bytes} bytes")
        return bytes(cramjam.snappy.decompress_raw(view))
    except cramjam.DecompressionError as error:
        raise api_error(ErrorCode.CORRUPT_MESSAGE, f"cannot decompress: {error}") from None


def snappy_blocks(view: memoryview, limit_bytes: int) -> Iterator[bytes]:
    """Xerial's framing (Java), block by block, or one raw block (librdkafka). Raises ApiError CORRUPT_MESSAGE."""
    if view[:8] != _XERIAL_MAGIC:
        yield _raw_snappy(view, limit_bytes)
        return
    position, total = _XERIAL_HEADER.size, 0
    while position < len(view):
        if position + 4 > len(view):
            raise api_error(ErrorCode.CORRUPT_MESSAGE, "a snappy block is cut off")
        (size,) = _LENGTH.unpack_from(view, position)
        position += 4
        if position + size > len(view):
            raise api_error(ErrorCode.CORRUPT_MESSAGE, "a snappy block is cut off")
        block = _raw_snappy(view[position : position + size], limit_bytes - total)
        total += len(block)
        position += size
        yield block
