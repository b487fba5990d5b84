"""Orders to add and to remove partitions that are refused: nothing of them is written."""

from __future__ import annotations

import random

import pytest

from kafkalite.admin.partitions import PartitionAdmin
from kafkalite.coordination import paths
from kafkalite.errors import ErrorCode
from kafkalite.extension.messages.topics import AddPartitionsRequest, NewPartitions, NewTopic, RemovePartitionsRequest
from kafkalite.model import BrokerId
from tests.unit.admin.test_topic_admin import create, orders
from tests.unit.controller.cluster import Cluster


async def admin_of(cluster: Cluster, topic: str) -> PartitionAdmin:
    made = await orders(cluster)
    assert await create(made, NewTopic(topic, partitions=5, replication_factor=3)) == [(0, "")]
    return PartitionAdmin(made, lambda: cluster.config, random.Random(7))


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
    fewer = (await admin.add(AddPartitionsRequest((NewPartitions("t", 5, ()),), timeout_ms=100))).topics[0]
    assert fewer.error == ErrorCode.INVALID_PARTITIONS
