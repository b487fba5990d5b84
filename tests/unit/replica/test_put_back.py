"""A state znode that was put back from an earlier time: its replicas say so, for nobody else knows."""

from __future__ import annotations

from dataclasses import replace

import pytest

from kafkalite.coordination import paths
from kafkalite.coordination.coordinator import Create, Delete
from kafkalite.coordination.topic_znodes import encode_partition_state
from kafkalite.errors import ErrorCode
from kafkalite.model import BrokerId, LeaderEpoch, PartitionEpoch, TopicPartition
from kafkalite.record.reader import read_records
from kafkalite.replica.decisions import isr as rules
from kafkalite.replica.isr_writer import Task
from kafkalite.rpc.messages.control import PartitionState
from kafkalite.rpc.messages.replication import LogEndsRequest
from tests.support.logs import everything
from tests.support.waiting import until
from tests.unit.replica.conftest import TOPIC_ID, TestCluster

T0 = TopicPartition("t", 0)


async def led_by_one(cluster: TestCluster) -> PartitionState:
    """Partition 0 with node 2 in sync and node 3 outside; its znode has version 2."""
    cluster.create_topic("t", {0: (1, 2)})
    for _ in range(3):
        state = cluster.decide(T0, leader=1, isr=(1, 2), epoch=3)
    assert state.partition_epoch == 2
    await cluster.command_all(state)
    return state


def put_back(cluster: TestCluster, *, epoch: int) -> None:
    """With version 0."""
    before = cluster.state(T0)
    cluster.zookeeper.poke(Delete(paths.partition_state(T0)))
    earlier = replace(before, leader_epoch=LeaderEpoch(epoch))
    cluster.zookeeper.poke(Create(paths.partition_state(T0), encode_partition_state(earlier)))


@pytest.mark.checklist("F18")
async def test_a_command_with_an_earlier_version_is_reported(make_cluster) -> None:
    cluster = await make_cluster(2)
    state = await led_by_one(cluster)
    answer = await cluster.command(1, replace(state, partition_epoch=PartitionEpoch(0)), is_init=True)
    assert answer.error == 0 and not answer.partitions
    (change,) = cluster.node(1).changes
    assert (change.topic, change.partition, change.topic_id) == ("t", 0, TOPIC_ID)
    assert (change.leader_epoch, change.partition_epoch, change.isr) == (3, 2, (1, 2))
    assert change.is_ahead and not change.has_resigned
    assert cluster.node(1).partition(T0).leader is not None


@pytest.mark.checklist("F18")
async def test_a_command_with_an_earlier_leader_epoch_is_refused_and_reported(make_cluster) -> None:
    cluster = await make_cluster(2)
    state = await led_by_one(cluster)
    earlier = replace(state, leader=BrokerId(2), leader_epoch=LeaderEpoch(2), partition_epoch=PartitionEpoch(0))
    assert (await cluster.command(1, earlier, is_init=True)).partitions
    assert [change.is_ahead for change in cluster.node(1).changes] == [True]
    assert (await cluster.command(2, earlier, is_init=True)).partitions
    (change,) = cluster.node(2).changes
    assert change.is_ahead and change.is_epoch_only and change.leader_epoch == 3, "a follower does not know the ISR"


@pytest.mark.checklist("F18")
async def test_a_leader_whose_log_has_a_later_epoch_does_not_lead_and_reports_it(make_cluster) -> None:
    """All nodes were stopped when the znode was put back. Records of the earlier epoch behind those of later ones would make followers
    cut committed records again and again."""
    cluster = await make_cluster(2)
    state = await led_by_one(cluster)
    await cluster.node(1).produce(T0, b"x")
    await until(lambda: cluster.node(2).partition(T0).log.log_end_offset == 1)
    for number in (1, 2):
        await cluster.node(number).stop()
        await cluster.node(number).start()
    earlier = replace(state, leader_epoch=LeaderEpoch(1), partition_epoch=PartitionEpoch(0))
    answer = await cluster.command(1, earlier, is_init=True)
    assert [each.error for each in answer.partitions] == [ErrorCode.STALE_CONTROLLER_EPOCH]
    node = cluster.node(1)
    assert node.partition(T0).leader is None
    assert node.partition(T0).log.latest_epoch == 3
    (change,) = node.changes
    assert (change.leader_epoch, change.partition_epoch, change.isr) == (3, 0, (1, 2))
    assert change.is_ahead and change.has_resigned and change.is_epoch_only
    ends = node.manager.log_ends(LogEndsRequest((("t", 0),))).ends
    assert [(each.leader_epoch, each.log_end_offset, each.leads_in) for each in ends] == [(3, 1, -1)]
    assert not (await cluster.command(1, replace(earlier, leader_epoch=LeaderEpoch(4)))).partitions
    ends = node.manager.log_ends(LogEndsRequest((("t", 0),))).ends
    assert [(each.leader_epoch, each.log_end_offset, each.leads_in) for each in ends] == [(4, 1, 4)]
    assert node.partition(T0).leader is not None
    assert node.partition(T0).log.epoch_and_end_offset_for(LeaderEpoch(3)) == (3, 1)


@pytest.mark.checklist("F18")
async def test_a_follower_whose_log_has_a_later_epoch_cuts_nothing_and_reports_it(make_cluster) -> None:
    """The leader that the earlier znode names was not in sync later, and has none of the records of that time."""
    cluster = await make_cluster(2)
    state = await led_by_one(cluster)
    await cluster.node(1).produce(T0, b"x")
    await until(lambda: cluster.node(2).partition(T0).log.log_end_offset == 1)
    await cluster.node(2).stop()
    await cluster.node(2).start()
    earlier = replace(state, leader_epoch=LeaderEpoch(1), partition_epoch=PartitionEpoch(0))
    answer = await cluster.command(2, earlier, is_init=True)
    assert [each.error for each in answer.partitions] == [ErrorCode.STALE_CONTROLLER_EPOCH]
    (change,) = cluster.node(2).changes
    assert change.is_epoch_only and change.leader_epoch == 3
    assert cluster.node(2).partition(T0).log.log_end_offset == 1
    assert not (await cluster.command(2, replace(earlier, leader_epoch=LeaderEpoch(4)))).partitions


@pytest.mark.checklist("F18")
async def test_another_leader_in_the_same_epoch_is_refused(make_cluster) -> None:
    """The znode went one epoch back while the leader of this epoch was dead, and the next controller has elected somebody in it."""
    cluster = await make_cluster(2)
    state = await led_by_one(cluster)
    other = replace(state, leader=cluster.node(2).broker_id, partition_epoch=PartitionEpoch(0))
    answer = await cluster.command(2, other, is_init=True)
    assert [each.error for each in answer.partitions] == [ErrorCode.STALE_CONTROLLER_EPOCH]
    assert cluster.node(2).partition(T0).leader is None
    assert cluster.node(2).partition(T0).leader_id == 1
    (change,) = cluster.node(2).changes
    assert change.is_epoch_only and change.leader_epoch == 4, "the next leader's epoch has to be behind it"


@pytest.mark.checklist("F18")
async def test_who_has_restarted_does_not_lead_in_an_epoch_that_its_log_has(make_cluster) -> None:
    """ZooKeeper was restored from one election before. The next controller's first election has the epoch that another leader had: records of
    both at the same offsets could not be distinguished."""
    cluster = await make_cluster(2)
    state = await led_by_one(cluster)
    await cluster.node(1).produce(T0, b"x")
    node = cluster.node(2)
    await until(lambda: node.partition(T0).log.log_end_offset == 1)
    await node.stop()
    await node.start()
    node.changes.clear()
    lead = replace(state, leader=node.broker_id, partition_epoch=PartitionEpoch(1), accepts_loss=0)
    for _ in range(2):
        answer = await cluster.command(2, lead, is_init=True)
        assert [each.error for each in answer.partitions] == [ErrorCode.STALE_CONTROLLER_EPOCH]
        assert node.partition(T0).leader is None
    assert {(change.leader_epoch, change.is_epoch_only) for change in node.changes} == {(4, True)}
    await node.manager.session_roles.on_session(await node.session.wait())
    assert node.partition(T0).leader is None
    assert not (await cluster.command(2, replace(lead, leader_epoch=LeaderEpoch(4)))).partitions
    assert node.partition(T0).leader is not None


async def test_a_replica_says_with_its_log_end_that_it_may_lack_records(make_cluster) -> None:
    """Its registration may be older than the doubt."""
    cluster = await make_cluster(2)
    await led_by_one(cluster)
    node = cluster.node(2)
    for is_doubtful in (True, False):
        node.logs.pool.doubt(T0, is_doubtful=is_doubtful)
        (end,) = node.manager.log_ends(LogEndsRequest((("t", 0),))).ends
        assert end.is_doubtful is is_doubtful


async def test_a_command_with_the_same_state_is_not(make_cluster) -> None:
    cluster = await make_cluster(2)
    state = await led_by_one(cluster)
    await cluster.command(1, state, is_init=True)
    await cluster.command(2, state, is_init=True)
    assert not cluster.node(1).changes and not cluster.node(2).changes


@pytest.mark.checklist("F18")
@pytest.mark.parametrize("epoch", [3, 2])
async def test_a_change_of_the_isr_that_meets_an_earlier_znode_is_reported(make_cluster, epoch: int) -> None:
    cluster = await make_cluster(2)
    await led_by_one(cluster)
    put_back(cluster, epoch=epoch)
    node = cluster.node(1)
    leader = node.partition(T0).leader
    assert leader is not None
    wanted = (BrokerId(1),)
    rules.begin_proposal(leader, wanted)
    controller_epoch = node.partition(T0).controller_epoch
    node.manager._isr_keeper.writer.submit(Task(T0, rules.propose(leader, wanted), controller_epoch))
    await until(lambda: node.partition(T0).leader is None)
    (change,) = node.changes
    assert (change.leader_epoch, change.partition_epoch, change.isr) == (3, 2, (1, 2))
    assert change.is_ahead and change.has_resigned


@pytest.mark.checklist("F18", "F2")
async def test_who_led_in_the_same_epoch_and_wrote_nothing_cuts_what_the_leader_does_not_have(make_cluster) -> None:
    """ZooKeeper was restored, and another one leads in that epoch. This replica's own start of the epoch hid that its records before it
    are not the leader's: both were in sync, with other records at the same offsets."""
    cluster = await make_cluster(2)
    state = await led_by_one(cluster)
    for value in (b"a", b"b"):
        await cluster.node(1).produce(T0, value)
    await until(lambda: cluster.node(2).partition(T0).log.log_end_offset == 2)
    await cluster.command(2, replace(state, leader=BrokerId(-1), leader_epoch=LeaderEpoch(4)))
    for value in (b"c", b"d", b"e"):
        await cluster.node(1).produce(T0, value, acks=1)
    await cluster.command(1, replace(state, leader_epoch=LeaderEpoch(5)))
    await cluster.node(1).stop()
    other = replace(state, leader=BrokerId(2), leader_epoch=LeaderEpoch(5), isr=(BrokerId(2),))
    await cluster.command(2, other)
    for value in (b"v", b"w", b"x", b"y"):
        await cluster.node(2).produce(T0, value, acks=1)
    await cluster.node(1).start()
    one, two = (cluster.node(number).partition for number in (1, 2))
    await cluster.command(1, other, is_init=True)
    assert one(T0).log.latest_epoch == 5, "it was stopped in order"
    await until(lambda: one(T0).log.log_end_offset == 6 and one(T0).log.epoch_entries == two(T0).log.epoch_entries)
    assert [each.value for each in read_records(everything(one(T0).log))] == [b"a", b"b", b"v", b"w", b"x", b"y"]
