"""Groups with many members: what a request about one costs, however small it is, is done in steps."""

from __future__ import annotations

from collections.abc import Sequence
from typing import Any

import pytest

from kafkalite.coordinators.groups.decisions.classic.group import Group
from kafkalite.coordinators.groups.decisions.members import ConsumerMember, MemberMetadata
from kafkalite.coordinators.groups.decisions.share.group import ShareMember
from kafkalite.coordinators.groups.decisions.streams.members import StreamsMember
from kafkalite.coordinators.groups.decisions.subscription import subscribed
from kafkalite.errors import ErrorCode
from kafkalite.model import GROUP_TOPIC, NO_OFFSET
from kafkalite.partition_values import ProducedPartition
from kafkalite.protocol import wire

from .conftest import Broker, FrameClient
from .consumer_members import Member, started
from .coordinator_requests import coordinator, join
from .rights import counted_turns
from .test_share_groups import Member as SharingMember
from .test_streams_groups import Member as StreamingMember
from .test_streams_groups import started as streams_started

MEMBERS = 250


async def joined(broker: Broker, count: int) -> list[FrameClient]:
    """Clients whose members are in group `g`, and wait in it for one that is not there yet."""
    client = await broker.client()
    await coordinator(client, "g")
    first = await client.ask(join("g"), 3)
    assert not first.error_code
    others = await broker.client()
    for _ in range(count - 1):
        others.send(join("g"), 3)
    while len(members(broker)) < count:
        await client.ask(wire.ApiVersionsRequest("x", "1"), 3)
    return [client, others]


def members(broker: Broker) -> list[str]:
    [entry] = [each for each in broker.side.groups.groups() if each.group.group_id == "g"]
    return list(entry.group.members)


async def test_members_leave_in_steps(make_broker: Any, monkeypatch: pytest.MonkeyPatch) -> None:
    """Each look-up of the next deadline reads the deadlines of all members: 10,000 names that nobody has, in a group of 4,000, held the loop for seconds."""
    broker = await make_broker(max_inflight_requests_per_connection=100)
    client, _ = await joined(broker, 20)
    request = wire.LeaveGroupRequest
    turns = counted_turns(monkeypatch)
    deadlines: list[Group] = []
    original = Group.next_deadline

    def counted(self: Group) -> int | None:
        deadlines.append(self)
        return original(self)

    monkeypatch.setattr(Group, "next_deadline", counted)
    gone = members(broker)[1:3]
    leaving = [request.MemberIdentity(name, None) for name in (*(f"nobody-{number}" for number in range(50)), *gone)]
    answer = await client.ask(request("g", members=leaving), 4)
    assert [each.error_code for each in answer.members] == [ErrorCode.UNKNOWN_MEMBER_ID] * 50 + [0, 0]
    assert not set(gone) & set(members(broker))
    assert len(turns) >= 50
    assert len(deadlines) == 2, "of a member that is not there the group need not look for its next deadline"


async def test_a_classic_group_is_described_in_steps(make_broker: Any, monkeypatch: pytest.MonkeyPatch) -> None:
    broker = await make_broker(max_inflight_requests_per_connection=MEMBERS)
    client, _ = await joined(broker, MEMBERS)
    turns = counted_turns(monkeypatch)
    [group] = (await client.ask(wire.DescribeGroupsRequest(["g"]), 5)).groups
    assert [each.member_id for each in group.members] == members(broker)
    assert len(turns) >= MEMBERS // 100


async def test_a_consumer_group_is_described_in_steps(broker: Broker, monkeypatch: pytest.MonkeyPatch) -> None:
    client = await started(broker)
    for number in range(30):
        await Member(client, f"m{number:02}", "t").beat(0)
    turns = counted_turns(monkeypatch)
    [group] = (await client.ask(wire.ConsumerGroupDescribeRequest(["g"]), 1)).groups
    assert sorted(each.member_id for each in group.members) == [f"m{number:02}" for number in range(30)]
    assert len(turns) >= 3


async def test_offsets_are_fetched_in_steps(broker: Broker, monkeypatch: pytest.MonkeyPatch) -> None:
    """One small request asks for all offsets of many groups; one of 800 kB for 190,000 partitions of one topic."""
    await broker.create("t", MEMBERS)
    client = await broker.client()
    await coordinator(client, "g")
    commits, fetches = wire.OffsetCommitRequest, wire.OffsetFetchRequest
    numbers = list(range(MEMBERS))
    offsets = [commits.OffsetCommitRequestPartition(number, 7) for number in numbers]
    answer = await client.ask(commits("g", topics=[commits.OffsetCommitRequestTopic("t", partitions=offsets)]), 8)
    assert {each.error_code for each in answer.topics[0].partitions} == {0}
    turns = counted_turns(monkeypatch)
    for version, topics in (
        (8, None),
        (10, None),
        (8, [fetches.OffsetFetchRequestTopics("t", partition_indexes=numbers)]),
    ):
        before = len(turns)
        asked = fetches.OffsetFetchRequestGroup("g", topics=topics)
        [group] = (await client.ask(fetches(groups=[asked]), version)).groups
        [topic] = group.topics
        assert [(each.partition_index, each.committed_offset) for each in topic.partitions] == [(n, 7) for n in numbers]
        assert len(turns) - before >= MEMBERS // 100


async def test_topics_of_many_members_are_looked_through_in_steps() -> None:
    """300 members with 9,900 names each held the loop for more than a second with each new target, and with each description."""
    existing = frozenset({"a", "b", "c"})
    lists = [
        ["a", "x"],
        ["b"],
        *([f"{number}-{other}" for other in range(600)] for number in range(10)),
        ["c"],
        ["c", "y"],
    ]
    steps = subscribed(lists, existing)
    turns = 0
    while True:
        try:
            next(steps)
        except StopIteration as end:
            assert end.value == existing
            break
        turns += 1
    assert turns >= 5


async def test_topics_that_appear_and_go_are_forgotten(broker: Broker) -> None:
    await broker.create("t")
    topics = broker.side.groups.topics
    assert topics.existing() >= {"t"} and set(topics.lookup(topics.existing())) >= {"t"}
    client = await broker.client()
    request = wire.DeleteTopicsRequest
    answer = await client.ask(request([request.DeleteTopicState("t")], timeout_ms=1_000), 6)
    assert not answer.responses[0].error_code
    assert "t" not in topics.existing() and "t" not in topics._known


@pytest.mark.parametrize("kind", ["consumer", "share", "streams"])
async def test_members_whose_sessions_end_in_one_moment_are_removed(
    broker: Broker, monkeypatch: pytest.MonkeyPatch, kind: str
) -> None:
    """The records of all of them were one batch. With 6,200 members it was larger than max.message.bytes, and refused with each try: they
    stayed members, and had their partitions, for ever."""
    client = await (streams_started(broker) if kind == "streams" else started(broker))
    append = broker.services.partitions.append_internal

    def limited(timeout_ms: int, partitions: Sequence[Any], done: Any, **named: Any) -> None:
        key, records = partitions[0]
        if key.topic == GROUP_TOPIC and len(records) > 1_048_588:
            done((ProducedPartition(key.topic, key.partition, ErrorCode.MESSAGE_TOO_LARGE, NO_OFFSET),))
        else:
            append(timeout_ms, partitions, done, **named)

    monkeypatch.setattr(broker.services.partitions, "append_internal", limited)
    first: Any = {"consumer": Member, "share": SharingMember, "streams": StreamingMember}[kind](
        client, "m", *["t"] * (kind != "streams")
    )
    assert not (await first.beat()).error_code
    groups, entry = broker.side.groups, broker.side.groups.find("g")
    assert entry is not None and entry.newer is not None
    group: Any = entry.newer
    make: Any = {"consumer": ConsumerMember, "share": ShareMember, "streams": StreamsMember}[kind]
    for number in range(500):
        name = f"{number}{'x' * 1_000}"
        group.apply(MemberMetadata(name, make(name)))
    for name in list(group.members):
        if kind == "share":
            group.deadlines[name] = 1
        else:
            group.expect(name).session = 1
    groups._schedule(entry)
    for _ in range(20):
        groups.tick()
    assert not group.members
