"""Reads a replica's log straight from a simulated disk, with eyes of its own: nothing here is the product's code.

Layout: Kafka's RecordBatch v2 (KIP-98), segments named by base offset.
"""

from __future__ import annotations

import struct
from typing import NamedTuple

from kafkalite.testing.simulated.disk import SimDisk

#: base_offset, batch_length, partition_leader_epoch, magic, crc, attributes, last_offset_delta
_HEADER = struct.Struct(">qiibIhi")
_OVERHEAD_BYTES = 12  # base offset and length are not counted in the length
_HEADER_BYTES = 61


class BatchView(NamedTuple):
    """One batch. Two replicas' batches are the same record bytes if these are equal."""

    base_offset: int
    last_offset: int
    leader_epoch: int
    crc: int


#: Directory -> (base offset of the segment read last, offset of the next batch, where that begins in the file).
Places = dict[str, tuple[int, int, int]]


def read_batches(disk: SimDisk, directory: str, start: int, end: int, places: Places | None = None) -> list[BatchView]:
    """The batches of the log in `directory` that hold offsets from `start` up to (not with) `end`.

    A batch that begins below `start` or reaches over `end` is included. What cannot be a batch ends the list. `places`, the same for
    each call, saves reading a segment from its beginning each time.
    """
    bases = sorted(int(name[:-4]) for name in disk.peek_names(directory) if name.endswith(".log"))
    first = max((base for base in bases if base <= start), default=-1)
    found: list[BatchView] = []
    for base in bases:
        if base < first or base >= end:
            continue
        content = disk.content(f"{directory}/{base:020d}.log")
        position = _begin(content, base, start, places.get(directory)) if places is not None else 0
        while position + _HEADER_BYTES <= len(content):
            base_offset, length, epoch, magic, crc, _, delta = _HEADER.unpack_from(content, position)
            if magic != 2 or length < _HEADER_BYTES - _OVERHEAD_BYTES:
                return found
            if base_offset >= end:
                return found
            if position + _OVERHEAD_BYTES + length > len(content):
                return found
            if base_offset + delta >= start:
                found.append(BatchView(base_offset, base_offset + delta, epoch, crc))
            position += _OVERHEAD_BYTES + length
            if places is not None:
                places[directory] = (base, base_offset + delta + 1, position)
    return found


def _begin(content: bytearray, base: int, start: int, place: tuple[int, int, int] | None) -> int:
    """Where to begin to read: at the place known, if exactly that batch is there (the log may have been truncated and written again)."""
    if place is None or place[0] != base or place[1] > start or place[2] + _HEADER_BYTES > len(content):
        return 0
    offset: int = _HEADER.unpack_from(content, place[2])[0]
    return place[2] if offset == place[1] else 0
