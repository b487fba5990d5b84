"""Good requests of classic groups and of committed offsets. (`same_requests` has what they are about.)"""

# ruff: noqa: FBT003 - the fields of a request by their positions
from __future__ import annotations

from typing import Any

from kafkalite.protocol import wire

from .same_answers import Side
from .same_requests import (
    Follow,
    base,
    committed,
    describe_group,
    joined,
    offset_fetch,
    shared_topic,
    stable,
)


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
