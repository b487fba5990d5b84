"""A leader's notice of a changed ISR counts as heard only by a controller that will act on it, or whose successor reads later."""

from __future__ import annotations

import asyncio

import pytest

from kafkalite.controller import event_loop, isr_notices
from kafkalite.controller.decisions.state import ControllerState, Topic
from kafkalite.coordination import paths
from kafkalite.coordination.coordinator import Delete
from kafkalite.errors import ErrorCode
from kafkalite.model import BrokerEpoch, BrokerId, ControllerEpoch, LeaderEpoch, PartitionEpoch, TopicId, TopicPartition
from kafkalite.rpc.messages.control import IsrChange, IsrChangedRequest
from kafkalite.testing.simulation.plants import PLANTS
from tests.support.waiting import until
from tests.unit.controller.cluster import Cluster, running

T0 = TopicPartition("t", 0)


def notice(cluster: Cluster) -> IsrChangedRequest:
    state = cluster.state(T0)
    assert state is not None
    change = IsrChange("t", 0, state.leader_epoch, state.isr, state.partition_epoch)
    return IsrChangedRequest(cluster.brokers[1].broker_id, cluster.brokers[1].epoch, (change,))


def told(cluster: Cluster) -> set[tuple[int, ...] | None]:
    """The ISRs that brokers tell clients."""
    known = [broker.metadata.get(T0) for broker in cluster.brokers.values()]
    return {None if each is None else each.isr for each in known}


async def change_during_a_failover(cluster: Cluster) -> ErrorCode:
    """The old controller has not seen yet that there is a new one, which has read the state before it changed.

    Returns what the old one says to the notice.
    """
    await running(cluster)
    cluster.create_topic("t", {0: (1, 2, 3)})
    await until(lambda: told(cluster) == {(1, 2, 3)})
    second = await cluster.start_controller(2)
    await until(lambda: second.controller_id == 1)
    cluster.zookeeper.block("controller-1")
    cluster.zookeeper.poke(Delete(paths.CONTROLLER))
    await until(lambda: second.is_active)
    cluster.put_state(T0, 1, (1, 2))
    answer = asyncio.ensure_future(cluster.controllers[1].on_isr_changed(notice(cluster)))
    await asyncio.sleep(0)
    cluster.zookeeper.unblock("controller-1")
    return ErrorCode((await answer).error)


@pytest.mark.checklist("F7")
async def test_a_controller_that_has_a_successor_hears_no_notice(cluster: Cluster) -> None:
    assert await change_during_a_failover(cluster) is ErrorCode.NOT_CONTROLLER
    assert (await cluster.controllers[2].on_isr_changed(notice(cluster))).error == ErrorCode.NONE
    await until(lambda: told(cluster) == {(1, 2)})


async def test_the_planted_bug_loses_the_notice(cluster: Cluster, monkeypatch: pytest.MonkeyPatch) -> None:
    PLANTS["notice"](monkeypatch.setattr)
    assert await change_during_a_failover(cluster) is ErrorCode.NONE
    assert told(cluster) == {(1, 2, 3)}, "nobody says it again, and ZooKeeper has (1, 2)"


@pytest.mark.checklist("F18")
async def test_of_what_replicas_know_the_latest_epoch_counts() -> None:
    """Found by simulation: one was commanded in between, and knew a later epoch. The other's notice came after its own, and nobody led any more."""
    state = ControllerState(
        BrokerId(1), ControllerEpoch(1), topics={"t": Topic(TopicId("id-t"), {0: (BrokerId(2), BrokerId(3))})}
    )
    notices = isr_notices.IsrNotices(None)  # type: ignore[arg-type]
    for broker, epoch in ((2, 3), (3, 2)):
        change = IsrChange(
            "t",
            0,
            LeaderEpoch(epoch),
            (),
            PartitionEpoch(0),
            topic_id=TopicId("id-t"),
            is_ahead=True,
            is_epoch_only=True,
        )
        request = IsrChangedRequest(BrokerId(broker), BrokerEpoch(broker), (change,))
        notices.take(state, request, asyncio.get_running_loop().create_future())
    assert notices.claims()[T0].state.leader_epoch == 3
    notices.close()


@pytest.mark.checklist("F7")
async def test_a_change_without_a_notice_is_found(cluster: Cluster, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(event_loop, "TICK_S", 0.02)
    monkeypatch.setattr(isr_notices, "STATES_PER_CHECK", 2)
    await running(cluster)
    cluster.create_topic("t", dict.fromkeys(range(5), (1, 2, 3)))
    partitions = [TopicPartition("t", number) for number in range(5)]
    await until(lambda: all(each in cluster.brokers[2].metadata for each in partitions))
    for each in partitions:
        cluster.put_state(each, 1, (1, 2))
    await until(lambda: all(cluster.brokers[2].metadata[each].isr == (1, 2) for each in partitions))
    commands = len(cluster.brokers[2].commands)
    reads = cluster.controllers[1].stats.zk_ops["read"]
    await until(lambda: cluster.controllers[1].stats.zk_ops["read"] >= reads + 10)
    assert len(cluster.brokers[2].commands) == commands, "what has not changed is not told again"


async def test_ticks_come_while_there_is_work(cluster: Cluster, monkeypatch: pytest.MonkeyPatch) -> None:
    """They came only after seconds without any work at all."""
    monkeypatch.setattr(event_loop, "TICK_S", 0.02)
    await running(cluster)
    controller = cluster.controllers[1]
    ticks = controller.stats.events["Ticked"]
    async with asyncio.timeout(150):
        while controller.stats.events["Ticked"] < ticks + 3:
            controller.settings_changed()
            await asyncio.sleep(0.001)


@pytest.mark.checklist("F18")
@pytest.mark.parametrize(
    ("known", "has_resigned", "topic_id", "then"),
    [
        ((0, 3, (1, 2)), False, "id-t", (1, (1, 2), 1)),  # the ISR was smaller than in the znode that was put back
        ((4, 0, (1, 2)), False, "id-t", (1, (1, 2), 5)),  # from an earlier leader epoch
        ((4, 0, (1, 2)), True, "id-t", (1, (1, 2), 5)),
        ((0, 0, (1, 2, 3)), True, "id-t", (1, (1, 2, 3), 1)),  # it was shown the past, and does not lead any more
        ((0, 0, (1, 2, 3)), False, "id-t", (1, (1, 2, 3), 0)),
        ((4, 7, (1,)), True, "id-of-another", (1, (1, 2, 3), 0)),  # of the topic that had this name
        ((4, 7, (1,)), True, "", (1, (1, 2, 3), 0)),
    ],
)
async def test_a_leader_that_knows_a_later_state_than_the_znode_leads_in_a_new_epoch(
    cluster: Cluster,
    *,
    known: tuple[int, int, tuple[int, ...]],
    has_resigned: bool,
    topic_id: str,
    then: tuple[int, tuple[int, ...], int],
) -> None:
    """The znode was put back before this controller was elected: it has nothing to compare it with."""
    await running(cluster)
    cluster.create_topic("t", {0: (1, 2, 3)})
    await until(lambda: told(cluster) == {(1, 2, 3)})
    change = IsrChange(
        "t",
        0,
        LeaderEpoch(known[0]),
        tuple(map(BrokerId, known[2])),
        PartitionEpoch(known[1]),
        topic_id=TopicId(topic_id),
        is_ahead=True,
        has_resigned=has_resigned,
    )
    broker = cluster.brokers[1]
    answer = await cluster.controllers[1].on_isr_changed(IsrChangedRequest(broker.broker_id, broker.epoch, (change,)))
    assert answer.error == ErrorCode.NONE
    await until(lambda: cluster.leader_and_isr("t") == then and broker.roles[T0].leader_epoch == then[2])
    plain = IsrChange("t", 0, LeaderEpoch(0), (), PartitionEpoch(0))
    await cluster.controllers[1].on_isr_changed(IsrChangedRequest(broker.broker_id, broker.epoch, (plain,)))
    assert cluster.leader_and_isr("t") == then
