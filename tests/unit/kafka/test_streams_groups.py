"""The streams group protocol (KIP-1071) through the wire: what members see, what is stored, what survives a move."""

from __future__ import annotations

import asyncio
from typing import Any

import pytest

from kafkalite.coordination.topic_configs import GROUPS
from kafkalite.coordinators.groups import member_memory
from kafkalite.coordinators.groups.streams import descriptions, groups
from kafkalite.errors import ErrorCode
from kafkalite.model import GROUP_TOPIC
from kafkalite.protocol import wire

from .conftest import Broker, FrameClient
from .coordinator_requests import coordinator, move
from .rights import client_of, counted_turns
from .test_pending_offsets import slow_followers

_HEARTBEAT_S = 0.01
_REQUEST = wire.StreamsGroupHeartbeatRequest


def counting(epoch: int = 1) -> Any:
    """A word count: it reads "in", gives words their keys through a repartition topic, and counts them."""
    info = _REQUEST.TopicInfo
    return _REQUEST.Topology(
        epoch,
        [
            _REQUEST.Subtopology("0", ["in"], [], [], ["app-by-word-repartition"], [], []),
            _REQUEST.Subtopology(
                "1",
                [],
                [],
                [info("app-counts-changelog", 0, 1, [_REQUEST.KeyValue("cleanup.policy", "compact")])],
                [],
                [info("app-by-word-repartition", 0, 0, [_REQUEST.KeyValue("cleanup.policy", "delete")])],
                [],
            ),
        ],
    )


class Member:
    """A member of the streams protocol, heartbeat by heartbeat."""

    def __init__(self, client: FrameClient, name: str, *, topology: Any = None, **more: Any) -> None:
        self.client, self.name = client, name
        self.topology = topology or counting()
        self.process = more.pop("process", name)
        self.more = more
        self.epoch = 0
        self.endpoints_at = -1
        self.owned: list[list[Any]] = [[], [], []]
        self.statuses: list[int] = []
        self.endpoints: Any = None

    async def beat(self, epoch: int | None = None, version: int = 1, **fields: Any) -> Any:
        epoch = self.epoch if epoch is None else epoch
        said: dict[str, Any] = {"member_id": self.name, "member_epoch": epoch, **self.more}
        said["endpoint_information_epoch"] = self.endpoints_at
        if epoch == 0:
            said |= {"rebalance_timeout_ms": 10_000, "topology": self.topology, "process_id": self.process}
            self.owned = [[], [], []]
        if epoch >= 0:
            names = ("active_tasks", "standby_tasks", "warmup_tasks")
            said |= {
                name: [_REQUEST.TaskIds(each.subtopology_id, each.partitions) for each in tasks]
                for name, tasks in zip(names, self.owned, strict=True)
            }
        answer = await self.client.ask(_REQUEST("g", **(said | fields)), version)
        if not answer.error_code:
            self.epoch = answer.member_epoch
            self.statuses = [each.status_code for each in answer.status]
            self.endpoints_at = answer.endpoint_information_epoch
            if answer.partitions_by_user_endpoint is not None:
                self.endpoints = answer.partitions_by_user_endpoint
            if answer.active_tasks is not None:
                self.owned = [answer.active_tasks, answer.standby_tasks, answer.warmup_tasks]
        return answer

    def tasks(self, role: int = 0) -> list[tuple[str, int]]:
        return sorted((each.subtopology_id, number) for each in self.owned[role] for number in each.partitions)


async def settled(*members: Member, count: int, standbys: int = 0) -> None:
    """Members send heartbeats until all tasks are shared out."""
    async with asyncio.timeout(150):
        while True:
            for member in members:
                answer = await member.beat()
                assert not answer.error_code, answer
            held = [task for member in members for task in member.tasks()]
            assert len(set(held)) == len(held)
            copies = [task for member in members for task in member.tasks(1)]
            is_done = len(held) == count and len(copies) == standbys and not any(each.statuses for each in members)
            if is_done and len({member.epoch for member in members}) == 1:
                return
            await asyncio.sleep(_HEARTBEAT_S)


async def described(client: FrameClient, **more: Any) -> Any:
    return (await client.ask(wire.StreamsGroupDescribeRequest(["g"], **more), 1)).groups[0]


async def started(broker: Broker, partitions: int = 2, **settings: int) -> FrameClient:
    quick = {"streams.initial.rebalance.delay.ms": "0", "streams.assignment.interval.ms": "0"}
    given = {name.replace("_", "."): str(value) for name, value in settings.items()}
    await broker.services.replace_entity_overrides(GROUPS, "g", {}, quick | given)
    await broker.create("in", partitions)
    client = await broker.client()
    await coordinator(client, "g")
    return client


async def test_internal_topics_are_created_and_tasks_shared(broker: Broker) -> None:
    client = await started(broker)
    first, second = Member(client, "m1"), Member(client, "m2")
    await first.beat()
    assert (first.epoch, first.tasks(), first.statuses) == (2, [], [3])
    assert (await described(client)).group_state == "NotReady"
    await settled(first, count=4)
    await settled(first, second, count=4)
    assert sorted(map(len, (first.tasks(), second.tasks()))) == [2, 2]
    group = await described(client)
    assert (group.group_state, group.group_epoch, group.assignor_name) == ("Stable", group.assignment_epoch, "sticky")
    one = group.topology.subtopologies[1]
    assert [(each.name, each.partitions) for each in one.state_changelog_topics] == [("app-counts-changelog", 2)]
    assert [(each.name, each.partitions) for each in one.repartition_source_topics] == [("app-by-word-repartition", 2)]
    left = await second.beat(-1)
    assert (left.member_epoch, left.error_code) == (-1, 0)
    await settled(first, count=4)
    listed = (await client.ask(wire.ListGroupsRequest([], ["streams"]), 5)).groups
    assert [(each.group_id, each.protocol_type, each.group_state) for each in listed] == [("g", "streams", "Stable")]


async def test_a_member_that_has_no_task_yet_has_given_none_up(broker: Broker) -> None:
    client = await started(broker)
    first, second = Member(client, "m1"), Member(client, "m2")
    await settled(first, count=4)
    await second.beat()
    nothing: dict[str, Any] = {"active_tasks": [], "standby_tasks": [], "warmup_tasks": []}
    for _ in range(3):
        await first.beat(**nothing)
        await second.beat()
        assert (len(first.tasks()), second.tasks()) == (2, [])
    await settled(first, second, count=4)


async def test_a_member_that_does_not_say_all_that_it_has_is_refused_and_has_given_up_nothing(broker: Broker) -> None:
    """Another member would get active tasks that this one still processes."""
    client = await started(broker)
    first, second = Member(client, "m1"), Member(client, "m2")
    await settled(first, count=4)
    await second.beat()
    assert not (await first.beat()).error_code
    assert len(first.tasks()) == 2, "it has to give up the others"
    for unsaid in ("active_tasks", "standby_tasks", "warmup_tasks"):
        refused = await first.beat(first.epoch, 1, **{unsaid: None})
        assert refused.error_code == ErrorCode.INVALID_REQUEST
        await second.beat()
        assert second.tasks() == []
    await settled(first, second, count=4)


async def test_offsets_of_tasks_that_there_are_not_are_not_kept(broker: Broker) -> None:
    """A member could fill the memory of its coordinator with them."""
    client = await started(broker)
    member = Member(client, "m")
    await settled(member, count=4)
    offset = _REQUEST.TaskOffset
    said = [
        offset("0", 1, 5),
        offset("0", 2, 6),
        offset("0", -1, 6),
        *(offset("x" * 30_000, number, 7) for number in range(99)),
    ]
    assert not (await member.beat(task_offsets=said, task_end_offsets=said)).error_code
    [shown] = (await described(client)).members
    for each in (shown.task_offsets, shown.task_end_offsets):
        assert [(one.subtopology_id, one.partition, one.offset) for one in each] == [("0", 1, 5)]


async def test_offsets_of_tasks_take_memory(broker: Broker, monkeypatch: pytest.MonkeyPatch) -> None:
    """Each of thousands of members could say those of all tasks, which took gigabytes."""
    client = await started(broker)
    member = Member(client, "m")
    await settled(member, count=4)
    monkeypatch.setattr(member_memory, "MAX_BYTES", 350_000)
    monkeypatch.setattr(member_memory, "_OFFSET_BYTES", 100_000)
    monkeypatch.setattr(member_memory, "_COUNT_AGAIN_MS", 0)
    monkeypatch.setattr(member_memory, "_COUNT_SHARE", 0)
    said = [_REQUEST.TaskOffset("0", 0, 5), _REQUEST.TaskOffset("0", 1, 5), _REQUEST.TaskOffset("1", 0, 5)]
    for _ in range(5):  # it says what is known
        assert not (await member.beat(task_offsets=said)).error_code
    assert (await member.beat(task_end_offsets=said)).error_code == ErrorCode.COORDINATOR_NOT_AVAILABLE
    assert not (await member.beat(task_offsets=said[:1], task_end_offsets=said[:1])).error_code


async def test_a_group_is_described_in_steps(broker: Broker, monkeypatch: pytest.MonkeyPatch) -> None:
    """Members with ten thousand offsets each held the loop for seconds."""
    client = await started(broker)
    await settled(Member(client, "m1"), Member(client, "m2"), count=4)
    turns = counted_turns(monkeypatch)
    assert [each.member_id for each in (await described(client)).members] == ["m1", "m2"]
    assert len(turns) >= 4, "of two subtopologies and two members"


async def test_requests_that_make_no_sense_are_refused(broker: Broker) -> None:
    client = await started(broker)
    member = Member(client, "m")
    cases: list[tuple[dict[str, Any], ErrorCode]] = [
        ({"epoch": 3}, ErrorCode.GROUP_ID_NOT_FOUND),
        ({"epoch": -1}, ErrorCode.GROUP_ID_NOT_FOUND),
        ({"epoch": -2}, ErrorCode.INVALID_REQUEST),
        ({"epoch": -3}, ErrorCode.INVALID_REQUEST),
        ({"epoch": 0, "member_id": ""}, ErrorCode.INVALID_REQUEST),
        ({"epoch": 0, "topology": None}, ErrorCode.INVALID_REQUEST),
        ({"epoch": 0, "rebalance_timeout_ms": -1}, ErrorCode.INVALID_REQUEST),
        ({"epoch": 0, "active_tasks": [_REQUEST.TaskIds("0", [0])]}, ErrorCode.INVALID_REQUEST),
        (
            {"epoch": 0, "topology": _REQUEST.Topology(1, [_REQUEST.Subtopology("0")])},
            ErrorCode.STREAMS_INVALID_TOPOLOGY,
        ),
        (
            {"epoch": 0, "topology": _REQUEST.Topology(1, [_REQUEST.Subtopology("0", ["__consumer_offsets"])])},
            ErrorCode.STREAMS_INVALID_TOPOLOGY,
        ),
        (
            {"epoch": 0, "topology": _REQUEST.Topology(1, [_REQUEST.Subtopology("0", ["no name"])])},
            ErrorCode.STREAMS_INVALID_TOPOLOGY,
        ),
        # As from Kafka 4.4, which looks at this before anything else of the topology.
        (
            {"epoch": 0, "topology": _REQUEST.Topology(1, [_REQUEST.Subtopology("0", [], ["t.*"])])},
            ErrorCode.INVALID_REQUEST,
        ),
    ]
    for fields, code in cases:
        assert ErrorCode((await member.beat(**fields)).error_code) is code, fields
    await settled(member, count=4)
    cases = [
        ({"epoch": member.epoch + 1}, ErrorCode.FENCED_MEMBER_EPOCH),
        ({"topology": counting()}, ErrorCode.INVALID_REQUEST),
        ({"active_tasks": [_REQUEST.TaskIds("7", [0])]}, ErrorCode.INVALID_REQUEST),
        ({"active_tasks": [_REQUEST.TaskIds("0", [9])]}, ErrorCode.INVALID_REQUEST),
        ({"active_tasks": None, "standby_tasks": None, "warmup_tasks": []}, ErrorCode.INVALID_REQUEST),
        ({"member_id": "other"}, ErrorCode.UNKNOWN_MEMBER_ID),
        ({"instance_id": "unknown"}, ErrorCode.UNKNOWN_MEMBER_ID),
    ]
    for fields, code in cases:
        assert ErrorCode((await member.beat(**fields)).error_code) is code, fields
    newer = Member(client, "n", topology=counting(2))
    assert ErrorCode((await newer.beat()).error_code) is ErrorCode.INVALID_REQUEST
    older = Member(client, "o", topology=counting(0))
    await older.beat()
    assert older.statuses == [0]  # STALE_TOPOLOGY


async def test_topics_that_do_not_fit_are_reported(broker: Broker) -> None:
    client = await started(broker)
    both = _REQUEST.Subtopology("0", ["in", "other"], [], [], [], [], [_REQUEST.CopartitionGroup([0, 1], [], [])])
    member = Member(client, "m", topology=_REQUEST.Topology(1, [both]))
    answer = await member.beat()
    assert [(each.status_code, each.status_detail) for each in answer.status] == [(1, "Missing source topics: other")]
    # As it was sent: Java's Admin cannot read a description without it.
    [shown] = (await described(client)).topology.subtopologies
    assert (shown.subtopology_id, shown.source_topics) == ("0", ["in", "other"])
    await broker.create("other", 3)
    async with asyncio.timeout(150):
        while member.statuses != [2]:
            answer = await member.beat()
            await asyncio.sleep(_HEARTBEAT_S)
    assert "do not have the same number of partitions: [{in=2, other=3}]" in answer.status[0].status_detail
    assert member.tasks() == []
    grow = wire.CreatePartitionsRequest
    await client.ask(grow([grow.CreatePartitionsTopic("in", 3, None)], 1000, validate_only=False), 2)
    await settled(member, count=3)


async def test_standbys_are_on_other_processes(broker: Broker) -> None:
    client = await started(broker, streams_num_standby_replicas=1)
    members = [Member(client, f"m{number}", process=f"p{number // 2}") for number in range(4)]
    await settled(*members, count=4, standbys=2)
    for member in members:
        near = {task for other in members if other.process == member.process for task in other.tasks()}
        assert not near & set(member.tasks(1))
    held = await broker.services.entity_overrides(GROUPS, "g")
    assert await broker.services.replace_entity_overrides(GROUPS, "g", held, {"streams.num.standby.replicas": "0"})
    await settled(*members, count=4)


async def test_the_first_assignment_waits_for_more_members(broker: Broker) -> None:
    client = await started(broker, streams_initial_rebalance_delay_ms=300)
    first, second = Member(client, "m1"), Member(client, "m2")
    await first.beat()
    await second.beat()
    assert (first.epoch, second.epoch, 5 in first.statuses) == (1, 1, True)  # ASSIGNMENT_DELAYED
    await settled(first, second, count=4)
    assert sorted(map(len, (first.tasks(), second.tasks()))) == [2, 2]


async def test_commits_are_fenced_by_the_member_epoch(broker: Broker) -> None:
    client = await started(broker)
    first, second = Member(client, "m1"), Member(client, "m2")
    await settled(first, count=4)
    before = first.epoch
    commits = wire.OffsetCommitRequest

    async def committed(member: str, epoch: int, partition: int) -> ErrorCode:
        part = commits.OffsetCommitRequestPartition(partition, 5)
        topic = commits.OffsetCommitRequestTopic("in", partitions=[part])
        request = commits("g", epoch, member, None, -1, [topic])
        answer = await client.ask(request, 9)
        return ErrorCode(answer.topics[0].partitions[0].error_code)

    assert await committed("m1", before, 0) is ErrorCode.NONE
    await settled(first, second, count=4)
    assert first.epoch > before
    mine = {number for name, number in first.tasks() if name == "0"}
    for partition in range(2):
        # What a member has had since an older epoch may be committed with it (KIP-1251).
        expected = ErrorCode.NONE if partition in mine else ErrorCode.STALE_MEMBER_EPOCH
        assert await committed("m1", before, partition) is expected
    assert await committed("m2", second.epoch + 1, 0) is ErrorCode.STALE_MEMBER_EPOCH
    assert await committed("m9", second.epoch, 0) is ErrorCode.UNKNOWN_MEMBER_ID
    assert await committed("", -1, 0) is ErrorCode.UNKNOWN_MEMBER_ID
    deleted = (await client.ask(wire.DeleteGroupsRequest(["g"]), 3)).results[0]
    assert ErrorCode(deleted.error_code) is ErrorCode.NON_EMPTY_GROUP
    for member in (first, second):
        await member.beat(-1)
    assert (await described(client)).group_state == "Empty"
    assert await committed("", -1, 0) is ErrorCode.NONE
    assert not (await client.ask(wire.DeleteGroupsRequest(["g"]), 3)).results[0].error_code
    assert ErrorCode((await described(client)).error_code) is ErrorCode.GROUP_ID_NOT_FOUND


async def test_other_protocols_are_refused(broker: Broker) -> None:
    client = await started(broker)
    member = Member(client, "m")
    await settled(member, count=4)
    joined = await client.ask(
        wire.JoinGroupRequest(
            "g", 10_000, 10_000, "", None, "consumer", [wire.JoinGroupRequest.JoinGroupRequestProtocol("range", b"")]
        ),
        5,
    )
    assert ErrorCode(joined.error_code) is ErrorCode.INCONSISTENT_GROUP_PROTOCOL
    beat = wire.ConsumerGroupHeartbeatRequest("g", "c", 0, None, None, 1000, ["in"], None, None, [])
    assert ErrorCode((await client.ask(beat, 1)).error_code) is ErrorCode.GROUP_ID_NOT_FOUND
    old = (await client.ask(wire.DescribeGroupsRequest(["g"]), 6)).groups[0]
    assert ErrorCode(old.error_code) is ErrorCode.GROUP_ID_NOT_FOUND
    modern = (await client.ask(wire.ConsumerGroupDescribeRequest(["g"]), 1)).groups[0]
    assert ErrorCode(modern.error_code) is ErrorCode.GROUP_ID_NOT_FOUND


async def test_an_empty_group_gives_way_to_members_of_the_classic_protocol(broker: Broker) -> None:
    """As in Apache Kafka: an application goes back to `group.protocol=classic`, with its offsets (RebalanceProtocolMigrationIntegrationTest)."""
    client = await started(broker)
    member = Member(client, "m")
    await settled(member, count=4)
    commits = wire.OffsetCommitRequest
    topic = commits.OffsetCommitRequestTopic("in", partitions=[commits.OffsetCommitRequestPartition(0, 5)])
    await client.ask(commits("g", member.epoch, "m", None, -1, [topic]), 9)

    protocols = [wire.JoinGroupRequest.JoinGroupRequestProtocol("stream", b"")]
    join = wire.JoinGroupRequest("g", 10_000, 10_000, "", None, "consumer", protocols)
    assert ErrorCode((await client.ask(join, 3)).error_code) is ErrorCode.INCONSISTENT_GROUP_PROTOCOL

    await member.beat(-1)
    joined = await client.ask(join, 3)
    assert (ErrorCode(joined.error_code), joined.generation_id) == (ErrorCode.NONE, 1)
    assert ErrorCode((await described(client)).error_code) is ErrorCode.GROUP_ID_NOT_FOUND

    async def position() -> int:
        asked = wire.OffsetFetchRequest("g", [wire.OffsetFetchRequest.OffsetFetchRequestTopic("in", [0])])
        partition = (await client.ask(asked, 5)).topics[0].partitions[0]
        return int(partition.committed_offset)

    assert await position() == 5
    await move(broker, GROUP_TOPIC)
    await coordinator(client, "g")
    assert ErrorCode((await described(client)).error_code) is ErrorCode.GROUP_ID_NOT_FOUND
    assert await position() == 5
    await client.ask(wire.LeaveGroupRequest("g", joined.member_id), 2)
    await settled(Member(client, "m"), count=4)


async def test_a_static_member_is_back_under_another_id(broker: Broker) -> None:
    client = await started(broker)
    first, other = Member(client, "m1", instance_id="i1", process="p1"), Member(client, "m2")
    await settled(first, other, count=4)
    mine = first.tasks()
    twin = Member(client, "m3", instance_id="i1", process="p1")
    assert ErrorCode((await twin.beat()).error_code) is ErrorCode.UNRELEASED_INSTANCE_ID
    assert (await first.beat(-2)).member_epoch == -2
    await twin.beat()
    assert twin.tasks() == mine
    assert ErrorCode((await first.beat(first.epoch)).error_code) is ErrorCode.FENCED_INSTANCE_ID
    await settled(twin, other, count=4)


async def test_endpoints_and_shutdown_reach_all_members(broker: Broker, monkeypatch: pytest.MonkeyPatch) -> None:
    client = await started(broker)
    first = Member(client, "m1", user_endpoint=_REQUEST.Endpoint("one", 1))
    second = Member(client, "m2", user_endpoint=_REQUEST.Endpoint("two", 2))
    await settled(first, second, count=4)
    await first.beat()
    await second.beat()
    for member in (first, second):
        served = {each.user_endpoint.host: each.active_partitions for each in member.endpoints}
        partitions = [(each.topic, n) for topics in served.values() for each in topics for n in each.partitions]
        assert set(served) == {"one", "two"}
        assert sorted(partitions) == [(name, n) for name in ("app-by-word-repartition", "in") for n in range(2)]
    assert (await first.beat()).partitions_by_user_endpoint is None
    # A client that always asks again gets them each time; they are found out once.
    monkeypatch.setattr(groups, "served", lambda group: pytest.fail("nothing has changed"))
    assert len((await first.beat(endpoint_information_epoch=-1)).partitions_by_user_endpoint) == 2
    monkeypatch.undo()
    second.more["user_endpoint"] = _REQUEST.Endpoint("three", 3)
    await second.beat(0)
    await first.beat()
    assert {each.user_endpoint.host for each in first.endpoints} == {"one", "three"}
    await first.beat(shutdown_application=True)
    await second.beat()
    assert second.statuses == [4]


async def test_a_new_coordinator_knows_the_group(broker: Broker) -> None:
    client = await started(broker)
    first, second = Member(client, "m1"), Member(client, "m2")
    await settled(first, second, count=4)
    before = (first.tasks(), second.tasks(), first.epoch)
    await move(broker, GROUP_TOPIC)
    await coordinator(client, "g")
    await settled(first, second, count=4)
    assert (first.tasks(), second.tasks(), first.epoch) == before
    group = await described(client)
    assert (group.group_state, len(group.members), group.topology.epoch) == ("Stable", 2, 1)


async def test_a_silent_member_is_removed(make_broker: Any) -> None:
    broker = await make_broker(group_streams_min_session_timeout_ms=300)
    client = await started(broker)
    first, second = Member(client, "m1"), Member(client, "m2")
    await settled(first, second, count=4)
    session, own = "streams.session.timeout.ms", broker.services.settings_of(GROUPS)["g"]
    await broker.services.replace_entity_overrides(GROUPS, "g", own, {**own, session: "300"})
    await second.beat()
    # Of the one that goes on a session lasts longer, as the machine may stand still.
    await broker.services.replace_entity_overrides(GROUPS, "g", {**own, session: "300"}, own)
    await settled(first, count=4)
    assert ErrorCode((await second.beat()).error_code) is ErrorCode.UNKNOWN_MEMBER_ID


async def test_a_description_is_asked_for_once_and_kept(broker: Broker) -> None:
    client = await started(broker)
    first, second = Member(client, "m1"), Member(client, "m2")
    answers = [await first.beat(), await second.beat(), await first.beat()]
    assert [answer.topology_description_required for answer in answers] == [True, False, False]
    update = wire.StreamsGroupTopologyDescriptionUpdateRequest
    node = update.TopologyDescriptionNode("SOURCE", 1, ["in"], None, [], ["COUNT"])
    said = update.TopologyDescription([update.TopologyDescriptionSubtopology("0", [node])], [])
    group = await described(client, include_topology_description=True)
    assert (group.topology_description_status, group.topology_description) == (1, None)
    for member, epoch, code in (
        ("m9", 1, ErrorCode.UNKNOWN_MEMBER_ID),
        ("m1", 2, ErrorCode.INVALID_REQUEST),
        ("m1", 1, ErrorCode.NONE),
    ):
        answer = await client.ask(update("g", member, epoch, said), 0)
        assert ErrorCode(answer.error_code) is code
    group = await described(client, include_topology_description=True)
    assert group.topology_description_status == 3
    assert group.topology_description.subtopologies[0].nodes[0].successors == ["COUNT"]
    huge = update.TopologyDescriptionNode("x" * 30_000, 1, [], None, [], [])
    too_much = update.TopologyDescription([update.TopologyDescriptionSubtopology("0", [huge] * 40)], [])
    answer = await client.ask(update("g", "m1", 1, too_much), 0)
    assert ErrorCode(answer.error_code) is ErrorCode.STREAMS_TOPOLOGY_DESCRIPTION_UPDATE_FAILED


async def test_descriptions_are_bounded_by_what_they_take(broker: Broker, monkeypatch: pytest.MonkeyPatch) -> None:
    """A node of 7 bytes takes 300 in memory: 64 MB of them, of the groups of one user, took 2.5 GB."""
    monkeypatch.setattr(descriptions, "MAX_TOTAL_BYTES", 4 * 300 * 1_000)
    await started(broker)
    update = wire.StreamsGroupTopologyDescriptionUpdateRequest

    async def stored(client: FrameClient, group: str, count: int) -> int:
        topology = _REQUEST.Topology(1, [_REQUEST.Subtopology("0", ["in"], [], [], [], [], [])])
        joins = _REQUEST(group, "m", 0, rebalance_timeout_ms=1_000, process_id="p", topology=topology,
                         active_tasks=[], standby_tasks=[], warmup_tasks=[])  # fmt: skip
        assert not (await client.ask(joins, 1)).error_code
        nodes = [update.TopologyDescriptionNode("", 1, [], None, [], []) for _ in range(count)]
        said = update.TopologyDescription([update.TopologyDescriptionSubtopology("0", nodes)], [])
        return int((await client.ask(update(group, "m", 1, said), 0)).error_code)

    refused = ErrorCode.STREAMS_TOPOLOGY_DESCRIPTION_UPDATE_FAILED
    alice, bob = await client_of(broker, "alice"), await client_of(broker, "bob")
    assert [await stored(alice, name, 1_500) for name in "abc"] == [0, 0, refused]
    assert await stored(alice, "a", 1_600) == 0  # in place of what it has
    assert await stored(bob, "d", 500) == 0


async def test_a_member_that_joins_while_its_group_is_deleted_is_in_a_new_group(broker: Broker) -> None:
    """Its topology was that of the group, so it was not written again. The next coordinator had none, and refused each heartbeat
    (INVALID_REQUEST), which ends the application."""
    client, other = await started(broker), await broker.client()
    member = Member(client, "m1")
    await settled(member, count=4)
    await member.beat(-1)
    again = Member(other, "m2")
    with slow_followers(broker) as held:
        deleting = asyncio.create_task(client.ask(wire.DeleteGroupsRequest(["g"]), 2))
        await held.some(1)
        joining = asyncio.create_task(again.beat())
        await held.some(2)
        while not (deleting.done() and joining.done()):
            held.release()
            await asyncio.sleep(0.001)
    assert (await deleting).results[0].error_code == 0 and not (await joining).error_code
    await settled(again, count=4)
    await move(broker, GROUP_TOPIC)
    await coordinator(other, "g")
    await settled(again, count=4)


async def test_a_group_that_came_and_went_while_the_one_before_was_deleted_is_there(broker: Broker) -> None:
    """It is in the log: it was back at the next failover only."""
    client, other, third = await started(broker), await broker.client(), await broker.client()
    member = Member(client, "m1")
    await settled(member, count=4)
    await member.beat(-1)
    with slow_followers(broker) as held:
        deleting = asyncio.create_task(client.ask(wire.DeleteGroupsRequest(["g"]), 2))
        await held.some(1)
        joining = asyncio.create_task(Member(other, "m2").beat())
        await held.some(2)
        leaving = asyncio.create_task(Member(third, "m2").beat(-1))
        await held.some(3)
        while not (deleting.done() and joining.done() and leaving.done()):
            held.release()
            await asyncio.sleep(0.001)
    assert (await deleting).results[0].error_code == 0 and not (await leaving).error_code
    for _ in range(2):
        assert (await described(client)).group_state == "Empty"
        await move(broker, GROUP_TOPIC)
        await coordinator(client, "g")


async def test_the_feature_can_be_off(broker: Broker) -> None:
    client = await started(broker)
    await broker.services.update_features({"streams.version": 0})
    assert ErrorCode((await Member(client, "m").beat()).error_code) is ErrorCode.UNSUPPORTED_VERSION
