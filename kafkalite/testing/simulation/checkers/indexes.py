"""Indexes must agree with the log: the files beside each segment, and the list of aborted transactions."""

from __future__ import annotations

import struct
from itertools import pairwise
from typing import Any

from kafkalite.testing.simulated.disk import SimDisk
from kafkalite.testing.simulation.checkers.cluster import Violation

_HEADER = struct.Struct(">qiibIhiqqqhii")  # RecordBatch v2 (KIP-98)
_OFFSET, _TIME = struct.Struct(">II"), struct.Struct(">qI")
_TRANSACTIONAL, _CONTROL = 0x10, 0x20


class _Batch:
    def __init__(self, content: bytes, position: int) -> None:
        fields = _HEADER.unpack_from(content, position)
        self.position, self.base, self.size = position, fields[0], fields[1] + 12
        self.attributes, self.last = fields[5], fields[0] + fields[6]
        self.max_timestamp, self.producer_id = fields[8], fields[9]
        self.body = content[position + _HEADER.size : position + self.size]

    @property
    def marker(self) -> bool | None:
        """Of a control batch: whether it commits; None for a batch of records."""
        if not self.attributes & _CONTROL:
            return None
        # One record: length, attributes, timestamp delta, offset delta (a byte each), the key's length, version, type.
        return self.body[5 + 2 : 5 + 4] == b"\x00\x01"


def _batches(content: bytes) -> list[_Batch]:
    found, position = [], 0
    while position + _HEADER.size <= len(content):
        batch = _Batch(content, position)
        if position + batch.size > len(content):
            break
        found.append(batch)
        position += batch.size
    return found


def check_indexes(disk: SimDisk, path: str, where: str) -> None:
    """The index files of a log without a writer. Raises Violation."""
    for name in disk.peek_names(path):
        if not name.endswith(".log"):
            continue
        base = int(name[:-4])
        batches = _batches(disk.peek(f"{path}/{name}"))
        at = {batch.position: batch for batch in batches}
        for relative, position in _entries(disk.peek(f"{path}/{name[:-4]}.index"), _OFFSET):
            batch = at.get(position)
            if batch is None or batch.last != base + relative:
                raise Violation(
                    f"an offset index names batches of its segment: {where} {name}: {base + relative} at {position}"
                )
        highest = -1
        by_end = {}
        for batch in batches:
            highest = max(highest, batch.max_timestamp)
            by_end[batch.last] = highest
        for timestamp, relative in _entries(disk.peek(f"{path}/{name[:-4]}.timeindex"), _TIME):
            if by_end.get(base + relative, timestamp) > timestamp:
                raise Violation(
                    f"a time index says the largest timestamp so far: {where} {name}: {timestamp} up to {base + relative}, "
                    f"the log has {by_end[base + relative]}"
                )


def _entries(data: bytes, entry: struct.Struct) -> list[tuple[int, int]]:
    """None where it can be seen that a loss of power has torn the file: readers do without it then."""
    found = list(entry.iter_unpack(data)) if len(data) % entry.size == 0 else []
    is_torn = any(one[0] >= following[0] for one, following in pairwise(found)) or found[:1] == [(0, 0)]
    return [] if is_torn else found


def check_aborted(disk: SimDisk, log: Any, where: str) -> None:
    """Every transaction that the log says was aborted is in the list that a reader gets. Raises Violation."""
    first: dict[int, int] = {}
    ended: list[tuple[int, int, int]] = []
    for name in disk.peek_names(log.path):
        if not name.endswith(".log"):
            continue
        for batch in _batches(disk.peek(f"{log.path}/{name}")):
            commits = batch.marker
            if commits is None:
                if batch.attributes & _TRANSACTIONAL:
                    first.setdefault(batch.producer_id, batch.base)
            elif (began := first.pop(batch.producer_id, None)) is not None and not commits:
                ended.append((batch.producer_id, began, batch.last))
    known = {
        (entry.producer_id, entry.first_offset, entry.last_offset)
        for entry in log.aborted_transactions(log.log_start_offset, log.log_end_offset)
    }
    missing = [entry for entry in ended if entry not in known and entry[2] >= log.log_start_offset]
    if missing:
        raise Violation(f"aborted transactions are not forgotten: {where}: {missing[0]}, known are {sorted(known)}")
