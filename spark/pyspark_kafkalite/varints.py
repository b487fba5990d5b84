"""Zigzag varints, many at a time: numpy in, numpy out. The records of a batch are made of them."""

from __future__ import annotations

from typing import Any

import numpy as np
import numpy.typing as npt

Bytes = npt.NDArray[np.uint8]
Longs = npt.NDArray[np.int64]

#: A 64-bit value takes at most this many bytes.
MAX_BYTES = 10


def decode(data: Bytes, at: Longs) -> tuple[Longs, Longs]:
    """The values at positions `at` and the positions after them.

    Raises:
        IndexError: a varint runs out of `data`, or over ten bytes.
    """
    first = data[at]
    raw = (first & 0x7F).astype(np.int64)
    after = at + 1
    if (first & 0x80).any():
        rows = np.flatnonzero(first & 0x80)
        position = at[rows] + 1
        shift = 7
        while rows.size:
            if shift >= 7 * MAX_BYTES:
                raise IndexError("a varint has more than ten bytes")
            byte = data[position]
            raw[rows] |= (byte & 0x7F).astype(np.int64) << shift
            position += 1
            after[rows] = position
            more = byte >= 0x80
            rows, position = rows[more], position[more]
            shift += 7
    # raw is unsigned on the wire: shift its sign bit out logically, not arithmetically
    return (raw.view(np.uint64) >> np.uint64(1)).view(np.int64) ^ -(raw & 1), after


def sizes(values: Longs) -> npt.NDArray[np.int64]:
    """How many bytes each value takes."""
    zigzag = _zigzag(values)
    size = np.ones(len(values), np.int64)
    limit = np.uint64(0x80)
    while True:
        over = zigzag >= limit
        if not over.any():
            return size
        size += over
        if limit >= np.uint64(1 << 63):
            return size
        limit = limit << np.uint64(7)


def write(values: Longs, sizes_of: Longs, into: Bytes, at: Longs) -> None:
    """Write each value at its position of `into`; `sizes_of` is what `sizes` said."""
    zigzag = _zigzag(values)
    largest = int(sizes_of.max()) if len(sizes_of) else 0
    if largest == 1:
        into[at] = zigzag.astype(np.uint8)
        return
    for byte in range(largest):
        rows: Any = sizes_of > byte
        whole = bool(rows.all())
        part = zigzag if whole else zigzag[rows]
        more = sizes_of > byte + 1
        flag = (more if whole else more[rows]).astype(np.uint8) << 7
        into[(at if whole else at[rows]) + byte] = ((part >> np.uint64(7 * byte)) & np.uint64(0x7F)).astype(
            np.uint8
        ) | flag


def _zigzag(values: Longs) -> npt.NDArray[np.uint64]:
    return ((values << 1) ^ (values >> 63)).view(np.uint64)


def read_one(data: bytes | bytearray | memoryview, position: int) -> tuple[int, int]:
    """One value and the position after it, in plain Python."""
    raw = shift = 0
    while True:
        byte = data[position]
        position += 1
        raw |= (byte & 0x7F) << shift
        if byte < 0x80:
            return (raw >> 1) ^ -(raw & 1), position
        shift += 7
