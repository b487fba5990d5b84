"""A request to move all partitions of a topic that has thousands: its znode never becomes larger than it may be."""

from __future__ import annotations

import dataclasses

import pytest

from kafkalite.controller.decisions import topic_room
from kafkalite.controller.decisions.decide import decide
from kafkalite.controller.decisions.effects import AdvanceReassignments, Effect, ReadStates, WriteTopics
from kafkalite.controller.decisions.events import (
    MovesDue,
    PartitionRequests,
    ReassignmentLimits,
    StatesRead,
    TopicsWritten,
)
from kafkalite.controller.decisions.state import ControllerState, Topic
from kafkalite.controller.storage import _topic_data
from kafkalite.coordination.admin_znodes import PartitionRemoval
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

COUNT = 1_200
ROOM = 90_000


def written(state: ControllerState, effects: list[Effect]) -> tuple[ControllerState, list[Effect]]:
    """What the writes among the effects lead to, if ZooKeeper takes them."""
    following: list[Effect] = []
    for effect in effects:
        if isinstance(effect, WriteTopics):
            for change in effect.changes:
                assert len(_topic_data(change.topic)) < ROOM
            state, more = decide(state, TopicsWritten(effect.changes, ()))
            following += more
    return state, following


@pytest.mark.parametrize("first", [1, 100_001])
def test_as_many_moves_as_the_znode_has_room_for(first: int, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(topic_room, "MAX_BYTES", ROOM)
    brokers = [BrokerId(first + at) for at in range(6)]
    origin, target = tuple(brokers[:3]), tuple(brokers[3:])
    partitions = [TopicPartition("t", number) for number in range(COUNT)]
    led = LeaderAndIsr(origin[0], LeaderEpoch(0), origin, ControllerEpoch(1), PartitionEpoch(0))
    state = ControllerState(
        brokers[0],
        ControllerEpoch(1),
        brokers={each: BrokerInfo(each, BrokerEpoch(1), Endpoint("h", 1), Endpoint("h", 2)) for each in brokers},
        topics={"t": Topic(TopicId("id"), dict.fromkeys(range(COUNT), origin))},
        partitions=dict.fromkeys(partitions, led),
        requested=dict.fromkeys(partitions, target),
    )
    due = MovesDue(ReassignmentLimits(), {"t": 1})
    state, effects = decide(state, due)
    while any(isinstance(effect, WriteTopics) for effect in effects):
        state, _ = written(state, effects)
        state, effects = decide(state, due)
    assert 100 < len(state.topics["t"].moves) < COUNT
    # Nothing more is taken up: the moves that were go on.
    for _ in range(2 * COUNT // 200):
        reads = [effect for effect in effects if isinstance(effect, ReadStates)]
        if not reads:
            break
        states = {each: state.partitions[each] for read in reads for each in read.partitions}
        state, effects = decide(state, StatesRead(states, reads[0].purpose))
        state, _ = written(state, effects)
        state, effects = decide(state, due)
    steps = [move.step for move in state.topics["t"].moves.values()]
    assert steps and all(steps)
    # One is over: there is room for another one.
    done = next(iter(state.topics["t"].moves))
    topic = state.topics["t"].with_partition(done, target, None)
    state = dataclasses.replace(state, topics={"t": topic})
    _, effects = decide(state, due)
    taken = [change.partitions for effect in effects if isinstance(effect, WriteTopics) for change in effect.changes]
    assert len(taken) == 1 and len(taken[0]) == 1
    assert not any(isinstance(effect, AdvanceReassignments) for effect in effects)


def test_the_removal_of_many_partitions_goes_on_without_a_tick() -> None:
    """A transaction takes 200 of them out of the topic, and the next 200 waited for the tick."""
    brokers = tuple(map(BrokerId, (1, 2)))
    partitions = [TopicPartition("t", number) for number in range(650)]
    led = LeaderAndIsr(brokers[0], LeaderEpoch(0), brokers, ControllerEpoch(1), PartitionEpoch(0))
    state = ControllerState(
        brokers[0],
        ControllerEpoch(1),
        brokers={each: BrokerInfo(each, BrokerEpoch(1), Endpoint("h", 1), Endpoint("h", 2)) for each in brokers},
        topics={"t": Topic(TopicId("id"), dict.fromkeys(range(650), brokers))},
        partitions=dict.fromkeys(partitions, led),
    )
    requests = {each: PartitionRemoval(drain=each.partition == 10, replicas=()) for each in partitions[1:]}
    state, effects = decide(state, PartitionRequests({}, requests))
    writes = 0
    while any(isinstance(effect, WriteTopics) for effect in effects):
        writes += 1
        state, effects = written(state, effects)
    assert (writes, sorted(state.topics["t"].assignment)) == (
        4,
        list(range(11)),
    )  # 10 still drains, and holds back those before it
