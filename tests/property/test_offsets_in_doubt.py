"""Committed offsets against an obviously right, slow twin: the last record of each partition below the high watermark."""

from __future__ import annotations

from typing import Any

from hypothesis import given
from hypothesis import strategies as st

from kafkalite.coordinators.groups.offsets import CommittedOffset, GroupOffsets
from kafkalite.model import Offset, TopicPartition

PARTITIONS = st.integers(0, 1).map(lambda number: TopicPartition("t", number))
APPEND = st.tuples(st.just("append"), PARTITIONS, st.booleans())
ANSWER = st.tuples(st.sampled_from(["time out", "replicate"]), st.integers(0, 4))


@given(st.lists(APPEND | ANSWER, max_size=30))
def test_what_timed_out_counts_once_it_is_replicated(steps: list[Any]) -> None:
    offsets, high_watermark = GroupOffsets(), 0
    log: list[tuple[TopicPartition, CommittedOffset | None]] = []
    waiting: list[int] = []
    for step in steps:
        match step:
            case ("append", partition, is_commit):
                at = len(log)
                log.append((partition, CommittedOffset(Offset(at), -1, "", 0, record_offset=at) if is_commit else None))
                waiting.append(at)
            case ("time out", count):  # the oldest ones
                for at in waiting[:count]:
                    offsets.doubt(log[at][0], at, log[at][1])
                del waiting[:count]
            case ("replicate", count):
                high_watermark = min(high_watermark + count, len(log))
                for at in [at for at in waiting if at < high_watermark]:
                    partition, offset = log[at]
                    if offset is None:
                        offsets.forget(partition, at)
                    else:
                        offsets.commit(partition, offset)
                    waiting.remove(at)
        offsets.settle(Offset(high_watermark))
        last = dict(log[:high_watermark])
        # What is in doubt hides what was in doubt before it, until it is replicated itself.
        known = {key: offset for key, offset in last.items() if offset is not None and key not in offsets.in_doubt}
        assert {key: offset for key, offset in offsets.committed.items() if key not in offsets.in_doubt} == known
        for key, committed in offsets.committed.items():
            assert committed.record_offset < high_watermark, key
        for key, (at, offset) in offsets.in_doubt.items():
            assert at >= high_watermark and log[at] == (key, offset)
