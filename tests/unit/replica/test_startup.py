"""A node that starts takes its roles from ZooKeeper; what it must not take on its own it leaves to the controller."""

import asyncio
import shutil
from dataclasses import replace

import pytest

from kafkalite.coordination import paths
from kafkalite.coordination.admin_znodes import encode_delete_topics
from kafkalite.coordination.coordinator import Create, SetData
from kafkalite.coordination.topic_znodes import TopicZnode, encode_topic
from kafkalite.errors import ApiError, ErrorCode
from kafkalite.model import EPOCH_DURING_DELETE, BrokerId, LeaderEpoch, PartitionEpoch, TopicId, TopicPartition
from kafkalite.replica import session_roles
from kafkalite.replica.command_queue import MAX_QUEUED
from kafkalite.replica.startup import read_cluster
from kafkalite.rpc.messages.control import UpdateMetadataRequest
from kafkalite.rpc.messages.replication import LogEndsRequest
from tests.unit.replica.conftest import TOPIC_ID

TP = TopicPartition("t", 0)


async def stopped(node, *, clean: bool) -> None:
    await node.manager.stop()
    await node.server.close()
    await node.logs.close(clean=clean)
    await node.session.close()
    await node.supervisor.stop()
    node.disk.close()


async def restarted(node, *, clean: bool):
    await stopped(node, clean=clean)
    await node.start()
    await node.manager.session_roles.on_session(await node.session.wait())
    return node.partition(TP) if node.manager.hosted.get(TP) is not None else None


@pytest.mark.checklist(38)
async def test_roles_without_a_controller(make_cluster, until):
    cluster = await make_cluster(2)
    cluster.create_topic("t", {0: (1, 2)})
    await cluster.command_all(cluster.decide(TP, leader=1, isr=(1, 2), epoch=0))
    assert (await cluster.node(1).produce(TP, b"x")).error == ErrorCode.NONE
    partition = await restarted(cluster.node(1), clean=True)
    assert partition.leader is not None
    assert cluster.node(1).metadata.partition(TP).isr == (1, 2)


@pytest.mark.checklist("F14")
async def test_after_an_unclean_stop_a_replica_leads_unasked_only_if_it_is_alone(make_cluster):
    cluster = await make_cluster(1)
    cluster.create_topic("t", {0: (1, 2), 1: (1,)})
    alone = TopicPartition("t", 1)
    await cluster.command(
        1, cluster.decide(TP, leader=1, isr=(1, 2), epoch=0), cluster.decide(alone, leader=1, isr=(1,), epoch=0)
    )
    assert await restarted(cluster.node(1), clean=False) is None
    assert cluster.node(1).logs.get(TP) is not None, "what it must not lead yet is no stray"
    assert cluster.node(1).partition(alone).leader is not None
    await cluster.command(1, cluster.decide(TP, leader=1, isr=(1, 2), epoch=1))  # the controller has chosen
    assert cluster.node(1).partition(TP).leader is not None
    # Having led in this process, it resumes after a lost session, as its log is whole.
    cluster.node(1).manager.hosted.resign(cluster.node(1).partition(TP), "the session was lost")
    assert cluster.node(1).partition(TP).leader is None
    await cluster.node(1).manager.session_roles.on_session(await cluster.node(1).session.wait())
    assert cluster.node(1).partition(TP).leader is not None


async def test_a_broker_that_went_while_this_node_read_does_not_come_back(make_cluster, monkeypatch):
    cluster = await make_cluster(2)
    node, gone = cluster.node(1), cluster.node(2).broker_id

    def learn(*brokers):
        request = UpdateMetadataRequest(
            BrokerId(99), cluster.controller_epoch, node.broker_epoch, is_full=False, brokers=brokers, partitions=()
        )
        assert node.manager.commands.update_metadata(request).error == 0

    async def read_meanwhile(coordinator):
        snapshot = replace(await read_cluster(coordinator), brokers=cluster.brokers())
        learn(cluster.brokers()[0])
        return snapshot

    cluster.create_topic("t", {0: (1,)})
    learn(*cluster.brokers())
    monkeypatch.setattr(session_roles, "read_cluster", read_meanwhile)
    await node.manager.session_roles.on_session(await node.session.wait())
    assert node.metadata.broker(gone) is None


@pytest.mark.parametrize("is_restarted", [False, True])
@pytest.mark.parametrize("is_kafkas", [False, True])
async def test_a_replica_that_was_deleted_is_not_read_back(make_cluster, *, is_restarted: bool, is_kafkas: bool):
    """Found by simulation (harsh seed 70013): a new session read the topic after its replica was deleted, and before the controller had removed its
    znodes. Nobody stopped the replica that came back so."""
    cluster = await make_cluster(2)
    node, deleted, other = cluster.node(1), TopicPartition("t", 1), TopicPartition("u", 0)
    cluster.create_topic("t", {0: (1, 2), 1: (1, 2)})
    cluster.create_topic("u", {0: (1, 2)})
    states = {each: cluster.decide(each, leader=2, isr=(1, 2), epoch=1) for each in (TP, deleted, other)}
    await cluster.command_all(*states.values())
    cluster.zookeeper.lag("node1", 0.2)  # its server does not show the request at once
    data, below = (b"", [Create(paths.delete_topic("t"), b"")]) if is_kafkas else (encode_delete_topics(["t"]), [])
    cluster.zookeeper.poke(Create(paths.parent(paths.DELETE_TOPICS), b""), Create(paths.DELETE_TOPICS, data), *below)
    await cluster.stop_replica(1, deleted, delete=True, epoch=EPOCH_DURING_DELETE)
    if is_restarted:
        await stopped(node, clean=False)
        await node.start()
    await node.manager.session_roles.on_session(await node.session.wait())
    hosted = {each.topic_partition for each in node.manager.hosted.all()}
    assert hosted == ({other} if is_restarted else {TP, other})
    assert node.logs.get(deleted) is None
    assert node.logs.get(TP) is not None and not node.manager.strays.needs_classification
    await cluster.command(1, states[deleted])  # a move brings it back
    assert node.manager.hosted.get(deleted) is not None


@pytest.mark.checklist(39)
@pytest.mark.checklist("F19")
async def test_own_strays_are_judged_by_a_whole_reading_only(make_cluster):
    cluster = await make_cluster(1)
    cluster.create_topic("t", dict.fromkeys(range(4), (1,)))
    states = [cluster.decide(TopicPartition("t", p), leader=1, isr=(1,), epoch=0) for p in range(4)]
    await cluster.command(1, *states)
    node = cluster.node(1)
    gone = states[3]
    node.manager.hosted.demote(node.partition(TopicPartition("t", 3)))
    node.manager.hosted.remove(node.partition(TopicPartition("t", 3)))
    cluster.zookeeper.poke(SetData(paths.topic("t"), b"{not json"))
    await node.manager.session_roles.on_session(await node.session.wait())
    assert len(node.logs.all()) == 4
    assert gone.partition == 3


@pytest.mark.checklist("F19")
async def test_a_complete_list_from_before_what_the_node_has_read_takes_nothing_away(make_cluster):
    """Found by simulation: the list was a second late; a replica that a move had added meanwhile, and that was in sync, went
    aside as a stray, and the next command recreated it, empty, as a member of the ISR."""
    cluster = await make_cluster(1)
    cluster.create_topic("t", dict.fromkeys(range(4), (1,)))
    states = [cluster.decide(TopicPartition("t", p), leader=1, isr=(1,), epoch=0) for p in range(4)]
    node = cluster.node(1)
    await cluster.command(1, *states)
    await node.manager.session_roles.on_session(await node.session.wait())
    assert (await node.produce(TP, b"x")).error == ErrorCode.NONE
    await cluster.command(1, *states[1:], is_init=True)
    assert node.partition(TP).log.log_end_offset == 1
    assert not node.manager.strays.needs_classification
    await cluster.command(1, *states[1:], is_init=True)  # of the next controller: newer than our own reading
    assert node.manager.strays.needs_classification, "the topic's znode tells whose it is"


@pytest.mark.checklist(2)
async def test_the_snapshot_tells_what_the_znodes_say(make_cluster):
    cluster = await make_cluster(1)
    cluster.create_topic("t", {0: (1, 2), 1: (2, 1)})
    cluster.decide(TP, leader=2, isr=(2,), epoch=3)
    cluster.zookeeper.poke(
        Create(
            paths.broker(1),
            b'{"version":5,"host":"h","port":9092,"jmx_port":-1,"timestamp":"1","endpoints":[],"rpc_endpoint":"h:9192"}',
        ),
        Create(paths.broker(7), b"malformed"),
        Create(paths.CONTROLLER_EPOCH, b"5"),
        Create(paths.CONTROLLER, b'{"version":1,"brokerid":2,"timestamp":"1"}'),
    )
    snapshot = await read_cluster(await cluster.node(1).session.wait())
    assert (snapshot.controller_id, snapshot.controller_epoch) == (2, 5)
    assert [(b.broker_id, b.rpc_host, b.rpc_port) for b in snapshot.brokers] == [(1, "h", 9192)]
    (partition,) = snapshot.partitions  # t-1 has no state znode yet
    assert (partition.leader, partition.leader_epoch, partition.isr, partition.replicas) == (2, 3, (2,), (1, 2))
    assert not snapshot.is_complete


@pytest.mark.checklist("F3")
async def test_replicas_are_not_older_than_the_state_beside_them(make_cluster, monkeypatch):
    """Found by simulation (seed 31000): a step of a move was written between the two readings. The leader did not know the replica that was
    added, and refused its fetches until the next epoch: the command that names it had the leader epoch that was applied already."""
    cluster = await make_cluster(1)
    cluster.create_topic("t", {0: (1,)})
    cluster.decide(TP, leader=1, isr=(1,), epoch=3)
    coordinator = await cluster.node(1).session.wait()
    get_many = coordinator.get_many

    async def step_before_the_states(wanted):
        if paths.partition_state(TP) in wanted:
            replicas = {0: (BrokerId(1), BrokerId(2))}
            cluster.zookeeper.poke(SetData(paths.topic("t"), encode_topic(TopicZnode(TOPIC_ID, replicas))))
            cluster.decide(TP, leader=1, isr=(1,), epoch=4)
        return await get_many(wanted)

    monkeypatch.setattr(coordinator, "get_many", step_before_the_states)
    (partition,) = (await read_cluster(coordinator)).partitions
    assert (partition.leader_epoch, partition.replicas) == (4, (1, 2))


@pytest.mark.checklist("F18")
async def test_the_state_of_a_former_topic_is_not_the_present_ones(make_cluster, monkeypatch):
    """The topic was deleted and created again between the readings: its replicas would have begun in the former one's epoch."""
    cluster = await make_cluster(1)
    cluster.create_topic("t", {0: (1,)})
    cluster.decide(TP, leader=1, isr=(1,), epoch=17)
    coordinator = await cluster.node(1).session.wait()
    get_many = coordinator.get_many

    async def created_again_after_the_states(wanted):
        found = await get_many(wanted)
        if paths.partition_state(TP) in wanted:
            present = TopicZnode(TopicId("p0p0p0p0p0p0p0p0p0p0p0"), {0: (BrokerId(1),)})
            cluster.zookeeper.poke(SetData(paths.topic("t"), encode_topic(present)))
        return found

    monkeypatch.setattr(coordinator, "get_many", created_again_after_the_states)
    snapshot = await read_cluster(coordinator)
    assert snapshot.partitions == () and not snapshot.is_complete


@pytest.mark.checklist(63)
async def test_a_lost_session_makes_a_leader_alone_in_sync_resign_and_the_next_one_resumes(make_cluster, until):
    cluster = await make_cluster(1)
    cluster.create_topic("t", {0: (1, 2)})
    await cluster.command(1, cluster.decide(TP, leader=1, isr=(1,), epoch=0, replicas=(1, 2)))
    node = cluster.node(1)
    before = await node.session.wait()
    cluster.zookeeper.expire("node1")
    await until(lambda: node.session.current not in (None, before))
    assert node.partition(TP).leader is None
    assert (await node.produce(TP, b"x")).error == ErrorCode.NOT_LEADER_OR_FOLLOWER
    await node.manager.session_roles.on_session(await node.session.wait())
    assert (await node.produce(TP, b"x")).error == ErrorCode.NONE


@pytest.mark.checklist("F14")
async def test_a_member_of_the_isr_whose_log_is_gone_does_not_lead_with_an_empty_one(make_cluster):
    """Somebody had removed the directory, or put back an older copy of the disk. Only after a loss of power was it in doubt."""
    cluster = await make_cluster(2)
    cluster.create_topic("t", {0: (1, 2)})
    await cluster.command_all(cluster.decide(TP, leader=1, isr=(1, 2), epoch=0))
    assert (await cluster.node(1).produce(TP, b"x")).error == ErrorCode.NONE
    await stopped(cluster.node(1), clean=False)
    shutil.rmtree(cluster.node(1).directory / "t-0")
    await cluster.node(1).start()
    lead = replace(cluster.decide(TP, leader=1, isr=(1, 2), epoch=1), accepts_loss=0)
    answer = await cluster.command(1, lead)
    assert [each.error for each in answer.partitions] == [ErrorCode.ELIGIBLE_LEADERS_NOT_AVAILABLE]
    assert cluster.node(1).logs.pool.doubtful() == [TP]
    await stopped(cluster.node(1), clean=False)
    await cluster.node(1).start()
    assert cluster.node(1).logs.pool.doubtful() == [TP], "it is killed at once: the doubt is on the disk"


@pytest.mark.checklist("F18")
async def test_a_log_of_a_former_topic_does_not_stand_for_the_present_ones(make_cluster):
    """A disk is back with a log of a topic that was deleted, and the one with the log of the next topic of that name was replaced: it was not
    missed, the directory counted as complete, and the replica led with an empty log. Nobody hears how far the former log goes either."""
    cluster = await make_cluster(2)
    cluster.create_topic("t", {0: (1, 2)})
    await cluster.command_all(cluster.decide(TP, leader=1, isr=(1, 2), epoch=0))
    node = cluster.node(1)
    assert (await node.produce(TP, b"x")).error == ErrorCode.NONE
    await stopped(node, clean=False)
    present = TopicZnode(TopicId("p0p0p0p0p0p0p0p0p0p0p0"), {0: (BrokerId(1), BrokerId(2))})
    cluster.zookeeper.poke(SetData(paths.topic("t"), encode_topic(present)))
    cluster.decide(TP, leader=2, isr=(1, 2), epoch=3)
    (node.directory / ".kafkalite-incomplete").touch()
    await node.start()
    find = node.manager.session_roles.find_missing_logs
    assert await find(await node.session.wait(), is_start=True) == {TP}
    assert node.manager.log_ends(LogEndsRequest((("t", 0),))).ends == ()


@pytest.mark.checklist("F14")
async def test_without_its_log_a_replica_does_not_lead_unasked(make_cluster):
    """Stopped in order as the last in sync, in the first leader epoch. The log was gone at the next start, and the others cut theirs to nothing."""
    cluster = await make_cluster(2)
    cluster.create_topic("t", {0: (1, 2)})
    await cluster.command_all(cluster.decide(TP, leader=1, isr=(1, 2), epoch=0))
    node = cluster.node(1)
    assert (await node.produce(TP, b"x")).error == ErrorCode.NONE
    cluster.decide(TP, leader=1, isr=(1,), epoch=0)
    await stopped(node, clean=True)
    shutil.rmtree(node.directory / "t-0")
    await node.start()
    await node.manager.session_roles.on_session(await node.session.wait())
    assert node.manager.hosted.get(TP) is None
    assert cluster.node(2).partition(TP).log.log_end_offset == 1


@pytest.mark.checklist("F14")
@pytest.mark.parametrize(("replicas", "leader"), [((1,), 1), ((1, 2), 2)])
async def test_without_its_log_a_member_takes_no_role_of_the_first_epoch_unasked(make_cluster, replicas, leader):
    """ZooKeeper was restored from before the partition's first election, and the partition had moved since. The only replica led with an empty log, or
    a follower made one that was in sync, and not in doubt: it led when the leader had refused."""
    cluster = await make_cluster(1)
    cluster.create_topic("t", {0: replicas})
    cluster.decide(TP, leader=leader, isr=replicas, epoch=0)
    node = cluster.node(1)
    await node.manager.session_roles.on_session(await node.session.wait())
    assert node.manager.hosted.get(TP) is None and node.logs.get(TP) is None
    # The controller takes it for restarted.
    lead = replace(cluster.decide(TP, leader=1, isr=replicas, epoch=1, replicas=replicas), accepts_loss=0)
    answer = await cluster.command(1, lead)
    assert [each.error for each in answer.partitions] == [ErrorCode.ELIGIBLE_LEADERS_NOT_AVAILABLE]


@pytest.mark.checklist("F14")
async def test_a_controller_hears_again_that_the_log_is_gone(make_cluster):
    """The state was written since the replica registered, by a controller that has died. The next one does not doubt the replica, which had only said that its
    disk is dead: it was waited for, whatever the others have."""
    cluster = await make_cluster(1)
    cluster.create_topic("t", {0: (1, 2)})
    cluster.decide(TP, leader=1, isr=(1,), epoch=4)
    node = cluster.node(1)
    await stopped(node, clean=False)
    (node.directory / ".kafkalite-incomplete").touch()
    await node.start()
    nobody = replace(cluster.decide(TP, leader=-1, isr=(1,), epoch=5), accepts_loss=0)
    answer = await cluster.command(1, nobody)
    assert [each.error for each in answer.partitions] == [ErrorCode.KAFKA_STORAGE_ERROR]
    lead = replace(cluster.decide(TP, leader=1, isr=(1,), epoch=6), accepts_loss=0)
    answer = await cluster.command(1, lead)
    assert [each.error for each in answer.partitions] == [ErrorCode.ELIGIBLE_LEADERS_NOT_AVAILABLE]
    ends = node.manager.log_ends(LogEndsRequest((("t", 0),))).ends
    assert [(each.leader_epoch, each.log_end_offset) for each in ends] == [(-1, 0)]


async def test_a_session_begins_also_while_too_many_commands_are_waiting(make_cluster, until, monkeypatch):
    """THROTTLING_QUOTA_EXCEEDED ended the session's task, and the node with it."""
    monkeypatch.setattr(session_roles, "_AGAIN_S", 0)
    cluster = await make_cluster(2)
    cluster.create_topic("t", {0: (1, 2)})
    await cluster.command_all(cluster.decide(TP, leader=1, isr=(1, 2), epoch=0))
    node, released, refused = cluster.node(1), asyncio.Event(), asyncio.Event()
    queue = node.manager.commands.queue
    node.manager.hosted.resign(node.partition(TP), "the session was lost")
    for _ in range(MAX_QUEUED + 1):
        queue.place(released.wait)
        await asyncio.sleep(0)  # the first one is taken out
    place = queue.place

    def placed(work):
        try:
            return place(work)
        except ApiError:
            refused.set()
            raise

    monkeypatch.setattr(queue, "place", placed)
    beginning = asyncio.ensure_future(node.manager.session_roles.on_session(await node.session.wait()))
    await asyncio.wait([beginning, asyncio.ensure_future(refused.wait())], return_when=asyncio.FIRST_COMPLETED)
    released.set()
    await beginning
    assert node.partition(TP).leader is not None


async def test_what_a_node_has_to_write_before_it_leads_is_written_while_it_reads_and_before_it_leads(make_cluster):
    cluster = await make_cluster(2)
    cluster.create_topic("t", {0: (1, 2)})
    await cluster.command_all(cluster.decide(TP, leader=1, isr=(1, 2), epoch=0))
    node, writing, written = cluster.node(1), asyncio.Event(), asyncio.Event()
    node.manager.hosted.resign(node.partition(TP), "the session was lost")
    has_read = asyncio.Event()

    async def record(coordinator):
        writing.set()
        await written.wait()

    async def read(coordinator):
        snapshot = await read_cluster(coordinator)
        has_read.set()
        return snapshot

    with pytest.MonkeyPatch.context() as patch:
        patch.setattr(session_roles, "read_cluster", read)
        beginning = asyncio.ensure_future(node.manager.session_roles.on_session(await node.session.wait(), record))
        await writing.wait()
        await has_read.wait()
        for _ in range(20):
            await asyncio.sleep(0)
        assert node.partition(TP).leader is None
        written.set()
        await beginning
    assert node.partition(TP).leader is not None


@pytest.mark.checklist("F18")
async def test_a_topic_that_was_created_again_while_this_node_read_is_not_replaced_by_the_former_one(
    make_cluster, monkeypatch
):
    """Its log was set aside as another topic's, and the former topic began here again, empty."""
    cluster = await make_cluster(1)
    cluster.create_topic("t", {0: (1,)})
    node = cluster.node(1)
    await cluster.command(1, cluster.decide(TP, leader=1, isr=(1,), epoch=5))
    present = TopicId("p0p0p0p0p0p0p0p0p0p0p0")

    async def created_again_meanwhile(coordinator):
        snapshot = await read_cluster(coordinator)
        (former,) = snapshot.partitions
        assert (await cluster.stop_replica(1, TP, epoch=-2, delete=True)).partitions == ()
        created = replace(former, topic_id=present, leader_epoch=LeaderEpoch(0), partition_epoch=PartitionEpoch(0))
        created = replace(created, is_new=True)
        assert not (await cluster.command(1, created)).partitions
        assert (await node.produce(TP, b"x")).error == ErrorCode.NONE
        return snapshot

    monkeypatch.setattr(session_roles, "read_cluster", created_again_meanwhile)
    await node.manager.session_roles.on_session(await node.session.wait())
    partition = node.partition(TP)
    assert (partition.topic_id, partition.log.log_end_offset) == (present, 1)
    assert partition.leader is not None


@pytest.mark.checklist("F14")
async def test_a_node_looks_for_missing_logs_in_the_present_state(make_cluster):
    """Its ZooKeeper server was behind, and did not have this node in the ISR yet. It registered as if it had lost nothing."""
    cluster = await make_cluster(1)
    cluster.create_topic("t", {0: (1, 2)})
    cluster.decide(TP, leader=2, isr=(2,), epoch=3)
    cluster.zookeeper.lag("node1", 0.2)
    cluster.decide(TP, leader=2, isr=(1, 2), epoch=3)
    cluster.node(1).logs.pool.online()[0].mark_incomplete()
    roles = cluster.node(1).manager.session_roles
    assert await roles.find_missing_logs(await cluster.node(1).session.wait(), is_start=True) == {TP}
