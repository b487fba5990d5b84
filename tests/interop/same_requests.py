"""Where the good requests of the APIs are kept (`BASES`), and what they are about: topics, members, producers, transactions.

Each family of APIs has its requests in a module of its own (`same_requests_data` and so on): a good request about things
that were made for it, and what to ask afterwards. `same_answers` changes them.
"""

# ruff: noqa: FBT003 - the fields of a request by their positions
from __future__ import annotations

import asyncio
from collections.abc import Awaitable, Callable
from typing import Any

from kafkalite.protocol import wire
from kafkalite.protocol.structs import ZERO_UUID

from .same_answers import Side, record_batch

Follow = list[tuple[Any, int]]
Base = Callable[[Side, int], Awaitable[tuple[Any, Follow]]]
BASES: dict[str, Base] = {}


def base(function: Base) -> Base:
    BASES[function.__name__] = function
    return function


# --- what requests are about ---


async def create_topic(
    s: Side, name: str = "", partitions: int = 2, records: int = 0, **configs: str
) -> tuple[str, bytes]:
    name = name or f"t{s.tag}"
    request = wire.CreateTopicsRequest
    assignments = [request.CreatableReplicaAssignment(number, s.replicas) for number in range(partitions)]
    topic = request.CreatableTopic(
        name,
        -1 if s.replicas else partitions,
        -1 if s.replicas else 1,
        assignments if s.replicas else [],
        [request.CreatableTopicConfig(key.replace("_", "."), value) for key, value in configs.items()],
    )
    answer = await s.ask(request([topic], 30_000), 7, traced=False)
    [made] = answer.topics
    topic_id = bytes(made.topic_id)
    s.alias(topic_id, "id of " + name.replace(s.tag, "@"))
    for _ in range(200):
        seen = await list_offsets(s, name, *range(partitions))
        if all(code == 0 for code in seen):
            break
        await asyncio.sleep(0.01)
    if records:
        await produce(s, name, 0, record_batch(*[b"value %d" % number for number in range(records)]))
    return name, topic_id


async def list_offsets(s: Side, name: str, *partitions: int) -> list[int]:
    request = wire.ListOffsetsRequest
    asked = [request.ListOffsetsPartition(partition_index=each, timestamp=-1) for each in partitions]
    answer = await s.ask(request(-1, 0, [request.ListOffsetsTopic(name, asked)]), 7, traced=False)
    return [each.error_code for topic in answer.topics for each in topic.partitions]


async def produce(s: Side, name: str, partition: int, batch: bytes, transactional_id: str | None = None) -> Any:
    return await s.ask(produce_request(name, ZERO_UUID, partition, batch, transactional_id), 9, traced=False)


def produce_request(
    name: str, topic_id: bytes, partition: int, batch: bytes, transactional_id: str | None = None
) -> Any:
    r = wire.ProduceRequest
    data = r.TopicProduceData(name=name, topic_id=topic_id, partition_data=[r.PartitionProduceData(partition, batch)])
    return r(transactional_id, -1, 5_000, [data])


async def shared_topic(s: Side) -> tuple[str, bytes]:
    """One for all cases; they must not change it."""
    answer = await s.ask(
        wire.MetadataRequest([wire.MetadataRequest.MetadataRequestTopic(name="shared")]), 12, traced=False
    )
    topic_id = bytes(answer.topics[0].topic_id)
    s.alias(topic_id, "id of shared")
    return "shared", topic_id


async def joined(s: Side, group: str, instance: str | None = None) -> tuple[str, int]:
    """(member id, generation) of the only member of a classic group."""
    r = wire.JoinGroupRequest

    def request(member_id: str) -> Any:
        return r(
            group,
            30_000,
            30_000,
            member_id,
            instance,
            "consumer",
            [r.JoinGroupRequestProtocol("range", b"\x00\x01")],
            None,
        )

    answer = await s.ask(request(""), 9, traced=False)
    if answer.error_code == 79:
        answer = await s.ask(request(answer.member_id), 9, traced=False)
    s.alias(answer.member_id, "member of " + group.replace(s.tag, "@"))
    return answer.member_id, answer.generation_id


async def stable(s: Side, group: str, instance: str | None = None) -> tuple[str, int]:
    member, generation = await joined(s, group, instance)
    r = wire.SyncGroupRequest
    await s.ask(
        r(
            group,
            generation,
            member,
            instance,
            "consumer",
            "range",
            [r.SyncGroupRequestAssignment(member, b"\x00\x07")],
        ),
        5,
        traced=False,
    )
    return member, generation


def describe_group(group: str) -> tuple[Any, int]:
    return wire.DescribeGroupsRequest([group], True), 6


def offset_fetch(group: str) -> tuple[Any, int]:
    r = wire.OffsetFetchRequest
    return r(groups=[r.OffsetFetchRequestGroup(group, None, -1, None)]), 9


def describe_topic(name: str) -> tuple[Any, int]:
    r = wire.DescribeTopicPartitionsRequest
    return r([r.TopicRequest(name)], 100), 0


def offsets_of(name: str) -> tuple[Any, int]:
    r = wire.ListOffsetsRequest
    asked = [r.ListOffsetsPartition(partition_index=p, timestamp=t) for p in (0, 1) for t in (-1, -2)]
    return r(-1, 0, [r.ListOffsetsTopic(name, asked[:1])]), 7


def topic_configs(name: str) -> tuple[Any, int]:
    r = wire.DescribeConfigsRequest
    keys = ["retention.ms", "cleanup.policy", "max.message.bytes", "segment.bytes"]
    return r([r.DescribeConfigsResource(2, name, keys)], True, False), 4


async def producer(s: Side, name: str | None = None) -> tuple[int, int]:
    for _ in range(300):
        answer = await s.ask(wire.InitProducerIdRequest(name, 60_000, -1, -1), 5, traced=False)
        if answer.error_code == 0:
            s.alias(answer.producer_id, f"producer of {name and name.replace(s.tag, '@')}")
            return answer.producer_id, answer.producer_epoch
        await asyncio.sleep(0.02)
    raise AssertionError(answer)


async def add_partition(s: Side, transaction: str, who: tuple[int, int], topic: str) -> None:
    r = wire.AddPartitionsToTxnRequest
    message = r(
        v3_and_below_transactional_id=transaction, v3_and_below_producer_id=who[0], v3_and_below_producer_epoch=who[1],
        v3_and_below_topics=[r.AddPartitionsToTxnTopic(topic, [0])],
    )  # fmt: skip
    for _ in range(100):
        answer = await s.ask(message, 3, traced=False)
        if answer.results_by_topic_v3_and_below[0].results_by_partition[0].partition_error_code not in (51, 14, 15, 16):
            return
        await asyncio.sleep(0.02)


def describe_transaction(name: str) -> tuple[Any, int]:
    return wire.DescribeTransactionsRequest([name]), 0


async def committed(s: Side, group: str, *names: str) -> None:
    r = wire.OffsetCommitRequest
    topics = [
        r.OffsetCommitRequestTopic(name=name, partitions=[r.OffsetCommitRequestPartition(0, 17, 0, -1, "meta")])
        for name in names
    ]
    await s.ask(r(group, -1, "", None, -1, topics), 8, traced=False)


async def with_acl(s: Side) -> str:
    name = f"a{s.tag}"
    r = wire.CreateAclsRequest
    await s.ask(
        r([r.AclCreation(2, name, 3, "User:ann", "*", 3, 3), r.AclCreation(2, name, 4, "User:ann", "*", 4, 2)]),
        3,
        traced=False,
    )
    for _ in range(100):
        seen = await s.ask(wire.DescribeAclsRequest(2, name, 1, None, None, 1, 1), 3, traced=False)
        if sum(len(each.acls) for each in seen.resources) == 2:
            break
        await asyncio.sleep(0.01)
    return name


# --- the new groups ---


def member_uuid(number: int = 1) -> str:
    return "AAAAAAAAAAAAAAAAAAAAA" + "ABCDEFGH"[number]


def consumer_heartbeat(
    group: str, member: str, epoch: int, topics: list[str] | None, owned: Any = None, **other: Any
) -> Any:
    return wire.ConsumerGroupHeartbeatRequest(
        group,
        member,
        epoch,
        other.get("instance_id"),
        None,
        30_000,
        topics,
        other.get("regex"),
        other.get("assignor"),
        owned,
    )


async def consumer_member(
    s: Side, group: str, topic: str, topic_id: bytes, number: int = 1, instance: str | None = None
) -> tuple[str, int]:
    """A member of a consumer group whose assignment is settled."""
    member = member_uuid(number)
    s.alias(member, f"member {number}")
    answer = await s.ask(consumer_heartbeat(group, member, 0, [topic], [], instance_id=instance), 1, traced=False)
    owned: list[Any] = []
    for _ in range(100):
        if answer.assignment is not None and answer.assignment.topic_partitions:
            t = wire.ConsumerGroupHeartbeatRequest.TopicPartitions
            owned = [t(each.topic_id, each.partitions) for each in answer.assignment.topic_partitions]
            break
        await asyncio.sleep(0.02)
        answer = await s.ask(
            consumer_heartbeat(group, member, answer.member_epoch, [topic], owned, instance_id=instance),
            1,
            traced=False,
        )
    answer = await s.ask(
        consumer_heartbeat(group, member, answer.member_epoch, [topic], owned, instance_id=instance), 1, traced=False
    )
    return member, answer.member_epoch


def describe_consumer_group(group: str) -> tuple[Any, int]:
    return wire.ConsumerGroupDescribeRequest([group], True), 1


async def share_member(s: Side, group: str, topic: str) -> tuple[str, int]:
    member = member_uuid(1)
    s.alias(member, "member 1")
    answer = await s.ask(wire.ShareGroupHeartbeatRequest(group, member, 0, None, [topic]), 1, traced=False)
    for _ in range(200):
        if answer.assignment is not None and answer.assignment.topic_partitions:
            break
        await asyncio.sleep(0.03)
        answer = await s.ask(
            wire.ShareGroupHeartbeatRequest(group, member, answer.member_epoch, None, [topic]), 1, traced=False
        )
    return member, answer.member_epoch


def describe_share_group(group: str) -> tuple[Any, int]:
    return wire.ShareGroupDescribeRequest([group], True), 1


async def share_earliest(s: Side, group: str) -> None:
    r = wire.IncrementalAlterConfigsRequest
    change = r.AlterableConfig("share.auto.offset.reset", 0, "earliest")
    await s.ask(r([r.AlterConfigsResource(32, group, [change])], False), 1, traced=False)


def share_fetch(group: str, member: str, epoch: int, topic_id: bytes, acks: Any = (), **other: Any) -> Any:
    r = wire.ShareFetchRequest
    topics = [r.FetchTopic(topic_id, [r.FetchPartition(0, list(acks))])] if topic_id else []
    return r(
        group, member, epoch, other.get("max_wait_ms", 300), other.get("min_bytes", 1), 1_000_000, other.get("max_records", 500), 500, 0,
        False, topics, other.get("forgotten", []),
    )  # fmt: skip


async def share_session(s: Side, group: str, name: str, topic_id: bytes) -> str:
    """A member with a session that has acquired the records of partition 0."""
    await share_earliest(s, group)
    member, _ = await share_member(s, group, name)
    for epoch in range(1, 40):
        answer = await s.ask(share_fetch(group, member, 0 if epoch == 1 else epoch - 1, topic_id), 1, traced=False)
        if any(each.acquired_records for topic in answer.responses for each in topic.partitions):
            s.names["share epoch"] = str(epoch)
            return member
    raise AssertionError("nothing is acquired")


async def left_share_group(s: Side, group: str) -> tuple[str, bytes]:
    name, topic_id = await create_topic(s, partitions=1, records=3)
    await share_earliest(s, group)
    member, _ = await share_member(s, group, name)
    await s.ask(wire.ShareGroupHeartbeatRequest(group, member, -1, None, None), 1, traced=False)
    return name, topic_id


async def with_share_state(s: Side, group: str) -> bytes:
    _, topic_id = await shared_topic(s)
    r = wire.InitializeShareGroupStateRequest
    await s.ask(r(group, [r.InitializeStateData(topic_id, [r.PartitionData(0, 1, 2)])]), 0, traced=False)
    return topic_id


def streams_heartbeat(group: str, member: str, epoch: int, topic: str | None, **other: Any) -> Any:
    r = wire.StreamsGroupHeartbeatRequest
    topology = None
    if topic is not None:
        changelog = r.TopicInfo("store-changelog", 0, 1, [r.KeyValue("cleanup.policy", "compact")])
        topology = r.Topology(1, [r.Subtopology("0", [topic], [], [changelog], [], [], [])])
    return r(
        group, member, epoch, 0, other.get("instance_id"), None, 30_000, topology, other.get("active"), other.get("standby"),
        other.get("warmup"), "process-1", None, [] if epoch == 0 else None, None, None, False,
    )  # fmt: skip


async def streams_member(s: Side, group: str, topic: str) -> tuple[str, int]:
    member = member_uuid()
    s.alias(member, "member 1")
    tasks = wire.StreamsGroupHeartbeatRequest.TaskIds
    answer = await s.ask(streams_heartbeat(group, member, 0, topic, active=[], standby=[], warmup=[]), 1, traced=False)
    owned: list[Any] = []
    for _ in range(60):
        if answer.active_tasks:
            owned = [tasks(each.subtopology_id, each.partitions) for each in answer.active_tasks]
            break
        await asyncio.sleep(0.03)
        answer = await s.ask(streams_heartbeat(group, member, answer.member_epoch, None), 1, traced=False)
    answer = await s.ask(
        streams_heartbeat(group, member, answer.member_epoch, None, active=owned, standby=[], warmup=[]),
        1,
        traced=False,
    )
    return member, answer.member_epoch
