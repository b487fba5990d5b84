"""Good requests of share groups and of the state of their partitions. (`same_requests` has what they are about.)"""

# ruff: noqa: FBT003 - the fields of a request by their positions
from __future__ import annotations

from typing import Any

from kafkalite.protocol import wire

from .same_answers import Side
from .same_requests import (
    Follow,
    base,
    create_topic,
    left_share_group,
    member_uuid,
    share_earliest,
    share_fetch,
    share_member,
    share_session,
    shared_topic,
    with_share_state,
)


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


async def _acknowledgement(s: Side, group: str) -> tuple[str, Any]:
    """A topic, and the request of a member that has acquired its records to acknowledge two of three."""
    name, topic_id = await create_topic(s, partitions=1, records=3)
    member = await share_session(s, group, name, topic_id)
    r = wire.ShareAcknowledgeRequest
    partition = r.AcknowledgePartition(0, [r.AcknowledgementBatch(0, 1, [1])])
    return name, r(group, member, int(s.names["share epoch"]), False, [r.AcknowledgeTopic(topic_id, [partition])])


def _offsets(group: str, name: str) -> Any:
    r = wire.DescribeShareGroupOffsetsRequest
    topic = r.DescribeShareGroupOffsetsRequestTopic(name, [0])
    return r([r.DescribeShareGroupOffsetsRequestGroup(group, [topic])])


@base
async def ShareAcknowledge(s: Side, version: int) -> tuple[Any, Follow]:
    group = f"s{s.tag}"
    name, request = await _acknowledgement(s, group)
    return request, [(_offsets(group, name), 1)]


@base
async def DescribeShareGroupOffsets(s: Side, version: int) -> tuple[Any, Follow]:
    group = f"s{s.tag}"
    name, request = await _acknowledgement(s, group)
    await s.ask(request, 1, traced=False)
    return _offsets(group, name), []


@base
async def AlterShareGroupOffsets(s: Side, version: int) -> tuple[Any, Follow]:
    group = f"s{s.tag}"
    name, _ = await left_share_group(s, group)
    r = wire.AlterShareGroupOffsetsRequest
    topic = r.AlterShareGroupOffsetsRequestTopic(name, [r.AlterShareGroupOffsetsRequestPartition(0, 2)])
    return r(group, [topic]), [(_offsets(group, name), 1)]


@base
async def DeleteShareGroupOffsets(s: Side, version: int) -> tuple[Any, Follow]:
    group = f"s{s.tag}"
    name, _ = await left_share_group(s, group)
    r = wire.DeleteShareGroupOffsetsRequest
    return r(group, [r.DeleteShareGroupOffsetsRequestTopic(name)]), [(_offsets(group, name), 1)]


@base
async def InitializeShareGroupState(s: Side, version: int) -> tuple[Any, Follow]:
    _, topic_id = await shared_topic(s)
    r = wire.InitializeShareGroupStateRequest
    return r(f"s{s.tag}", [r.InitializeStateData(topic_id, [r.PartitionData(0, 1, 2)])]), []


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
