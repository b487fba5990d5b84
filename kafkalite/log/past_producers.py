"""The producers of a log as they were at an offset, found from its files off the loop: for a truncation, and for a compaction."""

from __future__ import annotations

from collections.abc import Iterable, Sequence

from kafkalite.env.seams import Disk
from kafkalite.log.handles import HandleCache
from kafkalite.log.producer_state import ProducerStates
from kafkalite.log.recovery import load_snapshot, replay
from kafkalite.log.segment import Segment


def own_view(disk: Disk, segment: Segment) -> Segment:
    """A view of the same file with a handle of its own: it is read off the loop."""
    view = Segment(disk, HandleCache(disk, 1), segment.directory, segment.base_offset)
    view.exists, view.size, view.next_offset = True, segment.size, segment.next_offset
    return view


def producers_at(
    disk: Disk, path: str, snapshots: Iterable[int], segments: Sequence[Segment], end: int, most: int
) -> ProducerStates:
    """From the newest snapshot and the batches behind it, up to the first one that reaches beyond offset `end`.

    Args:
        snapshots: offsets of the log's producer snapshots in the directory `path`.
        most: producers that the log remembers (max.producer.ids).

    Raises:
        OSError; ApiError CORRUPT_MESSAGE.
    """
    states, start = load_snapshot(disk, path, [offset for offset in snapshots if offset <= end])
    for segment in segments:
        if segment.next_offset <= start or segment.base_offset >= end or not segment.size:
            continue
        view = own_view(disk, segment)
        try:
            for _ in replay(states, [view], start, end, most_producers=most):
                pass
        finally:
            view.close()
    return states
