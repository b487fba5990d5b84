"""Groups with members of both protocols: from the classic one to the consumer protocol (KIP-848) and back."""

from __future__ import annotations

import asyncio
from typing import Any

import pytest

from kafkalite.coordinators.groups.records.common import GroupRecord, parse
from kafkalite.errors import ErrorCode
from kafkalite.model import GROUP_TOPIC, TopicPartition
from kafkalite.protocol import wire
from kafkalite.protocol.codec import encode
from kafkalite.record.reader import read_records

from .conftest import Broker, FrameClient
from .consumer_members import Member, described, started
from .coordinator_requests import commit, coordinator, fetched, join, move


async def classic_round(client: FrameClient, member_id: str) -> tuple[int, Any]:
    """Join and ask for the assignment: generation, and the assignment or None."""
    request = join("g", member_id)
    joined = await client.ask(request, 5)
    if joined.error_code:
        return joined.error_code, None
    shares = []
    if joined.leader == joined.member_id:
        share = (1).to_bytes(2) + b""
        shares = [wire.SyncGroupRequest.SyncGroupRequestAssignment(each.member_id, share) for each in joined.members]
    synced = await client.ask(
        wire.SyncGroupRequest("g", joined.generation_id, joined.member_id, None, "consumer", "range", shares), 4
    )
    return joined.generation_id, synced


async def test_a_group_goes_over_to_the_consumer_protocol_and_back(broker: Broker) -> None:
    client, modern_client = await started(broker), await broker.client()
    given = (await client.ask(join("g"), 5)).member_id
    generation, synced = await classic_round(client, given)
    assert (generation, synced.error_code) == (1, 0)
    modern = Member(modern_client, "m", "t")
    await modern.beat()
    assert modern.error == 0
    assert (await described(client)).members[0].member_type == 0
    classic = await client.ask(wire.DescribeGroupsRequest(["g"]), 5)
    assert classic.groups[0].group_state == "Dead"
    beat = await client.ask(wire.HeartbeatRequest("g", generation, given), 4)
    assert beat.error_code == ErrorCode.REBALANCE_IN_PROGRESS
    async with asyncio.timeout(150):
        while len(modern.partitions) < 2 or (await described(client)).group_state != "Stable":
            generation, synced = await classic_round(client, given)
            await modern.beat()
    assert generation == modern.epoch
    assert (await client.ask(wire.HeartbeatRequest("g", generation, given), 4)).error_code == 0
    await move(broker, GROUP_TOPIC)
    await coordinator(client, "g")
    assert (await client.ask(wire.HeartbeatRequest("g", generation, given), 4)).error_code == 0
    before_ms = broker.services.clock.wall_ms()
    await modern.beat(-1)
    assert (await described(client)).error_code == ErrorCode.GROUP_ID_NOT_FOUND
    log = broker.services.partitions.logs[TopicPartition(GROUP_TOPIC, broker.side.groups.log.state_for("g").index)]
    stored = [parse(each.key, each.value, each.offset) for data in log.batches for each in read_records(data[1])]
    [*_, last] = [each for each in stored if isinstance(each, GroupRecord) and each.members]
    assert last.since_ms >= before_ms  # another node reads it: no time of this process's own clock
    code = (await client.ask(wire.HeartbeatRequest("g", generation, given), 4)).error_code
    assert code in (ErrorCode.ILLEGAL_GENERATION, ErrorCode.REBALANCE_IN_PROGRESS)
    joined, synced = await classic_round(client, given)
    assert joined > generation and synced.error_code == 0
    assert (await client.ask(wire.DescribeGroupsRequest(["g"]), 5)).groups[0].group_state == "Stable"


@pytest.mark.parametrize("policy", ["disabled", "downgrade"])
async def test_a_group_with_members_stays_as_it_is_if_the_policy_says_so(make_broker: Any, policy: str) -> None:
    broker = await make_broker(group_consumer_migration_policy=policy)
    client = await started(broker)
    given = (await client.ask(join("g"), 5)).member_id
    await classic_round(client, given)
    member = Member(client, "m", "t")
    assert (await member.beat()).error_code == ErrorCode.GROUP_ID_NOT_FOUND
    leave = wire.LeaveGroupRequest
    await client.ask(leave("g", members=[leave.MemberIdentity(given)]), 4)
    assert (await member.beat()).error_code == 0  # an empty group is any protocol's


async def test_a_group_with_an_assignor_of_its_own_stays_classic(broker: Broker) -> None:
    """What such an assignor tells its members beside the partitions would be lost; Kafka refuses this, too."""
    client = await started(broker)
    joined = await client.ask(join("g", (await client.ask(join("g"), 5)).member_id), 5)
    assignment = wire.ConsumerProtocolAssignment
    share = (1).to_bytes(2) + encode(assignment([assignment.TopicPartition("t", [0, 1, 2, 3])], user_data=b"x"), 1)
    shares = [wire.SyncGroupRequest.SyncGroupRequestAssignment(joined.member_id, share)]
    generation = joined.generation_id
    await client.ask(wire.SyncGroupRequest("g", generation, joined.member_id, None, "consumer", "range", shares), 4)
    assert (await Member(client, "m", "t").beat()).error_code == ErrorCode.GROUP_ID_NOT_FOUND
    assert (await client.ask(wire.HeartbeatRequest("g", generation, joined.member_id), 4)).error_code == 0


async def test_a_static_member_without_its_id_is_fenced(broker: Broker) -> None:
    """As in a classic group, and in Kafka: only an administrator names a member by its instance id alone."""
    client = await started(broker)
    await Member(client, "m", "t").beat()
    static = await client.ask(join("g", group_instance_id="i"), 5)
    assert static.error_code == 0
    for member_id, code in (("", ErrorCode.FENCED_INSTANCE_ID), (static.member_id, ErrorCode.NONE)):
        heartbeat = wire.HeartbeatRequest("g", static.generation_id, member_id, "i")
        sync = wire.SyncGroupRequest("g", static.generation_id, member_id, "i")
        assert (await client.ask(sync, 3)).error_code == code
        assert (await client.ask(heartbeat, 3)).error_code == code


async def test_an_administrator_removes_a_member_of_the_consumer_protocol(broker: Broker) -> None:
    """removeMembersFromConsumerGroup of the Java client's Admin, as on Apache Kafka 4.4."""
    client = await started(broker)
    member = Member(client, "m", "t")
    await member.beat()
    leave = wire.LeaveGroupRequest
    answer = await client.ask(leave("g", members=[leave.MemberIdentity("m"), leave.MemberIdentity("nobody")]), 5)
    assert [each.error_code for each in answer.members] == [0, ErrorCode.UNKNOWN_MEMBER_ID]
    assert (await member.beat()).error_code == ErrorCode.UNKNOWN_MEMBER_ID


async def test_an_empty_consumer_group_is_a_classic_one_when_a_classic_member_joins(broker: Broker) -> None:
    client = await started(broker)
    member = Member(client, "m", "t")
    await member.beat()
    await client.ask(commit("g", 3, generation_id_or_member_epoch=2, member_id="m"), 9)
    await member.beat(-1)
    given = (await client.ask(join("g"), 5)).member_id
    assert (await classic_round(client, given))[1].error_code == 0
    assert (await fetched(client, "g", TopicPartition("t", 0))).topics[0].partitions[0].committed_offset == 3
    await move(broker, GROUP_TOPIC)
    await coordinator(client, "g")
    assert (await client.ask(wire.DescribeGroupsRequest(["g"]), 5)).groups[0].group_state == "Stable"


async def test_a_classic_member_gets_its_id_before_its_subscription_is_read(broker: Broker) -> None:
    """As Kafka's ConsumerProtocolMigrationTest does it; an error names no member."""
    client = await started(broker)
    await Member(await broker.client(), "m", "t").beat()
    protocols = [wire.JoinGroupRequest.JoinGroupRequestProtocol("range", b"")]
    first = await client.ask(join("g", protocols=protocols), 5)
    assert first.error_code == ErrorCode.MEMBER_ID_REQUIRED and first.member_id
    second = await client.ask(join("g", first.member_id, protocols=protocols), 5)
    assert (second.error_code, second.member_id) == (ErrorCode.INCONSISTENT_GROUP_PROTOCOL, "")
    other = await client.ask(join("g", protocol_type="connect"), 5)
    assert (other.error_code, other.member_id) == (ErrorCode.INCONSISTENT_GROUP_PROTOCOL, "")


async def test_without_migration_no_classic_member_joins_a_consumer_group(make_broker: Any) -> None:
    broker = await make_broker(group_consumer_migration_policy="disabled")
    client = await started(broker)
    await Member(client, "m", "t").beat()
    refused = await client.ask(join("g"), 5)
    assert (refused.error_code, refused.member_id) == (ErrorCode.INCONSISTENT_GROUP_PROTOCOL, "")


async def test_a_static_member_that_replaces_the_last_modern_one_makes_the_group_classic_without_a_rebalance(
    broker: Broker,
) -> None:
    """As in Kafka (KAFKA-17306): it goes on with what its predecessor had."""
    client = await started(broker)
    modern = Member(client, "m", "t", instance_id="i")
    await modern.beat()
    epoch = modern.epoch
    await modern.beat(-2)  # stopped, to come back with the other protocol
    joined = await client.ask(join("g", group_instance_id="i"), 5)
    assert (joined.error_code, joined.generation_id) == (0, epoch)
    assert (await client.ask(wire.DescribeGroupsRequest(["g"]), 5)).groups[0].group_state == "Stable"
    request = wire.SyncGroupRequest("g", joined.generation_id, joined.member_id, "i", "consumer", "range", [])
    synced = await client.ask(request, 4)
    assert (synced.error_code, synced.assignment[:6]) == (0, b"\0\x01\0\0\0\x01")  # one topic
    assert (
        await client.ask(wire.HeartbeatRequest("g", joined.generation_id, joined.member_id, "i"), 4)
    ).error_code == 0
