"""Good requests of consumer groups (KIP-848) and streams groups. (`same_requests` has what they are about.)"""

# ruff: noqa: FBT003 - the fields of a request by their positions
from __future__ import annotations

from typing import Any

from kafkalite.protocol import wire

from .same_answers import Side
from .same_requests import (
    Follow,
    base,
    consumer_heartbeat,
    consumer_member,
    describe_consumer_group,
    member_uuid,
    shared_topic,
    streams_heartbeat,
    streams_member,
)


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
