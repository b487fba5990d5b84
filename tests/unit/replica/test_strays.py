"""Logs that belong to nobody here: what came back with a disk, and what a loss of power must not bring back."""

import errno

import pytest

from kafkalite.coordination import paths
from kafkalite.coordination.cluster_znodes import encode_cluster_id
from kafkalite.coordination.coordinator import Create, Delete, SetData
from kafkalite.coordination.topic_znodes import TopicZnode, encode_topic
from kafkalite.env.turns import at_once
from kafkalite.errors import ErrorCode, StorageError
from kafkalite.model import BrokerEpoch, BrokerId, ControllerEpoch, LeaderEpoch, PartitionEpoch, TopicPartition
from kafkalite.rpc.messages.control import PartitionState, UpdateMetadataRequest
from kafkalite.rpc.messages.replication import LogEndsRequest
from tests.support.logs import batch
from tests.unit.replica.conftest import CLUSTER_ID, TOPIC_ID

KEYS = [TopicPartition("t", number) for number in range(4)]


@pytest.fixture
async def two_disks(make_cluster, tmp_path):
    """One node with two disks; t-0 to t-3 are on it, and the first disk has died and is sound again."""
    first, second = str(tmp_path / "d1"), str(tmp_path / "d2")
    cluster = await make_cluster(1, **{"log.dirs": f"{first},{second}"})
    cluster.create_topic("t", dict.fromkeys(range(4), (1,)))
    cluster.zookeeper.poke(
        Create(paths.parent(paths.CLUSTER_ID)), Create(paths.CLUSTER_ID, encode_cluster_id(CLUSTER_ID))
    )
    node = cluster.node(1)
    states = [cluster.decide(key, leader=1, isr=(1,), epoch=0) for key in KEYS]
    await cluster.command(1, *states)
    away = [log.topic_partition for log in node.logs.all() if log.directory == first]
    assert len(away) == 2
    node.logs.failures.dir_failed(StorageError("dead", directory=first, path=first))
    for key in away:
        assert (await cluster.stop_replica(1, key, epoch=-2, delete=True)).partitions == ()
    return cluster, node, first, away


async def back(node, directory: str) -> None:
    await node.logs.opening.bring_online(directory, CLUSTER_ID, 1, {})


@pytest.mark.checklist("F19")
@pytest.mark.checklist(93)
async def test_what_a_disk_brings_back_and_the_topics_znode_gives_to_nobody_here_is_set_aside(two_disks):
    cluster, node, directory, away = two_disks
    left = {key.partition: (BrokerId(1),) for key in KEYS if key != away[0]}
    cluster.zookeeper.poke(SetData(paths.topic("t"), encode_topic(TopicZnode(TOPIC_ID, left))))
    cluster.zookeeper.poke(Delete(paths.partition_state(away[0])))
    await back(node, directory)
    log = node.logs.get(away[0])
    log.take_topic_id(TOPIC_ID)
    log.append_as_follower(batch(["a"], leader_epoch=0))
    assert await node.manager.session_roles.set_aside_strays(await node.session.wait(), is_guarded=False)
    assert node.logs.get(away[0]) is None
    assert node.logs.get(away[1]) is not None, "assigned to this node: the controller has yet to say so"
    assert [name.rsplit(".")[0] for name in node.disk.listdir(directory) if name.endswith("-stray")] == [str(away[0])]
    [stray] = node.logs.removals.strays()
    assert not stray.is_later


@pytest.mark.checklist("F19")
@pytest.mark.parametrize("cluster_id", [b"not json", encode_cluster_id("B" * 22)])
async def test_nothing_is_judged_by_the_zookeeper_of_another_cluster(two_disks, cluster_id):
    cluster, node, directory, away = two_disks
    cluster.zookeeper.poke(
        SetData(paths.topic("t"), encode_topic(TopicZnode(TOPIC_ID, {}))), SetData(paths.CLUSTER_ID, cluster_id)
    )
    await back(node, directory)
    assert await node.manager.session_roles.set_aside_strays(await node.session.wait(), is_guarded=False)
    assert all(node.logs.get(key) is not None for key in away)


@pytest.mark.checklist("F19")
async def test_after_a_command_in_between_it_is_read_again(two_disks):
    cluster, node, directory, away = two_disks
    cluster.zookeeper.poke(SetData(paths.topic("t"), encode_topic(TopicZnode(TOPIC_ID, {}))))
    await back(node, directory)
    earlier = node.manager.commands.count
    await cluster.command(1)
    assert not await node.manager.commands.set_aside_strays({"t": None}, {}, since=earlier, is_guarded=False)
    assert all(node.logs.get(key) is not None for key in away)
    assert await node.manager.session_roles.set_aside_strays(await node.session.wait(), is_guarded=False)
    assert all(node.logs.get(key) is None for key in away)


@pytest.mark.checklist("F18")
async def test_a_deletion_is_answered_when_no_loss_of_power_can_undo_it(make_cluster, monkeypatch):
    """Found by simulation (seeds 20112, 20645): the controller forgot the deletion, the power went, and the replica was back.
    A list that named few others made the node refuse to set it aside."""
    cluster = await make_cluster(1)
    cluster.create_topic("t", {0: (1,)})
    node, key = cluster.node(1), KEYS[0]
    await cluster.command(1, cluster.decide(key, leader=1, isr=(1,), epoch=0))
    synced: list[str] = []
    sync_dir = node.disk.sync_dir

    def fail_once(path: str) -> None:
        synced.append(path)
        if len(synced) == 1:
            raise OSError(errno.EIO, "injected", path)
        sync_dir(path)

    monkeypatch.setattr(node.disk, "sync_dir", fail_once)
    answer = await cluster.stop_replica(1, key, epoch=-2, delete=True)
    assert [each.error for each in answer.partitions] == [ErrorCode.KAFKA_STORAGE_ERROR]
    assert (await cluster.stop_replica(1, key, epoch=-2, delete=True)).partitions == ()
    assert synced[0] == str(node.directory) and synced.count(str(node.directory)) >= 2


@pytest.mark.checklist("F19")
async def test_strays_that_were_too_many_are_no_problem_when_the_controller_has_deleted_them(make_cluster):
    """A node that was drained while a disk was away has nothing but such logs when it starts with the disk. What it decides alone,
    before the controller's first command, was reported until the next start."""
    cluster = await make_cluster(1)
    cluster.create_topic("t", dict.fromkeys(range(4), (1,)))
    cluster.zookeeper.poke(
        Create(paths.parent(paths.CLUSTER_ID)), Create(paths.CLUSTER_ID, encode_cluster_id(CLUSTER_ID))
    )
    node = cluster.node(1)
    await cluster.command(1, *(cluster.decide(key, leader=1, isr=(1,), epoch=0) for key in KEYS))
    others = dict.fromkeys(range(4), (BrokerId(2),))
    cluster.zookeeper.poke(SetData(paths.topic("t"), encode_topic(TopicZnode(TOPIC_ID, others))))
    await cluster.command(1, is_init=True)
    assert await node.manager.session_roles.set_aside_strays(await node.session.wait(), is_guarded=True)

    def is_reported():
        return "replica.strays_refused" in [problem.what for problem in at_once(node.manager.describing.problems())]

    for key in KEYS:
        assert is_reported()
        assert (await cluster.stop_replica(1, key, epoch=0, delete=True)).partitions == ()
    assert not is_reported()


@pytest.mark.checklist("F19")
async def test_a_stray_takes_the_place_of_a_less_complete_log_if_nobody_leads(make_cluster):
    """The partition was given to this broker again, because it has its records. The controller died, and the next one had a replica without any lead for a
    moment: an empty log was made here, and what was set aside was neither served nor found."""
    cluster = await make_cluster(1)
    cluster.create_topic("t", {0: (1,)})
    node, key = cluster.node(1), KEYS[0]
    await cluster.command(1, cluster.decide(key, leader=1, isr=(1,), epoch=5))
    assert (await node.produce(key, b"x")).error == ErrorCode.NONE
    node.manager.roles.stop(node.partition(key))
    node.logs.set_stray(key)
    assert not (await cluster.command(1, cluster.decide(key, leader=2, isr=(2,), epoch=2, replicas=(1, 2)))).partitions
    assert node.partition(key).log.log_end_offset == 0
    answer = await cluster.command(1, cluster.decide(key, leader=-1, isr=(2,), epoch=3, replicas=(1, 2)))
    assert [each.error for each in answer.partitions] == [ErrorCode.KAFKA_STORAGE_ERROR]
    await back(node, str(node.directory))
    await node.manager.commands.retry_offline()
    assert node.partition(key).log.log_end_offset == 1
    assert not (await cluster.command(1, cluster.decide(key, leader=-1, isr=(2,), epoch=4, replicas=(1, 2)))).partitions
    assert node.partition(key).log.log_end_offset == 1, "the empty one is set aside"


@pytest.mark.checklist("F19")
@pytest.mark.parametrize(("log_epoch", "is_later"), [(0, False), (1, True)])
async def test_a_stray_that_is_later_than_zookeeper_is_kept(two_disks, log_epoch, is_later):
    """ZooKeeper was restored from before the reassignment that gave the partition to this node: replicas with an older log seem to have all
    that is here. That cannot be seen any more after some elections, so the name says it, through a restart, too. The metadata of a node that ran on
    meanwhile do not show it."""
    cluster, node, directory, away = two_disks
    await back(node, directory)
    log = node.logs.get(away[0])
    log.take_topic_id(TOPIC_ID)
    log.append_as_follower(batch(["a"], leader_epoch=log_epoch))
    others = {key.partition: (BrokerId(2), BrokerId(3)) for key in KEYS}
    cluster.zookeeper.poke(SetData(paths.topic("t"), encode_topic(TopicZnode(TOPIC_ID, others))))
    state = PartitionState(
        away[0].topic, away[0].partition, TOPIC_ID, ControllerEpoch(1), BrokerId(2), LeaderEpoch(2), (BrokerId(2), BrokerId(3)),
        PartitionEpoch(1), (BrokerId(2), BrokerId(3)),
    )  # fmt: skip
    node.manager.metadata.apply(
        UpdateMetadataRequest(
            BrokerId(2), ControllerEpoch(9), BrokerEpoch(1), brokers=(), partitions=(state,), is_full=False
        )
    )
    assert await node.manager.session_roles.set_aside_strays(await node.session.wait(), is_guarded=False)
    [stray] = node.logs.removals.of(away[0], TOPIC_ID)
    assert (stray.is_later, stray.latest_epoch, stray.log_end_offset) == (is_later, log_epoch, 1)
    live = {BrokerId(2): BrokerEpoch(1), BrokerId(3): BrokerEpoch(1)}
    node.manager.metadata.broker_epochs.update(live)
    assert node.manager.is_elsewhere(stray) is not is_later
    node.logs.removals.forget_stray(stray)
    [(path, files)] = node.logs.removals.find_strays(directory, [stray.name])
    node.logs.removals.keep(path, files)
    assert node.logs.removals.strays()[0].is_later is is_later
    asked = LogEndsRequest(((away[0].topic, away[0].partition),), with_strays=True)
    assert [(end.leader_epoch, end.topic_id) for end in node.manager.log_ends(asked).ends if end.is_stray] == [
        (log_epoch, TOPIC_ID)
    ]


@pytest.mark.checklist("F19")
async def test_a_stray_of_a_topic_with_a_long_name_is_named_in_full(make_cluster):
    """Its directory has a part of the name only: nobody heard of it, and a replica without a record led."""
    cluster = await make_cluster(1)
    node, key = cluster.node(1), TopicPartition("t" * 249, 0)
    cluster.create_topic(key.topic, {0: (1,)})
    await cluster.command(1, cluster.decide(key, leader=1, isr=(1,), epoch=5))
    assert (await node.produce(key, b"x")).error == ErrorCode.NONE
    node.manager.roles.stop(node.partition(key))
    node.logs.set_stray(key)
    (end,) = node.manager.log_ends(LogEndsRequest(((key.topic, 0), ("t", 0)), with_strays=True)).ends
    assert (end.topic, end.partition, end.leader_epoch, end.log_end_offset) == (*key, 5, 1)
