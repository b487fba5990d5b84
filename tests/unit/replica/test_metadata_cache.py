"""What a node tells clients about the cluster."""

import asyncio

import pytest

from kafkalite.errors import ErrorCode
from kafkalite.model import (
    NO_TOPIC_ID,
    BrokerEpoch,
    BrokerId,
    ControllerEpoch,
    Endpoint,
    LeaderEpoch,
    PartitionEpoch,
    TopicId,
    TopicPartition,
)
from kafkalite.node.metadata_answers import MetadataAnswers
from kafkalite.replica.deleted_topics import MAX_DELETED, DeletedTopics
from kafkalite.replica.metadata_cache import MetadataCache
from kafkalite.rpc.messages.control import Broker, PartitionState, UpdateMetadataRequest


def broker(number: int, epoch: int = 1) -> Broker:
    return Broker(BrokerId(number), BrokerEpoch(epoch), "k", 9092, "r", 9192 + number)


def state(topic: str, partition: int, leader: int = 1, topic_id: str = "id") -> PartitionState:
    members = (BrokerId(leader),)
    return PartitionState(
        topic, partition, TopicId(topic_id), ControllerEpoch(1), members[0], LeaderEpoch(0), members, PartitionEpoch(0), members
    )  # fmt: skip


def update(*states: PartitionState, full: bool = False, brokers=(1,), deleted=()) -> UpdateMetadataRequest:
    return UpdateMetadataRequest(
        BrokerId(1), ControllerEpoch(1), BrokerEpoch(1), full, tuple(map(broker, brokers)), states, tuple(deleted)
    )


async def test_a_node_that_has_just_started_names_no_broker_and_denies_no_topic():
    cache = MetadataCache()
    answers = MetadataAnswers(cache)
    for early in (None, lambda: cache.learn_brokers((broker(1),)), lambda: cache.apply(update(state("u", 0)))):
        if early is not None:
            early()
        answer = answers.answer("c", ["t"])
        assert (answer.brokers, [each.error for each in answer.topics]) == ((), [ErrorCode.LEADER_NOT_AVAILABLE])
        assert answers.answer("c", None).topics == ()
    cache.apply(update(state("u", 0), full=True))
    answer = answers.answer("c", ["t", "u"])
    assert [each.broker_id for each in answer.brokers] == [1]
    assert [each.error for each in answer.topics] == [ErrorCode.UNKNOWN_TOPIC_OR_PARTITION, ErrorCode.NONE]


async def test_changes_are_laid_over_and_a_full_one_replaces_all():
    cache = MetadataCache()
    assert cache.is_empty
    assert cache.apply(update(state("b", 0), state("a", 0), state("a", 1), full=True, brokers=(2, 1)))
    assert cache.all_topics() == ("a", "b")
    assert [b.broker_id for b in cache.brokers()] == [1, 2]
    assert not cache.apply(update(state("a", 1, leader=2), brokers=(1, 2)))
    one, zero = (cache.partition(TopicPartition("a", number)) for number in (1, 0))
    assert one is not None and one.leader == 2
    assert zero is not None and zero.leader == 1
    assert cache.rpc_endpoint(BrokerId(2)) == Endpoint("r", 9194)
    cache.apply(update(deleted=("a",)))
    assert cache.topic("a") is None
    assert cache.partition(TopicPartition("a", 0)) is None
    cache.apply(update(state("c", 0), full=True))
    assert cache.all_topics() == ("c",)
    assert cache.rpc_endpoint(BrokerId(2)) is None


@pytest.mark.checklist("F18")
async def test_a_topic_made_again_has_only_its_own_partitions():
    cache = MetadataCache()
    cache.apply(update(state("a", 0), state("a", 1), full=True))
    cache.apply(update(state("a", 0, topic_id="new")))
    assert list(cache.topic("a") or ()) == [0]
    assert (cache.topic_id("a"), cache.topic_name(TopicId("new")), cache.topic_name(TopicId("id"))) == (
        "new",
        "a",
        None,
    )


@pytest.mark.checklist("C19")
async def test_only_a_reported_deletion_deletes_a_topic():
    cache = MetadataCache()
    id1, id2, id3, none = map(TopicId, ("id", "id2", "id3", NO_TOPIC_ID))
    cache.apply(update(state("a", 0), state("b", 0, topic_id="id2"), full=True))
    cache.apply(update(state("b", 0, topic_id="id2"), full=True))
    assert ("a", id1) not in cache.deleted, "it may have vanished"
    cache.apply(update(state("a", 0), full=True, deleted=("b",)))
    assert ("b", id2) in cache.deleted and ("b", none) in cache.deleted
    cache.apply(update(state("b", 0, topic_id="id3")))
    assert ("b", id2) in cache.deleted and ("b", none) not in cache.deleted and ("b", id3) not in cache.deleted
    cache.apply(update(full=True))
    assert ("b", id3) not in cache.deleted and ("a", id1) not in cache.deleted
    cache.apply(update(state("b", 0, topic_id="id2")))
    assert ("b", id2) not in cache.deleted, "it was restored from a backup"


@pytest.mark.checklist("C19")
async def test_a_deletion_of_a_topic_that_has_vanished_has_no_id():
    cache = MetadataCache()
    cache.apply(update(deleted=("a",)))
    assert ("a", TopicId("id")) in cache.deleted
    cache.apply(update(full=True))
    assert ("a", TopicId("id")) not in cache.deleted, "one may have come and vanished meanwhile"


async def test_old_deletions_are_dropped():
    deleted = DeletedTopics()
    for number in range(MAX_DELETED + 1):
        deleted.add(f"t{number}", TopicId(f"id{number}"))
    assert ("t0", TopicId("id0")) not in deleted
    assert ("t1", TopicId("id1")) in deleted and ("t1", NO_TOPIC_ID) in deleted


async def test_who_waits_hears_of_the_next_change():
    cache = MetadataCache()
    first, second = cache.changed(), cache.changed()
    first.cancel()
    version = cache.version
    cache.apply(update(state("a", 0)))
    await asyncio.wait_for(second, 1)
    assert cache.version > version
    assert not cache.changed().done()


async def test_commands_teach_newer_lives_of_brokers_only():
    cache = MetadataCache()
    assert cache.learn_brokers((broker(1, 5),))
    assert not cache.learn_brokers((broker(1, 4), broker(1, 5)))
    assert cache.broker_epochs == {1: 5}
    assert cache.learn_brokers((broker(1, 6), broker(2, 1)))
    assert cache.broker_epochs == {1: 6, 2: 1}


@pytest.mark.checklist("F18")
@pytest.mark.parametrize("is_full", [False, True])
async def test_a_topic_whose_name_another_one_has_was_deleted(is_full: bool):  # noqa: FBT001
    """The controller of then may not have said so: it was replaced, or this node away. Share states of the old one stayed for good."""
    cache = MetadataCache()
    cache.apply(update(state("a", 0), state("a", 1), state("b", 0, topic_id="id2"), full=True))
    cache.apply(update(state("a", 0, topic_id="new"), state("b", 0, topic_id="id2"), full=is_full))
    assert cache.deleted.has_id(TopicId("id"))
    assert not cache.deleted.has_id(TopicId("new")) and not cache.deleted.has_id(TopicId("id2"))
    assert ("a", NO_TOPIC_ID) not in cache.deleted
    cache.apply(update(state("a", 0), full=is_full))
    assert cache.deleted.has_id(TopicId("new")) and not cache.deleted.has_id(TopicId("id")), "it was restored"


@pytest.mark.checklist("F18")
async def test_a_topic_that_had_no_id_was_not_deleted():
    cache = MetadataCache()
    cache.apply(update(state("a", 0, topic_id=NO_TOPIC_ID), full=True))
    cache.apply(update(state("a", 0, topic_id="id"), full=True))
    assert not cache.deleted.has_id(NO_TOPIC_ID)
    cache.apply(update(state("a", 0, topic_id=NO_TOPIC_ID), full=True))
    assert not cache.deleted.has_id(TopicId("id")), "a controller of before does not name ids"
