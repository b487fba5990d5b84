"""The cluster's changes where two of them meet: requests and the topics, states and rates that they were made for."""

from __future__ import annotations

import json

import pytest

from kafkalite.coordination import admin_znodes, paths, topic_znodes
from kafkalite.coordination.coordinator import Create, Delete, SetData
from kafkalite.model import BrokerId, TopicId, TopicPartition
from kafkalite.rpc.messages.control import IsrChange, IsrChangedRequest, LeaderAndIsrRequest
from kafkalite.testing.simulated.zookeeper import Fate
from kafkalite.testing.simulated.zookeeper_wire import Read, Request
from tests.support.waiting import until
from tests.unit.controller.cluster import Cluster, running

T0 = TopicPartition("t", 0)
T1 = TopicPartition("t", 1)


@pytest.mark.parametrize("fails_over", [False, True])
@pytest.mark.parametrize("drain", [False, True])
async def test_a_request_for_removal_ends_with_its_topic(cluster: Cluster, *, drain: bool, fails_over: bool) -> None:
    """The partition of a later topic of the same name is not removed because of it."""
    await running(cluster)
    cluster.create_topic("t", dict.fromkeys(range(2), (1, 2, 3)))
    await until(lambda: cluster.leader_and_isr("t", 1) is not None)
    zk = cluster.zookeeper
    data = admin_znodes.encode_partition_remove(admin_znodes.PartitionRemoval(drain=drain))
    if not drain:
        await cluster.stop_broker(3)  # the removal waits for it
    zk.poke(Create(paths.partitions_remove("t")), Create(paths.partition_remove(T1), data))
    if drain:
        await until(lambda: (role := cluster.brokers[1].roles.get(T1)) is not None and role.is_read_only)
    else:
        await until(lambda: T1 not in cluster.brokers[1].metadata)
    zk.poke(Create(paths.DELETE_TOPICS, admin_znodes.encode_delete_topics(["t"])))
    await until(lambda: zk.peek(paths.topic("t")) is None)
    cluster.create_topic("t", dict.fromkeys(range(2), (1, 2)), "id-later")
    await until(lambda: (role := cluster.brokers[1].roles.get(T1)) is not None and role.topic_id == "id-later")
    if fails_over:
        await cluster.stop_controller(1)
        controller = await cluster.start_controller(2)
        await until(lambda: controller.is_active)
    # Another request makes the controller read all of them.
    cluster.create_topic("u", dict.fromkeys(range(2), (1, 2)))
    await until(lambda: cluster.leader_and_isr("u", 1) is not None)
    u1 = TopicPartition("u", 1)
    zk.poke(Create(paths.partitions_remove("u")), Create(paths.partition_remove(u1)))
    await until(lambda: zk.peek(paths.partitions_remove("u")) is None)
    value = zk.peek(paths.topic("t"))
    assert value is not None and sorted(topic_znodes.decode_topic(value[0]).partitions) == [0, 1]
    assert cluster.brokers[1].roles[T1].topic_id == "id-later" and not cluster.brokers[1].roles[T1].is_read_only
    assert zk.peek(paths.partitions_remove("t")) is None


async def test_a_request_for_removal_ends_with_a_topic_that_vanishes(cluster: Cluster) -> None:
    await running(cluster)
    cluster.create_topic("t", dict.fromkeys(range(2), (1, 2)))
    await until(lambda: cluster.leader_and_isr("t", 1) is not None)
    zk = cluster.zookeeper
    drain = admin_znodes.encode_partition_remove(admin_znodes.PartitionRemoval(drain=True))
    zk.poke(Create(paths.partitions_remove("t")), Create(paths.partition_remove(T1), drain))
    await until(lambda: (role := cluster.brokers[1].roles.get(T1)) is not None and role.is_read_only)
    value = topic_znodes.TopicZnode(TopicId("id-later"), dict.fromkeys(range(2), (BrokerId(1), BrokerId(2))))
    zk.poke(SetData(paths.topic("t"), topic_znodes.encode_topic(value)))
    await until(lambda: zk.peek(paths.partitions_remove("t")) is None)


async def test_a_notice_of_an_earlier_drain_is_void(cluster: Cluster) -> None:
    """It was on its way while the request was withdrawn, records came, and the request was repeated."""
    await running(cluster)
    cluster.create_topic("t", dict.fromkeys(range(2), (1, 2)))
    await until(lambda: cluster.leader_and_isr("t", 1) is not None)
    zk, broker = cluster.zookeeper, cluster.brokers[1]
    request = Create(
        paths.partition_remove(T1), admin_znodes.encode_partition_remove(admin_znodes.PartitionRemoval(drain=True))
    )
    zk.poke(Create(paths.partitions_remove("t")), request)
    await until(lambda: (role := broker.roles.get(T1)) is not None and role.is_read_only)
    drained = [_drained(cluster)]
    zk.poke(Delete(paths.partition_remove(T1)))
    await until(lambda: not broker.roles[T1].is_read_only)
    zk.poke(request)
    await until(lambda: broker.roles[T1].is_read_only)
    drained.append(_drained(cluster))
    await cluster.controllers[1].on_isr_changed(drained[0])
    cluster.create_topic("u", {0: (1,)})
    await until(lambda: cluster.leader_and_isr("u") is not None)
    value = zk.peek(paths.topic("t"))
    assert value is not None and 1 in topic_znodes.decode_topic(value[0]).partitions
    await cluster.controllers[1].on_isr_changed(drained[1])
    await until(lambda: zk.peek(paths.partitions_remove("t")) is None)


def _drained(cluster: Cluster) -> IsrChangedRequest:
    broker = cluster.brokers[1]
    role = broker.roles[T1]
    change = IsrChange("t", 1, role.leader_epoch, role.isr, role.partition_epoch, is_drained=True)
    return IsrChangedRequest(broker.broker_id, broker.epoch, (change,))


async def test_a_leader_outside_of_the_replicas_does_not_end_the_controller(cluster: Cluster) -> None:
    """Somebody wrote the topic's znode by hand: who leads and is in sync is not assigned any more."""
    await running(cluster, 4)
    cluster.create_topic("t", {0: (4,)})
    await until(lambda: cluster.leader_and_isr("t") == (4, (4,), 0))
    value = topic_znodes.TopicZnode(TopicId("id-t"), {0: (BrokerId(1), BrokerId(2))})
    cluster.zookeeper.poke(SetData(paths.topic("t"), topic_znodes.encode_topic(value)))
    data = admin_znodes.encode_reassignment({T0: (BrokerId(2), BrokerId(3))})
    cluster.zookeeper.poke(Create(paths.REASSIGN_PARTITIONS, data))
    cluster.create_topic("v", {0: (1,)})
    await until(lambda: cluster.leader_and_isr("v") is not None)
    await until(lambda: "moves" in json.loads(cluster.zookeeper.peek(paths.topic("t"))[0]))  # type: ignore[index]
    cluster.create_topic("w", {0: (1,)})
    await until(lambda: cluster.leader_and_isr("w") is not None, 10)


@pytest.mark.parametrize("throttle", [2**63, 2**70])
async def test_a_throttle_too_large_for_a_command_stops_nothing(cluster: Cluster, throttle: int) -> None:
    await running(cluster)
    cluster.create_topic("t", {0: (1, 2)})
    await until(lambda: cluster.leader_and_isr("t") == (1, (1, 2), 0))
    data = admin_znodes.encode_reassignment({T0: (BrokerId(1), BrokerId(3))}, {T0: throttle})
    cluster.zookeeper.poke(Create(paths.REASSIGN_PARTITIONS, data))
    await until(lambda: (role := cluster.brokers[3].roles.get(T0)) is not None and 3 in role.replicas, 10)


async def test_another_throttle_of_a_move_under_way_is_commanded_at_once(cluster: Cluster) -> None:
    await running(cluster)
    cluster.create_topic("t", {0: (1, 2)})
    await until(lambda: cluster.leader_and_isr("t") == (1, (1, 2), 0))
    target = {T0: (BrokerId(1), BrokerId(3))}
    cluster.zookeeper.poke(Create(paths.REASSIGN_PARTITIONS, admin_znodes.encode_reassignment(target, {T0: 1000})))
    await until(lambda: (role := cluster.brokers[1].roles.get(T0)) is not None and role.throttle == 1000)
    broker = cluster.brokers[1]
    sent = len(broker.of(LeaderAndIsrRequest))
    cluster.zookeeper.poke(SetData(paths.REASSIGN_PARTITIONS, admin_znodes.encode_reassignment(target, {T0: 2000})))
    await until(lambda: len(broker.of(LeaderAndIsrRequest)) > sent)
    command = broker.of(LeaderAndIsrRequest)[sent]
    assert isinstance(command, LeaderAndIsrRequest)
    assert [(entry.leader_epoch, entry.throttle) for entry in command.partitions] == [(1, 2000)]


@pytest.mark.checklist("C19")
async def test_a_topic_that_is_made_while_a_request_is_read_is_known(cluster: Cluster) -> None:
    """Its server may hear of both at once: the request is no request for a topic that nobody knows."""
    await running(cluster)
    armed = [True]

    def see(host: str, request: Request) -> Fate:
        is_look = isinstance(request, Read) and (request.verb, request.path) == ("exists", paths.DELETE_TOPICS)
        if host == "controller-1" and is_look and armed:
            armed.clear()
            cluster.create_topic("t", {0: (1, 2, 3)})
            cluster.zookeeper.poke(SetData(paths.DELETE_TOPICS, admin_znodes.encode_delete_topics(["t"])))
        return Fate.SERVE

    cluster.zookeeper.decide_fate = see
    data = admin_znodes.encode_delete_topics(["nobody-has-it"])
    if cluster.zookeeper.peek(paths.DELETE_TOPICS) is None:
        cluster.zookeeper.poke(Create(paths.DELETE_TOPICS, data))
    else:
        cluster.zookeeper.poke(SetData(paths.DELETE_TOPICS, data))
    await until(lambda: not armed and cluster.zookeeper.peek(paths.topic("t")) is None)
