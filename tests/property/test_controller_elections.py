"""What every election must promise, whichever brokers are alive, restarted or leaving."""

from __future__ import annotations

import pytest
from hypothesis import given
from hypothesis import strategies as st

from kafkalite.controller.decisions import elections, eligible
from kafkalite.model import BrokerId, ControllerEpoch, LeaderAndIsr, LeaderEpoch, PartitionEpoch

EPOCH = ControllerEpoch(9)
brokers = st.integers(1, 5).map(BrokerId)
some_brokers = st.frozensets(brokers)


@st.composite
def partitions(draw: st.DrawFn) -> tuple[tuple[BrokerId, ...], LeaderAndIsr]:
    """(AR, state); the ISR is within the AR, the leader within the ISR or nobody."""
    replicas = tuple(draw(st.lists(brokers, min_size=1, max_size=4, unique=True)))
    isr = tuple(draw(st.lists(st.sampled_from(replicas), min_size=1, unique=True)))
    leader = draw(st.sampled_from([BrokerId(-1), *isr]))
    epoch = LeaderEpoch(draw(st.integers(0, 5)))
    return replicas, LeaderAndIsr(leader, epoch, isr, ControllerEpoch(1), PartitionEpoch(3))


def check(before: LeaderAndIsr, after: LeaderAndIsr) -> None:
    assert after.leader_epoch == before.leader_epoch + 1
    assert after.controller_epoch == EPOCH and after.partition_epoch == before.partition_epoch
    assert after.isr and len(set(after.isr)) == len(after.isr)
    assert after.leader == -1 or after.leader in after.isr


@pytest.mark.checklist(18)
@pytest.mark.checklist(19)
@pytest.mark.checklist("C6")
@pytest.mark.checklist("C7")
@given(partition=partitions(), live=some_brokers, leaving=some_brokers, restarted=some_brokers, unclean=st.booleans())
def test_repair(
    partition: tuple[tuple[BrokerId, ...], LeaderAndIsr],
    live: frozenset[BrokerId],
    leaving: frozenset[BrokerId],
    restarted: frozenset[BrokerId],
    *,
    unclean: bool,
) -> None:
    replicas, before = partition
    restarted &= live
    changed = elections.repair(replicas, before, live, leaving & live, EPOCH, restarted=restarted, unclean=unclean)
    after = changed or before
    if changed is not None:
        check(before, changed)
    in_sync = set(before.isr) & live
    steady = in_sync - restarted
    if in_sync:
        assert set(after.isr) == (steady or in_sync)
        assert after.leader in after.isr and after.leader in live
        if before.leader in after.isr:
            assert after.leader == before.leader  # leadership does not move without need
        elif after.leader in leaving:
            assert set(after.isr) <= leaving
        if after.leader in restarted:
            assert changed is not None  # ADR 8: nobody resumes leadership in its old epoch
    elif unclean and live & set(replicas):
        assert after.isr == (after.leader,) and after.leader in live
    else:
        assert after.leader == -1 and after.isr == before.isr
    # What has been repaired needs no further repair (a write has made the restarted ones known).
    assert elections.repair(replicas, after, live, leaving & live, EPOCH, unclean=unclean) is None


@pytest.mark.checklist(10)
@given(partitions(), some_brokers)
def test_preferred(partition: tuple[tuple[BrokerId, ...], LeaderAndIsr], live: frozenset[BrokerId]) -> None:
    replicas, before = partition
    after = elections.preferred(replicas, before, live, EPOCH)
    eligible = replicas[0] in live and replicas[0] in before.isr and before.leader != replicas[0]
    assert (after is not None) == eligible
    if after is not None:
        check(before, after)
        assert after.leader == replicas[0] and after.isr == before.isr


@given(partitions(), some_brokers, some_brokers)
def test_shut_down(
    partition: tuple[tuple[BrokerId, ...], LeaderAndIsr], live: frozenset[BrokerId], leaving: frozenset[BrokerId]
) -> None:
    replicas, before = partition
    after = elections.shut_down(replicas, before, live, leaving & live, EPOCH)
    if after is not None:
        check(before, after)
        assert set(after.isr) == (set(before.isr) & live) - leaving
        assert after.leader in live and after.leader not in leaving
    elif (set(before.isr) & live) - leaving:
        assert set(before.isr) <= live - leaving and before.leader in before.isr


@pytest.mark.checklist(24)
@given(partitions(), some_brokers, st.integers(1, 4), some_brokers)
def test_first_state(
    partition: tuple[tuple[BrokerId, ...], LeaderAndIsr],
    live: frozenset[BrokerId],
    min_insync: int,
    keeps_elr: frozenset[BrokerId],
) -> None:
    replicas, _ = partition
    made = elections.first_state(replicas, live, EPOCH, min_insync=min_insync, keeps_elr=keeps_elr)
    alive = [replica for replica in replicas if replica in live]
    if made is None:
        assert not alive
    else:
        assert list(made.isr) == alive and made.leader == alive[0] and made.leader_epoch == 0
        is_held = len(alive) < min(min_insync, len(replicas)) and made.leader in keeps_elr
        assert set(made.elr) == (set(replicas) - live if is_held else set())


@pytest.mark.parametrize(
    ("leader", "isr", "empty", "expected"),
    [
        (1, (1, 2, 3), {1}, (-1, (2, 3))),
        (2, (1, 2, 3), {1}, (2, (2, 3))),
        (2, (1, 2, 3), {9}, (2, (1, 2, 3))),
        (1, (1,), {1}, (1, (1,))),
        (1, (1, 2), {1, 2}, (1, (1, 2))),
        (-1, (1, 2), {2}, (-1, (1,))),
    ],
)
def test_who_came_back_empty_is_not_in_sync(
    leader: int, isr: tuple[int, ...], empty: set[int], expected: tuple[int, tuple[int, ...]]
) -> None:
    state = LeaderAndIsr(
        BrokerId(leader), LeaderEpoch(5), tuple(map(BrokerId, isr)), ControllerEpoch(1), PartitionEpoch(7)
    )
    found = eligible.without_doubtful(state, {BrokerId(each) for each in empty})
    assert (found.leader, found.isr) == expected
    assert (found is state) == (expected == (leader, isr))
    assert (found.leader_epoch, found.partition_epoch) == (5, 7)
