"""Versions of Kafka 4's clients: topics by id, more precise errors, patterns."""

from __future__ import annotations

from typing import Any

import pytest

from kafkalite.errors import ErrorCode
from kafkalite.model import TopicPartition
from kafkalite.protocol import topic_ids, wire
from kafkalite.protocol.structs import ZERO_UUID
from kafkalite.record.builder import RecordBatchBuilder

from .conftest import Broker, FrameClient, batch

_NOBODYS = bytes(range(16))


async def topic_id(client: FrameClient, topic: str) -> bytes:
    request = wire.MetadataRequest
    answer = await client.ask(request([request.MetadataRequestTopic(name=topic)]), 13)
    assert answer.error_code == 0
    found: bytes = answer.topics[0].topic_id
    assert found != ZERO_UUID
    return found


async def coordinated(client: FrameClient, group: str) -> None:
    """The group has a coordinator that has loaded it."""
    while (await client.ask(wire.FindCoordinatorRequest(coordinator_keys=[group]), 4)).coordinators[0].error_code:
        pass
    request = wire.OffsetFetchRequest
    while (await client.ask(request(groups=[request.OffsetFetchRequestGroup(group)]), 8)).groups[0].error_code:
        pass


def produce(*topics: tuple[bytes, int], acks: int = -1) -> Any:
    request = wire.ProduceRequest
    data = [
        request.TopicProduceData("", known, [request.PartitionProduceData(index, batch(b"v"))])
        for known, index in topics
    ]
    return request(acks=acks, timeout_ms=1000, topic_data=data)


async def test_produce_by_topic_id(broker: Broker) -> None:
    await broker.create("t", 2)
    client = await broker.client()
    known = await topic_id(client, "t")
    for offset in range(2):  # the second one is answered with prepared bytes
        answer = await client.ask(produce((known, 0)), 13)
        [topic] = answer.responses
        assert topic.topic_id == known
        assert [(part.error_code, part.base_offset) for part in topic.partition_responses] == [(0, offset)]
    answer = await client.ask(produce((known, 1), (_NOBODYS, 0), (ZERO_UUID, 0)), 13)
    assert [(topic.topic_id, topic.partition_responses[0].error_code) for topic in answer.responses] == [
        (known, 0),
        (_NOBODYS, ErrorCode.UNKNOWN_TOPIC_ID),
        (ZERO_UUID, ErrorCode.UNKNOWN_TOPIC_ID),
    ]


@pytest.mark.parametrize("others", [0, 1])
async def test_what_comes_behind_a_batch_for_an_unknown_id_has_to_wait_for_it(broker: Broker, others: int) -> None:
    """The node may hear of the topic in between: the leader then knows which batch of this producer has to come first."""
    client = await broker.client()
    builder = RecordBatchBuilder(producer_id=7, producer_epoch=0, base_sequence=0)
    builder.append(None, b"v", (), 0)
    asked = produce((_NOBODYS, 3), *[(ZERO_UUID, 0)] * others)
    asked.topic_data[0].partition_data[0].records = builder.build()
    answer = await client.ask(asked, 13)
    assert answer.responses[0].partition_responses[0].error_code == ErrorCode.UNKNOWN_TOPIC_ID
    builder = RecordBatchBuilder(producer_id=7, producer_epoch=0, base_sequence=1)
    builder.append(None, b"v", (), 0)
    skipped = broker.services.partitions.skipped
    where = TopicPartition("t", 3)
    assert skipped.begins_ahead(where, topic_ids.from_wire(_NOBODYS), builder.build(), ())
    assert skipped.error_ahead(where, builder.build()) is ErrorCode.UNKNOWN_TOPIC_ID


async def test_two_topics_never_share_prepared_bytes(broker: Broker) -> None:
    """A topic that is deleted and created again has the same name and another id."""
    client = await broker.client()
    request = wire.DeleteTopicsRequest
    for _ in range(2):
        await broker.create("t")
        known = await topic_id(client, "t")
        assert (await client.ask(produce((known, 0)), 13)).responses[0].topic_id == known
        deleted = await client.ask(request([request.DeleteTopicState("t")], timeout_ms=1000), 6)
        assert deleted.responses[0].error_code == 0


async def test_offsets_by_topic_id(broker: Broker) -> None:
    await broker.create("t", 2)
    client = await broker.client()
    known = await topic_id(client, "t")
    await coordinated(client, "g")
    commit = wire.OffsetCommitRequest
    parts = [commit.OffsetCommitRequestPartition(1, 7, committed_metadata="m")]
    topics = [commit.OffsetCommitRequestTopic("", each, parts) for each in (known, _NOBODYS)]
    answer = await client.ask(commit("g", topics=topics), 10)
    assert [(topic.topic_id, topic.partitions[0].error_code) for topic in answer.topics] == [
        (known, 0),
        (_NOBODYS, ErrorCode.UNKNOWN_TOPIC_ID),
    ]
    fetch = wire.OffsetFetchRequest

    async def fetched(asked: list[bytes] | None) -> list[tuple[bytes, list[tuple[int, int, int]]]]:
        wanted = None if asked is None else [fetch.OffsetFetchRequestTopics("", each, [1]) for each in asked]
        answer = await client.ask(fetch(groups=[fetch.OffsetFetchRequestGroup("g", topics=wanted)]), 10)
        return [
            (
                each.topic_id,
                [(part.partition_index, part.committed_offset, part.error_code) for part in each.partitions],
            )
            for each in answer.groups[0].topics
        ]

    assert await fetched([known, _NOBODYS]) == [
        (known, [(1, 7, 0)]),
        (_NOBODYS, [(1, -1, ErrorCode.UNKNOWN_TOPIC_ID)]),
    ]
    assert await fetched(None) == [(known, [(1, 7, 0)])]


async def _transactional(client: Any) -> Any:
    """The answer that gives the transactional id "x" its producer id."""
    while (started := await client.ask(wire.InitProducerIdRequest("x", 600_000), 4)).error_code:
        await client.ask(wire.FindCoordinatorRequest(key_type=1, coordinator_keys=["x"]), 4)
    return started


async def test_offsets_of_a_transaction_by_topic_id(broker: Broker) -> None:
    await broker.create("t")
    client = await broker.client()
    known = await topic_id(client, "t")
    await coordinated(client, "g")
    started = await _transactional(client)
    request = wire.TxnOffsetCommitRequest
    parts = [request.TxnOffsetCommitRequestPartition(0, 3, committed_metadata="")]
    topics = [request.TxnOffsetCommitRequestTopic("", each, parts) for each in (known, _NOBODYS)]
    answer = await client.ask(request("x", "g", started.producer_id, started.producer_epoch, topics=topics), 6)
    assert [(topic.topic_id, topic.partitions[0].error_code) for topic in answer.topics] == [
        (known, 0),
        (_NOBODYS, ErrorCode.UNKNOWN_TOPIC_ID),
    ]


async def test_the_errors_of_offsets_in_a_transaction_by_version(broker: Broker) -> None:
    """As Apache Kafka 4.4: version 6 knows groups that do not exist, and member epochs."""
    await broker.create("t")
    client = await broker.client()
    known = await topic_id(client, "t")
    await coordinated(client, "g")
    started = await _transactional(client)
    beat = wire.ConsumerGroupHeartbeatRequest("g", "m", 0, None, None, 60_000, ["t"], topic_partitions=[])
    joined = await client.ask(beat, 1)
    assert joined.error_code == 0
    request = wire.TxnOffsetCommitRequest

    async def code(group: str, epoch: int, version: int) -> int:
        part = request.TxnOffsetCommitRequestPartition(0, 3, committed_metadata="")
        topics = [request.TxnOffsetCommitRequestTopic("t", known, [part])]
        message = request("x", group, started.producer_id, started.producer_epoch, epoch, "m", topics=topics)
        return int((await client.ask(message, version)).topics[0].partitions[0].error_code)

    for version in (5, 6):
        assert await code("g", joined.member_epoch, version) == 0
    assert await code("g", joined.member_epoch - 1, 5) == ErrorCode.ILLEGAL_GENERATION
    assert await code("g", joined.member_epoch - 1, 6) == ErrorCode.STALE_MEMBER_EPOCH
    assert await code("none", 3, 5) == ErrorCode.ILLEGAL_GENERATION
    assert await code("none", 3, 6) == ErrorCode.GROUP_ID_NOT_FOUND


async def test_a_group_that_does_not_exist_is_an_error_in_new_versions(broker: Broker) -> None:
    client = await broker.client()
    await coordinated(client, "g")
    old = await client.ask(wire.DescribeGroupsRequest(["g"]), 5)
    assert (old.groups[0].error_code, old.groups[0].group_state) == (0, "Dead")
    new = await client.ask(wire.DescribeGroupsRequest(["g"]), 6)
    [group] = new.groups
    assert (group.error_code, group.error_message) == (ErrorCode.GROUP_ID_NOT_FOUND, "Group g not found.")
    [deleted] = (await client.ask(wire.DeleteGroupsRequest(["g"]), 3)).results
    assert deleted.error_code == ErrorCode.GROUP_ID_NOT_FOUND and deleted.error_message


@pytest.mark.parametrize(
    ("cluster_id", "node_id", "expected"),
    [
        (None, -1, ErrorCode.NONE),
        ("ours", 1, ErrorCode.NONE),
        ("ours", 2, ErrorCode.REBOOTSTRAP_REQUIRED),
        ("another", 1, ErrorCode.REBOOTSTRAP_REQUIRED),
        ("ours", -1, ErrorCode.INVALID_REQUEST),
        (None, 1, ErrorCode.INVALID_REQUEST),
    ],
)
async def test_a_client_that_means_another_node_is_sent_back(
    broker: Broker, cluster_id: str | None, node_id: int, expected: ErrorCode
) -> None:
    client = await broker.client()
    named = broker.services.cluster_id if cluster_id == "ours" else cluster_id
    answer = await client.ask(wire.ApiVersionsRequest("test", "1", named, node_id), 5)
    assert answer.error_code == expected
    assert bool(answer.api_keys) is (expected is ErrorCode.NONE)


async def test_transactions_by_pattern(broker: Broker) -> None:
    client = await broker.client()
    for name in ("orders-1", "orders-2", "payments-1"):
        while (await client.ask(wire.InitProducerIdRequest(name, 600_000), 4)).error_code:
            await client.ask(wire.FindCoordinatorRequest(key_type=1, coordinator_keys=[name]), 4)

    async def listed(pattern: str | None) -> Any:
        return await client.ask(wire.ListTransactionsRequest(transactional_id_pattern=pattern), 2)

    for pattern, expected in (("orders-.", 2), ("orders", 0), (".*1", 2), (None, 3), ("", 3)):
        assert len((await listed(pattern)).transaction_states) == expected, pattern
    assert (await listed("orders-(")).error_code == ErrorCode.INVALID_REGULAR_EXPRESSION
    # No pattern stops the loop: with backtracking this one would take hours.
    assert not (await listed("(o|or|ord|order)*s{1,9}(-|-1)*(1|12)*$x")).transaction_states


async def test_offsets_of_tiered_storage_do_not_exist(broker: Broker) -> None:
    await broker.create("t")
    client = await broker.client()
    request = wire.ListOffsetsRequest
    for timestamp, since in ((-5, 9), (-6, 11)):
        asked = request(
            -1, topics=[request.ListOffsetsTopic("t", [request.ListOffsetsPartition(0, timestamp=timestamp)])]
        )
        [part] = (await client.ask(asked, since)).topics[0].partitions
        assert (part.error_code, part.offset, part.timestamp) == (0, -1, -1)
        [part] = (await client.ask(asked, since - 1)).topics[0].partitions
        assert part.error_code == ErrorCode.UNSUPPORTED_VERSION
        asked.topics[0].name = "nowhere"
        [part] = (await client.ask(asked, since)).topics[0].partitions
        assert (part.error_code, part.offset) == (ErrorCode.UNKNOWN_TOPIC_OR_PARTITION, -1)


def test_conversions_of_topic_ids_are_bounded() -> None:
    for number in range(20_000):
        topic_ids.from_wire(number.to_bytes(16))
    assert topic_ids.from_wire.cache_info().currsize <= 10_000
