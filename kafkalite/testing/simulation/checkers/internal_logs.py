"""Whether the internal topics keep only what they need: their logs must not grow with what was written, but with what there is."""

from __future__ import annotations

from collections import Counter
from collections.abc import Sequence

from kafkalite.coordinators.shares.persistence import ShareKey
from kafkalite.coordinators.shares.records import parse
from kafkalite.coordinators.shares.state import StoredState
from kafkalite.log.partition_log import PartitionLog
from kafkalite.record.reader import Record

#: Records that closed segments of a compacted log may have besides one of each key: what has come since the last passes.
_RECORDS_BESIDES = 50


def surplus(log: PartitionLog, records: Sequence[Record]) -> str | None:
    """What a compacted log has too much of; None: nothing. `records`: all that are in its files."""
    active = log.segments[-1].base_offset
    closed = [record for record in records if record.offset < active]
    keys = len({record.key for record in closed})
    if len(closed) <= keys + _RECORDS_BESIDES:
        return None
    return f"{len(closed)} records of {keys} keys in closed segments"


def unpruned(log: PartitionLog, records: Sequence[Record], updates: int) -> str | None:
    """What the log of a share coordinator keeps before the first snapshot that is needed; None: nothing. `records` as above.

    Args:
        updates: how many of them there may be between two snapshots of a key.
    """
    *closed, _ = log.segments
    if closed and closed[0].next_offset <= log.log_start_offset:
        return f"a segment that ends at {closed[0].next_offset}, and begins at {log.log_start_offset}"
    snapshots: dict[ShareKey, int] = {}
    since: Counter[ShareKey] = Counter()
    for record in records:
        key, stored = parse(record.key, record.value)
        if stored is None:
            snapshots.pop(key, None)
        elif isinstance(stored, StoredState):
            snapshots[key] = record.offset
            since[key] = 0
        elif key in snapshots:
            since[key] += 1
    for key, count in since.items():
        if count > updates:
            return f"{count} updates since the last snapshot of {key}"
    first = min(snapshots.values(), default=log.log_end_offset)
    return f"records from {log.log_start_offset} on, needed from {first} on" if log.log_start_offset < first else None
