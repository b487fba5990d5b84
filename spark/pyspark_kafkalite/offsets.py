"""Which offsets to read: what a user may say, and how a range is cut into tasks. Pure.

Offsets are counted in records; ends are exclusive.
Source: Spark's KafkaOffsetReader and KafkaOffsetRangeCalculator.
"""

from __future__ import annotations

import math
from collections.abc import Iterable, Mapping, Sequence
from dataclasses import replace

from kafkalite.lazy_dataclass import dataclass
from kafkalite.model import EARLIEST_TIMESTAMP, LATEST_TIMESTAMP, TopicPartition

#: In a JSON of offsets.
LATEST, EARLIEST = LATEST_TIMESTAMP, EARLIEST_TIMESTAMP


@dataclass(frozen=True, slots=True)
class Earliest:
    pass


@dataclass(frozen=True, slots=True)
class Latest:
    pass


@dataclass(frozen=True, slots=True)
class Specific:
    """Offsets per partition; LATEST and EARLIEST stand for themselves."""

    offsets: Mapping[TopicPartition, int]


@dataclass(frozen=True, slots=True)
class AtTimestamp:
    """The first record at or after a time, in ms since 1970: of each partition, or (`default_ms`) of all."""

    timestamps_ms: Mapping[TopicPartition, int]
    default_ms: int | None = None


OffsetSpec = Earliest | Latest | Specific | AtTimestamp


@dataclass(frozen=True, slots=True)
class OffsetRange:
    """Offsets [start, end) of one partition. `topic_id` distinguishes a topic from a later one of the same name; may be empty."""

    topic: str
    partition: int
    start: int
    end: int
    topic_id: str = ""

    @property
    def size(self) -> int:
        return self.end - self.start

    @property
    def topic_partition(self) -> TopicPartition:
        return TopicPartition(self.topic, self.partition)


def plan(
    ranges: Iterable[OffsetRange], *, min_partitions: int | None = None, max_records: int | None = None
) -> list[OffsetRange]:
    """One range per task, in order of topic, partition and offset.

    Args:
        min_partitions: a hint: large ranges are cut in proportion to their size so that about that many tasks come out.
        max_records: no task gets more; applied first.
    """
    filled = sorted((r for r in ranges if r.size > 0), key=lambda r: (r.topic_partition, r.start))
    if max_records is not None:
        filled = [part for r in filled for part in _cut(r, math.ceil(r.size / max_records))]
    if min_partitions is None or len(filled) >= min_partitions or not filled:
        return filled
    total = sum(r.size for r in filled)
    # what is too small to cut must not count in the proportions of what is cut
    small = [_share(r.size, total, min_partitions) == 1 for r in filled]
    cut_total = sum(r.size for r, is_small in zip(filled, small) if not is_small)
    cut_parts = max(min_partitions - sum(small), 1)
    planned: list[OffsetRange] = []
    for r, is_small in zip(filled, small):
        planned += [r] if is_small else _cut(r, _share(r.size, cut_total, cut_parts))
    return planned


def _share(size: int, total: int, parts: int) -> int:
    return max(math.floor(size / total * parts + 0.5), 1)


def _cut(whole: OffsetRange, parts: int) -> list[OffsetRange]:
    """Even pieces, none of them empty; the last ones take what integer division leaves."""
    pieces: list[OffsetRange] = []
    start, remaining = whole.start, whole.size
    parts = min(parts, whole.size)
    for part in range(parts):
        size = remaining // (parts - part)
        remaining -= size
        pieces.append(replace(whole, start=start, end=start + size))
        start += size
    return pieces


def limit(
    start: Mapping[TopicPartition, int], end: Mapping[TopicPartition, int], max_records: int
) -> dict[TopicPartition, int]:
    """Ends that take at most about `max_records` in all, in proportion to what each partition has waiting.

    Shares below one are rounded up, as in Spark, so that nobody waits for ever: the sum may be over by the number of
    partitions. An end that is not beyond its start stays as it is.
    """
    waiting = {tp: max(end[tp] - start[tp], 0) for tp in sorted(end)}
    total = sum(waiting.values())
    if total <= max_records:
        return dict(sorted(end.items()))
    taken: dict[TopicPartition, int] = {}
    for tp, size in waiting.items():
        share = max_records * size / total
        records = min(size, math.ceil(share) if share < 1 else math.floor(share))
        taken[tp] = start[tp] + records if size else end[tp]
    return taken


def limit_bytes(
    start: Mapping[TopicPartition, int],
    end: Mapping[TopicPartition, int],
    bytes_per_offset: Mapping[TopicPartition, float],
    max_bytes: int,
) -> dict[TopicPartition, int]:
    """Ends that take about `max_bytes` in all, in proportion to the bytes that each partition has waiting.

    Every partition with something waiting gets at least one offset, so that a record that is larger than the limit is
    read, too.
    """
    total = sum(max(end[tp] - start[tp], 0) * bytes_per_offset[tp] for tp in sorted(end))
    if total <= max_bytes:
        return dict(sorted(end.items()))
    taken: dict[TopicPartition, int] = {}
    for tp in sorted(end):
        waiting = end[tp] - start[tp]
        taken[tp] = start[tp] + max(int(waiting * max_bytes / total), 1) if waiting > 0 else end[tp]
    return taken


def names(partitions: Sequence[TopicPartition] | Iterable[TopicPartition], most: int = 10) -> str:
    """For messages: `t-0, t-1 and 98 more`."""
    listed = sorted(partitions)
    shown = ", ".join(str(tp) for tp in listed[:most])
    return f"{shown} and {len(listed) - most} more" if len(listed) > most else shown or "none"
