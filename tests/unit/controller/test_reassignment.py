"""Reassignment by the controller (KIP-435), against a ZooKeeper in memory and brokers on real connections."""

from __future__ import annotations

import json

import pytest

from kafkalite.controller import event_loop
from kafkalite.controller.cluster_reading import ClusterReader
from kafkalite.controller.sources import EventSource
from kafkalite.coordination import admin_znodes, paths, topic_znodes
from kafkalite.coordination.coordinator import Create, Delete, SetData, Watch
from kafkalite.env.turns import at_once
from kafkalite.model import BrokerId, TopicPartition
from kafkalite.rpc.messages.control import StopReplicaRequest
from tests.support.waiting import until
from tests.unit.controller.cluster import Cluster, running
from tests.unit.controller.copying import Copying

T0 = TopicPartition("t", 0)


def order(
    cluster: Cluster,
    targets: dict[TopicPartition, tuple[int, ...]],
    limits: admin_znodes.RequestLimits = admin_znodes.NO_LIMITS,
) -> None:
    """As a person with a ZooKeeper shell gives it."""
    wanted = {p: tuple(map(BrokerId, replicas)) for p, replicas in targets.items()}
    data = admin_znodes.encode_reassignment(wanted, limits=limits)
    if cluster.zookeeper.peek(paths.REASSIGN_PARTITIONS) is None:
        cluster.zookeeper.poke(Create(paths.REASSIGN_PARTITIONS, data))
    else:
        cluster.zookeeper.poke(SetData(paths.REASSIGN_PARTITIONS, data))


def done(cluster: Cluster) -> bool:
    return cluster.zookeeper.peek(paths.REASSIGN_PARTITIONS) is None


@pytest.mark.checklist(68, "C2")
@pytest.mark.checklist(8)
@pytest.mark.checklist(41)
@pytest.mark.checklist(43)
@pytest.mark.checklist(44)
@pytest.mark.checklist(78)
@pytest.mark.checklist("C12")
@pytest.mark.checklist("F20")
async def test_disjoint_move_with_default_limits(cluster: Cluster) -> None:
    await running(cluster, 6)
    cluster.create_topic("t", {0: (1, 2, 3)})
    async with Copying(cluster, "t") as copying:
        await until(lambda: cluster.leader_and_isr("t") == (1, (1, 2, 3), 0))
        order(cluster, {T0: (4, 5, 6)})
        await until(lambda: done(cluster))
        value = copying.topic("t")
        assert value is not None and value.partitions == {0: (4, 5, 6)} and not value.moves
        assert not value.adding_replicas and not value.removing_replicas
        state = cluster.state(T0)
        assert state is not None and state.leader == 4 and set(state.isr) == {4, 5, 6}
        assert copying.leaders[T0] == [1, 4]
        assert copying.assignments[T0] == [(1, 2, 3), (4, 5, 6, 1, 2, 3), (4, 5, 6)], "one step"
        for number in (1, 2, 3):
            assert T0 not in cluster.brokers[number].roles
            stops = cluster.brokers[number].of(StopReplicaRequest)
            assert any(each.partitions[0].delete_files for each in stops if isinstance(each, StopReplicaRequest))
        assert all(T0 in cluster.brokers[number].roles for number in (4, 5, 6))
        for broker in cluster.brokers.values():
            assert broker.metadata[T0].replicas == (4, 5, 6)


@pytest.mark.checklist(8)
async def test_an_order_of_nothing_is_removed(cluster: Cluster) -> None:
    """Tools that want to know whether reassignments are under way ask whether the znode is there."""
    await running(cluster)
    cluster.create_topic("t", {0: (1, 2, 3)})
    await until(lambda: cluster.leader_and_isr("t") == (1, (1, 2, 3), 0))
    order(cluster, {})
    await until(lambda: done(cluster))


@pytest.mark.checklist(41)
async def test_a_request_that_no_watch_reports_is_found_by_the_clock(
    cluster: Cluster, monkeypatch: pytest.MonkeyPatch
) -> None:
    assert event_loop.TICK_S * event_loop.TICKS_PER_FULL_READ == 30
    monkeypatch.setattr(event_loop, "TICK_S", 0.05)
    watch = ClusterReader.watch

    def deaf(reader: ClusterReader, source: EventSource) -> Watch:
        return (lambda: None) if source is EventSource.REASSIGNMENT else watch(reader, source)

    monkeypatch.setattr(ClusterReader, "watch", deaf)
    await running(cluster, 4)
    cluster.create_topic("t", {0: (1, 2)})
    async with Copying(cluster, "t"):
        await until(lambda: cluster.state(T0) is not None)
        order(cluster, {T0: (3, 4)})
        await until(lambda: done(cluster))


@pytest.mark.checklist(41, 69)
async def test_a_limit_that_nobody_reports_counts_at_the_next_tick(
    cluster: Cluster, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr(event_loop, "TICK_S", 0.05)
    monkeypatch.setattr(event_loop, "TICKS_PER_FULL_READ", 2**40)
    cluster.cluster_settings["reassignment.parallel.partition.count"] = "1"
    await running(cluster)
    cluster.create_topic("t", {0: (1,), 1: (1,)})
    async with Copying(cluster, "t") as copying:
        copying.held = {2}
        await until(lambda: cluster.state(TopicPartition("t", 1)) is not None)
        order(cluster, {T0: (1, 2), TopicPartition("t", 1): (1, 3)})
        await until(lambda: copying.existing("t").partitions[0] == (1, 2))
        assert not copying.existing("t").moves[1].step
        cluster.cluster_settings["reassignment.parallel.partition.count"] = "2"
        await until(lambda: copying.existing("t").partitions[1] == (1, 3))
        assert copying.existing("t").moves[0].step == (1, 2), "the step under way is as it was"


@pytest.mark.checklist(68, "C16")
@pytest.mark.checklist(67)
@pytest.mark.checklist(74)
@pytest.mark.checklist(75)
@pytest.mark.checklist(77)
@pytest.mark.checklist("C13")
@pytest.mark.parametrize("belongs_to", ["cluster", "order", "both"])
async def test_the_kips_example_within_the_limits(cluster: Cluster, belongs_to: str) -> None:
    if belongs_to != "order":
        cluster.cluster_settings["reassignment.parallel.replica.count"] = "2"
        cluster.cluster_settings["reassignment.parallel.partition.count"] = "9"  # set earlier, under the other name
        cluster.cluster_settings["reassignment.max.concurrent.partition.count"] = "3"
        cluster.cluster_settings["reassignment.parallel.leader.movements"] = "1"
    own = {"cluster": admin_znodes.NO_LIMITS, "order": (2, 3, 1), "both": (7, 0, 4)}[belongs_to]
    await running(cluster, 10)
    cluster.create_topic("t", dict.fromkeys(range(6), (1, 2, 3, 4, 5)))
    async with Copying(cluster, "t") as copying:
        await until(lambda: all(cluster.state(TopicPartition("t", p)) is not None for p in range(6)))
        order(cluster, {TopicPartition("t", p): (6, 7, 8, 9, 10) for p in range(6)}, own)
        await until(lambda: done(cluster), 150)
        steps = [(1, 2, 3, 4, 5), (6, 1, 2, 3, 4, 5), (6, 7, 3, 4, 5), (6, 7, 8, 9, 5), (6, 7, 8, 9, 10)]
        for partition in range(6):
            seen = copying.assignments[TopicPartition("t", partition)]
            assert [each for each in seen if each in steps] == steps
            assert max(map(len, seen)) <= 7
        assert copying.most_under_way <= 3 and copying.most_leader_moves == 1


@pytest.mark.checklist(36)
@pytest.mark.checklist(71)
async def test_the_next_controller_goes_on_at_every_step(cluster: Cluster) -> None:
    cluster.cluster_settings["reassignment.parallel.replica.count"] = "1"
    await running(cluster, 6)
    cluster.create_topic("t", {0: (1, 2, 3), 1: (2, 3, 1)})
    async with Copying(cluster, "t") as copying:
        await until(lambda: all(cluster.state(TopicPartition("t", p)) is not None for p in range(2)))
        order(cluster, {T0: (4, 5, 6), TopicPartition("t", 1): (1, 6)})
        current = 1
        for _ in range(12):
            version = cluster.zookeeper.peek(paths.topic("t"))
            assert version is not None
            now = version[1].version
            await until(lambda now=now: done(cluster) or cluster.zookeeper.peek(paths.topic("t"))[1].version > now)  # type: ignore[index, misc]
            await cluster.stop_controller(current)
            current += 1
            await cluster.start_controller(current)
        await until(lambda: done(cluster), 150)
        value = copying.topic("t")
        assert value is not None and value.partitions == {0: (4, 5, 6), 1: (1, 6)} and not value.moves
        assert all(T0 not in cluster.brokers[number].roles for number in (1, 2, 3))


@pytest.mark.checklist("F21")
@pytest.mark.checklist(76)
async def test_cancel_rolls_back_and_a_second_order_replaces_the_first(cluster: Cluster) -> None:
    await running(cluster, 6)
    cluster.create_topic("t", {0: (1, 2, 3), 1: (1, 2, 3), 2: (1, 2, 3)})
    async with Copying(cluster, "t") as copying:
        await until(lambda: all(cluster.state(TopicPartition("t", p)) is not None for p in range(3)))
        copying.held = {4, 5}
        t1, t2 = TopicPartition("t", 1), TopicPartition("t", 2)
        order(cluster, {T0: (4, 5), t1: (4, 5, 6), t2: (5, 9)})
        await until(lambda: all(p in cluster.brokers[4].roles for p in (T0, t1)) and t2 in cluster.brokers[5].roles)
        order(cluster, {T0: (), t1: (2, 3, 6), t2: ()})
        await until(lambda: done(cluster))
        value = copying.topic("t")
        assert value is not None and not value.moves
        assert value.partitions == {0: (1, 2, 3), 1: (2, 3, 6), 2: (1, 2, 3)}
        assert not cluster.brokers[4].roles and not cluster.brokers[5].roles
        assert t1 in cluster.brokers[6].roles


@pytest.mark.checklist(8)
async def test_orders_that_name_nothing_are_dropped_and_malformed_ones_left_alone(cluster: Cluster) -> None:
    await running(cluster)
    cluster.create_topic("t", {0: (1, 2)})
    await until(lambda: cluster.state(T0) is not None)
    order(cluster, {TopicPartition("no", 0): (1,), TopicPartition("t", 7): (1,), T0: (1, 2)})
    await until(lambda: done(cluster))
    cluster.zookeeper.poke(Create(paths.REASSIGN_PARTITIONS, b'{"version":1,"partitions":[{"topic":"t"}]}'))
    await until(lambda: [p.what for p in at_once(cluster.controllers[1].problems())] == ["znode.malformed"])
    cluster.zookeeper.poke(Delete(paths.REASSIGN_PARTITIONS))
    await until(lambda: at_once(cluster.controllers[1].problems()) == ())


@pytest.mark.checklist("F21")
async def test_a_topic_that_is_deleted_while_it_moves_goes_with_all_replicas(cluster: Cluster) -> None:
    await running(cluster, 4)
    cluster.create_topic("t", {0: (1, 2)})
    async with Copying(cluster, "t") as copying:
        await until(lambda: cluster.state(T0) is not None)
        copying.held = {3, 4}
        order(cluster, {T0: (3, 4)})
        await until(lambda: T0 in cluster.brokers[3].roles)
        cluster.zookeeper.poke(Create(paths.DELETE_TOPICS, admin_znodes.encode_delete_topics(["t"])))
        await until(lambda: cluster.zookeeper.peek(paths.topic("t")) is None and done(cluster))
        assert all(T0 not in broker.roles for broker in cluster.brokers.values())


@pytest.mark.checklist(9)
@pytest.mark.checklist(59)
async def test_partitions_are_added(cluster: Cluster) -> None:
    await running(cluster)
    cluster.create_topic("t", {0: (1, 2)})
    await until(lambda: cluster.state(T0) is not None)
    zk = cluster.zookeeper
    zk.poke(
        Create(paths.partitions_add("t")),
        *(Create(paths.partition_add(TopicPartition("t", p)), json.dumps([2, 3]).encode()) for p in (1, 2)),
    )
    await until(lambda: cluster.leader_and_isr("t", 2) == (2, (2, 3), 0))
    await until(lambda: zk.peek(paths.partitions_add("t")) is None)
    assert cluster.leader_and_isr("t", 0) == (1, (1, 2), 0)
    zk.poke(Create(paths.partitions_add("t")), Create(paths.partition_add(TopicPartition("t", 9)), b"[1]"))
    await until(lambda: [p.what for p in at_once(cluster.controllers[1].problems())] == ["znode.malformed"])


@pytest.mark.checklist(9)
@pytest.mark.checklist(60)
@pytest.mark.checklist("C20")
async def test_partitions_are_removed_also_where_a_replica_is_dead(cluster: Cluster) -> None:
    await running(cluster)
    cluster.create_topic("t", dict.fromkeys(range(4), (1, 2, 3)))
    async with Copying(cluster, "t") as copying:
        await until(lambda: all(TopicPartition("t", 3) in broker.metadata for broker in cluster.brokers.values()))
        await cluster.stop_broker(3)
        zk = cluster.zookeeper
        zk.poke(
            Create(paths.partitions_remove("t")),
            *(Create(paths.partition_remove(TopicPartition("t", p))) for p in (2, 3)),
        )
        gone = [TopicPartition("t", p) for p in (2, 3)]
        await until(
            lambda: all(p not in b.roles and p not in b.metadata for b in cluster.brokers.values() for p in gone)
        )
        value = copying.topic("t")
        assert value is not None and sorted(value.partitions) == [0, 1]
        assert zk.peek(paths.partition_remove(gone[0])) is not None
        await cluster.stop_controller(1)
        await cluster.start_controller(2)
        await cluster.start_broker(3)
        await until(lambda: zk.peek(paths.partitions_remove("t")) is None)
        assert all(zk.peek(paths.partition(p)) is None for p in gone)
        assert isinstance(cluster.brokers[3].commands[0], StopReplicaRequest)


async def test_a_removed_partitions_number_waits_for_an_offline_disk(cluster: Cluster) -> None:
    """When the node started with the disk, the old log passed for the new partition's: the topic's id is the same."""
    await running(cluster)
    cluster.create_topic("t", dict.fromkeys(range(2), (1, 2)))
    t1, zk = TopicPartition("t", 1), cluster.zookeeper
    await until(lambda: cluster.leader_and_isr("t", 1) is not None)
    cluster.brokers[2].has_offline_disk = True
    zk.poke(Create(paths.partitions_remove("t")), Create(paths.partition_remove(t1)))
    # The new partitions count as problems until the controller has read back their states.
    await until(
        lambda: [each.what for each in at_once(cluster.controllers[1].problems())] == ["partition.removal_waits"]
    )
    (problem,) = at_once(cluster.controllers[1].problems())
    assert problem.subject == "t"
    assert problem.detail.startswith("offline disks of brokers [2] may have removed partitions of t;")
    assert all(t1 not in broker.roles and t1 not in broker.metadata for broker in cluster.brokers.values())
    assert zk.peek(paths.partition_remove(t1)) is not None
    cluster.brokers[2].has_offline_disk = False
    await until(lambda: zk.peek(paths.partitions_remove("t")) is None)
    await until(lambda: at_once(cluster.controllers[1].problems()) == ())


async def test_replicas_that_were_moved_away_from_a_broker_with_an_offline_disk_are_remembered(
    cluster: Cluster,
) -> None:
    """Found by simulation (seed 760425): a node that was drained while a disk was offline started with this disk. All of its replicas
    were surplus, which are too many for a node to set aside on its own. They stayed."""
    await running(cluster)
    cluster.create_topic("t", dict.fromkeys(range(2), (1, 2)))
    t1 = TopicPartition("t", 1)
    async with Copying(cluster, "t") as copying:
        await until(lambda: all(cluster.leader_and_isr("t", number) for number in range(2)))
        cluster.brokers[2].has_offline_disk = True
        order(cluster, {T0: (1, 3), t1: (1, 3)})
        await until(lambda: done(cluster))
        value = copying.topic("t")
        assert value is not None and value.partitions == {0: (1, 3), 1: (1, 3)}
        assert {number: move.dropping for number, move in value.moves.items()} == {0: (2,), 1: (2,)}
        order(cluster, {T0: (3, 1)})
        await until(lambda: done(cluster))
        assert copying.existing("t").partitions[0] == (3, 1), "another move is not held up"
        await cluster.stop_controller(1)
        await cluster.start_controller(3)
        cluster.brokers[2].has_offline_disk = False
        await until(lambda: not copying.existing("t").moves)


async def test_only_the_last_partitions_can_be_removed(cluster: Cluster) -> None:
    await running(cluster)
    cluster.create_topic("t", dict.fromkeys(range(3), (1, 2, 3)))
    await until(lambda: cluster.leader_and_isr("t", 2) is not None)
    zk = cluster.zookeeper
    zk.poke(
        Create(paths.partitions_remove("t")),
        *(Create(paths.partition_remove(TopicPartition("t", p))) for p in (0, 1)),
    )
    await until(lambda: len(at_once(cluster.controllers[1].problems())) == 2)
    value = zk.peek(paths.topic("t"))
    assert value is not None and sorted(topic_znodes.decode_topic(value[0]).partitions) == [0, 1, 2]


async def test_draining_makes_the_leader_refuse_records_until_it_is_empty(cluster: Cluster) -> None:
    await running(cluster)
    cluster.create_topic("t", dict.fromkeys(range(2), (1, 2)))
    t1 = TopicPartition("t", 1)
    await until(lambda: cluster.leader_and_isr("t", 1) is not None)
    order_path = paths.partition_remove(t1)
    drain = admin_znodes.encode_partition_remove(admin_znodes.PartitionRemoval(drain=True))
    cluster.zookeeper.poke(Create(paths.partitions_remove("t")), Create(order_path, drain))
    await until(lambda: (role := cluster.brokers[1].roles.get(t1)) is not None and role.is_read_only)
    assert cluster.leader_and_isr("t", 1) == (1, (1, 2), 1)
    from kafkalite.rpc.messages.control import IsrChange, IsrChangedRequest

    role = cluster.brokers[1].roles[t1]
    change = IsrChange("t", 1, role.leader_epoch, role.isr, role.partition_epoch, is_drained=True)
    broker = cluster.brokers[1]
    cluster.controllers[1].on_isr_changed(IsrChangedRequest(broker.broker_id, broker.epoch, (change,)))
    await until(lambda: cluster.zookeeper.peek(paths.partitions_remove("t")) is None)
    assert cluster.zookeeper.peek(paths.partition(t1)) is None and t1 not in broker.roles


@pytest.mark.checklist(10)
async def test_unclean_election_by_order(cluster: Cluster) -> None:
    await running(cluster)
    cluster.create_topic("t", {0: (1, 2)})
    await until(lambda: cluster.state(T0) is not None)
    cluster.put_state(T0, 1, (1,))
    await cluster.stop_broker(1)
    await until(lambda: cluster.leader_and_isr("t") == (-1, (1,), 1))
    value = admin_znodes.encode_preferred_election([T0], unclean=True)
    cluster.zookeeper.poke(Create(paths.PREFERRED_REPLICA_ELECTION, value))
    await until(lambda: cluster.leader_and_isr("t") == (2, (2,), 2))
    await until(lambda: cluster.zookeeper.peek(paths.PREFERRED_REPLICA_ELECTION) is None)
    # Records may be lost by it: it is not to be taken for an election of the preferred leader.
    said = cluster.controllers[1].history.of("t-0")[-1].detail
    assert said == "leader 2, epoch 2, ISR [2]; an unclean election was requested"
