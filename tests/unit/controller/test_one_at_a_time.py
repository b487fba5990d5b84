"""One task handles the controller's events: what a decision asked for is handled before anything else that happened."""

from __future__ import annotations

import asyncio

import pytest

from kafkalite.controller import event_loop
from kafkalite.controller.decisions.decide import decide
from kafkalite.controller.decisions.effects import (
    AskLogEnds,
    Effect,
    Post,
    ReadStates,
    RemovePartitions,
    RemoveTopics,
    WriteStates,
    WriteTopics,
)
from kafkalite.controller.decisions.events import (
    BrokersChanged,
    Event,
    PartitionsRemoved,
    StatesRead,
    StatesWritten,
    TopicsRemoved,
    TopicsWritten,
)
from kafkalite.controller.decisions.state import ControllerState
from kafkalite.coordination import admin_znodes, paths
from kafkalite.coordination.coordinator import Create
from kafkalite.model import BrokerId, TopicPartition
from tests.support.waiting import until
from tests.unit.controller.cluster import Cluster, running

#: Effects that take time, and the events in which they end.
ENDS: dict[type, type] = {
    ReadStates: StatesRead,
    AskLogEnds: StatesRead,
    WriteStates: StatesWritten,
    WriteTopics: TopicsWritten,
    RemovePartitions: PartitionsRemoved,
    RemoveTopics: TopicsRemoved,
}


@pytest.mark.checklist("C21")
@pytest.mark.checklist("F23")
async def test_outcomes_are_handled_before_any_other_event(cluster: Cluster, monkeypatch: pytest.MonkeyPatch) -> None:
    """Brokers come and go, topics are made and deleted, leaders are elected, all while reads and writes are on their way."""
    awaited: list[type] = []
    seen: list[str] = []
    turns: list[asyncio.Task[object] | None] = []

    def watched(state: ControllerState, event: Event) -> tuple[ControllerState, tuple[Effect, ...]]:
        if awaited:
            assert type(event) is awaited[0], f"{type(event).__name__} between a decision and its outcome: {seen[-5:]}"
            del awaited[0]
        seen.append(type(event).__name__)
        turns.append(asyncio.current_task())
        after, effects = decide(state, event)
        awaited[:0] = [
            type(effect.event) if isinstance(effect, Post) else ENDS[type(effect)]
            for effect in effects
            if isinstance(effect, Post) or type(effect) in ENDS
        ]
        return after, tuple(effects)

    monkeypatch.setattr(event_loop, "decide", watched)
    await running(cluster, 4)
    for number in range(6):
        cluster.create_topic(f"t{number}", {p: (1 + p % 4, 1 + (p + 1) % 4, 1 + (p + 2) % 4) for p in range(8)})
    await until(lambda: all(cluster.state(TopicPartition(f"t{number}", 7)) is not None for number in range(6)))
    for _ in range(3):
        await cluster.stop_broker(2)
        everything = [TopicPartition(f"t{number}", p) for number in range(6) for p in range(8)]
        cluster.zookeeper.poke(
            Create(paths.PREFERRED_REPLICA_ELECTION, admin_znodes.encode_preferred_election(everything))
        )
        cluster.create_topic(f"made-{len(seen)}", {0: (3, 4)})
        await cluster.stop_broker(3)
        await cluster.start_broker(2)
        await cluster.start_broker(3)
        await until(lambda: cluster.zookeeper.peek(paths.PREFERRED_REPLICA_ELECTION) is None)
    await until(lambda: all(3 in cluster.brokers[3].brokers and 2 in each.brokers for each in cluster.brokers.values()))
    assert seen.count(BrokersChanged.__name__) >= 3 and seen.count(StatesWritten.__name__) >= 5
    assert len(set(turns)) == 1, "one task decides"


@pytest.mark.checklist(84)
@pytest.mark.checklist(85)
@pytest.mark.checklist("C17")
@pytest.mark.checklist("C18")
async def test_brokers_that_ask_at_the_same_time_are_all_heard(cluster: Cluster) -> None:
    """Each request about offline replicas is a znode of its own; it is gone when the replicas are out of the ISR."""
    await running(cluster)
    cluster.create_topic("t", {0: (1, 2, 3), 1: (2, 3, 1), 2: (3, 1, 2)})
    await until(lambda: all(cluster.state(TopicPartition("t", p)) is not None for p in range(3)))
    await until(lambda: cluster.leader_and_isr("t", 2) == (3, (3, 1, 2), 0))

    async def ask(number: int, partition: int) -> str:
        session = cluster.brokers[number].coordinator
        assert session is not None
        request = admin_znodes.RestartRequest(BrokerId(number), (TopicPartition("t", partition),))
        data = admin_znodes.encode_restart_request(request)
        made, _ = await session.create(paths.RESTART_REQUEST_PREFIX, data, sequential=True)
        return made

    async with asyncio.TaskGroup() as tasks:
        asked = [tasks.create_task(ask(2, 0)), tasks.create_task(ask(3, 1))]
    names = [task.result() for task in asked]
    assert len(set(names)) == 2 and all(name.startswith(paths.RESTART_PARTITIONS) for name in names)
    await until(lambda: all(cluster.zookeeper.peek(name) is None for name in names))
    assert cluster.leader_and_isr("t", 0) == (1, (1, 3), 1)
    assert cluster.leader_and_isr("t", 1) == (2, (2, 1), 1)
    assert cluster.leader_and_isr("t", 2) == (3, (3, 1, 2), 0), "nobody asked about this one"
    assert sorted(cluster.brokers) == [1, 2, 3] and cluster.brokers[1].brokers == (1, 2, 3)
