"""The balancer against what must hold of every plan: racks, numbers of replicas, an end, nothing undone."""

from __future__ import annotations

from collections import Counter
from collections.abc import Mapping

from hypothesis import given, settings
from hypothesis import strategies as st

from kafkalite.controller.decisions.balance_view import BalanceView, DiskRoom, Goals, PartitionLoad
from kafkalite.controller.decisions.balancer import Balancer
from kafkalite.model import BrokerId, Replicas, TopicPartition

Assignment = dict[TopicPartition, Replicas]


@st.composite
def views(draw: st.DrawFn) -> BalanceView:
    count = draw(st.integers(2, 7))
    ids = [BrokerId(number) for number in range(1, count + 1)]
    has_racks = draw(st.booleans())
    racks: dict[BrokerId, str | None] = {each: draw(st.sampled_from("abc")) if has_racks else None for each in ids}
    factor = draw(st.integers(1, min(3, count)))
    assignment: Assignment = {}
    loads: dict[TopicPartition, PartitionLoad] = {}
    for number in range(draw(st.integers(0, 25))):
        partition = TopicPartition("t", number)
        assignment[partition] = tuple(draw(st.permutations(ids))[:factor])
        if draw(st.booleans()):
            size, rate = draw(st.integers(0, 10**10)), draw(st.floats(0, 10**8))
            loads[partition] = PartitionLoad(size, rate, rate * draw(st.sampled_from((0, 1, 3))))
    dead = draw(st.sets(st.sampled_from(ids), max_size=1))
    leaving = draw(st.sets(st.sampled_from(ids), max_size=2)) | dead
    closed = draw(st.sets(st.sampled_from(ids), max_size=1))
    fixed = draw(st.sets(st.sampled_from(sorted(assignment)), max_size=2)) if assignment else set()
    room = {each: DiskRoom(10**11, draw(st.integers(0, 10**11))) for each in ids} if draw(st.booleans()) else {}
    return BalanceView(
        assignment,
        {each: rack for each, rack in racks.items() if each not in dead},
        frozenset(closed),
        {each: f"broker {each} is to hold nothing" for each in sorted(leaving)},
        loads,
        room,
        frozenset(fixed),
    )


def racks_of(replicas: Replicas, racks: Mapping[BrokerId, str | None]) -> int:
    return len({racks.get(each) for each in replicas} - {None})


@given(views())
@settings(max_examples=300, deadline=None)
def test_every_move_keeps_what_is_hard(view: BalanceView) -> None:
    balancer = Balancer(view, Goals())
    now = dict(view.assignment)
    able = {each for each in view.racks if each not in view.closed and each not in view.leaving}
    added = dict.fromkeys(view.racks, 0)
    for move in balancer.moves():
        before = now[move.partition]
        assert len(move.target) == len(before) == len(set(move.target)), "the number of replicas stays"
        assert move.target != before and move.partition not in view.fixed
        new = set(move.target) - set(before)
        assert new <= able, "nothing new on a closed, leaving or dead broker"
        possible = len({view.racks[each] for each in able} - {None})
        kept = {view.racks.get(each) for each in before if each not in view.leaving and each in view.racks} - {None}
        assert racks_of(move.target, view.racks) >= min(racks_of(before, view.racks), max(possible, len(kept))), "racks"
        size = view.loads.get(move.partition, PartitionLoad()).size_bytes
        for broker in new:
            added[broker] += size
            room = view.room.get(broker)
            assert room is None or room.total_bytes - room.free_bytes + added[broker] <= 0.85 * room.total_bytes
        assert move.reason
        now[move.partition] = move.target
    for partition, replicas in now.items():
        if partition not in view.fixed and partition not in balancer.stuck:
            assert not set(replicas) & view.leaving.keys(), "everything has left that could"


@given(views())
@settings(max_examples=200, deadline=None)
def test_a_second_plan_finds_nothing_left(view: BalanceView) -> None:
    """No ping-pong: on what the first plan leaves, with the disks as they are then, there is nothing to be done."""
    first, now = Balancer(view, Goals()), dict(view.assignment)
    added: Counter[BrokerId] = Counter()
    for move in first.moves():
        size = view.loads.get(move.partition, PartitionLoad()).size_bytes
        added.update(dict.fromkeys(set(move.target) - set(now[move.partition]), size))
        now[move.partition] = move.target
    room = {broker: DiskRoom(each.total_bytes, each.free_bytes - added[broker]) for broker, each in view.room.items()}
    after = BalanceView(first.assignment, view.racks, view.closed, view.leaving, view.loads, room, view.fixed)
    again = [move for move in Balancer(after, Goals()).moves() if move.goal not in ("disk",)]
    assert not again


@given(st.integers(2, 6), st.integers(1, 40), st.integers(1, 3), st.randoms(use_true_random=False))
@settings(max_examples=100, deadline=None)
def test_counts_end_within_one(brokers: int, partitions: int, factor: int, source: object) -> None:
    """Without racks and sizes: replicas differ by one at most; a broker that has just joined leads its share, too."""
    ids = [BrokerId(number) for number in range(1, brokers + 1)]
    old = ids[: max(1, brokers - 1)]
    factor = min(factor, len(old))
    assignment = {
        TopicPartition("t", number): tuple(source.sample(old, factor))  # type: ignore[attr-defined]
        for number in range(partitions)
    }
    balancer = Balancer(BalanceView(assignment, dict.fromkeys(ids)), Goals(tolerance=0.0))
    list(balancer.moves())
    replicas = [sum(broker in each for each in balancer.assignment.values()) for broker in ids]
    leaders = [sum(broker == each[0] for each in balancer.assignment.values()) for broker in ids]
    assert max(replicas) - min(replicas) <= 1, replicas
    assert max(leaders) - min(leaders) <= 2, leaders
