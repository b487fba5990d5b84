"""Whether a transaction index says what the log says: its file has no checksum (ADR 20), and a flipped bit would show aborted records."""

from __future__ import annotations

from bisect import bisect_right
from collections.abc import Iterable, Iterator
from typing import NamedTuple

from kafkalite.errors import ApiError
from kafkalite.log.batch_scan import SCAN_BYTES
from kafkalite.log.segment import Segment
from kafkalite.record.batch import BatchHeader, crc_of


class _Batch(NamedTuple):
    segment: Segment
    position: int
    header: BatchHeader

    def is_sound(self) -> bool:
        """By its CRC. Raises OSError."""
        data = self.segment.read_at(self.position, self.header.size)
        return len(data) == self.header.size and crc_of(data, 0, self.header.size) == self.header.crc


def is_contradicted(segment: Segment, segments: list[Segment]) -> bool:
    """Whether an entry of the segment's transaction index, which is loaded, must be wrong, by sound batches or by the other entries.

    Two headers for each entry are looked at, and a batch only if its header contradicts one. Raises OSError."""
    entries = segment.aborted()
    ends: dict[int, int] = {}  # of each producer, where its last transaction in the index ended
    for producer_id, first_offset, last_offset, last_stable_offset in entries:
        if first_offset <= ends.get(producer_id, -1) or last_stable_offset > last_offset + 1:
            return True
        ends[producer_id] = last_offset
    batches = _batches_with(segments, {offset for entry in entries for offset in entry[1:3]})
    for producer_id, first_offset, last_offset, _ in entries:
        marker = batches.get(last_offset)
        if marker is not None:
            header = marker.header
            if not (header.is_control and header.producer_id == producer_id and header.base_offset == last_offset):
                return marker.is_sound()
        first = batches.get(first_offset)
        if first is None or first.header.base_offset > first_offset:
            continue  # retention or a compaction may have removed it
        header = first.header
        if header.is_control or header.producer_id != producer_id or header.base_offset < first_offset:
            return first.is_sound()
    return False


def _batches_with(segments: list[Segment], offsets: Iterable[int]) -> dict[int, _Batch]:
    """For each offset the first batch that does not end before it; none where its log is damaged, or ends before. Raises OSError.

    The log is read forward once, from one to the next where they are near each other: an index may have 100,000 entries.
    """
    found: dict[int, _Batch] = {}
    steps: Iterator[tuple[int, BatchHeader]] = iter(())
    at: _Batch | None = None
    for offset in sorted(offsets):
        number = bisect_right(segments, offset, key=lambda segment: segment.base_offset) - 1
        if number < 0:
            continue
        segment = segments[number]
        try:
            if at is None or at.segment is not segment or segment.indexed_position(offset) > at.position + SCAN_BYTES:
                steps = segment.headers(segment.position_of(offset))
                at = _Batch(segment, *next(steps))
            while at.header.next_offset <= offset:
                at = _Batch(segment, *next(steps))
        except (ApiError, StopIteration):
            at = None
        else:
            found[offset] = at
    return found
