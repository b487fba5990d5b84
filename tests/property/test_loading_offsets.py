"""Loading parses only the last record of an offset in each piece of the log: the outcome is that of parsing them all."""

from __future__ import annotations

from collections import Counter
from types import SimpleNamespace
from typing import Any, cast

from hypothesis import given
from hypothesis import strategies as st

from kafkalite.config import BrokerConfig
from kafkalite.coordinators.groups.decisions.members import GroupEpoch
from kafkalite.coordinators.groups.decisions.share.group import NoSharedPartitions, ShareRecord
from kafkalite.coordinators.groups.loading import GroupReplay
from kafkalite.coordinators.groups.offsets import CommittedOffset
from kafkalite.coordinators.groups.partition import GroupPartition
from kafkalite.coordinators.groups.records import common, share
from kafkalite.env.real import RealClock
from kafkalite.model import LeaderEpoch, Offset, TopicPartition
from kafkalite.record.batch import TRANSACTIONAL_FLAG, BatchHeader
from kafkalite.record.reader import EndTransactionMarker, Record

PLAIN = BatchHeader(0, 0, 0, 2, 0, 0, 0, 0, 0, -1, -1, -1, 1)
CORRUPT = b"\0\x7f"

groups, partitions, producers = st.sampled_from("gh"), st.integers(0, 2), st.integers(1, 2)
steps = st.one_of(
    st.tuples(st.just("commit"), groups, partitions),
    st.tuples(st.just("tombstone"), groups, partitions),
    st.tuples(st.just("commit in transaction"), groups, partitions, producers),
    st.tuples(st.just("end"), producers, st.booleans()),
    st.tuples(st.just("share group"), groups, st.booleans()),
    st.tuples(st.just("damage"), groups, partitions),
    st.tuples(st.just("piece")),
)


def transactional(producer: int) -> BatchHeader:
    return PLAIN._replace(producer_id=producer, attributes=TRANSACTIONAL_FLAG)


def replayed(history: list[tuple[Any, ...]], *, by_record: bool) -> tuple[object, ...]:
    """What is loaded in the end."""
    replay = GroupReplay(cast(Any, SimpleNamespace(clock=RealClock(), config=BrokerConfig())))
    partition = GroupPartition(0, LeaderEpoch(0))

    def take(header: BatchHeader, offset: int, key: bytes, value: bytes | None) -> None:
        replay.replay(partition, header, [Record(offset, 0, key, value, ())], None)

    def settle() -> None:
        for _ in replay.settle(partition):
            pass

    for offset, (what, *arguments) in enumerate(history):
        if what == "end":
            producer, is_committed = arguments
            replay.replay(partition, transactional(producer), [], EndTransactionMarker(is_committed, 0))
        elif what == "share group":
            group, is_there = arguments
            records: list[ShareRecord] = [GroupEpoch(3)] if is_there else [NoSharedPartitions(), GroupEpoch(None)]
            for record in records:
                take(PLAIN, offset, *share.encode_record(group, record))
        elif what != "piece":
            group, number, *producer_ids = arguments
            key = common.offset_key(group, TopicPartition("t", number))
            value = common.offset_value(CommittedOffset(Offset(offset), 0, "", 0))
            values = {"tombstone": None, "damage": CORRUPT}
            header = transactional(producer_ids[0]) if producer_ids else PLAIN
            take(header, offset, key, values.get(what, value))
        if by_record or what == "piece":
            settle()
    settle()
    for entry in partition.entries.values():
        pending = entry.offsets.in_transactions.values()
        assert entry.offsets.unstable == Counter(key for offsets in pending for key in offsets)
    return (
        {
            name: (entry.offsets.committed, entry.offsets.in_transactions, entry.share is not None)
            for name, entry in partition.entries.items()
            if entry.share is not None or not entry.offsets.is_empty()
        },
        partition.transactions,
        partition.unsettled,
    )


@given(st.lists(steps, max_size=40))
def test_the_outcome_is_that_of_every_record(history: list[tuple[Any, ...]]) -> None:
    sound = [step for step in history if step[0] != "damage"]
    assert replayed(sound, by_record=False) == replayed(sound, by_record=True)


@given(st.lists(steps, max_size=40))
def test_a_damaged_record_costs_its_own_offset_only(history: list[tuple[Any, ...]]) -> None:
    damaged = {step[1:] for step in history if step[0] == "damage"}
    sound = [step for step in history if step[0] != "damage"]

    def others(loaded: Any) -> dict[tuple[str, int], object]:
        return {
            (name, key.partition): offset
            for name, (committed, *_) in loaded[0].items()
            for key, offset in committed.items()
            if (name, key.partition) not in damaged
        }

    with_damage = replayed(history, by_record=False)
    assert others(with_damage).keys() == others(replayed(sound, by_record=False)).keys()
