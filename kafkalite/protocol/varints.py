"""Unsigned varints, as flexible versions have them (KIP-482)."""

from __future__ import annotations

from kafkalite.protocol.errors import WireError


def read_varint(buffer: memoryview, position: int) -> tuple[int, int]:
    """An unsigned varint of at most 32 bits: (value, position after it). Raises WireError, IndexError."""
    byte = buffer[position]
    if byte < 0x80:
        return byte, position + 1
    second = buffer[position + 1]
    if second < 0x80:
        return byte & 0x7F | second << 7, position + 2
    result = shift = 0
    while True:
        byte = buffer[position]
        position += 1
        result |= (byte & 0x7F) << shift
        if byte < 0x80:
            return result, position
        shift += 7
        if shift > 28:
            raise WireError("a varint of more than 5 bytes")


def varint(value: int) -> bytes:
    """An unsigned varint."""
    if value < len(VARINTS):
        return VARINTS[value]
    return _varint(value)


def _varint(value: int) -> bytes:
    out = bytearray()
    while value > 0x7F:
        out.append((value & 0x7F) | 0x80)
        value >>= 7
    out.append(value)
    return bytes(out)


#: The short ones.
VARINTS = tuple(_varint(i) for i in range(2048))
