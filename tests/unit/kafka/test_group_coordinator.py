"""The group coordinator through the wire: what clients see, what is stored, what survives a move."""

from __future__ import annotations

import asyncio
import dataclasses
from typing import Any

import pytest

from kafkalite.coordination.patience import refused_at
from kafkalite.coordination.topic_configs import TOPICS
from kafkalite.coordinators.groups import member_memory
from kafkalite.coordinators.groups.decisions.members import Committer
from kafkalite.coordinators.groups.offsets import CommittedOffset
from kafkalite.coordinators.internal_log import partition_of
from kafkalite.errors import ApiError, ErrorCode, api_error
from kafkalite.extension.messages.topics import CreateTopicsRequest, CreateTopicsResponse, TopicResult
from kafkalite.model import Offset, ProducerId, TopicPartition
from kafkalite.protocol import topic_ids, wire
from kafkalite.protocol.codec import decode, encode
from kafkalite.testing.kafka_client import frame

from .conftest import Broker
from .coordinator_requests import GROUPS, TRANSACTIONS, commit, coordinator, fetched, join, move
from .rights import counted_turns


@pytest.mark.parametrize("version", range(7))
async def test_find_coordinator_creates_the_topic(broker: Broker, version: int) -> None:
    client = await broker.client()
    await coordinator(client, "g", GROUPS, version)
    assert broker.services.settings[TOPICS]["__consumer_offsets"]["cleanup.policy"] == "compact"


@pytest.mark.parametrize("what", ["group", "transaction", "topic"])
async def test_what_creates_a_topic_does_not_hold_its_connection_while_zookeeper_is_away(
    make_broker: Any, monkeypatch: pytest.MonkeyPatch, what: str
) -> None:
    """librdkafka asks for the coordinator on a connection on which it fetches, and answers keep the order of the requests."""
    broker = await make_broker(auto_create_topics_enable=True)
    waits_s = []

    async def away(request: CreateTopicsRequest) -> CreateTopicsResponse:
        waits_s.append(refused_at() - asyncio.get_running_loop().time())
        return CreateTopicsResponse(
            tuple(TopicResult(each.topic, ErrorCode.REQUEST_TIMED_OUT) for each in request.topics)
        )

    monkeypatch.setattr(broker.services, "create_topics", away)
    client = await broker.client()
    if what == "topic":
        topic = wire.MetadataRequest.MetadataRequestTopic(name="t")
        assert (await client.ask(wire.MetadataRequest([topic], allow_auto_topic_creation=True), 9)).topics[0].error_code
    else:
        kind = GROUPS if what == "group" else TRANSACTIONS
        answer = await client.ask(wire.FindCoordinatorRequest(key_type=kind, coordinator_keys=["g"]), 4)
        assert answer.coordinators[0].error_code == ErrorCode.COORDINATOR_NOT_AVAILABLE
    assert waits_s and max(waits_s) <= 1


async def test_offsets_survive_a_move(broker: Broker) -> None:
    await broker.create("t")
    client = await broker.client()
    await coordinator(client, "g")
    for offset in (5, 6):
        answer = await client.ask(commit("g", offset, metadata="m"), 8)
        assert answer.topics[0].partitions[0].error_code == 0
    await move(broker, "__consumer_offsets")
    away = await fetched(client, "g", TopicPartition("t", 0))
    assert away.error_code in (0, ErrorCode.COORDINATOR_LOAD_IN_PROGRESS)
    await coordinator(client, "g")
    known = (await fetched(client, "g")).topics[0].partitions[0]
    assert (known.committed_offset, known.metadata) == (6, "m")
    unknown = (await fetched(client, "g", TopicPartition("t", 7))).topics[0].partitions[0]
    assert (unknown.committed_offset, unknown.error_code) == (-1, 0)


async def test_not_the_coordinator(broker: Broker) -> None:
    await broker.create("t")
    client = await broker.client()
    await coordinator(client, "g")
    broker.services.partitions.led = lambda key: key.topic != "__consumer_offsets"
    broker.services.partitions.tell_change()
    assert (await client.ask(join("g"), 5)).error_code == ErrorCode.NOT_COORDINATOR
    answer = await client.ask(commit("g", 1), 8)
    assert answer.topics[0].partitions[0].error_code == ErrorCode.NOT_COORDINATOR
    assert (await client.ask(wire.HeartbeatRequest("g", 1, "m"), 4)).error_code == ErrorCode.NOT_COORDINATOR
    described = await client.ask(wire.DescribeGroupsRequest(["g"]), 5)
    assert described.groups[0].error_code == ErrorCode.NOT_COORDINATOR


@pytest.mark.parametrize("version", [2, 6, 9])
@pytest.mark.parametrize("code", [ErrorCode.NOT_COORDINATOR, ErrorCode.COORDINATOR_LOAD_IN_PROGRESS])
async def test_who_is_not_asked_rightly_says_nothing_of_the_member(
    broker: Broker, monkeypatch: pytest.MonkeyPatch, code: ErrorCode, version: int
) -> None:
    """JoinGroup repeated the member's id, and LeaveGroup without members succeeded. Only errors of the group or the member repeat the id."""
    await broker.create("t")
    client = await broker.client()
    await coordinator(client, "g")

    def elsewhere(group_id: str) -> Any:
        raise api_error(code)

    monkeypatch.setattr(broker.side.groups.log, "state_for", elsewhere)
    joined = await client.ask(join("g", "m"), version)
    assert (joined.error_code, joined.member_id, joined.generation_id) == (code, "", -1)
    assert (joined.leader, joined.protocol_name, list(joined.members)) == ("", None if version >= 7 else "", [])
    left = await client.ask(wire.LeaveGroupRequest("g", "m"), min(version, 5))
    assert (left.error_code, list(left.members)) == (code, [])
    wrong = await client.ask(join("g", "m", session_timeout_ms=1), version)
    assert (wrong.error_code, wrong.member_id) == (ErrorCode.INVALID_SESSION_TIMEOUT, "m")


async def test_members_of_a_group_that_is_being_loaded_hear_no_error_that_ends_a_client(broker: Broker) -> None:
    """The Java client ends at COORDINATOR_LOAD_IN_PROGRESS from SyncGroup ("Unexpected error from SyncGroup"): Kafka up to 3.9 said
    REBALANCE_IN_PROGRESS, after which the member asks JoinGroup, where the error is expected.
    """
    await broker.create("t")
    client = await broker.client()
    await coordinator(client, "g")
    log = TopicPartition("__consumer_offsets", partition_of("g", broker.side.groups.log.partition_count()))
    await client.ask(commit("g", 3), 8)
    partitions = broker.services.partitions
    partitions.committed[log] = partitions.logs[log].log_end_offset - 1
    await move(broker, "__consumer_offsets")
    assert (await client.ask(join("g"), 5)).error_code == ErrorCode.COORDINATOR_LOAD_IN_PROGRESS
    assert (await client.ask(wire.SyncGroupRequest("g", 1, "m"), 3)).error_code == ErrorCode.REBALANCE_IN_PROGRESS
    assert (await client.ask(wire.HeartbeatRequest("g", 1, "m"), 4)).error_code == ErrorCode.NONE
    del partitions.committed[log]
    await coordinator(client, "g")
    assert (await client.ask(wire.SyncGroupRequest("g", 1, "m"), 3)).error_code == ErrorCode.UNKNOWN_MEMBER_ID


@pytest.mark.parametrize("version", range(10))
async def test_commits_in_every_version(broker: Broker, version: int) -> None:
    await broker.create("t")
    client = await broker.client()
    await coordinator(client, "g")
    answer = await client.ask(commit("g", 3, retention_time_ms=60_000 if 2 <= version <= 4 else -1), version)
    assert answer.topics[0].partitions[0].error_code == 0
    request = wire.OffsetFetchRequest
    topics = [request.OffsetFetchRequestTopic("t", [0])]
    groups = [
        request.OffsetFetchRequestGroup("g", topics=[request.OffsetFetchRequestTopics("t", partition_indexes=[0])])
    ]
    answer = await client.ask(request(group_id="g", topics=topics, groups=groups), version)
    holder = answer.groups[0] if version >= 8 else answer
    assert holder.topics[0].partitions[0].committed_offset == 3


async def test_an_offset_that_is_kept_for_ever(broker: Broker) -> None:
    await broker.create("t")
    client = await broker.client()
    await coordinator(client, "g")
    answer = await client.ask(commit("g", 3, retention_time_ms=2**63 - 1), 3)
    assert answer.topics[0].partitions[0].error_code == 0


async def test_commit_errors(broker: Broker) -> None:
    await broker.create("t")
    client = await broker.client()
    await coordinator(client, "g")

    async def code(request: Any) -> int:
        return int((await client.ask(request, 8)).topics[0].partitions[0].error_code)

    assert await code(commit("g", 1, topic="nowhere")) == ErrorCode.UNKNOWN_TOPIC_OR_PARTITION
    assert await code(commit("", 1)) == ErrorCode.INVALID_GROUP_ID
    assert await code(commit("g", 1, metadata="x" * 5000)) == ErrorCode.OFFSET_METADATA_TOO_LARGE
    generation: dict[str, Any] = {"generation_id_or_member_epoch": 4, "member_id": "m"}
    assert await code(commit("unheard-of", 1, **generation)) == ErrorCode.ILLEGAL_GENERATION
    newer = await client.ask(commit("unheard-of", 1, **generation), 9)
    assert newer.topics[0].partitions[0].error_code == ErrorCode.GROUP_ID_NOT_FOUND
    offset = {TopicPartition("t", 0): CommittedOffset(Offset(1), -1, "", 0)}
    offsets = broker.side.groups.offsets
    committer = Committer("unheard-of", "m", generation=4, producer=(ProducerId(1), 0))
    with pytest.raises(ApiError, match="ILLEGAL_GENERATION"):
        list(offsets.committing(committer, offset, lambda _: None))
    assert broker.side.groups.find("unheard-of") is None
    # The latter: too many requests of others wait here. A Java consumer or producer knows it of no coordinator, and gives up.
    for refused in (ErrorCode.NOT_ENOUGH_REPLICAS, ErrorCode.THROTTLING_QUOTA_EXCEEDED):
        broker.services.partitions.fail_appends = refused
        assert await code(commit("g", 9)) == ErrorCode.COORDINATOR_NOT_AVAILABLE
    broker.services.partitions.fail_appends = None
    assert (await fetched(client, "g", TopicPartition("t", 0))).topics[0].partitions[0].committed_offset == -1


@pytest.mark.parametrize("version", range(2, 10))
async def test_a_member_in_every_version_survives_a_move(broker: Broker, version: int) -> None:
    await broker.create("t")
    client = await broker.client()
    await coordinator(client, "g")
    joined = await client.ask(join("g"), version)
    if version >= 4:
        assert joined.error_code == ErrorCode.MEMBER_ID_REQUIRED
        joined = await client.ask(join("g", joined.member_id), version)
    assert (joined.error_code, joined.generation_id, joined.leader) == (0, 1, joined.member_id)
    assignment = wire.SyncGroupRequest.SyncGroupRequestAssignment(joined.member_id, b"mine")
    named = {"protocol_type": "consumer", "protocol_name": "range"}
    request = wire.SyncGroupRequest("g", 1, joined.member_id, assignments=[assignment], **named)
    assert (await client.ask(request, min(version, 5))).assignment == b"mine"
    await move(broker, "__consumer_offsets")
    await coordinator(client, "g")
    beat = await client.ask(wire.HeartbeatRequest("g", 1, joined.member_id), min(version, 4))
    assert beat.error_code == 0
    [described] = (await client.ask(wire.DescribeGroupsRequest(["g"]), 5)).groups
    assert (described.group_state, described.members[0].member_assignment) == ("Stable", b"mine")
    left = wire.LeaveGroupRequest("g", joined.member_id, [wire.LeaveGroupRequest.MemberIdentity(joined.member_id)])
    assert (await client.ask(left, min(version, 5))).error_code == 0
    assert (await client.ask(wire.HeartbeatRequest("g", 1, joined.member_id), 0)).error_code != 0


async def test_members_are_described_with_their_last_assignment_while_they_join_again(broker: Broker) -> None:
    client = await broker.client()
    await coordinator(client, "g")
    joined = await client.ask(join("g"), 3)
    assignment = wire.SyncGroupRequest.SyncGroupRequestAssignment(joined.member_id, b"mine")
    await client.ask(wire.SyncGroupRequest("g", 1, joined.member_id, assignments=[assignment]), 2)
    other = await broker.client()
    other.send(join("g"), 3)
    described = None
    while described is None or described.group_state != "PreparingRebalance":
        [described] = (await client.ask(wire.DescribeGroupsRequest(["g"]), 5)).groups
    assert [each.member_assignment for each in described.members] == [b"mine", b""]


async def test_a_partition_that_does_not_exist_has_its_own_error_if_the_commit_is_refused(broker: Broker) -> None:
    await broker.create("t")
    client = await broker.client()
    await coordinator(client, "g")
    request = wire.OffsetCommitRequest
    partitions = [request.OffsetCommitRequestPartition(number, 1, committed_metadata="") for number in (0, 77)]
    topics = [request.OffsetCommitRequestTopic("t", partitions=partitions)]
    answer = await client.ask(request("g", 5, "nobody", topics=topics), 8)
    codes = [each.error_code for each in answer.topics[0].partitions]
    assert codes == [ErrorCode.ILLEGAL_GENERATION, ErrorCode.UNKNOWN_TOPIC_OR_PARTITION]


@pytest.mark.parametrize("version", [9, 10])
async def test_a_commit_waits_until_the_coordinator_knows_the_topics(
    broker: Broker, monkeypatch: pytest.MonkeyPatch, version: int
) -> None:
    """A node that has just started may coordinate before it knows the cluster. It said UNKNOWN_TOPIC_OR_PARTITION, which librdkafka
    gives to the program.
    """
    await broker.create("t")
    client = await broker.client()
    await coordinator(client, "g")
    known = broker.services.metadata
    topic_id = topic_ids.to_wire(known(["t"]).topics[0].topic_id)
    request = wire.OffsetCommitRequest
    named = {"topic_id": topic_id} if version == 10 else {"name": "t"}
    topic = request.OffsetCommitRequestTopic(**named, partitions=[request.OffsetCommitRequestPartition(0, 1)])
    monkeypatch.setattr(broker.services, "metadata", lambda topics: dataclasses.replace(known(topics), brokers=()))
    for code in (ErrorCode.COORDINATOR_LOAD_IN_PROGRESS, ErrorCode.NONE):
        answer = await client.ask(request("g", topics=[topic]), version)
        assert [each.error_code for each in answer.topics[0].partitions] == [code]
        monkeypatch.undo()


@pytest.mark.parametrize("version", range(6))
async def test_a_group_without_a_name_cannot_be_left(broker: Broker, version: int) -> None:
    """It is the request that is wrong, not its members (Kafka's GroupCoordinatorService.leaveGroup)."""
    client = await broker.client()
    await coordinator(client, "g")
    leave = wire.LeaveGroupRequest
    for members in ([], [leave.MemberIdentity("m")]):
        answer = await client.ask(leave("", "m", members), version)
        assert (answer.error_code, answer.members) == (ErrorCode.INVALID_GROUP_ID, [] if version >= 3 else ())


async def test_administration_of_groups(broker: Broker) -> None:
    await broker.create("t")
    client = await broker.client()
    await coordinator(client, "g")
    await client.ask(commit("simple", 1), 8)
    joined = await client.ask(join("g"), 3)
    assert joined.error_code == 0
    listed = await client.ask(wire.ListGroupsRequest(), 5)
    states = {group.group_id: (group.group_state, group.protocol_type) for group in listed.groups}
    assert states == {"g": ("CompletingRebalance", "consumer"), "simple": ("Empty", "")}
    [group] = (await client.ask(wire.DescribeGroupsRequest(["g"]), 5)).groups
    assert (group.protocol_data, [each.member_metadata for each in group.members]) == ("", [b""])
    only = await client.ask(wire.ListGroupsRequest(states_filter=["Empty"]), 4)
    assert [group.group_id for group in only.groups] == ["simple"]
    assert (await client.ask(wire.ListGroupsRequest(types_filter=["consumer"]), 5)).groups == []
    deleted = await client.ask(wire.DeleteGroupsRequest(["g", "simple", "nothing", "simple"]), 2)
    assert [result.error_code for result in deleted.results] == [
        ErrorCode.NON_EMPTY_GROUP,
        0,
        ErrorCode.GROUP_ID_NOT_FOUND,
    ]
    await move(broker, "__consumer_offsets")
    await coordinator(client, "simple")
    assert not (await fetched(client, "simple")).topics
    [dead] = (await client.ask(wire.DescribeGroupsRequest(["simple"]), 5)).groups
    assert dead.group_state == "Dead"


async def test_offsets_are_deleted_by_admins_with_topics_and_by_age(broker: Broker) -> None:
    for topic in ("t", "u", "v"):
        await broker.create(topic)
    client = await broker.client()
    await coordinator(client, "g")
    for topic in ("t", "u", "v"):
        await client.ask(commit("g", 4, topic=topic), 8)
    request = wire.OffsetDeleteRequest
    doomed = request.OffsetDeleteRequestTopic("t", [request.OffsetDeleteRequestPartition(0)])
    answer = await client.ask(request("g", [doomed]), 0)
    assert (answer.error_code, answer.topics[0].partitions[0].error_code) == (0, 0)
    await broker.side.groups.removal.topics_deleted(["u"])
    assert [topic.name for topic in (await fetched(client, "g")).topics] == ["v"]
    await broker.side.groups.removal.expire()
    assert [topic.name for topic in (await fetched(client, "g")).topics] == ["v"]
    object.__setattr__(broker.services.config, "offsets_retention_minutes", -1)
    await broker.side.groups.removal.expire()
    assert not (await fetched(client, "g")).topics
    assert broker.side.groups.describe("g") is None


@pytest.mark.parametrize(("topic", "code"), [("t", ErrorCode.GROUP_SUBSCRIBED_TO_TOPIC), ("u", ErrorCode.NONE)])
async def test_members_subscribe_to_what_the_first_version_of_their_metadata_says(
    broker: Broker, topic: str, code: ErrorCode
) -> None:
    """@platformatic/kafka says version 1, and leaves out what that adds."""
    await broker.create(topic)
    client = await broker.client()
    await coordinator(client, "g")
    metadata = (1).to_bytes(2) + encode(wire.ConsumerProtocolSubscription(["t"]), 0)
    protocols = [wire.JoinGroupRequest.JoinGroupRequestProtocol("roundrobin", metadata)]
    joined = await client.ask(join("g", protocols=protocols), 3)
    member = {"member_id": joined.member_id, "generation_id_or_member_epoch": joined.generation_id}
    assert not (await client.ask(wire.SyncGroupRequest("g", joined.generation_id, joined.member_id), 3)).error_code
    await client.ask(commit("g", 4, topic=topic, **member), 8)
    request = wire.OffsetDeleteRequest
    doomed = request.OffsetDeleteRequestTopic(topic, [request.OffsetDeleteRequestPartition(0)])
    answer = await client.ask(request("g", [doomed]), 0)
    assert answer.topics[0].partitions[0].error_code == code
    assert [each.name for each in (await fetched(client, "g")).topics] == ([topic] if code else [])


async def test_what_members_subscribe_to_is_read_in_steps(broker: Broker, monkeypatch: pytest.MonkeyPatch) -> None:
    """Members of one group may name five million topics: each OffsetDelete held the loop for a second."""
    await broker.create("t")
    client = await broker.client()
    await coordinator(client, "g")
    joined = await client.ask(join("g", protocols=[_subscribing("u")]), 3)
    assert not (await client.ask(wire.SyncGroupRequest("g", joined.generation_id, joined.member_id), 3)).error_code
    turns = counted_turns(monkeypatch)
    request = wire.OffsetDeleteRequest
    doomed = request.OffsetDeleteRequestTopic("t", [request.OffsetDeleteRequestPartition(0)])
    assert not (await client.ask(request("g", [doomed]), 0)).error_code
    assert turns.count(("groups.offsets_deleted", "g")) > 1


def _subscribing(*topics: str) -> Any:
    metadata = bytes(2) + encode(wire.ConsumerProtocolSubscription(list(topics)), 0)
    return wire.JoinGroupRequest.JoinGroupRequestProtocol("range", metadata)


async def test_a_group_whose_last_offset_was_deleted_is_there_until_it_is_deleted(broker: Broker) -> None:
    await broker.create("t")
    client = await broker.client()
    await coordinator(client, "g")
    await client.ask(commit("g", 4, topic="t"), 8)
    request = wire.OffsetDeleteRequest
    doomed = request.OffsetDeleteRequestTopic("t", [request.OffsetDeleteRequestPartition(0)])
    assert not (await client.ask(request("g", [doomed]), 0)).error_code
    assert [each.group_id for each in (await client.ask(wire.ListGroupsRequest(), 5)).groups] == ["g"]
    [described] = (await client.ask(wire.DescribeGroupsRequest(["g"]), 6)).groups
    assert (described.error_code, described.group_state) == (0, "Empty")
    [deleted] = (await client.ask(wire.DeleteGroupsRequest(["g"]), 2)).results
    assert not deleted.error_code
    assert not (await client.ask(wire.ListGroupsRequest(), 5)).groups


async def test_a_group_with_a_long_name_is_deleted_in_several_appends(broker: Broker) -> None:
    """A tombstone names the group: a thousand of them were more than a batch may have, and were refused for ever."""
    await broker.create("t", partitions=60)
    client, name = await broker.client(), "g" * 30_000
    await coordinator(client, name)
    request = wire.OffsetCommitRequest
    for first in range(0, 60, 20):
        parts = [request.OffsetCommitRequestPartition(number, 5) for number in range(first, first + 20)]
        answer = await client.ask(request(name, topics=[request.OffsetCommitRequestTopic("t", partitions=parts)]), 8)
        assert {each.error_code for each in answer.topics[0].partitions} == {0}
    [deleted] = (await client.ask(wire.DeleteGroupsRequest([name]), 2)).results
    assert deleted.error_code == 0
    await move(broker, "__consumer_offsets")
    await coordinator(client, name)
    assert not (await fetched(client, name)).topics


async def test_what_members_say_of_themselves_is_bounded(broker: Broker, monkeypatch: pytest.MonkeyPatch) -> None:
    """It is in no record yet: a user that may read one group could fill the memory, 16 MB with each member."""
    monkeypatch.setattr(member_memory, "MAX_BYTES", 25_000)
    monkeypatch.setattr(member_memory, "_GROUP_BYTES", 0)
    monkeypatch.setattr(member_memory, "_COUNT_AGAIN_MS", 0)
    monkeypatch.setattr(member_memory, "_COUNT_SHARE", 0)
    client = await broker.client()
    await coordinator(client, "a")

    async def joined(group: str, size: int, member_id: str = "") -> Any:
        said = [wire.JoinGroupRequest.JoinGroupRequestProtocol("range", bytes(size))]
        return await client.ask(join(group, member_id, protocols=said), 3)

    first = await joined("a", 10_000)
    for _ in range(5):  # the same member takes the same memory
        assert (await joined("a", 10_000, first.member_id)).error_code == 0
    assert (await joined("b", 10_000)).error_code == 0
    assert (await joined("c", 10_000)).error_code == ErrorCode.COORDINATOR_NOT_AVAILABLE
    assert "c" not in {each.group.group_id for each in broker.side.groups.groups()}
    assert (await joined("d", 1_000)).error_code == 0
    assert (await client.ask(wire.LeaveGroupRequest("a", first.member_id), 2)).error_code == 0
    assert (await joined("c", 10_000)).error_code == 0


async def test_no_name_of_a_client_makes_a_group_that_cannot_be_stored_or_described(broker: Broker) -> None:
    """20,000 bytes that are no UTF-8 became 60,000. Neither was the group's record a record, nor its description a response: the connection
    of the producer that asked was aborted."""
    client, other = await broker.client(), await broker.client()
    await coordinator(client, "g")
    for number, (group, instance_id) in enumerate((("g", None), ("h", "i" * 32_000))):
        data = bytearray(frame(join(group, group_instance_id=instance_id), 5, number, "?"))
        name = b"\xff" * 20_000
        data[12:15] = len(name).to_bytes(2) + name
        client.writer.write((len(data) - 4).to_bytes(4) + data[4:])
        answer = decode("JoinGroupResponse", 5, (await client.receive_raw())[4:])
        if answer.error_code == ErrorCode.MEMBER_ID_REQUIRED:
            answer = await client.ask(join(group, answer.member_id), 5)
        assert answer.error_code == 0 and len(answer.member_id.encode()) <= 32_767
        request = wire.SyncGroupRequest
        given = [request.SyncGroupRequestAssignment(answer.member_id, b"a")]
        synced = await client.ask(request(group, 1, answer.member_id, instance_id, assignments=given), 3)
        assert synced.error_code == 0
    described = await other.ask(wire.DescribeGroupsRequest(["g", "h"]), 4)
    assert [(each.error_code, each.group_state) for each in described.groups] == [(0, "Stable")] * 2


@pytest.mark.parametrize("version", range(1, 8))
async def test_an_error_of_offset_fetch_names_no_topics(broker: Broker, version: int) -> None:
    """Kafka's OffsetFetchRequestTest.testGroupErrors: only the oldest version has no place for an error of the whole."""
    await broker.create("t")
    request = wire.OffsetFetchRequest
    answer = await (await broker.client()).ask(request("g", [request.OffsetFetchRequestTopic("t", [0])]), version)
    if version >= 2:
        assert (answer.error_code, list(answer.topics)) == (ErrorCode.NOT_COORDINATOR, [])
    else:
        [topic] = answer.topics
        assert [each.error_code for each in topic.partitions] == [ErrorCode.NOT_COORDINATOR]


async def test_ids_that_nobody_knows_come_last_in_offset_fetch(broker: Broker) -> None:
    await broker.create("t")
    client = await broker.client()
    await coordinator(client, "g")
    known = topic_ids.to_wire(broker.services.metadata(["t"]).topics[0].topic_id)
    request = wire.OffsetFetchRequest
    topics = [request.OffsetFetchRequestTopics(topic_id=each, partition_indexes=[0]) for each in (b"x" * 16, known)]
    group = request.OffsetFetchRequestGroup("g", topics=topics)
    [found] = (await client.ask(request(groups=[group]), 10)).groups
    assert [(each.topic_id, each.partitions[0].error_code) for each in found.topics] == [
        (known, 0),
        (b"x" * 16, ErrorCode.UNKNOWN_TOPIC_ID),
    ]


async def test_a_group_without_a_name_has_no_offsets_and_is_dead(broker: Broker) -> None:
    """As with Kafka, which knows old clients that name no group."""
    await broker.create("t")
    client = await broker.client()
    offsets, described = wire.OffsetFetchRequest, wire.DescribeGroupsRequest
    answer = await client.ask(offsets("", [offsets.OffsetFetchRequestTopic("t", [0])]), 7)
    assert (answer.error_code, answer.topics[0].partitions[0].committed_offset) == (0, -1)
    [group] = (await client.ask(described([""]), 5)).groups
    assert (group.error_code, group.group_state) == (0, "Dead")
    deleted = await client.ask(wire.DeleteGroupsRequest([""]), 2)
    assert deleted.results[0].error_code == ErrorCode.GROUP_ID_NOT_FOUND
    for version, code in ((8, ErrorCode.ILLEGAL_GENERATION), (9, ErrorCode.GROUP_ID_NOT_FOUND)):
        request = commit("", 1)
        request.member_id, request.generation_id_or_member_epoch = "m", 3
        refused = await client.ask(request, version)
        assert refused.topics[0].partitions[0].error_code == code


@pytest.mark.parametrize("version", [1, 7, 8, 9])
async def test_a_topic_without_a_name_has_no_offsets(broker: Broker, version: int) -> None:
    """Only a version that names topics by their ids knows UNKNOWN_TOPIC_ID."""
    client = await broker.client()
    await coordinator(client, "g", GROUPS)
    request = wire.OffsetFetchRequest
    old = [request.OffsetFetchRequestTopic("", [0])]
    asked = request.OffsetFetchRequestGroup("g", topics=[request.OffsetFetchRequestTopics("", partition_indexes=[0])])
    answer = await client.ask(request("g", old, [asked]), version)
    [topic] = (answer.groups[0] if version >= 8 else answer).topics
    [partition] = topic.partitions
    assert (partition.committed_offset, partition.error_code) == (-1, 0)
