"""Orders to add and to remove partitions that are refused, and what becomes of elections."""

from __future__ import annotations

import asyncio
import random
from collections.abc import Container
from unittest.mock import Mock

import pytest

from kafkalite.admin.partitions import PartitionAdmin
from kafkalite.coordination import admin_znodes, paths, topic_znodes
from kafkalite.coordination.coordinator import CoordinatorError, Delete
from kafkalite.errors import ErrorCode
from kafkalite.extension.messages.reassignment import ElectLeadersRequest
from kafkalite.extension.messages.topics import AddPartitionsRequest, NewPartitions, NewTopic, RemovePartitionsRequest
from kafkalite.model import BrokerId, TopicPartition
from tests.support.waiting import until
from tests.unit.admin.test_topic_admin import create, orders
from tests.unit.controller.cluster import Cluster


async def admin_of(cluster: Cluster, topic: str, *, silent: Container[BrokerId] = ()) -> PartitionAdmin:
    """`silent`: brokers that do not answer, as this node knows, and whose sessions last."""
    made = await orders(cluster)
    assert await create(made, NewTopic(topic, partitions=5, replication_factor=3)) == [(0, "")]
    return PartitionAdmin(made, lambda: cluster.config, random.Random(7), lambda broker_id: broker_id not in silent)


@pytest.mark.parametrize("topic", ["__consumer_offsets", "__transaction_state"])
async def test_internal_topics_keep_the_number_of_their_partitions(cluster: Cluster, topic: str) -> None:
    """A group belongs to the partition that its hash modulo that number says: with another one its offsets are lost."""
    admin = await admin_of(cluster, topic)
    removed = await admin.remove(RemovePartitionsRequest(topic, 4, timeout_ms=100))
    added = (await admin.add(AddPartitionsRequest((NewPartitions(topic, 6),), timeout_ms=100))).topics[0]
    for error, message in ((removed.error, removed.message), (added.error, added.message)):
        assert (error, message) == (
            ErrorCode.INVALID_REQUEST,
            f"the number of partitions of {topic} cannot be changed",
        )
    assert cluster.zookeeper.peek(paths.partitions_remove(topic)) is None
    assert cluster.zookeeper.peek(paths.partitions_add(topic)) is None


@pytest.mark.parametrize("replicas", [(1,), (1, 2)])
async def test_new_partitions_have_as_many_replicas_as_the_old_ones(
    cluster: Cluster, replicas: tuple[int, ...]
) -> None:
    """As Kafka has it (AdminZkClient.validateReplicaAssignment)."""
    admin = await admin_of(cluster, "t")
    wanted = NewPartitions("t", 6, (tuple(map(BrokerId, replicas)),))
    added = (await admin.add(AddPartitionsRequest((wanted,), timeout_ms=100))).topics[0]
    assert (added.error, added.message) == (
        ErrorCode.INVALID_REPLICA_ASSIGNMENT,
        f"{list(replicas)}: the topic has 3 replicas of each partition",
    )
    assert cluster.zookeeper.peek(paths.partitions_add("t")) is None


async def test_an_empty_list_of_replicas_is_no_list_of_replicas(cluster: Cluster) -> None:
    """As Kafka has it (ReplicationControlManager.createPartitions): the broker chooses only if there is none at all."""
    admin = await admin_of(cluster, "t")
    added = (await admin.add(AddPartitionsRequest((NewPartitions("t", 6, ()),), timeout_ms=100))).topics[0]
    assert (added.error, added.message) == (
        ErrorCode.INVALID_REPLICA_ASSIGNMENT,
        "1 new partition, but replicas for 0",
    )
    for count, text in (
        (5, "Topic already has 5 partition(s)."),
        (4, "The topic t currently has 5 partition(s); 4 would not be an increase."),
    ):  # Kafka's words: scripts look for them
        refused = (await admin.add(AddPartitionsRequest((NewPartitions("t", count, ()),), timeout_ms=100))).topics[0]
        assert (refused.error, refused.message) == (ErrorCode.INVALID_PARTITIONS, text)


async def test_topics_that_do_not_exist_are_found_together(cluster: Cluster, monkeypatch: pytest.MonkeyPatch) -> None:
    admin = await admin_of(cluster, "t")
    assert await admin.missing(["t", "u", "v"], timeout_ms=1000) == {"u", "v"}
    monkeypatch.setattr(cluster.sessions[0], "get_many", Mock(side_effect=CoordinatorError("refused")))
    assert await admin.missing(["t", "u", "v"], timeout_ms=1000) == frozenset()


@pytest.mark.checklist(10)
async def test_an_election_says_where_the_leader_stayed(cluster: Cluster) -> None:
    admin = await admin_of(cluster, "t")
    zk = cluster.zookeeper
    found = zk.peek(paths.topic("t"))
    assert found is not None
    replicas = topic_znodes.decode_topic(found[0]).partitions
    partitions = [TopicPartition("t", number) for number in range(3)]
    for partition in partitions[1:]:
        cluster.put_state(partition, replicas[partition.partition][1], replicas[partition.partition][1:])
    cluster.put_state(partitions[0], replicas[0][0], replicas[0])
    wanted = (*((each.topic, each.partition) for each in partitions), ("t", 9))
    asking = asyncio.create_task(admin.elect(ElectLeadersRequest(wanted, timeout_ms=60_000)))
    await until(lambda: zk.peek(paths.PREFERRED_REPLICA_ELECTION) is not None)
    request = zk.peek(paths.PREFERRED_REPLICA_ELECTION)
    assert request is not None
    assert admin_znodes.decode_preferred_election(request[0]).partitions == tuple(partitions[1:])
    # As the controller does where the preferred one is in sync.
    cluster.put_state(partitions[1], replicas[1][0], replicas[1], leader_epoch=1)
    zk.poke(Delete(paths.PREFERRED_REPLICA_ELECTION))
    results = (await asking).partitions
    assert {each.partition: (each.error, each.message) for each in results} == {
        0: (ErrorCode.ELECTION_NOT_NEEDED, "no election is needed"),
        1: (ErrorCode.NONE, ""),
        2: (ErrorCode.PREFERRED_LEADER_NOT_AVAILABLE, f"preferred leader {replicas[2][0]} is not in sync"),
        9: (ErrorCode.UNKNOWN_TOPIC_OR_PARTITION, "there is no partition t-9"),
    }


@pytest.mark.parametrize("is_chosen", [True, False])
async def test_an_unclean_election_is_needed_where_the_leader_does_not_answer(
    cluster: Cluster, *, is_chosen: bool
) -> None:
    """Its session lasts for a while, and the state names it: that was taken for a leader, with exit code 0."""
    silent = BrokerId(1)
    admin = await admin_of(cluster, "t", silent={silent})
    zk = cluster.zookeeper
    partition, led = TopicPartition("t", 0), TopicPartition("t", 1)
    cluster.put_state(partition, silent, (silent,))
    cluster.put_state(led, BrokerId(2), (BrokerId(2),))
    request = ElectLeadersRequest(((*partition,), (*led,)), unclean=True, timeout_ms=60_000)
    asking = asyncio.create_task(admin.elect(request))
    await until(lambda: zk.peek(paths.PREFERRED_REPLICA_ELECTION) is not None)
    if is_chosen:
        cluster.put_state(partition, BrokerId(3), (BrokerId(3),), leader_epoch=1)
    zk.poke(Delete(paths.PREFERRED_REPLICA_ELECTION))
    results = {each.partition: (each.error, each.message) for each in (await asking).partitions}
    assert results.pop(1) == (ErrorCode.ELECTION_NOT_NEEDED, "no election is needed")
    reason = "broker 1 leads it and does not answer; nobody else can lead before its ZooKeeper session has ended"
    assert results == {0: (ErrorCode.NONE, "") if is_chosen else (ErrorCode.ELIGIBLE_LEADERS_NOT_AVAILABLE, reason)}
