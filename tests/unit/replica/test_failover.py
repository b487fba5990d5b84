"""Commands, their fences, and what happens to the log and to those who wait when leadership moves."""

import asyncio

import pytest

from kafkalite.coordination import paths
from kafkalite.coordination.cluster_znodes import encode_cluster_id
from kafkalite.coordination.coordinator import Create, SetData
from kafkalite.coordination.topic_znodes import TopicZnode, encode_topic
from kafkalite.env.turns import at_once, result_of
from kafkalite.errors import ErrorCode
from kafkalite.model import (
    NO_BROKER_EPOCH,
    BrokerEpoch,
    BrokerId,
    ControllerEpoch,
    LeaderEpoch,
    Offset,
    TopicId,
    TopicPartition,
)
from kafkalite.replica import describing
from kafkalite.replica.requests import ListOffsetsPartition, ListOffsetsRequest
from kafkalite.rpc.messages.control import UpdateMetadataRequest
from kafkalite.rpc.messages.replication import ReplicaFetchPartition, ReplicaFetchRequest, ReplicaFetchResponse
from tests.support.logs import build_batch
from tests.unit.replica.conftest import CLUSTER_ID, TOPIC_ID

TP = TopicPartition("t", 0)
OTHER_ID = TopicId("u1u1u1u1u1u1u1u1u1u1u1")


def log_bytes(cluster, number: int) -> bytes:
    directory = cluster.node(number).directory / str(TP)
    return b"".join(path.read_bytes() for path in sorted(directory.glob("*.log")))


@pytest.fixture
async def three(make_cluster):
    cluster = await make_cluster(3)
    cluster.create_topic("t", {0: (1, 2, 3)})
    await cluster.command_all(cluster.decide(TP, leader=1, isr=(1, 2, 3), epoch=0))
    return cluster


@pytest.mark.checklist(29)
@pytest.mark.checklist("F2")
@pytest.mark.checklist("F5")
async def test_an_old_leader_cuts_what_only_it_had(three, until):
    for _ in range(5):
        await three.node(1).produce(TP, b"committed")
    # Followers stop fetching; what leader 1 takes now nobody else has.
    state = three.decide(TP, leader=-1, isr=(1, 2, 3), epoch=1)
    await three.command(2, state)
    await three.command(3, state)
    assert not any(TP in three.node(number).manager.fetchers._of for number in (2, 3))
    for _ in range(3):
        await three.node(1).produce(TP, b"only on one", acks=1)
    assert three.node(1).partition(TP).log.log_end_offset == 8
    state = three.decide(TP, leader=2, isr=(1, 2, 3), epoch=2)
    await three.command(2, state)
    await three.command(3, state)
    await three.node(2).produce(TP, b"y", acks=1)
    await three.command(1, state)
    assert (await three.node(2).produce(TP, b"z")).error == ErrorCode.NONE
    await until(lambda: three.node(1).partition(TP).high_watermark == 7)
    assert log_bytes(three, 1) == log_bytes(three, 2) == log_bytes(three, 3)
    assert b"only on one" not in log_bytes(three, 1)


@pytest.mark.checklist("F2")
async def test_an_epoch_that_nobody_wrote_in_does_not_stall_the_follower(three, until):
    """A leader without a record of its own leaves an epoch entry at the end of its log; it must not loop on it."""
    await three.node(1).produce(TP, b"a")
    await three.command(2, three.decide(TP, leader=2, isr=(1, 2, 3), epoch=1))
    state = three.decide(TP, leader=1, isr=(1, 2, 3), epoch=2)
    await three.command_all(state)
    assert (await three.node(1).produce(TP, b"b")).error == ErrorCode.NONE
    assert three.node(2).partition(TP).log.log_end_offset == 2


@pytest.mark.checklist(29)
@pytest.mark.checklist("F30")
async def test_a_thousand_waiting_acks_fail_at_once_when_leadership_goes(make_cluster):
    cluster = await make_cluster(1)
    cluster.create_topic("t", {0: (1, 2)})
    await cluster.command(1, cluster.decide(TP, leader=1, isr=(1, 2), epoch=0))
    node = cluster.node(1)
    answers, leaders = [], set()
    batch = build_batch([(None, b"x")])
    partition = node.partition(TP)

    def refused(parts):
        answers.append(parts[0].error)
        leaders.add((partition.leader_id, partition.leader_epoch))

    for _ in range(1_000):
        node.manager.producing.produce(-1, 60_000, [(TP, batch)], refused)
    assert not answers
    await cluster.command(1, cluster.decide(TP, leader=2, isr=(1, 2), epoch=1))
    # When the command is answered they are too: nothing waits for a deadline (60 s) or a tick.
    assert answers == [ErrorCode.NOT_LEADER_OR_FOLLOWER] * 1_000
    assert leaders == {(2, 1)}, "the answers can say who leads now (KIP-951)"
    assert not node.partition(TP).produce_waiters
    assert len(node.manager.hosted.wheel) == 0
    assert (await node.produce(TP, b"late")).error == ErrorCode.NOT_LEADER_OR_FOLLOWER


@pytest.mark.checklist(30)
@pytest.mark.checklist(66)
async def test_the_same_command_again_changes_nothing(three):
    await three.node(1).produce(TP, b"x")
    before = three.node(1).partition(TP).leader
    fetchers = three.node(2).manager.fetchers
    fetched = fetchers._of[TP].partitions[TP]
    state = three.decide(TP, leader=1, isr=(1, 2, 3), epoch=0)
    for _ in range(3):
        assert (await three.command(1, state)).partitions == ()
        assert (await three.command(2, state)).partitions == ()
    assert three.node(1).partition(TP).leader is before
    assert three.node(2).partition(TP).log.log_end_offset == 1
    assert fetchers._of[TP].partitions[TP] is fetched, "its fetcher goes on as it was"


@pytest.mark.checklist(13)
@pytest.mark.checklist(66)
@pytest.mark.checklist("F3")
async def test_an_older_leader_epoch_is_refused_for_that_partition_only(three):
    second = TopicPartition("t", 1)
    await three.command(1, three.decide(TP, leader=1, isr=(1, 2, 3), epoch=6))
    old = three.decide(TP, leader=2, isr=(1, 2, 3), epoch=5)
    answer = await three.command(1, old, three.decide(second, leader=1, isr=(1,), epoch=0))
    assert [(p.topic, p.partition, p.error) for p in answer.partitions] == [("t", 0, ErrorCode.STALE_CONTROLLER_EPOCH)]
    assert three.node(1).partition(TP).leader is not None
    assert three.node(1).partition(second).leader is not None


@pytest.mark.checklist("F4")
async def test_a_controller_of_the_past_commands_nothing(three):
    state = three.decide(TP, leader=2, isr=(1, 2, 3), epoch=7)
    await three.command(1, controller_epoch=ControllerEpoch(5))
    for answer in (
        await three.command(1, state, controller_epoch=ControllerEpoch(4)),
        await three.stop_replica(1, TP, epoch=9, delete=True, controller_epoch=ControllerEpoch(4)),
        three.node(1).manager.commands.update_metadata(
            UpdateMetadataRequest(
                BrokerId(9), ControllerEpoch(4), three.node(1).broker_epoch, is_full=True, brokers=(), partitions=()
            )
        ),
    ):
        assert answer.error == ErrorCode.STALE_CONTROLLER_EPOCH
    assert three.node(1).partition(TP).leader is not None


@pytest.mark.checklist("F5")
async def test_a_command_for_an_earlier_life_of_the_broker_is_refused(three):
    three.node(1).broker_epoch = BrokerEpoch(5000)
    answer = await three.stop_replica(1, TP, epoch=9, delete=True, broker_epoch=BrokerEpoch(1001))
    assert answer.error == ErrorCode.STALE_BROKER_EPOCH
    assert three.node(1).partition(TP).leader is not None
    answer = await three.command(1, three.decide(TP, leader=2, isr=(1, 2, 3), epoch=9), broker_epoch=BrokerEpoch(1001))
    assert answer.error == ErrorCode.STALE_BROKER_EPOCH


@pytest.mark.checklist("F5")
async def test_who_is_not_registered_yet_takes_no_command_meant_for_its_earlier_life(three):
    """It may have lost what was not synced: in its old office it would have the others truncate what they have."""
    earlier = three.node(1).broker_epoch
    three.node(1).broker_epoch = NO_BROKER_EPOCH
    answer = await three.command(1, three.decide(TP, leader=1, isr=(1, 2, 3), epoch=9), broker_epoch=earlier)
    assert answer.error == ErrorCode.STALE_BROKER_EPOCH
    assert three.node(1).partition(TP).leader_epoch < 9
    answer = await three.stop_replica(1, TP, epoch=9, delete=True, broker_epoch=earlier)
    assert answer.error == ErrorCode.STALE_BROKER_EPOCH


@pytest.mark.checklist(33)
async def test_stop_replica_with_and_without_the_files(three, until):
    await three.node(1).produce(TP, b"kept")
    await until(lambda: three.node(2).partition(TP).high_watermark == 1)
    assert (await three.stop_replica(2, TP, epoch=0, delete=False)).partitions == ()
    assert three.node(2).manager.hosted.get(TP) is None
    assert TP not in three.node(2).manager.fetchers._of
    assert (three.node(2).directory / "t-0").is_dir()
    await three.command(2, three.decide(TP, leader=1, isr=(1, 2, 3), epoch=0))
    assert three.node(2).partition(TP).high_watermark == 1
    assert (await three.stop_replica(3, TP, epoch=-2, delete=True)).partitions == ()
    assert not (three.node(3).directory / "t-0").exists()
    assert (await three.stop_replica(3, TP, epoch=-2, delete=True)).partitions == ()  # again: nothing to do


async def test_stop_replica_of_an_older_epoch_is_refused(three):
    await three.command(1, three.decide(TP, leader=1, isr=(1, 2, 3), epoch=4))
    answer = await three.stop_replica(1, TP, epoch=3, delete=True)
    assert [p.error for p in answer.partitions] == [ErrorCode.FENCED_LEADER_EPOCH]


@pytest.mark.checklist("C18")
@pytest.mark.checklist("F18")
async def test_a_topic_made_again_does_not_inherit_the_old_ones_records(three):
    await three.node(1).produce(TP, b"old topic")
    await three.command(1, three.decide(TP, leader=1, isr=(1,), epoch=0, topic_id=OTHER_ID))
    partition = three.node(1).partition(TP)
    assert (partition.topic_id, partition.log.log_end_offset) == (OTHER_ID, 0)
    assert [(each.topic_partition, each.is_requested) for each in three.node(1).logs.removals.strays()] == [(TP, False)]
    answer = await three.stop_replica(1, TP, epoch=-2, delete=True)  # for the old id
    assert [each.is_requested for each in three.node(1).logs.removals.strays()] == [True]
    assert [p.error for p in answer.partitions] == [ErrorCode.INCONSISTENT_TOPIC_ID]


@pytest.mark.checklist(31)
@pytest.mark.checklist(39)
@pytest.mark.checklist("F19")
async def test_strays_are_renamed_but_never_all_of_them(three):
    three.zookeeper.poke(
        Create(paths.parent(paths.CLUSTER_ID)), Create(paths.CLUSTER_ID, encode_cluster_id(CLUSTER_ID))
    )
    states = [three.decide(TopicPartition("t", p), leader=1, isr=(1,), epoch=0) for p in range(1, 10)]
    await three.command(1, *states)
    node = three.node(1)

    async def judged(mine: range) -> None:
        assignment = {number: (BrokerId(1 if number in mine else 2),) for number in range(10)}
        three.zookeeper.poke(SetData(paths.topic("t"), encode_topic(TopicZnode(TOPIC_ID, assignment))))
        assert node.manager.strays.needs_classification
        assert await node.manager.session_roles.set_aside_strays(await node.session.wait(), is_guarded=True)

    await three.command(1, is_init=True)  # a controller that saw an empty ZooKeeper
    await judged(range(10))
    assert len(node.logs.all()) == 10 and at_once(node.manager.describing.problems()) == ()
    await three.command(1, *states[:3], is_init=True)  # 7 of 10
    await judged(range(1, 4))
    assert len(node.logs.all()) == 10
    assert [problem.what for problem in at_once(node.manager.describing.problems())] == ["replica.strays_refused"]
    await three.command(1, *states, is_init=True)  # t-0 is not named
    await judged(range(1, 10))
    assert node.manager.hosted.get(TP) is None
    assert [path.name[:4] for path in node.directory.glob("*-stray")] == ["t-0."]
    assert at_once(node.manager.describing.problems()) == ()


@pytest.mark.checklist(28)
@pytest.mark.checklist("F3")
async def test_a_late_answer_of_the_old_leader_is_dropped(three):
    """The answer to a fetch under epoch 0 arrives after the command for epoch 1."""
    follower = three.node(2)
    fetcher = follower.manager.fetchers._of[TP]
    fetched = fetcher.partitions[TP]
    assert fetched.leader_epoch == 0
    await three.command(2, three.decide(TP, leader=2, isr=(1, 2, 3), epoch=1))
    from kafkalite.rpc.messages.replication import ReplicaFetchedPartition

    batch = bytearray(build_batch([(None, b"late")]))
    fetcher._take_one(ReplicaFetchedPartition("t", 0, 0, Offset(1), Offset(0), len(batch)), memoryview(batch))
    assert follower.partition(TP).log.log_end_offset == 0
    assert follower.partition(TP).leader is not None


@pytest.mark.checklist(28)
@pytest.mark.checklist("F3")
async def test_an_answer_to_an_earlier_epochs_fetch_is_dropped_although_the_leader_is_the_same(three):
    from kafkalite.rpc.messages.replication import ReplicaFetchedPartition

    follower = three.node(2)
    fetchers = follower.manager.fetchers
    fetchers.follow(follower.partition(TP), BrokerId(1))  # as a later epoch of leader 1 does; it is not listed yet
    batch = bytearray(build_batch([(None, b"late")]))
    late = ReplicaFetchedPartition("t", 0, 0, Offset(1), Offset(0), len(batch))
    fetchers._of[TP]._take_one(late, memoryview(batch))
    assert follower.partition(TP).log.log_end_offset == 0


@pytest.mark.checklist(45)
@pytest.mark.checklist("F3")
@pytest.mark.checklist("F15")
async def test_replica_fetches_are_fenced(three):
    leader = three.node(1)
    await three.command(1, three.decide(TP, leader=1, isr=(1, 2, 3), epoch=3))

    def fetch(replica: int, *, epoch: int, broker_epoch: int, topic_id: TopicId) -> ReplicaFetchResponse:
        answers: list[ReplicaFetchResponse] = []
        wanted = ReplicaFetchPartition(
            "t", 0, topic_id, LeaderEpoch(epoch), Offset(0), LeaderEpoch(-1), Offset(0), 1 << 20
        )
        request = ReplicaFetchRequest(BrokerId(replica), BrokerEpoch(broker_epoch), 0, 1, 1 << 20, 0, 0, (wanted,))
        leader.manager.serving.fetch(request, lambda response, body: answers.append(response))
        return answers[0]

    topic_id = leader.partition(TP).topic_id
    for case, error in {
        (2, 2, 1002, topic_id): ErrorCode.FENCED_LEADER_EPOCH,
        (2, 4, 1002, topic_id): ErrorCode.UNKNOWN_LEADER_EPOCH,
        (2, 3, 1002, OTHER_ID): ErrorCode.INCONSISTENT_TOPIC_ID,
        (9, 3, 1009, topic_id): ErrorCode.NOT_LEADER_OR_FOLLOWER,
    }.items():
        replica, epoch, broker_epoch, topic = case
        answer = fetch(replica, epoch=epoch, broker_epoch=broker_epoch, topic_id=topic)
        assert [part.error for part in answer.partitions] == [error], case
    assert fetch(2, epoch=3, broker_epoch=1, topic_id=topic_id).error == ErrorCode.STALE_BROKER_EPOCH
    unled = three.node(2)
    answers = []
    wanted = ReplicaFetchPartition("t", 0, topic_id, LeaderEpoch(0), Offset(0), LeaderEpoch(-1), Offset(0), 1 << 20)
    unled.manager.serving.fetch(
        ReplicaFetchRequest(BrokerId(3), BrokerEpoch(1003), 0, 1, 1 << 20, 0, 0, (wanted,)),
        lambda response, body: answers.append(response),
    )
    assert [part.error for part in answers[0].partitions] == [ErrorCode.NOT_LEADER_OR_FOLLOWER]


@pytest.mark.checklist(32, 53)
@pytest.mark.checklist("F10")
async def test_a_new_leader_whose_high_watermark_lags_shows_no_error_and_no_offset(three, until):
    leader = three.node(1)
    for _ in range(100):
        await leader.produce(TP, b"x", acks=1)
    await until(lambda: all(three.node(n).partition(TP).log.log_end_offset == 100 for n in (2, 3)))
    three.node(2).partition(TP).follower_high_watermark = Offset(0)  # the answer with it never came
    await three.command(2, three.decide(TP, leader=2, isr=(1, 2, 3), epoch=1))  # nobody fetches from 2 yet
    new = three.node(2)
    latest = ListOffsetsRequest((ListOffsetsPartition("t", 0, -1),))
    assert (await new.manager.consuming.list_offsets(latest)).partitions[0].error == ErrorCode.OFFSET_NOT_AVAILABLE
    for offset in (0, 50, 100):
        fetched, body = await new.fetch(TP, offset)
        assert (fetched.error, body) == (ErrorCode.NONE, b""), offset
    assert (await new.fetch(TP, 101))[0].error == ErrorCode.OFFSET_OUT_OF_RANGE
    await three.command_all(three.decide(TP, leader=2, isr=(1, 2, 3), epoch=1))
    await until(lambda: new.partition(TP).high_watermark == 100)
    listed = (await new.manager.consuming.list_offsets(latest)).partitions[0]
    assert (listed.error, listed.offset, listed.leader_epoch) == (ErrorCode.NONE, 100, 1)


@pytest.mark.checklist(32)
async def test_consumers_wait_for_the_high_watermark_not_for_the_log(three, until):
    leader = three.node(1)
    waiting = asyncio.create_task(leader.fetch(TP, 0, max_wait_ms=5_000))
    await asyncio.sleep(0)
    assert (await leader.produce(TP, b"seen")).error == ErrorCode.NONE
    fetched, body = await waiting
    assert (fetched.high_watermark, b"seen" in body) == (1, True)
    assert not leader.partition(TP).fetch_waiters


@pytest.mark.checklist(29)
async def test_a_waiting_consumer_hears_of_the_new_leader_at_once(three):
    waiting = asyncio.create_task(three.node(1).fetch(TP, 0, max_wait_ms=60_000))
    await asyncio.sleep(0)
    await three.command(1, three.decide(TP, leader=2, isr=(1, 2, 3), epoch=1))
    assert (await waiting)[0].error == ErrorCode.NOT_LEADER_OR_FOLLOWER


@pytest.mark.checklist(27)
@pytest.mark.checklist(38)
async def test_a_restart_keeps_the_high_watermark_and_takes_roles_from_zookeeper(three, until):
    for _ in range(7):
        await three.node(1).produce(TP, b"x")
    await until(lambda: three.node(3).partition(TP).high_watermark == 7)
    node = three.node(3)
    await node.stop()
    await node.start()
    three.zookeeper.poke()
    coordinator = await node.session.wait()
    await node.manager.session_roles.on_session(coordinator)
    partition = node.partition(TP)
    assert (partition.high_watermark, partition.log.log_end_offset) == (7, 7)
    assert (partition.leader_id, partition.leader_epoch, partition.leader) == (1, 0, None)
    assert node.metadata.partition(TP).leader == 1


@pytest.mark.checklist(27)
async def test_high_watermarks_are_saved_while_the_node_runs(make_cluster, until):
    cluster = await make_cluster(1, **{"replica.high.watermark.checkpoint.interval.ms": 20})
    cluster.create_topic("t", {0: (1,)})
    await cluster.command(1, cluster.decide(TP, leader=1, isr=(1,), epoch=0))
    node = cluster.node(1)
    await node.produce(TP, b"x")
    saved = node.directory / "replication-offset-checkpoint"
    await until(lambda: saved.exists() and saved.read_text().splitlines()[2:] == ["t 0 1"])


@pytest.mark.checklist(12)
async def test_describe_tells_what_each_replica_knows(three, until):
    await three.node(1).produce(TP, b"x")
    await until(lambda: three.node(2).partition(TP).high_watermark == 1)
    (own,) = (await result_of(three.node(1).manager.describing.describe(()))).replicas
    assert (own.is_leader, own.isr, own.high_watermark, own.log_end_offset) == (True, (1, 2, 3), 1, 1)
    assert (own.replicas, own.partition_epoch) == ((1, 2, 3), three.state(TP).partition_epoch)
    assert [(f.broker_id, f.log_end_offset) for f in own.followers] == [(2, 1), (3, 1)]
    (other,) = (await result_of(three.node(2).manager.describing.describe(["t", "t"]))).replicas
    assert (other.is_leader, other.leader, other.high_watermark, other.followers) == (False, 1, 1, ())
    assert (await result_of(three.node(2).manager.describing.describe(["unknown"]))).replicas == ()


async def test_replicas_are_described_in_steps(three, monkeypatch):
    """Anybody may ask for them: 5,000 replicas held the loop for 50 ms, whichever client asked."""
    monkeypatch.setattr(describing, "_STEP", 1)
    manager = three.node(1).manager
    steps = manager.describing.describe(())
    next(steps)
    assert [each.topic for each in (await result_of(manager.describing.describe(()))).replicas] == ["t"]
    with pytest.raises(StopIteration) as end:
        next(steps)
    assert [each.topic for each in end.value.value.replicas] == ["t"]


@pytest.mark.checklist(53)
async def test_followers_answer_consumers_up_to_the_high_watermark_they_have(three, until):
    leader, follower = three.node(1), three.node(2)
    for _ in range(3):
        await leader.produce(TP, b"seen")
    await until(lambda: follower.partition(TP).high_watermark == 3)
    # One that does not know of followers gets nothing there.
    assert (await follower.fetch(TP, 0))[0].error == ErrorCode.NOT_LEADER_OR_FOLLOWER
    # One whose metadata are of another epoch hears that first, as from Kafka.
    epoch = follower.partition(TP).leader_epoch
    errors = [(await follower.fetch(TP, 0, leader_epoch=each))[0].error for each in (epoch - 1, epoch, epoch + 1)]
    older, newer = ErrorCode.FENCED_LEADER_EPOCH, ErrorCode.UNKNOWN_LEADER_EPOCH
    assert errors[1:] == [ErrorCode.NOT_LEADER_OR_FOLLOWER, newer] and (epoch == 0 or errors[0] == older)
    got, body = await follower.fetch(TP, 0, reads_followers=True)
    assert (got.error, got.high_watermark, body.count(b"seen")) == (0, 3, 3)
    assert (await follower.fetch(TP, 4, reads_followers=True))[0].error == ErrorCode.OFFSET_OUT_OF_RANGE
    # What it has and may not show yet is no error, and its long poll ends when it may.
    follower.partition(TP).follower_high_watermark = Offset(2)
    assert (await follower.fetch(TP, 2, reads_followers=True))[0].records_size == 0
    follower.partition(TP).follower_high_watermark = Offset(3)
    waiting = asyncio.create_task(follower.fetch(TP, 3, reads_followers=True, max_wait_ms=60_000))
    await asyncio.sleep(0)
    leader.manager.hosted.is_read_at(leader.partition(TP), 2)
    await leader.produce(TP, b"more")
    assert b"more" in (await waiting)[1]
    # A role that ends wakes those that read there.
    waiting = asyncio.create_task(follower.fetch(TP, 4, reads_followers=True, max_wait_ms=60_000, leader_epoch=0))
    await asyncio.sleep(0)
    await three.command_all(three.decide(TP, leader=3, isr=(1, 2, 3), epoch=1))
    assert (await waiting)[0].error == ErrorCode.FENCED_LEADER_EPOCH
    assert not follower.partition(TP).fetch_waiters


async def test_a_leader_names_the_replica_in_the_consumers_rack(three):
    from kafkalite.replica.decisions.nearby import preferred_replica

    leader = three.node(1)
    await leader.produce(TP, b"x")
    role = leader.partition(TP).leader
    racks = {1: "a", 2: "b", 3: "b"}
    role.followers[3].log_end_offset = Offset(9)
    assert preferred_replica(role, Offset(1), "b", racks.get) == 3
    role.followers[3].log_start_offset = Offset(5)  # it does not have that record any more
    assert preferred_replica(role, Offset(1), "b", racks.get) == 2
    assert preferred_replica(role, Offset(7), "c", racks.get) is None
    assert preferred_replica(role, Offset(1), "a", racks.get) is None
    assert preferred_replica(role, Offset(1), "", racks.get) is None
