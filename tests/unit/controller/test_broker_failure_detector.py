"""Failover before a session ends: closed connections, unanswered heartbeats, wrong suspicions."""

from __future__ import annotations

import asyncio
import time
from collections.abc import AsyncIterator

import pytest

from kafkalite.controller import broker_failure_detector as liveness
from kafkalite.model import BrokerId, TopicPartition
from kafkalite.rpc.messages.control import IsrChange, IsrChangedRequest, LeaderAndIsrRequest
from tests.support.waiting import until
from tests.unit.controller.cluster import Cluster

T0 = TopicPartition("t", 0)
#: The patience of `quick`, in milliseconds.
QUICK_MS = 500


@pytest.fixture
async def quick() -> AsyncIterator[Cluster]:
    """Sessions that outlast the test: what moves, moves because of what is seen on the network."""
    made = Cluster(broker_heartbeat_interval_ms=20, broker_heartbeat_timeout_ms=QUICK_MS)
    yield made
    await made.close()


@pytest.fixture
async def patient() -> AsyncIterator[Cluster]:
    """As quick, but silence alone makes nobody suspect: a loaded machine is silent, too. Closed connections do."""
    made = Cluster(broker_heartbeat_interval_ms=20, broker_heartbeat_timeout_ms=15_000)
    yield made
    await made.close()


async def running(cluster: Cluster, brokers: int = 3) -> None:
    for number in range(1, brokers + 1):
        await cluster.start_broker(number)
    controller = await cluster.start_controller(9)
    everyone = tuple(sorted(cluster.brokers))
    await until(lambda: controller.is_active and all(b.brokers == everyone for b in cluster.brokers.values()))


async def test_a_process_that_has_died_loses_its_leaderships_at_once(patient: Cluster) -> None:
    await running(patient)
    patient.create_topic("t", {0: (1, 2, 3), 1: (1,)})
    await until(lambda: patient.leader_and_isr("t", 1) is not None)
    await patient.brokers[1].server.close()  # its sockets close; its session lives on
    await until(lambda: patient.leader_and_isr("t") == (2, (2, 3), 1))
    await until(lambda: patient.brokers[2].brokers == (2, 3))
    assert patient.leader_and_isr("t", 1) == (1, (1,), 0)  # nobody else could lead it
    patient.zookeeper.expire("broker-1")
    await until(lambda: patient.leader_and_isr("t", 1) == (-1, (1,), 1))
    broker = await patient.start_broker(1)
    await until(lambda: patient.leader_and_isr("t", 1) == (1, (1,), 2) and T0 in broker.roles)


async def test_a_process_that_comes_back_before_its_old_session_ends(patient: Cluster) -> None:
    await running(patient)
    patient.create_topic("t", {0: (1, 2, 3), 1: (1,)})
    await until(lambda: patient.leader_and_isr("t", 1) is not None)
    await patient.brokers[1].server.close()
    await until(lambda: patient.leader_and_isr("t") == (2, (2, 3), 1))
    patient.zookeeper.expire("broker-1")
    broker = await patient.start_broker(1)
    await until(lambda: T0 in broker.roles)
    # In one step or in two: the end of its session may be noticed before it is back.
    await until(lambda: patient.leader_and_isr("t", 1) in ((1, (1,), 1), (1, (1,), 2)))


@pytest.mark.checklist(63)
async def test_a_hung_process_comes_back_as_a_follower(quick: Cluster) -> None:
    await running(quick)
    quick.create_topic("t", {0: (1, 2, 3)})
    await until(lambda: quick.leader_and_isr("t") is not None)
    first = quick.brokers[1]
    for _ in range(2):
        silent = first.silent = asyncio.Event()
        await until(lambda: 1 not in (quick.leader_and_isr("t") or (1, (1,)))[1])
        assert (quick.leader_and_isr("t") or (1,))[0] == 2
        first.commands.clear()
        first.silent = None
        silent.set()
        await until(lambda: any(isinstance(each, LeaderAndIsrRequest) and each.is_init for each in first.commands))
        assert first.roles[T0].leader == 2
        state = quick.state(T0)
        assert state is not None
        quick.put_state(T0, 2, (2, 3, 1), leader_epoch=state.leader_epoch)  # it has caught up
        leader = quick.brokers[2]
        change = IsrChange("t", 0, state.leader_epoch, state.isr, state.partition_epoch)
        quick.controllers[9].on_isr_changed(IsrChangedRequest(leader.broker_id, leader.epoch, (change,)))
        await until(lambda: first.metadata[T0].isr == (2, 3, 1))


async def test_a_slow_broker_is_trusted_and_gets_new_partitions(quick: Cluster) -> None:
    """On a host without a free processor: each of its answers came later than the timeout, so it remained suspected, and what has its only
    replica there had no leader for as long as that lasted."""
    await running(quick)
    slow = quick.brokers[1]
    slow.heartbeat_s = 2 * QUICK_MS / 1000
    controller = quick.controllers[9]
    await until(lambda: controller.state is not None and bool(controller.state.suspects))
    quick.create_topic("t", {0: (1,)})
    await until(lambda: quick.leader_and_isr("t") == (1, (1,), 0) and T0 in slow.roles)


async def test_a_controller_that_was_replaced_for_its_silence_is_not_waited_for_again() -> None:
    """If it led partitions, too, these waited for its silence twice: for another controller, and then for other leaders."""
    cluster = Cluster(broker_heartbeat_interval_ms=20, broker_heartbeat_timeout_ms=3_600_000)
    try:
        await running(cluster)
        cluster.create_topic("t", {0: (1, 2, 3)})
        await until(lambda: cluster.leader_and_isr("t") == (1, (1, 2, 3), 0))
        await cluster.stop_controller(9)
        silent = cluster.brokers[1].silent = asyncio.Event()
        await cluster.start_controller(8, last_heard=(BrokerId(1), float("-inf")))
        await until(lambda: cluster.leader_and_isr("t") == (2, (2, 3), 1))
        silent.set()
    finally:
        await cluster.close()


async def test_nobody_is_suspected_when_everybody_is_silent(quick: Cluster) -> None:
    await running(quick)
    quick.create_topic("t", {0: (1, 2, 3)})
    await until(lambda: quick.leader_and_isr("t") is not None)
    events = [asyncio.Event() for _ in range(3)]
    for broker, event in zip(quick.brokers.values(), events, strict=True):
        broker.silent = event
    controller = quick.controllers[9]
    await until(lambda: controller.state is not None and len(controller.state.suspects) >= 1)
    loop = asyncio.get_running_loop()
    until_s = loop.time() + 3 * QUICK_MS / 1000
    while loop.time() < until_s:
        await asyncio.sleep(0.01)
        assert controller.state is not None and len(controller.state.suspects) <= 2
    for broker, event in zip(quick.brokers.values(), events, strict=True):
        broker.silent = None
        event.set()
    await until(lambda: controller.state is not None and not controller.state.suspects)


async def test_who_takes_over_much_may_be_silent_for_longer(quick: Cluster, monkeypatch: pytest.MonkeyPatch) -> None:
    """Seen with 3,300 partitions on two cores: the new leader was busy, was suspected as well, and nothing could commit."""
    monkeypatch.setattr(liveness, "STRAIN_PER_PARTITION_S", liveness.MAX_STRAIN_S)
    monkeypatch.setattr(liveness, "STRAINED_FACTOR", 1_000)
    monkeypatch.setattr(liveness, "CALM_ANSWERS", 1_000)
    await running(quick, 4)
    quick.create_topic("t", {0: (1, 2, 3, 4)})
    await until(lambda: quick.leader_and_isr("t") is not None)
    await quick.brokers[1].server.close()
    await until(lambda: quick.leader_and_isr("t") == (2, (2, 3, 4), 1))
    busy = quick.brokers[2].silent = asyncio.Event()
    loop = asyncio.get_running_loop()
    until_s = loop.time() + 3 * QUICK_MS / 1000  # three times its usual patience
    while loop.time() < until_s:
        await asyncio.sleep(0.01)
        assert quick.leader_and_isr("t") == (2, (2, 3, 4), 1)
    await quick.brokers[3].server.close()  # who is surely dead is gone as quickly as ever
    await until(lambda: quick.leader_and_isr("t") == (2, (2, 4), 2))
    quick.brokers[2].silent = None
    busy.set()


async def test_who_has_long_answered_again_is_not_waited_for(quick: Cluster, monkeypatch: pytest.MonkeyPatch) -> None:
    """A second broker that stops within ten seconds of the first one's failover was missed for eight."""
    monkeypatch.setattr(liveness, "STRAIN_PER_PARTITION_S", liveness.MAX_STRAIN_S)
    monkeypatch.setattr(liveness, "STRAINED_FACTOR", 1_000)
    await running(quick, 4)
    quick.create_topic("t", {0: (1, 2, 3, 4)})
    await until(lambda: quick.leader_and_isr("t") is not None)
    await quick.brokers[1].server.close()
    await until(lambda: quick.leader_and_isr("t") == (2, (2, 3, 4), 1))
    answered = quick.brokers[2].heartbeats
    await until(lambda: quick.brokers[2].heartbeats > answered + liveness.CALM_ANSWERS)
    quick.brokers[2].silent = silent = asyncio.Event()
    await until(lambda: quick.leader_and_isr("t") == (3, (3, 4), 2))
    quick.brokers[2].silent = None
    silent.set()


async def test_a_controller_that_was_stopped_itself_gives_everybody_the_whole_time_again() -> None:
    """Its loop stands still for longer than its patience; then the brokers take a part of that to answer."""
    cluster = Cluster(broker_heartbeat_interval_ms=20, broker_heartbeat_timeout_ms=1_000)
    try:
        await running(cluster)
        slow = asyncio.Event()
        for broker in cluster.brokers.values():
            broker.silent = slow
        time.sleep(1.7)  # noqa: ASYNC251 - this IS the pause
        await asyncio.sleep(0.2)
        slow.set()
        for broker in cluster.brokers.values():
            broker.silent = None
        heard = cluster.controllers[9].stats.events
        await asyncio.sleep(0)
        assert heard["BrokerSuspected"] == 0
    finally:
        await cluster.close()


async def test_a_new_controller_does_not_count_on_registrations_of_the_dead(patient: Cluster) -> None:
    """All are gone, one is back, and nobody's session has ended: the ISR was left to those who were not there."""
    await running(patient)
    patient.create_topic("t", {0: (1, 2, 3)})
    await until(lambda: patient.leader_and_isr("t") is not None)
    await patient.stop_controller(9)
    for number in (1, 2, 3):
        await patient.brokers[number].server.close()
    patient.zookeeper.expire("broker-3")
    await patient.start_broker(3)
    await patient.start_controller(8)
    await until(lambda: (patient.leader_and_isr("t") or (0, ()))[:2] == (3, (3,)))
    assert set(patient.controllers[8].state.suspects) == {1, 2}  # type: ignore[union-attr]
