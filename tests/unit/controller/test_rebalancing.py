"""Drains and the balancer in a running controller, against a ZooKeeper in memory and brokers on real connections."""

from __future__ import annotations

import asyncio
import dataclasses

import pytest

from kafkalite.controller.decisions.balance_view import DiskRoom, PartitionLoad
from kafkalite.controller.decisions.balancer import Balancer
from kafkalite.controller.decisions.effects import Note, WriteTopics
from kafkalite.controller.decisions.events import BalancerDue, BalancerSettings
from kafkalite.controller.decisions.rebalancing import MAX_ADVISED, leaving_replicas, on_balancer_due
from kafkalite.controller.decisions.state import ControllerState, Topic
from kafkalite.errors import ApiError
from kafkalite.extension.messages.balancing import DescribeBalanceRequest
from kafkalite.model import (
    BrokerEpoch,
    BrokerId,
    BrokerInfo,
    ControllerEpoch,
    Endpoint,
    LeaderAndIsr,
    LeaderEpoch,
    PartitionEpoch,
    Replicas,
    TopicId,
    TopicPartition,
)
from tests.support.waiting import until
from tests.unit.controller.cluster import Cluster, running
from tests.unit.controller.copying import Copying

ON = BalancerSettings("on")


def state_of(assignment: dict[int, tuple[int, ...]], live: tuple[int, ...] = (1, 2, 3, 4)) -> ControllerState:
    """One topic t; the first replica leads, all are in sync."""
    replicas = {number: tuple(map(BrokerId, each)) for number, each in assignment.items()}
    return ControllerState(
        BrokerId(9),
        ControllerEpoch(1),
        brokers={
            BrokerId(n): BrokerInfo(BrokerId(n), BrokerEpoch(n), Endpoint("h", n), Endpoint("h", n)) for n in live
        },
        topics={"t": Topic(TopicId("id"), replicas)},
        partitions={
            TopicPartition("t", number): LeaderAndIsr(
                each[0], LeaderEpoch(0), each, ControllerEpoch(1), PartitionEpoch(0)
            )
            for number, each in replicas.items()
        },
    )


def targets(state: ControllerState, event: BalancerDue) -> dict[int, tuple[int, ...]]:
    _, effects = on_balancer_due(state, event)
    return {
        number: move.target
        for effect in effects
        if isinstance(effect, WriteTopics)
        for change in effect.changes
        for number, move in change.topic.moves.items()
    }


def closed(**states: int) -> dict[BrokerId, str]:
    return {BrokerId(broker): kind for kind, broker in states.items()}


def test_the_mode_says_who_moves() -> None:
    uneven = state_of(dict.fromkeys(range(6), (1, 2)))
    assert targets(uneven, BalancerDue(ON))
    assert not targets(uneven, BalancerDue(BalancerSettings("off")))
    advised, effects = on_balancer_due(uneven, BalancerDue(BalancerSettings("advise")))
    assert [effect.event for effect in effects if isinstance(effect, Note)] == ["balancer.advice"]
    assert advised.topics == uneven.topics and advised.advised_moves > 0
    assert not on_balancer_due(advised, BalancerDue(BalancerSettings("advise")))[1], "it is said once"


def test_a_plan_of_many_partitions_looks_at_few_of_them(monkeypatch: pytest.MonkeyPatch) -> None:
    """A plan for an advice took 0.9 s of the loop with 10,000 partitions, and the controller lost its lease once a minute: for each move, all
    partitions of a broker were sorted. What was advised is not planned again."""
    uneven = state_of({number: (number % 3 + 1,) for number in range(3_000)})
    looked_at = 0
    loads_of = Balancer.loads_of

    def counted(self: Balancer, partition: TopicPartition, replicas: Replicas, at: int) -> tuple[float, ...]:
        nonlocal looked_at
        looked_at += 1
        return loads_of(self, partition, replicas, at)

    monkeypatch.setattr(Balancer, "loads_of", counted)
    advise = BalancerDue(BalancerSettings("advise"))
    advised, _ = on_balancer_due(uneven, advise)
    assert advised.advised_moves == MAX_ADVISED
    assert looked_at < 15 * 3_000
    looked_at = 0
    assert on_balancer_due(advised, advise) == (advised, [])
    assert looked_at <= 2 * 3_000


def test_a_drain_needs_no_mode_and_keeps_to_the_number_of_moves() -> None:
    draining = BalancerDue(BalancerSettings("off", max_moves=2, throttle=77), closed(draining=1))
    state = state_of({0: (1, 2), 1: (2, 1), 2: (3, 1), 3: (2, 3)})
    moves = targets(state, draining)
    assert sorted(moves) == [0, 1] and all(1 not in target for target in moves.values())
    _, effects = on_balancer_due(state, draining)
    (write,) = [effect for effect in effects if isinstance(effect, WriteTopics)]
    after = dataclasses.replace(state, topics={"t": write.changes[0].topic})
    assert {move.throttle for move in after.topics["t"].moves.values()} == {77}
    assert leaving_replicas(state) == {} and leaving_replicas(after) == {1: 2}, "until the move is over it has them"
    assert not targets(after, draining).keys() - {0, 1}, "as many as may be are under way"


def test_what_cannot_leave_is_told() -> None:
    event = BalancerDue(ON, closed(draining=1))
    after, _ = on_balancer_due(state_of({0: (1, 2, 3)}, live=(1, 2, 3)), event)
    assert after.stuck == {TopicPartition("t", 0): "every broker that takes new replicas (2, 3) has one already"}


def test_a_lost_broker_is_replaced_only_if_the_balancer_is_on() -> None:
    state = state_of({0: (2, 5), 1: (3, 2)})
    assert all(5 not in target for target in targets(state, BalancerDue(ON, gone=frozenset({BrokerId(5)}))).values())
    assert 0 in targets(state, BalancerDue(ON, gone=frozenset({BrokerId(5)})))
    assert not targets(state, BalancerDue(BalancerSettings("advise"), gone=frozenset({BrokerId(5)})))


def test_it_begins_above_the_tolerance_and_goes_on_below_it() -> None:
    sizes = {TopicPartition("t", n): PartitionLoad(10**9) for n in range(24)}
    even: dict[int, tuple[int, ...]] = {number: (1 + number % 4,) for number in range(24)}
    assert not targets(state_of(even), BalancerDue(ON, loads=sizes))
    # One replica more and one less than the mean of six is more than half of the tolerance of 20 %, and not more than all of it.
    slightly = {**even, 0: (2,)}
    loose = BalancerDue(BalancerSettings("on", tolerance=0.2), loads=sizes)
    assert not targets(state_of(slightly), loose)
    going_on = dataclasses.replace(state_of(slightly), is_spreading=True)
    assert targets(going_on, loose) == {4: (1,)} or len(targets(going_on, loose)) == 1


def test_a_full_disk_takes_nothing_and_gives_something() -> None:
    sizes = {TopicPartition("t", n): PartitionLoad(10**9) for n in range(4)}
    room = {BrokerId(n): DiskRoom(10**10, 9 * 10**9) for n in (1, 2, 3, 4)} | {BrokerId(2): DiskRoom(10**10, 10**9)}
    moves = targets(state_of({0: (1,), 1: (2,), 2: (3,), 3: (4,)}), BalancerDue(ON, loads=sizes, room=room))
    assert list(moves) == [1] and moves[1] != (2,)


@pytest.mark.parametrize("takeover", [False, True])
async def test_a_drain_ends_whoever_is_the_controller(cluster: Cluster, *, takeover: bool) -> None:
    await running(cluster, 4)
    cluster.create_topic("t", dict.fromkeys(range(12), (1, 2, 3)))
    async with Copying(cluster, "t") as copying:
        await until(lambda: all(cluster.leader_and_isr("t", number) for number in range(12)))
        cluster.config = dataclasses.replace(cluster.config, balancer_max_moves=2)
        cluster.broker_states[BrokerId(2)] = "draining"
        cluster.controllers[1].settings_changed()
        await until(lambda: any(2 not in replicas for replicas in copying.existing("t").partitions.values()))
        if takeover:
            await cluster.stop_controller(1)
            await cluster.start_controller(3)
        await until(lambda: not any(2 in each for each in copying.existing("t").partitions.values()), 30)
        await until(lambda: not copying.existing("t").moves, 30)
        assert not cluster.brokers[2].roles, "it holds nothing"
        assert copying.most_under_way <= 2
        assert all(len(replicas) == 3 for replicas in copying.existing("t").partitions.values())


async def test_a_broker_that_joins_gets_replicas_and_leads(cluster: Cluster) -> None:
    cluster.config = dataclasses.replace(cluster.config, balancer_mode="on", balancer_interval_ms=100)
    await running(cluster, 3)
    cluster.create_topic("t", {number: ((1, 2), (2, 3), (3, 1))[number % 3] for number in range(12)})
    async with Copying(cluster, "t") as copying:
        await until(lambda: all(cluster.leader_and_isr("t", number) for number in range(12)))
        await cluster.start_broker(4)

        def leads(broker: int) -> int:
            return sum((cluster.leader_and_isr("t", number) or (0,))[0] == broker for number in range(12))

        await until(lambda: [leads(broker) for broker in (1, 2, 3, 4)] == [3, 3, 3, 3], 150)
        placed = list(copying.existing("t").partitions.values())
        assert [sum(broker in each for each in placed) for broker in (1, 2, 3, 4)] == [6, 6, 6, 6]
        history = cluster.controllers[1].history.of("balancer")
        assert history and all(event.what.startswith("controller.balancer.") for event in history)
        found = await cluster.controllers[1].describe_balance(DescribeBalanceRequest(moves=100))
        assert found.is_even and not found.moves and found.mode == "on"


async def test_only_the_controller_describes_the_balance(cluster: Cluster) -> None:
    await running(cluster, 2)
    cluster.create_topic("t", {0: (1,), 1: (1,), 2: (1,)})
    found = await cluster.controllers[1].describe_balance(DescribeBalanceRequest(moves=1))
    while not found.moves:  # until the controller knows the topic
        await asyncio.sleep(0.01)
        found = await cluster.controllers[1].describe_balance(DescribeBalanceRequest(moves=1))
    assert (found.is_even, len(found.moves)) == (False, 1)
    assert [each.replicas for each in found.brokers] == [3, 0]
    dormant = await cluster.start_controller(2)
    with pytest.raises(ApiError, match="not the controller"):
        await dormant.describe_balance(DescribeBalanceRequest())


async def test_a_term_that_ends_while_the_load_is_asked_for(cluster: Cluster) -> None:
    """The question to the brokers may take seconds. Afterwards there is no term to describe, which is no bug."""
    await running(cluster, 2)
    controller = cluster.controllers[1]
    reports = controller._reports
    assert reports is not None

    async def ask() -> None:
        cluster.tasks[1].cancel()
        await asyncio.wait([cluster.tasks[1]])
        await type(reports).ask(reports)

    reports.ask = ask  # type: ignore[method-assign]
    with pytest.raises(ApiError, match="not the controller"):
        await controller.describe_balance(DescribeBalanceRequest(refresh=True))
