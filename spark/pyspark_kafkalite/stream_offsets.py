"""Positions of a stream and how they move from one micro-batch to the next. Pure.

In the checkpoint and in a query's progress a position is JSON of the shape that Spark's Kafka source has,
`{"topic": {"0": 23, "1": 7}}`, plus one key that no topic can have, with what must survive a restart:

    ids      the topics' ids: a topic that was deleted and created again is another topic
    initial  this is where the query began, before its first batch. Spark does not keep it: it asks again when it
             replays the first batch, and then `latest` would be another place
    begins   where this batch begins in partitions whose begin its start position does not have: all of them in the
             first batch, later those that are new. Being in the END position it is in the checkpoint before the batch runs.
    query    a name for the query that stays the same, for tasks that Spark does not tell their query (Spark 4.2 and later)
"""

from __future__ import annotations

from collections.abc import Callable, Iterable, Mapping
from dataclasses import field
from typing import Any

from kafkalite.lazy_dataclass import dataclass
from kafkalite.model import TopicPartition
from pyspark_kafkalite.offsets import OffsetRange

#: The key that no topic can have.
EXTRA = "#kafkalite"


@dataclass(frozen=True, slots=True)
class StreamOffset:
    """Offsets are exclusive ends: the next offset to be read."""

    offsets: Mapping[TopicPartition, int]
    ids: Mapping[str, str] = field(default_factory=dict)
    initial: bool = False
    begins: Mapping[TopicPartition, int] = field(default_factory=dict)
    query: str = ""

    def to_json(self) -> dict[str, Any]:
        """The same position always gives the same text, as Spark compares texts."""
        extra: dict[str, Any] = {"ids": dict(sorted(self.ids.items()))}
        if self.initial:
            extra["initial"] = True
        if self.begins:
            extra["begins"] = _nested(self.begins)
        if self.query:
            extra["query"] = self.query
        return {**_nested(self.offsets), EXTRA: extra}

    @classmethod
    def from_json(cls, value: Mapping[str, Any]) -> StreamOffset:
        extra = value.get(EXTRA, {})
        return cls(
            offsets=_flat({topic: numbers for topic, numbers in value.items() if topic != EXTRA}),
            ids=dict(extra.get("ids", {})),
            initial=bool(extra.get("initial", False)),
            begins=_flat(extra.get("begins", {})),
            query=str(extra.get("query", "")),
        )


@dataclass(frozen=True, slots=True)
class Changes:
    """What happened to the subscribed partitions since a position was taken."""

    #: Read further from where the position says.
    kept: tuple[TopicPartition, ...]
    #: Not in the position.
    added: tuple[TopicPartition, ...]
    #: In the position, but no longer there.
    gone: tuple[TopicPartition, ...]
    #: Topics with another id than then: all their partitions are in `added`, too.
    recreated: tuple[str, ...]


def changes(start: StreamOffset, found: Mapping[TopicPartition, str]) -> Changes:
    """Compare a position with the partitions that exist, given with their topics' ids."""
    recreated = {
        tp.topic for tp, topic_id in found.items() if topic_id and start.ids.get(tp.topic, topic_id) != topic_id
    }
    known = {tp for tp in start.offsets if tp.topic not in recreated}
    return Changes(
        kept=tuple(sorted(tp for tp in found if tp in known)),
        added=tuple(sorted(tp for tp in found if tp not in known)),
        gone=tuple(sorted(tp for tp in known if tp not in found)),
        recreated=tuple(sorted(recreated)),
    )


def next_end(
    start: StreamOffset,
    begins: Mapping[TopicPartition, int],
    ends: Mapping[TopicPartition, int],
    ids: Mapping[str, str],
    limits: Callable[[Mapping[TopicPartition, int], Mapping[TopicPartition, int]], Mapping[TopicPartition, int]],
) -> StreamOffset:
    """The end of the next batch.

    Args:
        begins: where each partition that exists is read from, those of `start` included.
        ends: how far each can be read; never below its begin.
        limits: from begins and ends to ends that are not too far away.
    Returns:
        `start` itself if there is nothing to read and nothing to remember.
    """
    reached = dict(limits(begins, ends))
    stated = {} if start.initial else dict(start.offsets)
    new = {tp: begins[tp] for tp in sorted(reached) if stated.get(tp) != begins[tp]}
    end = StreamOffset(reached, ids, begins=new, query=start.query)
    same = not start.initial and reached == stated and dict(ids) == dict(start.ids) and not new
    return start if same else end


def ranges(start: StreamOffset, end: StreamOffset) -> list[OffsetRange]:
    """What the batch between two positions reads; the same at every replay."""
    found = []
    for tp, last in sorted(end.offsets.items()):
        topic_id = end.ids.get(tp.topic, "")
        # a start that knows no id is taken for the same topic, as in `changes`
        same_topic = start.ids.get(tp.topic, topic_id) == topic_id
        stated = None if start.initial or not same_topic else start.offsets.get(tp)
        first = end.begins.get(tp) if stated is None else stated
        if first is not None and first < last:
            found.append(OffsetRange(tp.topic, tp.partition, first, last, topic_id))
    return found


def waiting(begins: Mapping[TopicPartition, int], ends: Mapping[TopicPartition, int]) -> int:
    """How many offsets lie between."""
    return sum(max(ends[tp] - begins[tp], 0) for tp in ends)


def _nested(offsets: Mapping[TopicPartition, int]) -> dict[str, dict[str, int]]:
    nested: dict[str, dict[str, int]] = {}
    for tp, offset in sorted(offsets.items()):
        nested.setdefault(tp.topic, {})[str(tp.partition)] = offset
    return nested


def _flat(nested: Mapping[str, Mapping[str, int]]) -> dict[TopicPartition, int]:
    return {TopicPartition(t, int(p)): offset for t, numbers in nested.items() for p, offset in numbers.items()}


def topic_ids(found: Mapping[TopicPartition, str], partitions: Iterable[TopicPartition]) -> dict[str, str]:
    """The ids of the topics of these partitions."""
    return {tp.topic: found[tp] for tp in sorted(partitions) if found[tp]}
