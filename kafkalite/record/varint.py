"""Zigzag variable-length integers, as inside records (Kafka's, which are Protocol Buffers')."""

from __future__ import annotations

import struct

from kafkalite.errors import ErrorCode, api_error
from kafkalite.model import Buffer

_PAIR = struct.Struct("BB")
_ONE_BYTE = [bytes([value]) for value in range(128)]


def encode_varint(value: int) -> bytes:
    """`value` (64 bits, signed) in 1 to 10 bytes."""
    raw = (value << 1) ^ (value >> 63)
    if raw < 128:
        return _ONE_BYTE[raw]
    if raw < 16_384:
        return _PAIR.pack(raw & 0x7F | 0x80, raw >> 7)
    out = bytearray()
    while raw >= 128:
        out.append(raw & 0x7F | 0x80)
        raw >>= 7
    out.append(raw)
    return bytes(out)


def decode_varint(buffer: Buffer, position: int) -> tuple[int, int]:
    """(value, position behind it). Raises ApiError CORRUPT_MESSAGE when it is cut off or over 10 bytes long."""
    raw = shift = 0
    try:
        byte = buffer[position]
        if byte < 128:
            return (byte >> 1) ^ -(byte & 1), position + 1
        second = buffer[position + 1]
        if second < 128:
            raw = byte & 0x7F | second << 7
            return (raw >> 1) ^ -(raw & 1), position + 2
        while True:
            byte = buffer[position]
            position += 1
            raw |= (byte & 0x7F) << shift
            if byte < 128:
                return (raw >> 1) ^ -(raw & 1), position
            shift += 7
            if shift > 63:
                raise api_error(ErrorCode.CORRUPT_MESSAGE, "a varint is over 10 bytes long")
    except IndexError:
        raise api_error(ErrorCode.CORRUPT_MESSAGE, "a varint is cut off") from None
