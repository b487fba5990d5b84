"""A topic's znodes are gone, and nobody has ordered its deletion (ADR 19): nothing is deleted, and it can come back."""

import asyncio

import pytest

from kafkalite.coordination import paths
from kafkalite.coordination.cluster_znodes import encode_cluster_id
from kafkalite.coordination.coordinator import Create, Delete
from kafkalite.env.turns import at_once
from kafkalite.errors import ErrorCode
from kafkalite.model import BrokerId, TopicId, TopicPartition
from kafkalite.rpc.messages.control import ALL_OF_A_VANISHED_TOPIC, UpdateMetadataRequest
from tests.unit.replica.conftest import CLUSTER_ID

KEYS = [TopicPartition("t", number) for number in range(4)]
OTHER_ID = TopicId("o1o1o1o1o1o1o1o1o1o1o1")


@pytest.fixture
async def cluster(make_cluster):
    """One node, with t-0 to t-3 of three records each."""
    made = await make_cluster(1)
    made.create_topic("t", dict.fromkeys(range(4), (1,)))
    made.zookeeper.poke(Create(paths.parent(paths.CLUSTER_ID)), Create(paths.CLUSTER_ID, encode_cluster_id(CLUSTER_ID)))
    await made.command(1, *(made.decide(key, leader=1, isr=(1,), epoch=4) for key in KEYS))
    for key in KEYS:
        assert (await made.node(1).produce(key, b"a", b"b", b"c")).error == ErrorCode.NONE
    tell_metadata(made)
    return made


def tell_metadata(cluster, *states):
    node = cluster.node(1)
    request = UpdateMetadataRequest(
        BrokerId(99),
        cluster.controller_epoch,
        node.broker_epoch,
        is_full=True,
        brokers=cluster.brokers(),
        partitions=states,
    )
    assert node.manager.commands.update_metadata(request).error == 0


def vanish(cluster):
    for key in KEYS:
        cluster.zookeeper.poke(Delete(paths.partition_state(key)), Delete(paths.partition(key)))
    cluster.zookeeper.poke(Delete(paths.topic_partitions("t")), Delete(paths.topic("t")))


async def judge(cluster) -> None:
    node = cluster.node(1)
    assert node.manager.strays.needs_classification
    assert await node.manager.session_roles.set_aside_strays(await node.session.wait(), is_guarded=True)
    assert not node.manager.strays.needs_classification


async def restart(cluster) -> None:
    node = cluster.node(1)
    await node.stop()
    await node.start()
    await node.manager.session_roles.on_session(await node.session.wait())


def names(cluster):
    return [name for name in cluster.node(1).disk.listdir(str(cluster.node(1).directory)) if name.startswith("t-")]


def what(cluster):
    return {(each.what, each.subject) for each in at_once(cluster.node(1).manager.describing.problems())}


async def by_command(cluster):
    """The present controller has seen it."""
    for key in KEYS:
        assert (await cluster.stop_replica(1, key, epoch=-2, delete=False)).partitions == ()


async def by_a_list(cluster):
    """The next controller knows nothing of the topic."""
    await cluster.command(1, is_init=True)


WAYS = [by_command, by_a_list, restart]


@pytest.mark.checklist("F19")
@pytest.mark.parametrize("way", WAYS)
async def test_nothing_is_deleted_and_it_is_told(cluster, way):
    vanish(cluster)
    await way(cluster)
    if cluster.node(1).manager.strays.needs_classification:
        await judge(cluster)
    node = cluster.node(1)
    tell_metadata(cluster)
    assert names(cluster) == [str(key) for key in KEYS]
    assert all(node.manager.hosted.get(key) is None for key in KEYS), "served by nobody"
    (problem,) = [each for each in at_once(node.manager.describing.problems()) if each.what == "topic.vanished"]
    assert (problem.subject, problem.detail.count("4 replicas")) == ("t", 1)
    assert not any(node.manager.high_watermark(key) for key in KEYS), "retention and compaction leave it alone"


@pytest.mark.checklist("F19")
@pytest.mark.parametrize("restarts", [0, 1])
@pytest.mark.parametrize("way", WAYS)
async def test_a_topic_that_returns_with_its_id_goes_on_where_it_stopped(cluster, way, restarts):
    vanish(cluster)
    await way(cluster)
    if cluster.node(1).manager.strays.needs_classification:
        await judge(cluster)
    for _ in range(restarts):
        cluster.node(1).manager.checkpoint_high_watermarks()
        await restart(cluster)
    cluster.create_topic("t", dict.fromkeys(range(4), (1,)))
    states = [cluster.decide(key, leader=1, isr=(1,), epoch=5) for key in KEYS]
    await cluster.command(1, *states)
    tell_metadata(cluster, *states)
    node = cluster.node(1)
    for key in KEYS:
        partition = node.partition(key)
        assert (partition.high_watermark, partition.log.log_end_offset) == (3, 3)
        assert partition.log.epoch_and_end_offset_for(4) == (4, 3)
        assert (await node.produce(key, b"d")).error == ErrorCode.NONE
    if node.manager.strays.needs_classification:
        await judge(cluster)
    assert what(cluster) == set() and names(cluster) == [str(key) for key in KEYS]


@pytest.mark.checklist("F18")
async def test_another_topic_of_the_name_takes_the_place_and_the_records_are_kept(cluster):
    vanish(cluster)
    await by_command(cluster)
    cluster.create_topic("t", {0: (1,)}, OTHER_ID)
    state = cluster.decide(KEYS[0], leader=1, isr=(1,), epoch=0, topic_id=OTHER_ID)
    await cluster.command(1, state)
    tell_metadata(cluster, state)
    node = cluster.node(1)
    assert node.partition(KEYS[0]).log.log_end_offset == 0
    await judge(cluster)
    kept = {str(key) for key in KEYS}
    assert {str(stray.topic_partition) for stray in node.logs.removals.strays()} == kept
    assert what(cluster) == {("replica.kept", key) for key in kept}
    await restart(cluster)
    tell_metadata(cluster, state)
    assert what(cluster) == {("replica.kept", key) for key in kept}, "also after a restart"
    # The deletion of the earlier topic is ordered after all (a controller finishes what it once began).
    await cluster.stop_replica(1, KEYS[0], epoch=-2, delete=True)
    ordered = [stray.topic_partition for stray in cluster.node(1).logs.removals.strays() if stray.is_requested]
    assert ordered == KEYS[:1] and what(cluster) == {("replica.kept", str(key)) for key in KEYS[1:]}
    await restart(cluster)
    tell_metadata(cluster, state)
    assert what(cluster) == {("replica.kept", str(key)) for key in KEYS[1:]}, "nobody orders it again"
    assert cluster.node(1).manager.hosted.get(KEYS[0]) is not None, "the later one is another topic"


@pytest.mark.checklist("F19")
async def test_a_person_orders_that_it_goes(cluster):
    vanish(cluster)
    wildcard = TopicPartition("t", ALL_OF_A_VANISHED_TOPIC)
    await cluster.stop_replica(1, wildcard, epoch=-2, delete=True)
    assert names(cluster) == [str(key) for key in KEYS], (
        "they are hosted: the topic is there, as far as this node knows"
    )
    await by_command(cluster)
    await judge(cluster)
    await cluster.stop_replica(1, TopicPartition("u", ALL_OF_A_VANISHED_TOPIC), epoch=-2, delete=True)
    assert names(cluster) == [str(key) for key in KEYS], "another topic's"
    await cluster.stop_replica(1, wildcard, epoch=-2, delete=True)
    assert all(name.endswith("-delete") for name in names(cluster))
    assert what(cluster) == set()


@pytest.mark.checklist("F19")
async def test_a_list_of_the_past_takes_nothing_away(cluster):
    """The topic is there, whatever the list says; nothing stops being served."""
    await by_a_list(cluster)
    await judge(cluster)
    assert all(cluster.node(1).partition(key).leader is not None for key in KEYS)
    assert what(cluster) == set()


@pytest.mark.checklist("F19")
async def test_replicas_that_are_others_by_the_topics_znode_are_put_away_unless_they_are_too_many(cluster):
    for key in KEYS:
        cluster.zookeeper.poke(Delete(paths.partition_state(key)), Delete(paths.partition(key)))
    cluster.zookeeper.poke(Delete(paths.topic_partitions("t")), Delete(paths.topic("t")))
    cluster.create_topic("t", {0: (2,), 1: (2,), 2: (2,), 3: (1,)})
    await by_a_list(cluster)
    await judge(cluster)
    assert ("replica.strays_refused", "") in what(cluster)
    cluster.zookeeper.poke(*(Delete(paths.partition(key)) for key in KEYS))
    cluster.zookeeper.poke(Delete(paths.topic_partitions("t")), Delete(paths.topic("t")))
    cluster.create_topic("t", {0: (2,), 1: (1,), 2: (1,), 3: (1,)})
    await by_a_list(cluster)
    await judge(cluster)
    assert [name.rpartition("-")[2] for name in names(cluster)] == ["stray", "1", "2", "3"]
    tell_metadata(cluster, cluster.decide(KEYS[1], leader=1, isr=(1,), epoch=6))
    assert what(cluster) == set()
    await asyncio.sleep(0)
