"""Leaderships go back to the preferred replicas without a request, where too many are elsewhere."""

from __future__ import annotations

import pytest

from kafkalite.controller.decisions.balance import on_balance_due
from kafkalite.controller.decisions.effects import ReadStates
from kafkalite.controller.decisions.events import BalanceDue, PreferredElection
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
from kafkalite.rpc.messages.control import IsrChange, IsrChangedRequest
from tests.support.waiting import until
from tests.unit.controller.cluster import Cluster

ONE, TWO = BrokerId(1), BrokerId(2)


def led_by(leader: BrokerId, isr: tuple[BrokerId, ...] = (ONE, TWO)) -> LeaderAndIsr:
    return LeaderAndIsr(leader, LeaderEpoch(1), isr, ControllerEpoch(1), PartitionEpoch(1))


def state(
    *leaders: LeaderAndIsr, live: tuple[int, ...] = (1, 2), moves: dict[int, ReassignmentProgress] | None = None
) -> ControllerState:
    """Partitions of t whose preferred leader is broker 1."""
    numbers = range(len(leaders))
    return ControllerState(
        BrokerId(9),
        ControllerEpoch(1),
        brokers={
            BrokerId(n): BrokerInfo(BrokerId(n), BrokerEpoch(n), Endpoint("h", n), Endpoint("h", n)) for n in live
        },
        topics={"t": Topic(TopicId("id"), dict.fromkeys(numbers, (ONE, TWO)), moves=moves or {})},
        partitions={TopicPartition("t", n): leaders[n] for n in numbers},
    )


def chosen(before: ControllerState, percentage: int = 10) -> list[int]:
    _, effects = on_balance_due(before, BalanceDue(percentage))
    if not effects:
        return []
    (read,) = effects
    assert isinstance(read, ReadStates) and read.purpose == PreferredElection(-1)
    return [partition.partition for partition in read.partitions]


def test_what_is_given_back() -> None:
    assert chosen(state(led_by(ONE), led_by(TWO))) == [1]
    assert chosen(state(led_by(ONE), led_by(TWO)), percentage=50) == [], "as much as is allowed"
    assert chosen(state(led_by(ONE), led_by(ONE))) == []
    assert chosen(state(led_by(TWO), led_by(TWO, (TWO,)))) == [0], "not in sync"
    assert chosen(state(led_by(TWO), live=(2,))) == [], "not alive"
    assert chosen(state(led_by(TWO), led_by(TWO), moves={0: ReassignmentProgress((TWO, ONE), (ONE, TWO))})) == [1], (
        "being reassigned"
    )
    files_on_a_dead_broker = {0: ReassignmentProgress((ONE, TWO), (ONE, TWO), dropping=(BrokerId(3),))}
    assert chosen(state(led_by(TWO), moves=files_on_a_dead_broker)) == [0], (
        "only files on a dead broker are left of the move"
    )


@pytest.mark.parametrize("enabled", [True, False])
async def test_a_broker_that_came_back_leads_again(*, enabled: bool) -> None:
    cluster = Cluster(auto_leader_rebalance_enable=enabled, leader_imbalance_check_interval_seconds=1)
    try:
        for number in (1, 2):
            await cluster.start_broker(number)
        controller = await cluster.start_controller(9)
        await until(lambda: controller.is_active)
        cluster.create_topic("t", {0: (1, 2), 1: (2, 1)})
        await until(lambda: cluster.leader_and_isr("t", 1) is not None)
        cluster.put_state(TopicPartition("t", 0), 2, (1, 2), leader_epoch=1)
        leader = cluster.brokers[2]
        known = cluster.state(TopicPartition("t", 0))
        assert known is not None
        change = IsrChange("t", 0, known.leader_epoch, known.isr, known.partition_epoch)
        controller.on_isr_changed(IsrChangedRequest(leader.broker_id, leader.epoch, (change,)))
        if enabled:
            await until(lambda: (cluster.leader_and_isr("t") or (0,))[0] == 1)
        else:
            assert (cluster.leader_and_isr("t") or (0,))[0] == 2
    finally:
        await cluster.close()
