"""Which partition a row goes to: Kafka's default partitioner over many keys at once.

Source: Kafka's BuiltInPartitioner and Utils.murmur2.
"""

from __future__ import annotations

import random
from typing import Any

import numpy as np
import numpy.typing as npt
import pyarrow as pa

Longs = npt.NDArray[np.int64]
Words = npt.NDArray[np.uint32]

_SEED = np.uint32(0x9747B28C)
_M = np.uint32(0x5BD1E995)


def murmur2(keys: pa.Array) -> npt.NDArray[np.int32]:
    """Kafka's murmur2 of each key of a binary array without nulls; 32 bit, signed as in Java."""
    rows = len(keys)
    offsets, data = binary_buffers(keys)
    start = offsets[:-1].astype(np.int64)
    size = offsets[1:].astype(np.int64) - start
    hashed = (_SEED ^ size.astype(np.uint32)).astype(np.uint32)
    words = size >> 2
    active = np.arange(rows)
    with np.errstate(over="ignore"):
        for word in range(int(words.max()) if rows else 0):
            active = active[words[active] > word]
            at = start[active] + 4 * word
            k = _word(data, at)
            k *= _M
            k ^= k >> np.uint32(24)
            k *= _M
            hashed[active] = (hashed[active] * _M) ^ k
        _tail(hashed, data, start + 4 * words, size & 3)
        hashed ^= hashed >> np.uint32(13)
        hashed *= _M
        hashed ^= hashed >> np.uint32(15)
    return hashed.view(np.int32)


def _word(data: npt.NDArray[np.uint8], at: Longs) -> Words:
    """The little-endian 32-bit word at each position."""
    word = data[at].astype(np.uint32)
    for byte in (1, 2, 3):
        word |= data[at + byte].astype(np.uint32) << np.uint32(8 * byte)
    return word


def _tail(hashed: Words, data: npt.NDArray[np.uint8], at: Longs, left: Longs) -> None:
    """The last one to three bytes of each key."""
    for byte in (2, 1, 0):
        rows = np.flatnonzero(left > byte)
        hashed[rows] ^= data[at[rows] + byte].astype(np.uint32) << np.uint32(8 * byte)
    rows = np.flatnonzero(left)
    hashed[rows] *= _M


def binary_buffers(array: pa.Array) -> tuple[npt.NDArray[np.int32], npt.NDArray[np.uint8]]:
    """Offsets (rows + 1) and bytes of a binary or string array, for a sliced one too. No copy."""
    _, offsets, data = array.buffers()
    if offsets is None:
        return np.zeros(len(array) + 1, np.int32), np.empty(0, np.uint8)
    numbers = np.frombuffer(offsets, np.int32)[array.offset : array.offset + len(array) + 1]
    content: Any = np.frombuffer(data, np.uint8) if data is not None and data.size else np.empty(0, np.uint8)
    return numbers, content


class Partitioner:
    """Partitions of one topic for the rows of one task. Keyed rows by hash; rows without a key stick together.

    A sticky partition is changed when `sticky_bytes` went to it, as Kafka's producer does when a batch is full: few
    large batches instead of many small ones.
    """

    def __init__(self, partitions: int, sticky_bytes: int, rng: random.Random) -> None:
        assert partitions > 0
        self._partitions = partitions
        self._sticky_bytes = sticky_bytes
        self._rng = rng
        self._sticky = rng.randrange(partitions)
        self._sticky_left = sticky_bytes

    def keyed(self, keys: pa.Array) -> npt.NDArray[np.int32]:
        """The partition of each key; the array has no nulls."""
        return (murmur2(keys) & np.int32(0x7FFFFFFF)) % np.int32(self._partitions)

    def unkeyed(self, sizes: Longs) -> npt.NDArray[np.int32]:
        """The partitions of rows without a key, whose sizes in bytes are given."""
        chosen = np.empty(len(sizes), np.int32)
        filled = np.cumsum(sizes)
        first, before = 0, 0
        while first < len(sizes):
            # the row that fills the partition still goes to it
            last = min(int(np.searchsorted(filled, before + self._sticky_left)) + 1, len(sizes))
            chosen[first:last] = self._sticky
            self._sticky_left -= int(filled[last - 1]) - before
            first, before = last, int(filled[last - 1])
            if self._sticky_left <= 0:
                self._turn()
        return chosen

    def _turn(self) -> None:
        if self._partitions > 1:
            step = self._rng.randrange(1, self._partitions)
            self._sticky = (self._sticky + step) % self._partitions
        self._sticky_left = self._sticky_bytes
