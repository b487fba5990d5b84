"""Plans: few movements, racks apart, load even."""

from __future__ import annotations

from hypothesis import given
from hypothesis import strategies as st

from kafkalite.admin.decisions.placement import shifted
from kafkalite.admin.decisions.planner import Goal, make_plan
from kafkalite.errors import ErrorCode
from kafkalite.model import BrokerId, TopicPartition
from tests.support.failing import fails_with

Assignment = dict[TopicPartition, tuple[BrokerId, ...]]


def assigned(*lists: tuple[int, ...]) -> Assignment:
    return {TopicPartition("t", number): tuple(map(BrokerId, each)) for number, each in enumerate(lists)}


def brokers(*ids: int) -> frozenset[BrokerId]:
    return frozenset(map(BrokerId, ids))


def plan(goal: Goal, assignment: Assignment, racks: dict[int, str | None], **sizes: int) -> Assignment:
    made = make_plan(
        goal,
        assignment,
        chosen=list(assignment),
        racks={BrokerId(id_): rack for id_, rack in racks.items()},
        sizes={TopicPartition("t", int(name[1:])): size for name, size in sizes.items()},
    )
    return {**assignment, **made.targets}


def test_draining_moves_only_what_is_there_and_onto_the_least_loaded() -> None:
    before = assigned((1, 2), (2, 3), (3, 1), (3, 4))
    after = plan(Goal(brokers(1, 3, 4)), before, dict.fromkeys(range(1, 5)))
    assert all(len(set(after[p]) - set(before[p])) == (2 in before[p]) for p in before)
    assert all(2 not in replicas for replicas in after.values())
    assert after[TopicPartition("t", 0)] == (1, 4)


def test_a_replica_goes_to_a_rack_that_is_not_used_yet() -> None:
    racks: dict[int, str | None] = {1: "a", 2: "b", 3: "a", 4: "b"}
    after = plan(Goal(brokers(1, 3, 4)), assigned((1, 2)), racks)
    assert after[TopicPartition("t", 0)] == (1, 4)


def test_a_broker_that_joins_is_given_its_share_of_leaders() -> None:
    before = assigned((1, 2), (2, 3), (3, 1), (1, 3), (2, 1), (3, 2), (1, 2), (2, 3))
    after = plan(Goal(brokers(1, 2, 3, 4), is_spread=True), before, dict.fromkeys(range(1, 5)))
    leads = [replicas[0] for replicas in after.values()]
    assert [leads.count(BrokerId(number)) for number in (1, 2, 3, 4)] == [2, 2, 2, 2]


def test_replication_factor_grows_and_shrinks_around_the_leader() -> None:
    before = assigned((1, 2), (2, 1))
    grown = plan(Goal(brokers(1, 2, 3), 3), before, dict.fromkeys(range(1, 4)))
    assert grown == assigned((1, 2, 3), (2, 1, 3))
    assert plan(Goal(brokers(1, 2, 3), 1), grown, dict.fromkeys(range(1, 4))) == assigned((1,), (2,))


def test_what_cannot_be_is_refused() -> None:
    with fails_with(ErrorCode.INVALID_REPLICATION_FACTOR):
        plan(Goal(brokers(1), 2), assigned((1,)), {1: None})
    with fails_with(ErrorCode.INVALID_REPLICA_ASSIGNMENT):
        plan(Goal(brokers(1, 9)), assigned((1,)), {1: None})


@given(
    st.lists(st.lists(st.integers(1, 6), min_size=1, max_size=3, unique=True), min_size=1, max_size=20),
    st.sets(st.integers(1, 6), min_size=3),
    st.lists(st.sampled_from(["a", "b", "c"]), min_size=6, max_size=6),
)
def test_every_plan_is_whole_even_and_small(lists: list[list[int]], allowed: set[int], racks: list[str]) -> None:
    before = assigned(*map(tuple, lists))
    goal = Goal(brokers(*allowed), is_spread=True)
    by_broker: dict[int, str | None] = {number + 1: rack for number, rack in enumerate(racks)}
    after = plan(goal, before, by_broker)
    counts = dict.fromkeys(sorted(allowed), 0)
    for partition, replicas in after.items():
        assert len(replicas) == len(before[partition]) == len(set(replicas)) and set(replicas) <= allowed
        for broker in replicas:
            counts[broker] += 1
    no_racks = plan(goal, before, dict.fromkeys(range(1, 7)))
    even = [sum(b in r for r in no_racks.values()) for b in sorted(allowed)]
    assert max(even) - min(even) <= 2
    assert plan(Goal(brokers(*range(1, 7))), before, by_broker) == before  # nothing has to move


@given(st.integers(1, 30), st.integers(0, 5), st.integers(0, 5), st.sampled_from((11, 12, 21, 22, 31, 32)))
def test_plans_for_three_hosts_of_two_nodes_keep_one_replica_on_each_host(
    partitions: int, start: int, shift: int, leaving: int
) -> None:
    """docs/large-host.md: placed with two replicas, grown to three, one node drained, then spread over all again."""
    racks: dict[int, str | None] = {10 * host + node: f"host{host}" for host in (1, 2, 3) for node in (1, 2)}
    of_brokers = {BrokerId(each): rack for each, rack in racks.items()}
    now: Assignment = {
        TopicPartition("t", number): replicas
        for number, replicas in enumerate(shifted(of_brokers, partitions, 2, start=start, shift=shift))
    }
    stay = racks.keys() - {leaving}
    for goal in (Goal(brokers(*racks), 3), Goal(brokers(*stay)), Goal(brokers(*racks), is_spread=True)):
        now = plan(goal, now, racks)
        assert all(sorted(broker // 10 for broker in replicas) == [1, 2, 3] for replicas in now.values()), goal
