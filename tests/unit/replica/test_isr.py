"""ISR shrinks and expansions through ZooKeeper, with its faults; fencing by the session."""

import asyncio
import contextlib
import dataclasses
import random
import time
from collections.abc import AsyncIterator, Sequence
from functools import partial
from typing import Any

import pytest

from kafkalite.coordination import paths
from kafkalite.coordination.coordinator import Create, Delete, SetData
from kafkalite.coordination.topic_znodes import encode_partition_state
from kafkalite.env.own_time import OwnTime
from kafkalite.env.supervisor import Supervisor
from kafkalite.env.turns import at_once, result_of
from kafkalite.errors import ErrorCode
from kafkalite.model import (
    BrokerEpoch,
    BrokerId,
    ControllerEpoch,
    LeaderAndIsr,
    LeaderEpoch,
    PartitionEpoch,
    TopicPartition,
)
from kafkalite.replica.isr_keeper import IsrKeeper
from kafkalite.rpc.messages.control import UpdateMetadataRequest
from kafkalite.testing.simulated.zookeeper import Fate

from .conftest import QUICK

TP = TopicPartition("t", 0)


async def started(make_cluster, count=3, isr=(1, 2, 3), **overrides):
    cluster = await make_cluster(count, **QUICK | overrides)
    cluster.create_topic("t", {0: (1, 2, 3)})
    state = cluster.decide(TP, leader=1, isr=isr, epoch=0, replicas=(1, 2, 3))
    for number in range(1, count + 1):
        await cluster.command(number, state)
    return cluster


async def silence(cluster, number):
    """The follower stops fetching, as if its process stood still."""
    await cluster.command(number, cluster_state(cluster, leader=-1, epoch=0, bump=1))


def cluster_state(cluster, *, leader, epoch, bump=0):
    from kafkalite.rpc.messages.control import PartitionState

    members = tuple(map(BrokerId, (1, 2, 3)))
    topic_id = next(iter(cluster.nodes.values())).partition(TP).topic_id
    return PartitionState(
        "t", 0, topic_id, cluster.controller_epoch, BrokerId(leader), LeaderEpoch(epoch + bump), members,
        PartitionEpoch(0), members,
    )  # fmt: skip


@pytest.mark.checklist(47)
@pytest.mark.checklist(50)
@pytest.mark.checklist(63)
@pytest.mark.checklist("F12")
async def test_a_silent_follower_leaves_without_any_traffic_and_acks_go_on(make_cluster, until):
    cluster = await started(make_cluster)
    leader = cluster.node(1)
    await until(lambda: leader.partition(TP).entries.keys() == {2, 3})
    await silence(cluster, 3)
    await until(lambda: cluster.state(TP).isr == (1, 2))
    assert (await leader.produce(TP, b"x")).error == ErrorCode.NONE
    await until(lambda: [change.isr for change in leader.changes] == [(1, 2)])
    change = leader.changes[0]
    assert (change.leader_epoch, change.partition_epoch) == (0, cluster.state(TP).partition_epoch)
    assert at_once(leader.manager.describing.figures()).totals["UnderReplicatedPartitions"] == 1
    assert [problem.what for problem in at_once(leader.manager.describing.problems())] == ["partition.under_replicated"]


#: The node's own keeper does nothing meanwhile.
SLOW = {"replica.lag.time.max.ms": 250_000, "zookeeper.session.timeout.ms": 200_000}


@contextlib.asynccontextmanager
async def quick_keeper(node) -> AsyncIterator[None]:
    """A keeper of the node's ISRs with a lag time of 600 ms, beside its own."""
    supervisor, own_time = Supervisor(node.fatal.append), OwnTime(node.env.clock)
    parts = (node.manager.hosted, node.manager.metadata, node.session, random.Random(1))
    keeper = IsrKeeper(*parts, own_time=own_time, lag_time_max_ms=600, notify=node.notify_isr)
    for task in (own_time.run(), keeper.run(lambda _: None), keeper.writer.run()):
        supervisor.spawn("keeper", task)
    yield
    await supervisor.stop()


@pytest.mark.checklist(47)
async def test_a_silent_follower_leaves_though_the_leader_stands_still_again_and_again(make_cluster, until):
    """Each tick came late, and a tick that came late was skipped."""
    cluster = await started(make_cluster, **SLOW)
    await until(lambda: cluster.node(1).partition(TP).entries.keys() == {2, 3})
    await silence(cluster, 3)
    async with quick_keeper(cluster.node(1)):
        await asyncio.sleep(0)

        def has_left() -> bool:
            time.sleep(0.7)
            return bool(cluster.state(TP).isr == (1, 2))

        await until(has_left)


def stood_still(node: Any, seconds: float) -> Any:
    time.sleep(seconds)
    return node.manager.hosted.now_ms()


def all_fetched_since(sessions, ended_ms: int) -> bool:
    return all(session.last_fetch_ms > ended_ms for session in sessions)


async def test_the_time_in_which_the_leader_stood_still_is_not_held_against_its_followers(make_cluster, until):
    cluster = await started(make_cluster, **SLOW)
    leader = cluster.node(1)
    await until(lambda: leader.partition(TP).entries.keys() == {2, 3})
    async with quick_keeper(leader):
        await asyncio.sleep(0)
        for _ in range(3):
            ended_ms = stood_still(leader, 1.5)
            sessions = [entry.session for entry in leader.partition(TP).entries.values()]
            await until(partial(all_fetched_since, sessions, ended_ms))
    assert cluster.state(TP).isr == (1, 2, 3)
    assert leader.partition(TP).leader.proposed_isr is None


@pytest.mark.checklist(48)
@pytest.mark.checklist(49)
async def test_a_follower_that_caught_up_joins(make_cluster, until):
    cluster = await started(make_cluster, isr=(1, 2))
    await until(lambda: cluster.state(TP).isr == (1, 2, 3))
    state = cluster.state(TP)
    assert (state.leader, state.leader_epoch, state.controller_epoch, state.partition_epoch) == (1, 0, 1, 1)
    await until(lambda: cluster.node(1).partition(TP).leader.partition_epoch == 1)


@pytest.mark.checklist("F15")
@pytest.mark.checklist("F16")
async def test_a_follower_whose_registration_is_not_known_stays_outside(make_cluster, until):
    cluster = await make_cluster(3)
    cluster.create_topic("t", {0: (1, 2, 3)})
    cluster.node(3).broker_epoch = BrokerEpoch(2003)
    known = cluster.brokers()
    cluster.node(3).broker_epoch = BrokerEpoch(3003)  # restarted since; the controller has not said so yet
    state = cluster.decide(TP, leader=1, isr=(1,), epoch=0, replicas=(1, 2, 3))
    for number in (1, 2, 3):
        await cluster.command(number, state, brokers=known)
    leader = cluster.node(1)
    await leader.produce(TP, b"x")
    await until(lambda: cluster.state(TP).isr == (1, 2))
    await until(lambda: leader.partition(TP).leader.followers[3].log_end_offset == 1)
    assert cluster.state(TP).isr == (1, 2)
    await cluster.command(1, brokers=cluster.brokers())
    await until(lambda: cluster.state(TP).isr == (1, 2, 3))


@pytest.mark.checklist(49)
@pytest.mark.checklist("F6")
async def test_a_version_that_moved_under_the_same_leadership_is_adopted(make_cluster, until):
    cluster = await started(make_cluster, count=2, isr=(1, 2, 3))
    path = paths.partition_state(TP)
    state = cluster.state(TP)
    cluster.zookeeper.poke(SetData(path, encode_partition_state(state)))  # somebody writes the same once more
    await until(lambda: cluster.state(TP).isr == (1, 2))
    assert cluster.state(TP).partition_epoch == 2
    assert (await cluster.node(1).produce(TP, b"x")).error == ErrorCode.NONE


@pytest.mark.checklist(49)
@pytest.mark.checklist(63)
@pytest.mark.checklist("F6")
async def test_a_leader_that_finds_a_later_epoch_resigns(make_cluster, until):
    cluster = await started(make_cluster, count=1, isr=(1, 2, 3))
    leader = cluster.node(1)
    waiting = asyncio.create_task(leader.produce(TP, b"x", timeout_ms=150_000))
    cluster.decide(TP, leader=2, isr=(2, 3), epoch=1, replicas=(1, 2, 3))
    assert (await waiting).error == ErrorCode.NOT_LEADER_OR_FOLLOWER
    assert leader.partition(TP).leader is None
    assert cluster.state(TP).leader == 2
    # Commanded to lead that epoch after all, it does.
    state = cluster.decide(TP, leader=1, isr=(1,), epoch=2, replicas=(1, 2, 3))
    await cluster.command(1, state)
    assert (await leader.produce(TP, b"y")).error == ErrorCode.NONE


@pytest.mark.checklist("F6", "F18")
async def test_a_leader_of_a_deleted_topic_leaves_the_next_one_of_that_name_alone(make_cluster, until):
    """A new znode has the versions of the old one again: a leader that had not heard of the deletion wrote itself into it."""
    cluster = await started(make_cluster, count=1, isr=(1, 2, 3))
    leader, path = cluster.node(1), paths.partition_state(TP)
    state = dataclasses.replace(cluster.state(TP), leader=BrokerId(2), isr=(BrokerId(2), BrokerId(3)))
    cluster.zookeeper.poke(Delete(path), Create(path, encode_partition_state(state)))
    await until(lambda: leader.partition(TP).leader is None)
    assert cluster.state(TP) == state


@pytest.mark.checklist("F6")
@pytest.mark.parametrize("fate", [Fate.LOSE_REPLY, Fate.LOSE_REQUEST])
async def test_a_write_without_an_answer_is_settled_by_reading(make_cluster, until, fate):
    cluster = await started(make_cluster, count=2, isr=(1, 2, 3))
    cluster.zookeeper.lose_next("node1", fate)
    await until(lambda: cluster.node(1).partition(TP).leader.committed_isr == (1, 2))
    assert cluster.state(TP).isr == (1, 2)
    assert cluster.node(1).partition(TP).leader.partition_epoch == cluster.state(TP).partition_epoch == 1
    assert (await cluster.node(1).produce(TP, b"x")).error == ErrorCode.NONE


async def test_a_node_knows_whether_all_replicas_are_in_sync(make_cluster, until):
    """Compaction keeps tombstones otherwise: the leader's, and that of each follower, which may lead when the others are back."""
    cluster = await make_cluster(2, **QUICK)
    cluster.create_topic("t", {0: (1, 2, 3)})
    state = cluster.decide(TP, leader=1, isr=(1, 2, 3), epoch=0, replicas=(1, 2, 3))
    leader, follower = cluster.node(1), cluster.node(2)
    assert not follower.manager.all_in_sync(TP)
    for node in (leader, follower):
        await cluster.command(node.broker_id, state)
        head = (BrokerId(99), cluster.controller_epoch, node.broker_epoch)
        node.manager.metadata.apply(
            UpdateMetadataRequest(*head, is_full=True, brokers=cluster.brokers(), partitions=(state,))
        )
    assert follower.manager.all_in_sync(TP)
    await until(lambda: leader.partition(TP).leader.committed_isr == (1, 2))
    assert not leader.manager.all_in_sync(TP), "it knows first"
    shrunk = dataclasses.replace(state, isr=(BrokerId(1), BrokerId(2)), partition_epoch=PartitionEpoch(1))
    head = (BrokerId(99), cluster.controller_epoch, follower.broker_epoch)
    follower.manager.metadata.apply(
        UpdateMetadataRequest(*head, is_full=False, brokers=cluster.brokers(), partitions=(shrunk,))
    )
    assert not follower.manager.all_in_sync(TP)


@pytest.mark.checklist("F7")
async def test_many_shrinks_go_in_one_round_and_one_notice(make_cluster, until):
    cluster = await make_cluster(1, **QUICK)
    count = 300
    cluster.create_topic("t", dict.fromkeys(range(count), (1, 2)))
    states = [cluster.decide(TopicPartition("t", p), leader=1, isr=(1, 2), epoch=0) for p in range(count)]
    rounds: list[Sequence[Any]] = []
    leader = cluster.node(1)
    keeper = leader.manager._isr_keeper
    keeper._notify = rounds.append
    await cluster.command(1, *states)
    await until(lambda: sum(len(each) for each in rounds) == count)
    assert len(rounds) <= 8  # chunks are settled together, far fewer than partitions
    assert all(cluster.state(TopicPartition("t", p)).isr == (1,) for p in range(count))


@pytest.mark.checklist("F13")
@pytest.mark.checklist(63)
async def test_a_leader_without_zookeeper_goes_on_with_its_followers_and_not_without_them(make_cluster, until):
    """It refused everything as soon as its lease had run out; but nobody else can commit without its followers (ADR 15)."""
    cluster = await started(make_cluster)
    leader = cluster.node(1)
    assert (await leader.produce(TP, b"x")).error == ErrorCode.NONE
    cluster.zookeeper.block("node1")
    await until(lambda: not leader.session.usable())
    assert (await leader.produce(TP, b"y")).error == ErrorCode.NONE
    assert (await leader.produce(TP, b"y", acks=1)).error == ErrorCode.NONE
    # The others are commanded by somebody whom this node does not hear.
    state = cluster.decide(TP, leader=2, isr=(2, 3), epoch=5, replicas=(1, 2, 3))
    for number in (2, 3):
        await cluster.command(number, state)
    await until(lambda: not leader.partition(TP).entries)
    # They have been silent for longer than the lag time.
    leader.manager._isr_keeper.maybe_alter_isr(leader.partition(TP))
    assert leader.partition(TP).leader.proposed_isr is None, (
        "written when ZooKeeper is back, it would take them out unheard"
    )
    mark = leader.partition(TP).high_watermark
    for acks in (-1, 1):
        refused = await leader.produce(TP, b"z", acks=acks)
        assert refused.error == ErrorCode.NOT_LEADER_OR_FOLLOWER
        assert "ZooKeeper has not answered" in refused.message
    assert leader.partition(TP).high_watermark == mark
    assert (await cluster.node(2).produce(TP, b"z", timeout_ms=60_000)).error == ErrorCode.NONE
    cluster.zookeeper.unblock("node1")
    await until(lambda: leader.session.usable())
    await leader.manager.session_roles.on_session(await leader.session.wait())
    await until(lambda: leader.partition(TP).leader is None and leader.partition(TP).leader_id == 2)


async def test_a_leader_that_nobody_follows_may_have_been_replaced_although_it_has_its_lease(make_cluster, until):
    """The controller replaces the leaders of a broker that does not answer it before the broker's session ends."""
    cluster = await started(make_cluster)
    leader = cluster.node(1)
    hosted, partition = leader.manager.hosted, leader.partition(TP)
    assert not hosted.may_be_replaced(partition)
    beyond = partition.log.log_end_offset + 1
    assert (await leader.fetch(TP, beyond))[0].error == ErrorCode.OFFSET_OUT_OF_RANGE
    state = cluster.decide(TP, leader=2, isr=(1, 2, 3), epoch=5, replicas=(1, 2, 3))
    for number in (2, 3):
        await cluster.command(number, state)
    await until(lambda: hosted.may_be_replaced(partition))
    assert leader.session.usable()
    # The successor may have these records: a consumer that heard "out of range" would read everything again, or leave some out.
    assert (await leader.fetch(TP, beyond))[0].error == ErrorCode.NOT_LEADER_OR_FOLLOWER


async def test_a_leader_that_is_the_whole_isr_needs_no_followers_to_know_that_it_leads(make_cluster):
    cluster = await make_cluster(1)
    cluster.create_topic("t", {0: (1, 2)})
    await cluster.command(1, cluster.decide(TP, leader=1, isr=(1,), epoch=0, replicas=(1, 2)))
    hosted, partition = cluster.node(1).manager.hosted, cluster.node(1).partition(TP)
    hosted.now_ms = lambda: 2**50
    assert not hosted.may_be_replaced(partition)
    hosted.usable = lambda: False
    assert hosted.may_be_replaced(partition)


@pytest.mark.checklist("F13")
async def test_only_a_leader_alone_in_sync_resigns_when_its_session_ends(make_cluster, until):
    cluster = await make_cluster(3)
    cluster.create_topic("t", {0: (1, 2, 3), 1: (1, 2, 3), 2: (1,)})
    states = [
        cluster.decide(TopicPartition("t", number), leader=1, isr=isr, epoch=0, replicas=replicas)
        for number, (isr, replicas) in enumerate((((1, 2, 3), (1, 2, 3)), ((1,), (1, 2, 3)), ((1,), (1,))))
    ]
    await cluster.command_all(*states)
    leader = cluster.node(1)
    leader.manager.session_roles.on_session_lost()
    led = [leader.partition(TopicPartition("t", number)).leader is not None for number in range(3)]
    assert led == [True, False, True]
    # The new session tells: the one leads again, and another one has been given away meanwhile.
    cluster.decide(TopicPartition("t", 2), leader=-1, isr=(1,), epoch=1, replicas=(1,))
    await leader.manager.session_roles.on_session(await leader.session.wait())
    led = [leader.partition(TopicPartition("t", number)).leader is not None for number in range(3)]
    assert led == [True, True, False]


async def test_an_append_before_the_fence_is_committed_after_it(make_cluster, until):
    cluster = await make_cluster(1)
    cluster.create_topic("t", {0: (1, 2)})
    await cluster.command(1, cluster.decide(TP, leader=1, isr=(1,), epoch=0, replicas=(1, 2)))
    leader = cluster.node(1)
    usable = True
    leader.manager.hosted.usable = lambda: usable
    partition = leader.partition(TP)
    usable = False
    partition.log.append_as_leader(_batch(), partition.leader_epoch)
    leader.manager.hosted.appended(partition, partition.log.log_end_offset, 70)
    assert partition.high_watermark == 0
    usable = True
    await until(lambda: partition.high_watermark == 1)


async def test_an_append_that_ends_the_leadership_through_an_earlier_one(make_cluster):
    """What is done for the request that it commits ends the leadership: the append's own request is not left to its deadline."""
    cluster = await make_cluster(1)
    cluster.create_topic("t", {0: (1, 2)})
    await cluster.command(1, cluster.decide(TP, leader=1, isr=(1, 2), epoch=0))
    manager = cluster.node(1).manager
    partition = cluster.node(1).partition(TP)
    manager.producing.produce(-1, 60_000, [(TP, _batch())], lambda _: manager.hosted.demote(partition))
    partition.leader.followers[2].log_end_offset = 1
    answers: list[Any] = []
    manager.producing.produce(-1, 60_000, [(TP, _batch())], answers.append)
    assert partition.leader is None and not partition.produce_waiters
    assert [result.error for (result,) in answers] == [ErrorCode.NOT_LEADER_OR_FOLLOWER]


def _batch():
    from tests.support.logs import build_batch

    return build_batch([(None, b"x")])


@pytest.mark.checklist("F26")
async def test_min_insync_replicas_at_append_and_at_completion(make_cluster, until):
    cluster = await started(make_cluster, count=1, isr=(1, 2, 3), **{"min.insync.replicas": 2})
    leader = cluster.node(1)
    waiting = asyncio.create_task(leader.produce(TP, b"x", timeout_ms=150_000))
    assert (await waiting).error == ErrorCode.NOT_ENOUGH_REPLICAS_AFTER_APPEND
    assert cluster.state(TP).isr == (1,)
    assert (await leader.produce(TP, b"y")).error == ErrorCode.NOT_ENOUGH_REPLICAS
    assert (await leader.produce(TP, b"z", acks=1)).error == ErrorCode.NONE
    partition = leader.partition(TP)
    assert (partition.log.log_end_offset, partition.high_watermark) == (2, 0)
    assert [problem.what for problem in at_once(leader.manager.describing.problems())] == ["partition.under_min_isr"]


async def test_a_produce_times_out(make_cluster):
    cluster = await started(make_cluster, count=1, isr=(1, 2, 3), **{"replica.lag.time.max.ms": 60_000})
    leader = cluster.node(1)
    assert (await leader.produce(TP, b"x", timeout_ms=20)).error == ErrorCode.REQUEST_TIMED_OUT
    assert not leader.partition(TP).produce_waiters
    assert len(leader.manager.hosted.wheel) == 0


@pytest.mark.checklist("C11")
@pytest.mark.checklist(46)
async def test_with_flush_before_ack_every_member_has_it_on_its_disk(make_cluster, until):
    cluster = await started(make_cluster, **{"log.flush.before.ack": "true"})
    leader = cluster.node(1)
    for number in range(5):
        assert (await leader.produce(TP, b"x")).error == ErrorCode.NONE
        for member in (1, 2, 3):
            assert cluster.node(member).partition(TP).log.synced_offset >= number + 1
    # A leadership change in between loses nothing of it.
    await cluster.command_all(cluster.decide(TP, leader=2, isr=(1, 2, 3), epoch=1))
    assert (await cluster.node(2).produce(TP, b"y")).error == ErrorCode.NONE
    assert cluster.node(1).partition(TP).log.synced_offset == 6


@pytest.mark.checklist(80)
@pytest.mark.checklist(83)
async def test_a_storage_error_takes_the_replica_offline_and_nobody_else(make_cluster, monkeypatch):
    async def still_checking(*args, **kwargs):
        await asyncio.Event().wait()

    # The disk is sound, so the log would be opened again as soon as the probe has ended.
    monkeypatch.setattr("kafkalite.log.log_dir_failure_handler.probe", still_checking)
    cluster = await started(make_cluster)
    second = TopicPartition("t", 1)
    await cluster.command_all(cluster.decide(second, leader=1, isr=(1, 2, 3), epoch=0))
    leader = cluster.node(1)
    log = leader.partition(TP).log
    waiting = asyncio.create_task(leader.produce(TP, b"x"))
    assert (await waiting).error == ErrorCode.NONE
    error = log.storage_error("write", OSError(5, "Input/output error"))
    original = type(log).append_as_leader

    def broken(self, *args, **kwargs):
        if self is log:
            raise error
        return original(self, *args, **kwargs)

    type(log).append_as_leader = broken
    try:
        assert (await leader.produce(TP, b"y")).error == ErrorCode.KAFKA_STORAGE_ERROR
        assert (await leader.produce(second, b"y")).error == ErrorCode.NONE
    finally:
        type(log).append_as_leader = original
    assert leader.storage_errors == [error]
    assert (await leader.produce(TP, b"z")).error == ErrorCode.KAFKA_STORAGE_ERROR
    assert (await leader.fetch(TP, 0))[0].error == ErrorCode.KAFKA_STORAGE_ERROR
    answer = await cluster.command(1, cluster.decide(TP, leader=2, isr=(1, 2, 3), epoch=1))
    assert [p.error for p in answer.partitions] == [ErrorCode.KAFKA_STORAGE_ERROR]
    assert (await result_of(leader.manager.describing.describe(()))).replicas[0].error == ErrorCode.KAFKA_STORAGE_ERROR
    assert [problem.what for problem in at_once(leader.manager.describing.problems())] == ["replica.offline"]


def test_states_that_the_writer_would_write_keep_the_controller_epoch():
    from kafkalite.coordination.topic_znodes import decode_partition_state
    from kafkalite.replica.decisions.isr import Proposal
    from kafkalite.replica.isr_writer import Task, _operation

    proposal = Proposal(BrokerId(1), LeaderEpoch(4), PartitionEpoch(9), (BrokerId(1), BrokerId(3)))
    operation = _operation(Task(TP, proposal, ControllerEpoch(7)), proposal)
    assert (operation.path, operation.version) == ("/brokers/topics/t/partitions/0/state", 9)
    assert decode_partition_state(operation.data, 10) == LeaderAndIsr(
        BrokerId(1), LeaderEpoch(4), (BrokerId(1), BrokerId(3)), ControllerEpoch(7), PartitionEpoch(10)
    )
