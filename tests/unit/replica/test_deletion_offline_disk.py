"""A partition is deleted while a disk of its broker is offline (ADR 61): its files there are deleted when the disk is back."""

from dataclasses import replace
from pathlib import Path

import pytest

from kafkalite.errors import ErrorCode, StorageError
from kafkalite.model import NO_TOPIC_ID, LeaderEpoch, TopicId, TopicPartition
from kafkalite.rpc.messages.control import StopPartition
from kafkalite.testing.simulation.plants import PLANTS
from tests.unit.replica.conftest import CLUSTER_ID

KEYS = [TopicPartition("t", number) for number in range(4)]
OTHER_ID = TopicId("o1o1o1o1o1o1o1o1o1o1o1")
DURING_DELETE = -2


@pytest.fixture
def dirs(tmp_path):
    found = [tmp_path / "a", tmp_path / "b"]
    for each in found:
        each.mkdir()
    return found


@pytest.fixture
async def cluster(make_cluster, dirs):
    """One node with two disks, and two of t-0 to t-3 on each; the first one, a, has failed."""
    made = await make_cluster(1, **{"log.dirs": ",".join(map(str, dirs))})
    made.create_topic("t", dict.fromkeys(range(4), (1,)))
    await made.command(1, *(made.decide(key, leader=1, isr=(1,), epoch=4) for key in KEYS))
    for key in KEYS:
        assert (await made.node(1).produce(key, b"a", b"b", b"c")).error == ErrorCode.NONE
    assert [len(logs(each)) for each in dirs] == [2, 2]
    made.node(1).logs.failures.dir_failed(StorageError("no device", directory=str(dirs[0])))
    return made


def logs(directory: Path) -> list[str]:
    return sorted(each.name for each in directory.iterdir() if each.name.startswith("t-"))


async def delete(cluster, topic_id=None):
    stops = tuple(
        StopPartition(key.topic, key.partition, topic_id, LeaderEpoch(DURING_DELETE), delete_files=True) for key in KEYS
    )
    if topic_id is None:
        return [await cluster.stop_replica(1, key, epoch=DURING_DELETE, delete=True) for key in KEYS]
    return [await cluster.stop_replica(1, KEYS[0], epoch=DURING_DELETE, delete=True, partitions=stops)]


def away(answers):
    assert all(answer.error == ErrorCode.NONE and answer.partitions == () for answer in answers)
    return [TopicPartition(*each) for answer in answers for each in answer.away]


async def bring_online(cluster, directory: Path):
    return await cluster.node(1).logs.opening.bring_online(str(directory), CLUSTER_ID, 1, {})


@pytest.mark.checklist("C19")
async def test_it_is_said_that_a_disk_is_away_until_it_is_back(cluster, dirs):
    kept = logs(dirs[0])
    assert away(await delete(cluster)) == KEYS, "an earlier copy of each may be there"
    assert logs(dirs[0]) == kept and all(name.endswith("-delete") for name in logs(dirs[1]))
    assert away(await delete(cluster)) == KEYS
    assert await bring_online(cluster, dirs[0]) == 2
    assert away(await delete(cluster)) == []
    assert [name.partition(".")[0] for name in logs(dirs[0])] == kept
    assert all(name.endswith("-delete") for name in logs(dirs[0]))


async def test_the_planted_bug_forgets_the_disk(cluster, dirs, monkeypatch):
    PLANTS["disk-away"](monkeypatch.setattr)
    assert logs(dirs[0])
    assert away(await delete(cluster)) == [], (
        "nothing is recorded, and nobody orders the deletion when the disk is back"
    )


@pytest.mark.checklist("F18")
async def test_a_later_topic_of_the_name_is_not_touched(cluster, dirs):
    assert away(await delete(cluster)) == KEYS
    made = [cluster.decide(key, leader=1, isr=(1,), epoch=0, topic_id=OTHER_ID) for key in KEYS]
    assert not (await cluster.command(1, *(replace(state, is_new=True) for state in made))).partitions
    assert await bring_online(cluster, dirs[0]) == 2
    node = cluster.node(1)
    answers = await delete(cluster)
    assert [answer.partitions[0].error for answer in answers] == [ErrorCode.INCONSISTENT_TOPIC_ID] * 4
    assert not any(answer.away for answer in answers)
    strays = node.logs.removals.strays()
    assert len(strays) == 2 and all(stray.is_requested for stray in strays), "removed when their delay is over"
    assert all(node.partition(key).log.topic_id == OTHER_ID and not node.partition(key).storage_error for key in KEYS)


async def test_a_topic_without_an_id_is_not_awaited(cluster):
    assert away(await delete(cluster, NO_TOPIC_ID)) == []


async def test_replicas_that_only_stop_are_not_awaited(cluster):
    assert away([await cluster.stop_replica(1, key, epoch=4, delete=False) for key in KEYS]) == []


async def test_a_replica_that_comes_while_no_disk_is_there_begins_when_one_is_back(make_cluster, dirs):
    """It was refused, and nobody sent the command again: a move to this node never ended (simulation, seed 2000061 of harsh plans)."""
    cluster = await make_cluster(2)
    node, leader = cluster.node(2), cluster.node(1)
    cluster.create_topic("t", {0: (1,)})
    await cluster.command(1, cluster.decide(KEYS[0], leader=1, isr=(1,), epoch=4))
    assert (await leader.produce(KEYS[0], b"a")).error == ErrorCode.NONE
    [directory] = node.logs.pool.dirs
    node.logs.failures.dir_failed(StorageError("no device", directory=directory))
    added = replace(cluster.decide(KEYS[0], leader=1, isr=(1,), epoch=4), replicas=(1, 2), adding_replicas=(2,))
    answer = await cluster.command(2, added)
    assert [each.error for each in answer.partitions] == [ErrorCode.KAFKA_STORAGE_ERROR]
    await node.logs.opening.bring_online(directory, CLUSTER_ID, 2, {})
    await node.manager.commands.retry_offline()
    partition = node.partition(KEYS[0])
    assert (partition.storage_error, partition.leader_id) == (None, 1)
    assert logs(Path(directory)) == ["t-0"]
