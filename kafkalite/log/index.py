"""The sparse indexes beside a segment: offset -> position and timestamp -> offset, in Kafka's file formats.

    .index      8 bytes an entry: u32 offset - base offset, u32 position          (big-endian)
    .timeindex  12 bytes an entry: i64 timestamp, u32 offset - base offset
    .txnindex   34 bytes an entry: i16 version 0, i64 producer id, first offset, last offset, last stable offset

In memory they are complete; files get the new entries when the segment is flushed, rolled or closed. A segment
past the recovery point is scanned anyway, and its indexes rebuilt from it. Of other segments, an entry for an offset or a timestamp is
trusted only if the batch to which it leads confirms it.
"""

from __future__ import annotations

import struct
import sys
from array import array
from bisect import bisect_left, bisect_right
from typing import NamedTuple

OFFSET_ENTRY_SIZE = 8
TIME_ENTRY = struct.Struct(">qI")
TIME_ENTRY_SIZE = TIME_ENTRY.size
ABORTED_ENTRY = struct.Struct(">hqqqq")
_SWAP = sys.byteorder == "little"


class OffsetIndex:
    """Entry (relative last offset of a batch, position of that batch): both strictly increase."""

    __slots__ = ("offsets", "positions")

    def __init__(self) -> None:
        self.offsets = array("I")
        self.positions = array("I")

    @classmethod
    def decode(cls, data: bytes) -> OffsetIndex | None:
        """The index in a file's bytes; None if they are not one (wrong size, not increasing)."""
        if len(data) % OFFSET_ENTRY_SIZE:
            return None
        both = array("I", data)
        if _SWAP:
            both.byteswap()
        index = cls()
        index.offsets, index.positions = both[0::2], both[1::2]
        pairs = (
            zip(index.offsets, index.offsets[1:], strict=False),
            zip(index.positions, index.positions[1:], strict=False),
        )
        return index if all(a < b for column in pairs for a, b in column) else None

    def encode(self, first: int = 0) -> bytes:
        """File bytes of the entries from number `first`."""
        both = array("I", bytes(OFFSET_ENTRY_SIZE * (len(self.offsets) - first)))
        both[0::2], both[1::2] = self.offsets[first:], self.positions[first:]
        if _SWAP:
            both.byteswap()
        return both.tobytes()

    def __len__(self) -> int:
        return len(self.offsets)

    def append(self, relative_offset: int, position: int) -> None:
        self.offsets.append(relative_offset)
        self.positions.append(position)

    def entry_for(self, relative_offset: int) -> tuple[int, int]:
        """(relative last offset, position) of the last batch with an entry that does not lie behind the offset; (-1, 0) if there is none."""
        found = bisect_right(self.offsets, relative_offset) - 1
        return (self.offsets[found], self.positions[found]) if found >= 0 else (-1, 0)

    def position_for(self, relative_offset: int) -> int:
        """A position at or before the batch that holds the offset."""
        found = bisect_right(self.offsets, relative_offset) - 1
        return self.positions[found] if found >= 0 else 0

    def truncate_to_position(self, size: int) -> None:
        """Forget entries of batches at or behind `size`."""
        keep = bisect_left(self.positions, size)
        del self.offsets[keep:]
        del self.positions[keep:]


class TimeIndex:
    """Entry (largest timestamp so far, relative offset of its batch's end): timestamps strictly increase."""

    __slots__ = ("offsets", "timestamps")

    def __init__(self) -> None:
        self.timestamps = array("q")
        self.offsets = array("I")

    @classmethod
    def decode(cls, data: bytes) -> TimeIndex | None:
        """The index in a file's bytes; None if they are not one."""
        if len(data) % TIME_ENTRY.size:
            return None
        index = cls()
        for timestamp, offset in TIME_ENTRY.iter_unpack(data):
            if index.timestamps and (timestamp <= index.timestamps[-1] or offset < index.offsets[-1]):
                return None
            index.timestamps.append(timestamp)
            index.offsets.append(offset)
        return index

    def encode(self, first: int = 0) -> bytes:
        """File bytes of the entries from number `first`."""
        return b"".join(
            TIME_ENTRY.pack(timestamp, offset)
            for timestamp, offset in zip(self.timestamps[first:], self.offsets[first:], strict=True)
        )

    def __len__(self) -> int:
        return len(self.timestamps)

    def maybe_append(self, timestamp: int, relative_offset: int) -> None:
        """Add an entry if the timestamp is a new maximum."""
        if timestamp >= 0 and (not self.timestamps or timestamp > self.timestamps[-1]):
            self.timestamps.append(timestamp)
            self.offsets.append(relative_offset)

    def entry_before(self, timestamp: int) -> tuple[int, int] | None:
        """The last entry with an earlier timestamp: no record before its relative offset has a timestamp >= `timestamp`."""
        found = bisect_left(self.timestamps, timestamp) - 1
        return (self.timestamps[found], self.offsets[found]) if found >= 0 else None

    def truncate_to_offset(self, relative_offset: int) -> None:
        """Forget entries at or behind the offset."""
        keep = bisect_left(self.offsets, relative_offset)
        del self.timestamps[keep:]
        del self.offsets[keep:]


class AbortedTxn(NamedTuple):
    """An aborted transaction on this partition; `last_offset` is its marker's (KIP-98)."""

    producer_id: int
    first_offset: int
    last_offset: int
    last_stable_offset: int

    def encode(self) -> bytes:
        return ABORTED_ENTRY.pack(0, *self)


def decode_aborted(data: bytes) -> list[AbortedTxn] | None:
    """The entries of a .txnindex file; None if it is not one."""
    if len(data) % ABORTED_ENTRY.size:
        return None
    entries = [(entry[0], AbortedTxn._make(entry[1:])) for entry in ABORTED_ENTRY.iter_unpack(data)]
    if any(version != 0 for version, _ in entries):
        return None
    return [entry for _, entry in entries]
