"""A good request of each API, about things that were made for it, and what to ask afterwards (`same_answers` changes them)."""

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
    topic = request.CreatableTopic(
        name,
        partitions,
        1,
        [],
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


async def joined(s: Side, group: str, instance: str | None = None, member: str = "") -> tuple[str, int]:
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

    answer = await s.ask(request(member), 9, traced=False)
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


# --- data ---


@base
async def Produce(s: Side, version: int) -> tuple[Any, Follow]:
    name, topic_id = await create_topic(s, partitions=1)
    r = wire.FetchRequest
    fetch = r(
        max_wait_ms=0,
        min_bytes=0,
        topics=[r.FetchTopic(topic=name, partitions=[r.FetchPartition(0, -1, 0, -1, -1, 100_000)])],
    )
    return produce_request(name, topic_id, 0, record_batch(b"one", b"two")), [offsets_of(name), (fetch, 11)]


@base
async def Fetch(s: Side, version: int) -> tuple[Any, Follow]:
    name, topic_id = await shared_topic(s)
    r = wire.FetchRequest
    partition = r.FetchPartition(
        partition=0,
        current_leader_epoch=0,
        fetch_offset=1,
        last_fetched_epoch=-1,
        log_start_offset=-1,
        partition_max_bytes=100_000,
    )
    topic = r.FetchTopic(topic=name, topic_id=topic_id, partitions=[partition])
    return r(max_wait_ms=50, min_bytes=1, max_bytes=1_000_000, topics=[topic]), []


@base
async def ListOffsets(s: Side, version: int) -> tuple[Any, Follow]:
    name, _ = await shared_topic(s)
    r = wire.ListOffsetsRequest
    partition = r.ListOffsetsPartition(partition_index=0, current_leader_epoch=0, timestamp=-1, max_num_offsets=1)
    return r(-1, 0, [r.ListOffsetsTopic(name, [partition])], 1_000), []


@base
async def Metadata(s: Side, version: int) -> tuple[Any, Follow]:
    name, _ = await shared_topic(s)
    return wire.MetadataRequest([wire.MetadataRequest.MetadataRequestTopic(name=name)], False, True, True), []


@base
async def OffsetForLeaderEpoch(s: Side, version: int) -> tuple[Any, Follow]:
    name, _ = await shared_topic(s)
    r = wire.OffsetForLeaderEpochRequest
    return r(-1, [r.OffsetForLeaderTopic(name, [r.OffsetForLeaderPartition(0, 0, 0)])]), []


@base
async def DeleteRecords(s: Side, version: int) -> tuple[Any, Follow]:
    name, _ = await create_topic(s, records=5, partitions=1)
    r = wire.DeleteRecordsRequest
    return r([r.DeleteRecordsTopic(name, [r.DeleteRecordsPartition(0, 2)])], 3_000), [offsets_of(name)]


# --- classic groups ---


@base
async def FindCoordinator(s: Side, version: int) -> tuple[Any, Follow]:
    return wire.FindCoordinatorRequest(f"g{s.tag}", 0, [f"g{s.tag}"]), []


@base
async def JoinGroup(s: Side, version: int) -> tuple[Any, Follow]:
    group = f"g{s.tag}"
    r = wire.JoinGroupRequest
    member = ""
    if version >= 4 and s.source.random() < 0.7:
        member, _ = await joined(s, group)
    request = r(
        group, 30_000, 30_000, member, None, "consumer", [r.JoinGroupRequestProtocol("range", b"\x00\x01")], "because"
    )
    return request, [describe_group(group)]


@base
async def SyncGroup(s: Side, version: int) -> tuple[Any, Follow]:
    group = f"g{s.tag}"
    member, generation = await joined(s, group)
    r = wire.SyncGroupRequest
    assignment = [r.SyncGroupRequestAssignment(member, b"\x00\x07")]
    return r(group, generation, member, None, "consumer", "range", assignment), [describe_group(group)]


@base
async def Heartbeat(s: Side, version: int) -> tuple[Any, Follow]:
    group = f"g{s.tag}"
    instance = "i1" if version >= 3 and s.source.random() < 0.4 else None
    member, generation = await stable(s, group, instance)
    return wire.HeartbeatRequest(group, generation, member, instance), []


@base
async def LeaveGroup(s: Side, version: int) -> tuple[Any, Follow]:
    group = f"g{s.tag}"
    instance = "i1" if version >= 3 and s.source.random() < 0.4 else None
    member, _ = await stable(s, group, instance)
    r = wire.LeaveGroupRequest
    return r(group, member, [r.MemberIdentity(member, instance, "done")]), [describe_group(group)]


@base
async def OffsetCommit(s: Side, version: int) -> tuple[Any, Follow]:
    group = f"g{s.tag}"
    name, topic_id = await shared_topic(s)
    kind = s.source.choice(("classic", "none"))
    member, generation = await stable(s, group) if kind == "classic" and version > 0 else ("", -1)
    r = wire.OffsetCommitRequest
    partition = r.OffsetCommitRequestPartition(0, 17, 0, -1, "meta")
    topic = r.OffsetCommitRequestTopic(name=name, topic_id=topic_id, partitions=[partition])
    return r(group, generation, member, None, -1, [topic]), [offset_fetch(group)]


async def committed(s: Side, group: str, *names: str) -> None:
    r = wire.OffsetCommitRequest
    topics = [
        r.OffsetCommitRequestTopic(name=name, partitions=[r.OffsetCommitRequestPartition(0, 17, 0, -1, "meta")])
        for name in names
    ]
    await s.ask(r(group, -1, "", None, -1, topics), 8, traced=False)


@base
async def OffsetFetch(s: Side, version: int) -> tuple[Any, Follow]:
    group = f"g{s.tag}"
    name, topic_id = await shared_topic(s)
    await committed(s, group, name)
    r = wire.OffsetFetchRequest
    topic = r.OffsetFetchRequestTopics(name=name, topic_id=topic_id, partition_indexes=[0, 1])
    old = [r.OffsetFetchRequestTopic(name, [0, 1])]
    return r(group, old, [r.OffsetFetchRequestGroup(group, None, -1, [topic])], False), []


@base
async def OffsetDelete(s: Side, version: int) -> tuple[Any, Follow]:
    group = f"g{s.tag}"
    name, _ = await shared_topic(s)
    await committed(s, group, name)
    r = wire.OffsetDeleteRequest
    return r(group, [r.OffsetDeleteRequestTopic(name, [r.OffsetDeleteRequestPartition(0)])]), [offset_fetch(group)]


@base
async def ListGroups(s: Side, version: int) -> tuple[Any, Follow]:
    return wire.ListGroupsRequest(["Stable"], ["streams"]), []


@base
async def DescribeGroups(s: Side, version: int) -> tuple[Any, Follow]:
    group = f"g{s.tag}"
    await stable(s, group)
    return wire.DescribeGroupsRequest([group], True), []


@base
async def DeleteGroups(s: Side, version: int) -> tuple[Any, Follow]:
    group = f"g{s.tag}"
    name, _ = await shared_topic(s)
    await committed(s, group, name)
    return wire.DeleteGroupsRequest([group]), [describe_group(group), offset_fetch(group)]


# --- transactions ---


@base
async def InitProducerId(s: Side, version: int) -> tuple[Any, Follow]:
    name = f"x{s.tag}"
    who = await producer(s, name)
    given = who if version >= 3 and s.source.random() < 0.5 else (-1, -1)
    return wire.InitProducerIdRequest(name, 60_000, *given), [describe_transaction(name)]


@base
async def AddPartitionsToTxn(s: Side, version: int) -> tuple[Any, Follow]:
    name = f"x{s.tag}"
    topic, _ = await shared_topic(s)
    who = await producer(s, name)
    r = wire.AddPartitionsToTxnRequest
    topics = [r.AddPartitionsToTxnTopic(topic, [0])]
    return r([r.AddPartitionsToTxnTransaction(name, *who, False, topics)], name, *who, topics), [
        describe_transaction(name)
    ]


@base
async def AddOffsetsToTxn(s: Side, version: int) -> tuple[Any, Follow]:
    name = f"x{s.tag}"
    who = await producer(s, name)
    return wire.AddOffsetsToTxnRequest(name, *who, f"g{s.tag}"), [describe_transaction(name)]


@base
async def EndTxn(s: Side, version: int) -> tuple[Any, Follow]:
    name = f"x{s.tag}"
    topic, _ = await create_topic(s, partitions=1)
    who = await producer(s, name)
    if s.source.random() < 0.8:
        await add_partition(s, name, who, topic)
    return wire.EndTxnRequest(name, *who, True), []


@base
async def TxnOffsetCommit(s: Side, version: int) -> tuple[Any, Follow]:
    name, group = f"x{s.tag}", f"g{s.tag}"
    topic, topic_id = await shared_topic(s)
    who = await producer(s, name)
    if version < 5:
        await s.ask(wire.AddOffsetsToTxnRequest(name, *who, group), 3, traced=False)
    member, generation = await stable(s, group) if version >= 3 and s.source.random() < 0.5 else ("", -1)
    r = wire.TxnOffsetCommitRequest
    topics = [
        r.TxnOffsetCommitRequestTopic(
            name=topic, topic_id=topic_id, partitions=[r.TxnOffsetCommitRequestPartition(0, 5, 0, "m")]
        )
    ]
    stable_fetch = wire.OffsetFetchRequest(
        groups=[wire.OffsetFetchRequest.OffsetFetchRequestGroup(group, None, -1, None)], require_stable=True
    )
    return r(name, group, *who, generation, member, None, topics), [offset_fetch(group), (stable_fetch, 9)]


@base
async def WriteTxnMarkers(s: Side, version: int) -> tuple[Any, Follow]:
    topic, _ = await create_topic(s, partitions=1)
    r = wire.WriteTxnMarkersRequest
    return r([r.WritableTxnMarker(5, 1, True, [r.WritableTxnMarkerTopic(topic, [0])], 0, 0)]), [offsets_of(topic)]


@base
async def DescribeProducers(s: Side, version: int) -> tuple[Any, Follow]:
    topic, _ = await create_topic(s, partitions=1)
    who = await producer(s)
    await produce(s, topic, 0, record_batch(b"1", producer_id=who[0], producer_epoch=who[1], base_sequence=0))
    r = wire.DescribeProducersRequest
    return r([r.TopicRequest(topic, [0])]), []


@base
async def DescribeTransactions(s: Side, version: int) -> tuple[Any, Follow]:
    name = f"x{s.tag}"
    who = await producer(s, name)
    topic, _ = await shared_topic(s)
    if s.source.random() < 0.5:
        await add_partition(s, name, who, topic)
    return wire.DescribeTransactionsRequest([name]), []


@base
async def ListTransactions(s: Side, version: int) -> tuple[Any, Follow]:
    name = f"x{s.tag}"
    who = await producer(s, name)
    return wire.ListTransactionsRequest(["Empty"], [who[0]], -1, name), []


# --- administration ---


@base
async def CreateTopics(s: Side, version: int) -> tuple[Any, Follow]:
    r = wire.CreateTopicsRequest
    name = f"t{s.tag}"
    if s.source.random() < 0.5:
        topic = r.CreatableTopic(
            name, -1, -1, [r.CreatableReplicaAssignment(0, [1])], [r.CreatableTopicConfig("retention.ms", "1000")]
        )
    else:
        topic = r.CreatableTopic(name, 2, 1, [], [r.CreatableTopicConfig("retention.ms", "1000")])
    return r([topic], 10_000, False), [describe_topic(name)]


@base
async def DeleteTopics(s: Side, version: int) -> tuple[Any, Follow]:
    name, topic_id = await create_topic(s, partitions=1)
    r = wire.DeleteTopicsRequest
    state = r.DeleteTopicState(name, ZERO_UUID) if s.source.random() < 0.5 else r.DeleteTopicState(None, topic_id)
    return r([state], [name], 10_000), [describe_topic(name)]


@base
async def CreatePartitions(s: Side, version: int) -> tuple[Any, Follow]:
    name, _ = await create_topic(s, partitions=1)
    r = wire.CreatePartitionsRequest
    assignments = [r.CreatePartitionsAssignment([1])] if s.source.random() < 0.5 else None
    return r([r.CreatePartitionsTopic(name, 2, assignments)], 10_000, False), [describe_topic(name)]


@base
async def DescribeConfigs(s: Side, version: int) -> tuple[Any, Follow]:
    name, _ = await shared_topic(s)
    r = wire.DescribeConfigsRequest
    return r([r.DescribeConfigsResource(2, name, ["retention.ms", "cleanup.policy"])], True, False), []


@base
async def AlterConfigs(s: Side, version: int) -> tuple[Any, Follow]:
    name, _ = await create_topic(s, partitions=1)
    r = wire.AlterConfigsRequest
    return r([r.AlterConfigsResource(2, name, [r.AlterableConfig("retention.ms", "1000")])], False), [
        topic_configs(name)
    ]


@base
async def IncrementalAlterConfigs(s: Side, version: int) -> tuple[Any, Follow]:
    name, _ = await create_topic(s, partitions=1, segment_bytes="2000000")
    r = wire.IncrementalAlterConfigsRequest
    change = s.source.choice(
        (("retention.ms", 0, "1000"), ("segment.bytes", 1, None), ("cleanup.policy", 2, "compact"))
    )
    return r([r.AlterConfigsResource(2, name, [r.AlterableConfig(*change)])], False), [topic_configs(name)]


@base
async def ListConfigResources(s: Side, version: int) -> tuple[Any, Follow]:
    return wire.ListConfigResourcesRequest([16]), []


@base
async def DescribeLogDirs(s: Side, version: int) -> tuple[Any, Follow]:
    name, _ = await shared_topic(s)
    r = wire.DescribeLogDirsRequest
    return r([r.DescribableLogDirTopic(name, [0])]), []


@base
async def AlterReplicaLogDirs(s: Side, version: int) -> tuple[Any, Follow]:
    name, _ = await shared_topic(s)
    r = wire.AlterReplicaLogDirsRequest
    return r([r.AlterReplicaLogDir("/no/such/dir", [r.AlterReplicaLogDirTopic(name, [0])])]), []


@base
async def ElectLeaders(s: Side, version: int) -> tuple[Any, Follow]:
    name, _ = await shared_topic(s)
    r = wire.ElectLeadersRequest
    return r(0, [r.TopicPartitions(name, [0])], 5_000), []


@base
async def AlterPartitionReassignments(s: Side, version: int) -> tuple[Any, Follow]:
    name, _ = await create_topic(s, partitions=1)
    r = wire.AlterPartitionReassignmentsRequest
    return r(5_000, True, [r.ReassignableTopic(name, [r.ReassignablePartition(0, [1])])]), []


@base
async def ListPartitionReassignments(s: Side, version: int) -> tuple[Any, Follow]:
    name, _ = await shared_topic(s)
    r = wire.ListPartitionReassignmentsRequest
    return r(5_000, [r.ListPartitionReassignmentsTopics(name, [0])]), []


@base
async def DescribeCluster(s: Side, version: int) -> tuple[Any, Follow]:
    return wire.DescribeClusterRequest(True, 1, True), []


@base
async def DescribeTopicPartitions(s: Side, version: int) -> tuple[Any, Follow]:
    name, _ = await shared_topic(s)
    r = wire.DescribeTopicPartitionsRequest
    cursor = r.Cursor(name, 1) if s.source.random() < 0.5 else None
    return r([r.TopicRequest(name)], 1, cursor), []


@base
async def UpdateFeatures(s: Side, version: int) -> tuple[Any, Follow]:
    r = wire.UpdateFeaturesRequest
    return r(5_000, [r.FeatureUpdateKey("group.version", 1, False, 1)], True), []


@base
async def UnregisterBroker(s: Side, version: int) -> tuple[Any, Follow]:
    return wire.UnregisterBrokerRequest(77), []


@base
async def ApiVersions(s: Side, version: int) -> tuple[Any, Follow]:
    return wire.ApiVersionsRequest("test-software", "1.2.3"), []


# --- rights, rates, users ---


@base
async def CreateAcls(s: Side, version: int) -> tuple[Any, Follow]:
    r = wire.CreateAclsRequest
    creation = r.AclCreation(2, f"a{s.tag}", 3, "User:ann", "*", 3, 3)
    look = wire.DescribeAclsRequest(2, f"a{s.tag}", 1, None, None, 1, 1)
    return r([creation]), [(look, 3)]


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


@base
async def DescribeAcls(s: Side, version: int) -> tuple[Any, Follow]:
    return wire.DescribeAclsRequest(2, await with_acl(s), 3, "User:ann", "*", 3, 3), []


@base
async def DeleteAcls(s: Side, version: int) -> tuple[Any, Follow]:
    name = await with_acl(s)
    r = wire.DeleteAclsRequest
    look = wire.DescribeAclsRequest(2, name, 1, None, None, 1, 1)
    return r([r.DeleteAclsFilter(2, name, 3, "User:ann", "*", 3, 3)]), [(look, 3)]


@base
async def DescribeClientQuotas(s: Side, version: int) -> tuple[Any, Follow]:
    user = f"u{s.tag}"
    r = wire.AlterClientQuotasRequest
    await s.ask(
        r([r.EntryData([r.EntityData("user", user)], [r.OpData("consumer_byte_rate", 2000.0, False)])], False),
        1,
        traced=False,
    )
    await asyncio.sleep(0.05)
    d = wire.DescribeClientQuotasRequest
    return d([d.ComponentData("user", 0, user)], True), []


@base
async def AlterClientQuotas(s: Side, version: int) -> tuple[Any, Follow]:
    user = f"u{s.tag}"
    r = wire.AlterClientQuotasRequest
    d = wire.DescribeClientQuotasRequest
    request = r([r.EntryData([r.EntityData("user", user)], [r.OpData("consumer_byte_rate", 2000.0, False)])], False)
    return request, [(d([d.ComponentData("user", 0, user)], False), 1)]


@base
async def DescribeUserScramCredentials(s: Side, version: int) -> tuple[Any, Follow]:
    user = f"u{s.tag}"
    r = wire.AlterUserScramCredentialsRequest
    await s.ask(r([], [r.ScramCredentialUpsertion(user, 1, 4096, b"salt" * 4, b"p" * 32)]), 0, traced=False)
    await asyncio.sleep(0.05)
    d = wire.DescribeUserScramCredentialsRequest
    return d([d.UserName(user)]), []


@base
async def AlterUserScramCredentials(s: Side, version: int) -> tuple[Any, Follow]:
    user = f"u{s.tag}"
    r = wire.AlterUserScramCredentialsRequest
    if s.source.random() < 0.3:
        await s.ask(r([], [r.ScramCredentialUpsertion(user, 1, 4096, b"salt" * 4, b"p" * 32)]), 0, traced=False)
        await asyncio.sleep(0.05)
        request = r([r.ScramCredentialDeletion(user, 1)], [])
    else:
        request = r([], [r.ScramCredentialUpsertion(user, 1, 4096, b"salt" * 4, b"p" * 32)])
    d = wire.DescribeUserScramCredentialsRequest
    return request, [(d([d.UserName(user)]), 0)]


@base
async def SaslHandshake(s: Side, version: int) -> tuple[Any, Follow]:
    return wire.SaslHandshakeRequest("PLAIN"), []


@base
async def SaslAuthenticate(s: Side, version: int) -> tuple[Any, Follow]:
    return wire.SaslAuthenticateRequest(b"\x00a\x00b"), []


@base
async def CreateDelegationToken(s: Side, version: int) -> tuple[Any, Follow]:
    r = wire.CreateDelegationTokenRequest
    return r("User", "ann", [r.CreatableRenewers("User", "bob")], 100_000), []


@base
async def RenewDelegationToken(s: Side, version: int) -> tuple[Any, Follow]:
    return wire.RenewDelegationTokenRequest(b"12345", 1_000), []


@base
async def ExpireDelegationToken(s: Side, version: int) -> tuple[Any, Follow]:
    return wire.ExpireDelegationTokenRequest(b"12345", 1_000), []


@base
async def DescribeDelegationToken(s: Side, version: int) -> tuple[Any, Follow]:
    r = wire.DescribeDelegationTokenRequest
    return r([r.DescribeDelegationTokenOwner("User", "ann")]), []


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


@base
async def ConsumerGroupHeartbeat(s: Side, version: int) -> tuple[Any, Follow]:
    group = f"g{s.tag}"
    name, topic_id = await shared_topic(s)
    t = wire.ConsumerGroupHeartbeatRequest.TopicPartitions
    if s.source.random() < 0.4:
        s.alias(member_uuid(), "member 1")
        return consumer_heartbeat(group, member_uuid(), 0, [name], []), [describe_consumer_group(group)]
    member, epoch = await consumer_member(s, group, name, topic_id)
    return consumer_heartbeat(group, member, epoch, [name], [t(topic_id, [0, 1])]), [describe_consumer_group(group)]


@base
async def ConsumerGroupDescribe(s: Side, version: int) -> tuple[Any, Follow]:
    group = f"g{s.tag}"
    await consumer_member(s, group, *await shared_topic(s))
    return wire.ConsumerGroupDescribeRequest([group], True), []


async def share_member(s: Side, group: str, topic: str, number: int = 1) -> tuple[str, int]:
    member = member_uuid(number)
    s.alias(member, f"member {number}")
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


@base
async def ShareGroupHeartbeat(s: Side, version: int) -> tuple[Any, Follow]:
    group = f"s{s.tag}"
    name, _ = await shared_topic(s)
    if s.source.random() < 0.3:
        s.alias(member_uuid(), "member 1")
        return wire.ShareGroupHeartbeatRequest(group, member_uuid(), 0, "r", [name]), []
    member, epoch = await share_member(s, group, name)
    return wire.ShareGroupHeartbeatRequest(group, member, epoch, "r", [name]), []


@base
async def ShareGroupDescribe(s: Side, version: int) -> tuple[Any, Follow]:
    group = f"s{s.tag}"
    name, _ = await shared_topic(s)
    await share_member(s, group, name)
    return wire.ShareGroupDescribeRequest([group], True), []


async def share_earliest(s: Side, group: str) -> None:
    r = wire.IncrementalAlterConfigsRequest
    change = r.AlterableConfig("share.auto.offset.reset", 0, "earliest")
    await s.ask(r([r.AlterConfigsResource(32, group, [change])], False), 1, traced=False)


def share_fetch(
    group: str, member: str, epoch: int, topic_id: bytes, acks: Any = (), partition: int = 0, **other: Any
) -> Any:
    r = wire.ShareFetchRequest
    topics = [r.FetchTopic(topic_id, [r.FetchPartition(partition, list(acks))])] if topic_id else []
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


@base
async def ShareFetch(s: Side, version: int) -> tuple[Any, Follow]:
    group = f"s{s.tag}"
    name, topic_id = await create_topic(s, partitions=1, records=3)
    b = wire.ShareFetchRequest.AcknowledgementBatch
    if s.source.random() < 0.4:
        await share_earliest(s, group)
        member, _ = await share_member(s, group, name)
        return share_fetch(group, member, 0, topic_id, max_wait_ms=1500), []
    member = await share_session(s, group, name, topic_id)
    return share_fetch(group, member, int(s.names["share epoch"]), topic_id, [b(0, 1, [1])]), []


@base
async def ShareAcknowledge(s: Side, version: int) -> tuple[Any, Follow]:
    group = f"s{s.tag}"
    name, topic_id = await create_topic(s, partitions=1, records=3)
    member = await share_session(s, group, name, topic_id)
    r = wire.ShareAcknowledgeRequest
    batch = r.AcknowledgementBatch(0, 1, [1])
    request = r(
        group,
        member,
        int(s.names["share epoch"]),
        False,
        [r.AcknowledgeTopic(topic_id, [r.AcknowledgePartition(0, [batch])])],
    )
    d = wire.DescribeShareGroupOffsetsRequest
    offsets = d([d.DescribeShareGroupOffsetsRequestGroup(group, [d.DescribeShareGroupOffsetsRequestTopic(name, [0])])])
    return request, [(offsets, 1)]


@base
async def DescribeShareGroupOffsets(s: Side, version: int) -> tuple[Any, Follow]:
    group = f"s{s.tag}"
    name, topic_id = await create_topic(s, partitions=1, records=3)
    member = await share_session(s, group, name, topic_id)
    r = wire.ShareAcknowledgeRequest
    batch = r.AcknowledgementBatch(0, 1, [1])
    request = r(
        group,
        member,
        int(s.names["share epoch"]),
        False,
        [r.AcknowledgeTopic(topic_id, [r.AcknowledgePartition(0, [batch])])],
    )
    await s.ask(request, 1, traced=False)
    d = wire.DescribeShareGroupOffsetsRequest
    return d([d.DescribeShareGroupOffsetsRequestGroup(group, [d.DescribeShareGroupOffsetsRequestTopic(name, [0])])]), []


async def left_share_group(s: Side, group: str) -> tuple[str, bytes]:
    name, topic_id = await create_topic(s, partitions=1, records=3)
    await share_earliest(s, group)
    member, _ = await share_member(s, group, name)
    await s.ask(wire.ShareGroupHeartbeatRequest(group, member, -1, None, None), 1, traced=False)
    return name, topic_id


@base
async def AlterShareGroupOffsets(s: Side, version: int) -> tuple[Any, Follow]:
    group = f"s{s.tag}"
    name, _ = await left_share_group(s, group)
    r = wire.AlterShareGroupOffsetsRequest
    d = wire.DescribeShareGroupOffsetsRequest
    offsets = d([d.DescribeShareGroupOffsetsRequestGroup(group, [d.DescribeShareGroupOffsetsRequestTopic(name, [0])])])
    topic = r.AlterShareGroupOffsetsRequestTopic(name, [r.AlterShareGroupOffsetsRequestPartition(0, 2)])
    return r(group, [topic]), [(offsets, 1)]


@base
async def DeleteShareGroupOffsets(s: Side, version: int) -> tuple[Any, Follow]:
    group = f"s{s.tag}"
    name, _ = await left_share_group(s, group)
    r = wire.DeleteShareGroupOffsetsRequest
    d = wire.DescribeShareGroupOffsetsRequest
    offsets = d([d.DescribeShareGroupOffsetsRequestGroup(group, [d.DescribeShareGroupOffsetsRequestTopic(name, [0])])])
    return r(group, [r.DeleteShareGroupOffsetsRequestTopic(name)]), [(offsets, 1)]


@base
async def InitializeShareGroupState(s: Side, version: int) -> tuple[Any, Follow]:
    _, topic_id = await shared_topic(s)
    r = wire.InitializeShareGroupStateRequest
    return r(f"s{s.tag}", [r.InitializeStateData(topic_id, [r.PartitionData(0, 1, 2)])]), []


async def with_share_state(s: Side, group: str) -> bytes:
    _, topic_id = await shared_topic(s)
    r = wire.InitializeShareGroupStateRequest
    await s.ask(r(group, [r.InitializeStateData(topic_id, [r.PartitionData(0, 1, 2)])]), 0, traced=False)
    return topic_id


@base
async def ReadShareGroupState(s: Side, version: int) -> tuple[Any, Follow]:
    topic_id = await with_share_state(s, f"s{s.tag}")
    r = wire.ReadShareGroupStateRequest
    return r(f"s{s.tag}", [r.ReadStateData(topic_id, [r.PartitionData(0, 1)])]), []


@base
async def ReadShareGroupStateSummary(s: Side, version: int) -> tuple[Any, Follow]:
    topic_id = await with_share_state(s, f"s{s.tag}")
    r = wire.ReadShareGroupStateSummaryRequest
    return r(f"s{s.tag}", [r.ReadStateSummaryData(topic_id, [r.PartitionData(0, 1)])]), []


@base
async def WriteShareGroupState(s: Side, version: int) -> tuple[Any, Follow]:
    topic_id = await with_share_state(s, f"s{s.tag}")
    r = wire.WriteShareGroupStateRequest
    read = wire.ReadShareGroupStateRequest
    data = r.PartitionData(0, 1, 1, 2, 0, [r.StateBatch(2, 4, 0, 1)])
    again = read(f"s{s.tag}", [read.ReadStateData(topic_id, [read.PartitionData(0, 1)])])
    return r(f"s{s.tag}", [r.WriteStateData(topic_id, [data])]), [(again, 0)]


@base
async def DeleteShareGroupState(s: Side, version: int) -> tuple[Any, Follow]:
    topic_id = await with_share_state(s, f"s{s.tag}")
    r = wire.DeleteShareGroupStateRequest
    return r(f"s{s.tag}", [r.DeleteStateData(topic_id, [r.PartitionData(0)])]), []


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


@base
async def StreamsGroupHeartbeat(s: Side, version: int) -> tuple[Any, Follow]:
    group = f"k{s.tag}"
    name, _ = await shared_topic(s)
    tasks = wire.StreamsGroupHeartbeatRequest.TaskIds
    follow = [(wire.StreamsGroupDescribeRequest([group], True, False), 0)]
    if s.source.random() < 0.5:
        s.alias(member_uuid(), "member 1")
        return streams_heartbeat(group, member_uuid(), 0, name, active=[], standby=[], warmup=[]), follow
    member, epoch = await streams_member(s, group, name)
    return streams_heartbeat(group, member, epoch, None, active=[tasks("0", [0, 1])], standby=[], warmup=[]), follow


@base
async def StreamsGroupDescribe(s: Side, version: int) -> tuple[Any, Follow]:
    group = f"k{s.tag}"
    name, _ = await shared_topic(s)
    await streams_member(s, group, name)
    return wire.StreamsGroupDescribeRequest([group], True, False), []


@base
async def StreamsGroupTopologyDescriptionUpdate(s: Side, version: int) -> tuple[Any, Follow]:
    group = f"k{s.tag}"
    name, _ = await shared_topic(s)
    member, _ = await streams_member(s, group, name)
    r = wire.StreamsGroupTopologyDescriptionUpdateRequest
    node = r.TopologyDescriptionNode("n", 1, [name], None, [], [])
    return r(group, member, 1, r.TopologyDescription([r.TopologyDescriptionSubtopology("0", [node])], [])), []
