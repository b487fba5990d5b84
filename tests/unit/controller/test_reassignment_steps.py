"""KIP-435's steps against the vectors, and what must hold of any run."""

from __future__ import annotations

import dataclasses
import itertools
import json
from collections.abc import Sequence
from pathlib import Path
from typing import Any

import pytest
from hypothesis import given
from hypothesis import strategies as st

from kafkalite.controller.decisions.effects import Send
from kafkalite.controller.decisions.events import UNLIMITED, Advance, ReassignmentLimits
from kafkalite.controller.decisions.reassignment_steps import next_step
from kafkalite.controller.decisions.reassignments import (
    MAX_REPEATED,
    advance_on,
    on_replica_dropped,
    undropped,
    wanted_move,
)
from kafkalite.controller.decisions.state import ControllerState, Topic
from kafkalite.coordination.topic_znodes import ReassignmentProgress
from kafkalite.model import (
    BrokerEpoch,
    BrokerId,
    BrokerInfo,
    ControllerEpoch,
    Endpoint,
    LeaderAndIsr,
    LeaderEpoch,
    PartitionEpoch,
    TopicId,
    TopicPartition,
)
from kafkalite.rpc.messages.control import StopReplicaRequest

VECTORS = json.loads((Path(__file__).parents[2] / "vectors" / "kip435_steps.json").read_text())


def brokers(ids: Sequence[int]) -> tuple[BrokerId, ...]:
    return tuple(BrokerId(each) for each in ids)


@pytest.mark.checklist(72)
@pytest.mark.checklist(73)
@pytest.mark.checklist(74)
@pytest.mark.checklist("C14")
@pytest.mark.checklist("C15")
@pytest.mark.parametrize("vector", VECTORS, ids=lambda vector: vector["name"])
def test_vectors(vector: dict[str, Any]) -> None:
    final, current = brokers(vector["final_target_replicas"]), brokers(vector["current_replicas"])
    isr = brokers(vector["isr"])
    steps = [list(current)]
    while current != final:
        current = next_step(
            final,
            current,
            isr,
            {*final, *current},
            max_replicas=vector["max_concurrent_replicas"],
            min_insync_replicas=vector["min_insync_replicas"],
        )
        isr = current  # each step ends when all its replicas are in sync
        steps.append(list(current))
    assert steps == vector["steps"]


@pytest.mark.checklist(68, 78)
@pytest.mark.parametrize(("live", "step"), [([1, 2, 3, 4, 5, 6], [4, 5, 6]), ([1, 2, 3, 5, 6], [5, 6, 3])])
def test_without_a_limit_a_move_is_one_step(live: list[int], step: list[int]) -> None:
    """As before the KIP: the new leader does not come alone, and first."""
    current = brokers([1, 2, 3])
    final = brokers([4, 5, 6])
    found = next_step(final, current, current, brokers(live), max_replicas=UNLIMITED, min_insync_replicas=1)
    assert found == brokers(step)


@pytest.mark.checklist(73)
def test_what_a_replaced_order_has_left_goes_before_more_comes() -> None:
    """5,1,2 -> 3,... was under way (3 is there) when 4,2,1 was ordered: with 4 as well there would be two beside the three."""
    final, current = brokers([4, 2, 1]), brokers([5, 3, 2, 1])
    live = brokers([1, 2, 3, 4, 5])

    def step(isr: list[int], minimum: int = 1) -> list[int]:
        found = next_step(
            final, current, brokers(isr), live, max_replicas=1, min_insync_replicas=minimum, most_replicas=4
        )
        return sorted(found)

    assert step([5, 1, 2]) == [1, 2, 5], "who is not in sync goes first"
    assert step([5], 2) == [1, 2, 3, 4, 5], "too few are in sync: what is missing comes over the cap"


@pytest.mark.checklist(73)
@pytest.mark.parametrize(("dead", "step"), [([], [1, 4, 6, 3, 7]), ([3, 7], [1, 4, 6, 7]), ([6], [1, 4, 3, 7])])
def test_requests_that_replace_each_other_add_what_is_missing_in_sync_once(dead: list[int], step: list[int]) -> None:
    """4 alone is in sync, of two that should be: for the request before this one, 1 has come over the cap (simulation, seed 190241)."""
    final, current = brokers([2, 1, 4]), brokers([1, 4, 6, 3, 7])
    live = brokers([each for each in (1, 2, 3, 4, 5, 6, 7) if each not in dead])
    found = next_step(final, current, brokers([4]), live, max_replicas=1, min_insync_replicas=2, most_replicas=4)
    assert found == brokers(step), "those that are alive catch up; one that is dead may go"


replica_lists = st.lists(st.integers(0, 9), min_size=1, max_size=6, unique=True)


@pytest.mark.checklist(67)
@pytest.mark.checklist(71)
@given(replica_lists, replica_lists, st.integers(1, 4), st.integers(1, 3))
def test_every_run_ends_at_the_target_within_the_caps(
    final_ids: list[int], current_ids: list[int], cap: int, min_isr: int
) -> None:
    final, current = brokers(final_ids), brokers(current_ids)
    floor, ceiling = min(len(final), len(current)), max(len(final), len(current))
    before = current
    for _ in range(20):
        if current == final:
            break
        after = next_step(
            final, current, current, {*final, *current}, max_replicas=cap, min_insync_replicas=min(min_isr, floor)
        )
        assert after != current
        assert len(after) >= floor
        assert len(set(after)) == len(after)
        assert len(set(after) - set(current)) <= cap and len(set(current) - set(after)) <= cap
        assert len(after) <= ceiling + 1
        assert set(after) <= set(before) | set(final)
        current = after
    assert current == final


@pytest.mark.checklist(76)
def test_waits_while_the_targets_are_offline() -> None:
    current = brokers([1, 2, 3])
    step = next_step(brokers([4, 5, 6]), current, current, {*current}, max_replicas=1, min_insync_replicas=1)
    assert step == current


@pytest.mark.checklist(76)
def test_goes_on_with_the_targets_that_are_alive() -> None:
    current = brokers([1, 2, 3])
    live = brokers([1, 2, 3, 6])
    step = next_step(brokers([4, 5, 6]), current, current, live, max_replicas=3, min_insync_replicas=1)
    assert step == brokers([6, 2, 3])  # one came, hence only one goes


@pytest.mark.checklist("C15", "F26")
def test_a_dead_member_of_the_isr_does_not_count_for_the_minimum() -> None:
    live = brokers([1, 3, 4, 5])
    step = next_step(
        brokers([1, 4, 5]), brokers([1, 2, 3]), brokers([1, 2]), live, max_replicas=1, min_insync_replicas=2
    )
    assert step == brokers([1, 4, 2, 3]), "one comes, and nobody goes"


@pytest.mark.checklist("C14")
def test_a_cancel_waits_for_who_can_come_back_and_for_nobody_else() -> None:
    """2,3,1 -> 4,... had taken 1 out when it was called off: 4 goes when 1 is in sync again, or cannot be."""
    partition, origin = TopicPartition("t", 0), brokers([2, 3, 1])
    move = ReassignmentProgress(origin, origin, step=origin)
    found = LeaderAndIsr(BrokerId(2), LeaderEpoch(7), brokers([4, 2, 3]), ControllerEpoch(1), PartitionEpoch(3))

    def finished(live: list[int], isr: list[int], offline: list[int]) -> bool:
        infos = {each: BrokerInfo(each, BrokerEpoch(1), Endpoint("h", 1), Endpoint("h", 2)) for each in brokers(live)}
        topic = Topic(TopicId("x"), {0: brokers([2, 3, 1, 4])}, moves={0: move})
        state = ControllerState(
            BrokerId(2),
            ControllerEpoch(1),
            infos,
            topics={"t": topic},
            offline_replicas={partition: frozenset(brokers(offline))},
        )
        known = {partition: dataclasses.replace(found, isr=brokers(isr))}
        return bool(advance_on(state, Advance(ReassignmentLimits(1, 1, 1), {"t": 2}), known))

    assert not finished([1, 2, 3, 4], [4, 2, 3], [])
    assert finished([1, 2, 3, 4], [4, 2, 3, 1], [])
    assert finished([2, 3, 4], [4, 2, 3], []), "1 is dead"
    assert finished([1, 2, 3, 4], [4, 2, 3], [1]), "its disk is dead"


def leftovers_of_moves(count: int, topic_id: str) -> ControllerState:
    """Broker 1 is alive; this number of replicas of a topic was moved away from it."""
    info = BrokerInfo(BrokerId(1), BrokerEpoch(1), Endpoint("host", 1), Endpoint("host", 2))
    replicas, gone = brokers([2, 3]), brokers([1])
    topic = Topic(
        TopicId(topic_id),
        dict.fromkeys(range(count), replicas),
        moves=dict.fromkeys(range(count), ReassignmentProgress(replicas, replicas, dropping=gone)),
    )
    found = LeaderAndIsr(BrokerId(2), LeaderEpoch(1), replicas, ControllerEpoch(1), PartitionEpoch(1))
    return ControllerState(
        BrokerId(1),
        ControllerEpoch(1),
        brokers={BrokerId(1): info},
        topics={"t": topic},
        partitions={TopicPartition("t", number): found for number in range(count)},
    )


def test_what_an_offline_disk_may_have_is_asked_for_a_few_at_a_time() -> None:
    """ADR 61: the first answer without `away` says that the disks are back, and the rest is commanded at once."""
    state = leftovers_of_moves(3 * MAX_REPEATED, "id")
    partitions = tuple(state.partitions)
    assert len(undropped(state)) == 3 * MAX_REPEATED
    state, _ = on_replica_dropped(state, partitions, partitions, BrokerId(1))
    assert len(undropped(state)) == MAX_REPEATED and not state.dropped
    state, effects = on_replica_dropped(state, partitions[:1], (), BrokerId(1))
    (command,) = [effect.command for effect in effects if isinstance(effect, Send)]
    assert isinstance(command, StopReplicaRequest)
    assert [each.partition for each in command.partitions] == [each.partition for each in partitions[1:]]
    assert not state.away and len(undropped(state)) == len(partitions) - 1


def test_an_answer_about_a_topic_without_an_id_says_nothing_of_disks() -> None:
    """A broker names no offline disk for it."""
    state = leftovers_of_moves(2, "")
    partitions = tuple(state.partitions)
    state = dataclasses.replace(state, away=frozenset({(partitions[1], BrokerId(1))}))
    state, _ = on_replica_dropped(state, partitions[:1], (), BrokerId(1))
    assert state.away and state.dropped == {(partitions[0], BrokerId(1))}


def test_a_request_that_is_taken_up_twice_is_taken_up_once() -> None:
    """A cancel that came while the old files of a move were removed was undone by the next pass over the same request."""
    lists = [(1, 2, 3), (3, 2, 4), (5, 6)]
    for replicas, target, origin in itertools.product(map(brokers, lists), repeat=3):
        for step, dropping in itertools.product([(), (1, 2, 5)], [(), (4,)]):
            move = ReassignmentProgress(target, origin, brokers(step), brokers(dropping))
            for known, requested in itertools.product([None, move], [(), *map(brokers, lists)]):
                once = wanted_move(replicas, known, requested, 0)
                assert wanted_move(replicas, once, requested, 0) == once, (replicas, known, requested)
    arrived = ReassignmentProgress(brokers((1, 2, 3)), brokers((3, 2, 4)), dropping=brokers((4,)))
    back = wanted_move(arrived.target, arrived, (), 0)
    assert back is not None and back.target == back.origin == (3, 2, 4) and back.dropping == (4,)
