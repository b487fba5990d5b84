"""Which old segments go. Pure."""

from __future__ import annotations

from collections.abc import Sequence
from typing import NamedTuple

from kafkalite.config import TopicConfig


class SegmentFacts(NamedTuple):
    """A segment, as retention sees it.

    `largest_timestamp`: of its records; of its file where no record has one.
    """

    next_offset: int
    size_bytes: int
    largest_timestamp: int


def segments_to_delete(
    segments: Sequence[SegmentFacts], config: TopicConfig, *, high_watermark: int, log_start_offset: int, now_ms: int
) -> int:
    """How many of the oldest segments go, up to all of them.

    A segment goes when all of it is below the log start offset, too old, or more than the partition may keep; never
    when it reaches beyond the high watermark. Compaction without `delete` does not limit age and size. A closed segment
    that a compaction has left empty is removed with the next one behind it. The active one stays while it
    is empty.
    """
    may_expire = "delete" in config.cleanup_policy
    excess = sum(segment.size_bytes for segment in segments) - config.retention_bytes
    count = 0
    for number, segment in enumerate(segments):
        if segment.next_offset > high_watermark:
            break
        breached = segment.next_offset <= log_start_offset
        if not segment.size_bytes:
            if number == len(segments) - 1:
                break
            if breached:
                count = number + 1
            continue
        old = may_expire and config.retention_ms >= 0 and now_ms - segment.largest_timestamp > config.retention_ms
        much = may_expire and config.retention_bytes >= 0 and excess >= segment.size_bytes
        if not (breached or old or much):
            break
        excess -= segment.size_bytes
        count = number + 1
    return count
