"""Cutting ranges into tasks and triggers."""

from __future__ import annotations

from hypothesis import given
from hypothesis import strategies as st

from kafkalite.model import TopicPartition as Tp
from pyspark_kafkalite.offsets import OffsetRange, limit, names, plan


def sizes(*lengths: int) -> list[OffsetRange]:
    return [OffsetRange("t", n, 10, 10 + length) for n, length in enumerate(lengths)]


def cut(planned: list[OffsetRange]) -> list[tuple[int, int, int]]:
    return [(r.partition, r.start, r.end) for r in planned]


# Source: Spark's KafkaOffsetRangeCalculatorSuite.
def test_one_task_per_partition_without_hints_and_none_for_empty_ones() -> None:
    assert cut(plan(sizes(5, 0, 3))) == [(0, 10, 15), (2, 10, 13)]


def test_min_partitions_cuts_the_large_in_proportion() -> None:
    assert cut(plan(sizes(100, 5, 5), min_partitions=2)) == [(0, 10, 110), (1, 10, 15), (2, 10, 15)]
    planned = plan(sizes(4500, 14, 2), min_partitions=6)
    assert [r.partition for r in planned] == [0, 0, 0, 0, 1, 2]
    assert [r.size for r in planned] == [1125, 1125, 1125, 1125, 14, 2]


def test_no_more_tasks_than_records() -> None:
    """Nor is time spent on those that would be empty."""
    assert len(plan(sizes(3, 1), min_partitions=10**12)) == 4
    assert len(plan(sizes(10), min_partitions=10**12, max_records=1)) == 10


def test_max_records_comes_first() -> None:
    assert cut(plan(sizes(10), max_records=4)) == [(0, 10, 13), (0, 13, 16), (0, 16, 20)]
    assert [r.size for r in plan(sizes(10, 1), max_records=5, min_partitions=4)] == [2, 3, 2, 3, 1]


@given(
    st.lists(st.integers(0, 5000), max_size=8),
    st.one_of(st.none(), st.integers(1, 40)),
    st.one_of(st.none(), st.integers(1, 900)),
)
def test_a_plan_covers_every_offset_once(
    lengths: list[int], min_partitions: int | None, max_records: int | None
) -> None:
    planned = plan(sizes(*lengths), min_partitions=min_partitions, max_records=max_records)
    for n, length in enumerate(lengths):
        covered = [offset for r in planned if r.partition == n for offset in range(r.start, r.end)]
        assert covered == list(range(10, 10 + length))
    assert all(r.size > 0 and (max_records is None or r.size <= max_records) for r in planned)


@given(st.lists(st.tuples(st.integers(0, 100), st.integers(0, 1000)), min_size=1, max_size=8), st.integers(1, 500))
def test_a_limit_is_kept_moves_on_and_leaves_nobody_behind(waits: list[tuple[int, int]], most: int) -> None:
    start = {Tp("t", n): first for n, (first, _) in enumerate(waits)}
    end = {Tp("t", n): first + more for n, (first, more) in enumerate(waits)}
    taken = {tp: at - start[tp] for tp, at in limit(start, end, most).items()}
    waiting = {tp: end[tp] - start[tp] for tp in end}
    assert all(0 <= taken[tp] <= waiting[tp] for tp in end)
    assert sum(taken.values()) <= most + len(end)
    assert all(taken[tp] > 0 for tp in end if waiting[tp])


def test_long_lists_are_shortened() -> None:
    assert names([Tp("t", n) for n in range(12)], most=2) == "t-0, t-1 and 10 more"
    assert names([]) == "none"
