"""Compression in pieces: records that are never in memory as a whole."""

from __future__ import annotations

import zlib
from collections.abc import Callable, Iterator
from typing import Any

import cramjam

from kafkalite.errors import ErrorCode, api_error
from kafkalite.model import Buffer
from kafkalite.record.compression import Codec, XerialPacker
from kafkalite.record.inflating import zstd_module

#: The libraries' own, for a batch whose producer's level nobody knows.
_LEVELS = {Codec.GZIP: 6, Codec.LZ4: 4, Codec.ZSTD: 3}


def recompressed(content: Iterator[Buffer], codec: Codec, level: int | None = None, most: int | None = None) -> bytes:
    """The records under another codec, never more than one piece of them and the result in memory.

    Raises ApiError MESSAGE_TOO_LARGE if the result has more than `most` bytes; what `content` raises.
    """
    add, finish = _packer(codec, _LEVELS.get(codec, 0) if level is None else level)
    parts: list[bytes] = []
    size = 0
    for piece in content:
        packed = add(piece)
        size += len(packed)
        if most is not None and size > most:
            break
        parts.append(packed)
    parts.append(finish())
    size += len(parts[-1])
    if most is not None and size > most:
        text = f"compressed as the topic wants it ({codec.name.lower()}), the batch is larger than max.message.bytes"
        raise api_error(ErrorCode.MESSAGE_TOO_LARGE, text)
    return b"".join(parts)


def _packer(codec: Codec, level: int) -> tuple[Callable[[Buffer], bytes], Callable[[], bytes]]:
    """(compress a piece, end)."""
    packer: Any
    match codec:
        case Codec.GZIP:
            packer = zlib.compressobj(level, zlib.DEFLATED, 31)
            return packer.compress, packer.flush
        case Codec.ZSTD:
            packer = zstd_module().ZstdCompressor(level=level)
            return packer.compress, packer.flush
        case Codec.LZ4:
            packer = cramjam.lz4.Compressor(level=level, content_checksum=False, block_linked=False)

            def add(piece: Buffer) -> bytes:
                packer.compress(bytes(piece))
                return bytes(packer.flush())

            return add, lambda: bytes(packer.finish())
        case Codec.SNAPPY:
            xerial = XerialPacker()
            return xerial.add, xerial.finish
        case _:
            return bytes, lambda: b""
