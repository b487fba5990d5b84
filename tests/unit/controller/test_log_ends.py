"""Before a replica leads that may lack committed records, those that are alive say how far their logs go (KIP-966)."""

from __future__ import annotations

import asyncio
from dataclasses import replace
from typing import Any

import pytest

from kafkalite.config import TopicConfig
from kafkalite.controller.decisions import partition_changes
from kafkalite.controller.decisions.effects import Decision
from kafkalite.controller.decisions.events import StatesRead
from kafkalite.controller.decisions.state import ControllerState, Elsewhere
from kafkalite.model import NO_LEADER, BrokerId, LeaderEpoch, Offset, TopicId, TopicPartition
from kafkalite.rpc.client import RpcConnection
from kafkalite.rpc.messages.replication import LogEnd
from tests.support.waiting import until
from tests.unit.controller.cluster import Cluster, running

T0 = TopicPartition("t", 0)


def end(epoch: int, offset: int) -> tuple[LogEnd, ...]:
    return (LogEnd("t", 0, LeaderEpoch(epoch), Offset(offset)),)


async def _elected(cluster: Cluster) -> tuple[int, tuple[int, ...], int]:
    """3 is alone in the ISR, and dies: who leads."""
    cluster.topic_configs["t"] = TopicConfig(unclean_leader_election_enable=True)
    cluster.create_topic("t", {0: (1, 2, 3)})
    cluster.put_state(T0, 3, (3,), leader_epoch=4)
    controller = await cluster.start_controller(1)
    await until(lambda: controller.is_active)
    await cluster.stop_broker(3)
    await until(lambda: (cluster.leader_and_isr("t") or (0, (), 0))[2] > 4)
    await until(lambda: controller.stats.unclean_elections == 1)  # counted when the write is answered
    found = cluster.leader_and_isr("t")
    assert found is not None
    return found


@pytest.mark.parametrize(
    ("first", "second", "leader"),
    [
        (end(4, 10), end(4, 11), 2),
        (end(4, 11), end(4, 11), 1),
        (end(3, 90), end(4, 11), 2),  # the later leader epoch counts first
        (None, end(4, 0), 2),  # an older node does not know the question
        (end(0, 0), None, 1),
        (None, None, 1),
        ((), end(-1, 0), 2),  # its log cannot be read
        ((replace(end(9, 99)[0], topic_id=TopicId("former")),), end(4, 0), 2),  # of a deleted topic of that name
    ],
)
async def test_the_most_complete_replica_leads(
    cluster: Cluster, first: tuple[LogEnd, ...] | None, second: tuple[LogEnd, ...] | None, leader: int
) -> None:
    await cluster.start_broker(1, log_ends=first)
    await cluster.start_broker(2, log_ends=second)
    await cluster.start_broker(3)
    assert await _elected(cluster) == (leader, (leader,), 5)


async def test_who_does_not_answer_is_not_waited_for_longer_than_a_while(
    cluster: Cluster, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr("kafkalite.controller.log_ends.WAIT_S", 1.0)
    silent = await cluster.start_broker(1, log_ends=end(4, 100))
    await cluster.start_broker(2, log_ends=end(4, 10))
    await cluster.start_broker(3)
    silent.hung = asyncio.Event()
    try:
        assert await _elected(cluster) == (2, (2,), 5)
    finally:
        silent.hung.set()


async def test_a_partition_whose_leader_is_clear_does_not_wait(cluster: Cluster) -> None:
    """Another one, which has to ask, is decided afterwards."""
    await running(cluster, 3)
    cluster.topic_configs["t"] = TopicConfig(unclean_leader_election_enable=True)
    cluster.create_topic("t", {0: (1, 2, 3)})
    cluster.create_topic("u", {0: (3, 1)})
    await until(lambda: cluster.leader_and_isr("u") is not None and cluster.leader_and_isr("t") is not None)
    await cluster.stop_broker(3)
    await until(lambda: (cluster.leader_and_isr("u") or (3,))[0] == 1)


async def test_a_broker_that_does_not_know_its_epoch_yet_is_asked_again(
    cluster: Cluster, monkeypatch: pytest.MonkeyPatch
) -> None:
    """ZooKeeper has shown its registration to the controller, and has not answered the broker: its log counts."""
    early = 0

    class Connections:
        @staticmethod
        async def open(*arguments: Any, **options: Any) -> RpcConnection:
            nonlocal early
            connection = await RpcConnection.open(*arguments, **options)
            if connection.peer.node_id == 2 and connection.peer.broker_epoch < second.registered:
                early += 1
                if early == 2:
                    second.learn_epoch()
            return connection

    monkeypatch.setattr("kafkalite.controller.log_ends.RpcConnection", Connections)
    await cluster.start_broker(1, log_ends=end(4, 10))
    await cluster.start_broker(3)
    cluster.topic_configs["t"] = TopicConfig(unclean_leader_election_enable=True)
    cluster.create_topic("t", {0: (1, 2, 3)})
    cluster.put_state(T0, 3, (3,), leader_epoch=4)
    controller = await cluster.start_controller(1)
    await until(lambda: controller.is_active)
    second = await cluster.start_broker(2, log_ends=end(4, 100), knows_epoch=False)
    await until(lambda: controller.state is not None and 2 in controller.state.brokers)
    await cluster.stop_broker(3)
    await until(lambda: cluster.leader_and_isr("t") == (2, (2,), 5))
    assert early == 2


async def test_the_decision_hears_which_logs_may_lack_records(
    cluster: Cluster, monkeypatch: pytest.MonkeyPatch
) -> None:
    heard: list[StatesRead] = []
    decided = partition_changes.on_states_read

    def listen(state: ControllerState, event: StatesRead) -> Decision:
        heard.append(event)
        return decided(state, event)

    monkeypatch.setattr(partition_changes, "on_states_read", listen)
    await cluster.start_broker(1, log_ends=end(4, 10))
    await cluster.start_broker(2, log_ends=(replace(*end(4, 11), is_doubtful=True),))
    await cluster.start_broker(3)
    assert await _elected(cluster) == (2, (2,), 5)
    assert [event.doubtful for event in heard if event.log_ends] == [{T0: {2}}]


@pytest.mark.checklist("F14")
async def test_all_brokers_are_asked_before_a_partition_begins_again_empty(cluster: Cluster) -> None:
    """Its replicas have no log any more; a broker that ZooKeeper does not name has one of this topic, another one of an earlier topic."""
    cluster.create_topic("t", {0: (1,)})
    cluster.put_state(T0, 1, (1,), leader_epoch=4)
    other = replace(*end(9, 0), topic_id=TopicId("A" * 22), is_stray=True)
    await cluster.start_broker(1, log_ends=end(-1, 0), missing=(T0,))
    await cluster.start_broker(2, log_ends=(other,))
    await cluster.start_broker(3, log_ends=(other, replace(*end(7, 0), topic_id=TopicId("id-t"), is_stray=True)))
    controller = await cluster.start_controller(1)
    await until(lambda: controller.state is not None and T0 in controller.state.elsewhere)
    assert controller.state is not None
    assert controller.state.elsewhere[T0] == Elsewhere((BrokerId(3),), ())
    await until(lambda: (cluster.leader_and_isr("t") or (0,))[0] == NO_LEADER)
