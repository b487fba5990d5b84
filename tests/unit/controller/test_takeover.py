"""A controller dies at any of its writes, before or after it is applied; the next one finishes the work (controller design D)."""

from __future__ import annotations

import asyncio
from collections.abc import Callable, Sequence
from typing import cast

import pytest

from kafkalite.controller.controller_election import ControllerElection
from kafkalite.controller.zk_access import Connectivity
from kafkalite.coordination import admin_znodes, cluster_znodes, paths
from kafkalite.coordination.coordinator import Coordinator, Create, Op, OpResult, SetData
from kafkalite.model import BrokerId, ControllerEpoch, TopicPartition
from kafkalite.testing.simulated.zookeeper import Fate
from tests.support.waiting import until
from tests.unit.controller.cluster import Cluster

T0, T1, U0 = TopicPartition("t", 0), TopicPartition("t", 1), TopicPartition("u", 0)


async def create_topic(cluster: Cluster) -> Callable[[], bool]:
    cluster.create_topic("new", dict.fromkeys(range(3), (1, 2, 3)))
    return lambda: all(cluster.leader_and_isr("new", p) == (1, (1, 2, 3), 0) for p in range(3))


async def kill_broker(cluster: Cluster) -> Callable[[], bool]:
    await cluster.stop_broker(1)
    return lambda: (
        cluster.leader_and_isr("t", 0) in [(2, (2, 3), 1)]
        and cluster.leader_and_isr("t", 1) == (2, (2, 3), 1)
        and cluster.leader_and_isr("u", 0) == (3, (3,), 1)
    )


async def delete_topic(cluster: Cluster) -> Callable[[], bool]:
    cluster.zookeeper.poke(Create(paths.DELETE_TOPICS, admin_znodes.encode_delete_topics(["t"])))
    gone = [paths.topic("t"), paths.config_topic("t"), paths.DELETE_TOPICS]
    return lambda: (
        all(cluster.zookeeper.peek(path) is None for path in gone)
        and all(T0 not in broker.roles and T0 not in broker.metadata for broker in cluster.brokers.values())
        and cluster.leader_and_isr("u", 0) == (3, (3, 1), 0)
    )


async def elect_preferred(cluster: Cluster) -> Callable[[], bool]:
    cluster.put_state(T0, 3, (1, 2, 3), leader_epoch=4)
    order = admin_znodes.encode_preferred_election([T0, T1])
    cluster.zookeeper.poke(Create(paths.PREFERRED_REPLICA_ELECTION, order))
    return lambda: (
        cluster.leader_and_isr("t", 0) == (1, (1, 2, 3), 5)
        and cluster.zookeeper.peek(paths.PREFERRED_REPLICA_ELECTION) is None
    )


def roles_are_those_in_zookeeper(cluster: Cluster) -> bool:
    """Every live replica's role, and what every broker tells clients, is the durable one (controller design, overview)."""
    durable = {partition: cluster.state(partition) for partition in (T0, T1, U0)}
    durable |= {TopicPartition("new", p): cluster.state(TopicPartition("new", p)) for p in range(3)}
    for broker in cluster.brokers.values():
        for partition, state in durable.items():
            told, role = broker.metadata.get(partition), broker.roles.get(partition)
            if state is None:
                if told is not None or role is not None:
                    return False
            elif (
                told is None
                or (told.leader, told.isr, told.leader_epoch)
                != (
                    state.leader,
                    state.isr,
                    state.leader_epoch,
                )
                or (broker.broker_id in told.replicas and (role is None or role.leader_epoch != state.leader_epoch))
            ):
                return False
    return True


@pytest.mark.checklist(36)
@pytest.mark.checklist(2)
@pytest.mark.checklist(35)
@pytest.mark.checklist(9)
@pytest.mark.parametrize("fate", [Fate.LOSE_REQUEST, Fate.LOSE_REPLY])
@pytest.mark.parametrize("write", range(4))
@pytest.mark.parametrize("operation", [create_topic, kill_broker, delete_topic, elect_preferred])
async def test_next_controller_finishes(
    cluster: Cluster, operation: Callable[[Cluster], object], write: int, fate: Fate
) -> None:
    for number in (1, 2, 3):
        await cluster.start_broker(number)
    await cluster.start_controller(1)
    cluster.create_topic("t", {0: (1, 2, 3), 1: (2, 3, 1)})
    cluster.create_topic("u", {0: (3, 1)})
    everything = {T0, T1, U0}
    await until(lambda: all(broker.metadata.keys() == everything for broker in cluster.brokers.values()))
    await cluster.start_controller(2)
    await until(lambda: cluster.controllers[2].controller_id == 1)
    writes = 0

    def die_at_that_write(host: str, request: object) -> Fate:
        nonlocal writes
        if host != "controller-1" or not getattr(request, "ops", ()):
            return Fate.SERVE
        writes += 1
        if writes <= write:
            return Fate.SERVE
        if writes == write + 1:
            asyncio.get_running_loop().call_soon(cluster.zookeeper.expire, "controller-1")
        return fate

    cluster.zookeeper.decide_fate = die_at_that_write
    finished = await operation(cluster)  # type: ignore[misc]
    await until(finished)
    cluster.zookeeper.decide_fate = None
    if cluster.tasks[1].done():
        await until(lambda: cluster.controllers[2].is_active)
        assert cluster.controllers[2].epoch == 2
    await until(lambda: roles_are_those_in_zookeeper(cluster))


async def test_a_node_that_was_killed_does_not_wait_for_its_own_session_to_end() -> None:
    """Nobody else may be there to notice that the controller is gone: a node alone waited for the session timeout."""
    cluster = Cluster()
    try:
        await cluster.start_broker(1)
        await cluster.start_controller(1)
        await until(lambda: cluster.controllers[1].is_active)
        killed = cluster.sessions[1].session_id
        cluster.tasks.pop(1).cancel()
        stranger = await cluster.start_controller(2)
        again = await cluster.start_controller(1, dead_sessions={killed})
        await until(lambda: again.is_active or stranger.is_active)
        assert killed in cluster.zookeeper.session_ids("controller-1")  # it has not ended
        found = cluster.zookeeper.peek(paths.CONTROLLER_EPOCH)
        assert found is not None
        assert cluster_znodes.decode_controller_epoch(found[0]) == 2
    finally:
        await cluster.close()


class Interposed:
    """A coordinator before whose first transaction something happens."""

    def __init__(self, coordinator: Coordinator, happens: Callable[[], object]) -> None:
        self._coordinator = coordinator
        self._happens: Callable[[], object] | None = happens

    def __getattr__(self, name: str) -> object:
        return getattr(self._coordinator, name)

    async def multi(self, ops: Sequence[Op]) -> list[OpResult]:
        happens, self._happens = self._happens, None
        if happens is not None:
            happens()
        return await self._coordinator.multi(ops)


async def test_another_nodes_office_is_not_taken_for_that_of_an_earlier_life() -> None:
    """The earlier session ends, and another controller is elected, between the look at the owner and the removal."""
    cluster = Cluster()
    try:
        await cluster.start_controller(1)
        await until(lambda: cluster.controllers[1].is_active)
        killed = cluster.sessions[1].session_id
        cluster.tasks.pop(1).cancel()

        def another_is_elected() -> None:
            cluster.zookeeper.expire("controller-1")
            cluster.zookeeper.poke(
                SetData(paths.CONTROLLER_EPOCH, cluster_znodes.encode_controller_epoch(ControllerEpoch(2))),
                Create(paths.CONTROLLER, cluster_znodes.encode_controller(BrokerId(7), 0)),
            )

        session = await cluster.connect("again")
        interposed = cast("Coordinator", Interposed(session, another_is_elected))
        candidate = ControllerElection(
            interposed, Connectivity(session), BrokerId(1), cluster.env("again").clock, lambda: {killed}
        )
        race = asyncio.create_task(candidate.win())
        await until(lambda: candidate.seen == 7)
        race.cancel()
        found = cluster.zookeeper.peek(paths.CONTROLLER)
        assert found is not None
        assert cluster_znodes.decode_controller(found[0]).broker_id == 7
    finally:
        await cluster.close()
