"""Share groups over the wire: members, their assignments, states of partitions, start offsets, other types of groups."""

from __future__ import annotations

import asyncio
from dataclasses import replace
from typing import Any
from uuid import UUID

import pytest

from kafkalite.coordinators.draining import consumed
from kafkalite.coordinators.groups.decisions.share.group import SharedTopic
from kafkalite.coordinators.groups.share import states
from kafkalite.coordinators.shares.delivery_states import DeliveryState, StateBatch
from kafkalite.coordinators.shares.persistence import ShareKey
from kafkalite.errors import ErrorCode, api_error
from kafkalite.extension.messages.topics import DeleteTopicsRequest
from kafkalite.model import Offset, TopicPartition
from kafkalite.protocol import wire
from kafkalite.protocol.topic_ids import to_wire
from kafkalite.rpc.messages.groups import CommittedOffsetsResponse, GroupsOffset
from kafkalite.testing.kafka_client import FrameClient
from tests.support.waiting import until
from tests.unit.kafka.conftest import Broker, batch, produce
from tests.unit.kafka.consumer_members import Member as ConsumerMember
from tests.unit.kafka.consumer_members import started
from tests.unit.kafka.coordinator_requests import commit, coordinator, join


class Member:
    def __init__(self, client: FrameClient, name: str, *topics: str, group: str = "g") -> None:
        self.client, self.name, self.group, self.topics = client, name, group, list(topics)
        self.epoch = 0
        self.assigned: dict[bytes, list[int]] = {}

    async def beat(self, epoch: int | None = None, **fields: Any) -> Any:
        epoch = self.epoch if epoch is None else epoch
        said: dict[str, Any] = {"member_id": self.name, "member_epoch": epoch}
        if epoch == 0:
            said["subscribed_topic_names"] = self.topics
        answer = await self.client.ask(wire.ShareGroupHeartbeatRequest(self.group, **(said | fields)), 1)
        if not answer.error_code:
            self.epoch = answer.member_epoch
            if answer.assignment is not None:
                self.assigned = {each.topic_id: each.partitions for each in answer.assignment.topic_partitions}
        return answer

    @property
    def count(self) -> int:
        return sum(map(len, self.assigned.values()))


def reload(broker: Broker) -> None:
    for state in list(broker.side.groups.log.states()):
        broker.side.groups.log.reload(state.index)


async def described(client: FrameClient, group: str = "g") -> Any:
    return (await client.ask(wire.ShareGroupDescribeRequest([group]), 1)).groups[0]


def key_of(broker: Broker, topic: str, partition: int) -> ShareKey:
    return ShareKey("g", UUID(bytes=to_wire(broker.services.metadata([topic]).topics[0].topic_id)), partition)


async def test_members_share_all_partitions(broker: Broker) -> None:
    client = await started(broker)
    first, second = Member(client, "m1", "t"), Member(client, "m2", "t")
    answer = await first.beat()
    assert (answer.error_code, first.count, answer.heartbeat_interval_ms) == (0, 4, 5_000)
    assert (await broker.side.share_persister.read(key_of(broker, "t", 3), 0)).start_offset == -1
    await second.beat()
    assert second.count == 2
    await first.beat()
    assert first.count == 2
    assert {number for each in (first, second) for number in each.assigned.popitem()[1]} == {0, 1, 2, 3}
    again = await second.beat()
    assert again.assignment is None
    many = [Member(client, f"x{number}", "t") for number in range(6)]
    for each in many:
        await each.beat()
    for each in [first, second, *many]:
        await each.beat(0)
    assert all(each.count == 1 for each in [first, second, *many])
    group = await described(client)
    assert (group.group_state, group.assignor_name, len(group.members)) == ("Stable", "simple", 8)
    assert group.members[0].assignment.topic_partitions[0].topic_name == "t"
    listed = (await client.ask(wire.ListGroupsRequest([], ["share"]), 5)).groups
    assert [(each.group_id, each.group_type, each.protocol_type) for each in listed] == [("g", "share", "share")]
    for each in [first, second, *many]:
        assert (await each.beat(-1)).member_epoch == -1
    assert (await described(client)).group_state == "Empty"


async def test_partitions_that_they_read_are_not_drained_by_what_other_groups_have_committed(broker: Broker) -> None:
    client = await started(broker)
    keys = [TopicPartition("t", 0), TopicPartition("u", 0)]
    await broker.create("u")
    await coordinator(client, "c")
    for topic, _ in keys:
        assert (await client.ask(commit("c", 0, topic), 8)).topics[0].partitions[0].error_code == 0
    await Member(client, "m", "t").beat()
    coordinated, found = broker.side.groups.offsets.committed(keys)
    offsets = tuple(GroupsOffset(*key, lowest, count, held) for key, (lowest, count, held) in found.items())
    assert consumed([CommittedOffsetsResponse(coordinated, offsets)], coordinated, dict.fromkeys(keys, Offset(0))) == [
        keys[1]
    ]


async def test_requests_that_make_no_sense_are_refused(make_broker: Any) -> None:
    broker = await make_broker(group_share_max_size=1)
    client = await started(broker)
    member = Member(client, "m", "t")
    cases: list[tuple[dict[str, Any], ErrorCode]] = [
        ({"epoch": 3}, ErrorCode.GROUP_ID_NOT_FOUND),
        ({"epoch": -1}, ErrorCode.GROUP_ID_NOT_FOUND),
        ({"epoch": -2}, ErrorCode.INVALID_REQUEST),
        ({"epoch": 0, "member_id": ""}, ErrorCode.INVALID_REQUEST),
        ({"epoch": 0, "member_id": "m" * 37}, ErrorCode.INVALID_REQUEST),
        ({"epoch": 0, "subscribed_topic_names": None}, ErrorCode.INVALID_REQUEST),
        ({"epoch": 0, "rack_id": ""}, ErrorCode.INVALID_REQUEST),
    ]
    for fields, code in cases:
        answer = await member.beat(**fields)
        assert (answer.error_code, bool(answer.error_message)) == (code, True), fields
    await member.beat()
    assert (await Member(client, "x", "t").beat(1)).error_code == ErrorCode.UNKNOWN_MEMBER_ID
    assert (await Member(client, "x", "t").beat()).error_code == ErrorCode.GROUP_MAX_SIZE_REACHED
    assert (await member.beat(9)).error_code == ErrorCode.FENCED_MEMBER_EPOCH
    assert (await member.beat()).error_code == 0
    await broker.services.update_features({"share.version": 0})
    assert (await member.beat()).error_code == ErrorCode.UNSUPPORTED_VERSION


async def test_a_group_has_one_type(broker: Broker) -> None:
    client = await started(broker)
    await Member(client, "m", "t").beat()
    assert (await client.ask(join("g"), 5)).error_code == ErrorCode.INCONSISTENT_GROUP_PROTOCOL
    assert (await ConsumerMember(client, "c", "t").beat()).error_code == ErrorCode.GROUP_ID_NOT_FOUND
    refused = (await client.ask(commit("g", 1), 8)).topics[0].partitions[0].error_code
    assert refused == ErrorCode.GROUP_ID_NOT_FOUND
    assert (await client.ask(wire.DescribeGroupsRequest(["g"]), 6)).groups[0].error_code == ErrorCode.GROUP_ID_NOT_FOUND
    assert (await client.ask(wire.OffsetDeleteRequest("g", []), 0)).error_code == ErrorCode.GROUP_ID_NOT_FOUND
    await ConsumerMember(client, "c", "t", group="consumers").beat()
    refused = (await Member(client, "m", "t", group="consumers").beat()).error_code
    assert refused == ErrorCode.GROUP_ID_NOT_FOUND
    await client.ask(commit("committed", 1), 8)
    refused = (await Member(client, "m", "t", group="committed").beat()).error_code
    assert refused == ErrorCode.GROUP_ID_NOT_FOUND
    assert (await described(client, "consumers")).error_code == ErrorCode.GROUP_ID_NOT_FOUND


async def test_another_coordinator_goes_on_from_the_log(broker: Broker) -> None:
    client = await started(broker)
    first, second = Member(client, "m1", "t"), Member(client, "m2", "t")
    await first.beat()
    await second.beat()
    await first.beat()
    before = await described(client)
    await broker.side.share_persister.write(key_of(broker, "t", 0), 9, 1, Offset(7), [])
    reload(broker)
    await until(lambda: not broker.side.groups.log.is_loading)
    assert await described(client) == before
    for member in (first, second):
        assert (await member.beat()).error_code == 0
    assert (await described(client)).group_epoch == before.group_epoch
    assert await broker.side.share_persister.start_offset(key_of(broker, "t", 0)) == 7


async def test_a_member_without_heartbeats_is_removed(make_broker: Any) -> None:
    broker = await make_broker(group_share_session_timeout_ms=200, group_share_min_heartbeat_interval_ms=700)
    client = await started(broker)
    await Member(client, "m1", "t").beat()
    broker.services.settings["groups"]["g"] = {
        "share.session.timeout.ms": "45000",
        "share.heartbeat.interval.ms": "700",
    }
    second = Member(client, "m2", "t")
    assert (await second.beat()).heartbeat_interval_ms == 700
    group = broker.side.groups.describe("g").share
    await until(lambda: list(group.members) == ["m2"] and group.epoch == group.target_epoch)
    await second.beat()
    assert second.count == 4


async def test_a_group_has_an_interval_between_assignments(broker: Broker) -> None:
    broker.services.settings["groups"]["g"] = {"share.assignment.interval.ms": "15000"}
    client = await started(broker)
    first, second = Member(client, "m1", "t"), Member(client, "m2", "t")
    await first.beat()
    for _ in range(3):
        await second.beat()
    assert (first.count, second.count) == (4, 0)
    broker.services.settings["groups"]["g"] = {}
    await second.beat()
    assert second.count


async def test_states_that_cannot_be_begun_now_are_begun_later(broker: Broker, monkeypatch: pytest.MonkeyPatch) -> None:
    client = await started(broker)
    monkeypatch.setattr("kafkalite.coordinators.groups.share.states._PATIENCE_S", 0.01)
    monkeypatch.setattr("kafkalite.coordinators.shares.persister._PATIENCE_S", 0.01)
    monkeypatch.setattr(
        broker.side.shares, "coordinator_of", lambda key: (_ for _ in ()).throw(OSError("not now")), raising=True
    )
    member = Member(client, "m", "t")
    answer = await member.beat()
    assert (answer.error_code, member.count) == (0, 0)
    monkeypatch.undo()
    async with asyncio.timeout(150):
        while member.count < 4:
            await member.beat()
            await asyncio.sleep(0.01)


async def test_new_partitions_are_shared_too(broker: Broker) -> None:
    client = await started(broker, partitions=1)
    member = Member(client, "m", "t", "later")
    await member.beat()
    assert member.count == 1
    await broker.create("later", 2)
    async with asyncio.timeout(150):
        while member.count < 3:
            assert not (await member.beat()).error_code
            await asyncio.sleep(0.05)


async def test_start_offsets_and_lag(broker: Broker) -> None:
    client = await started(broker, partitions=2)
    member = Member(client, "m", "t")
    await member.beat()
    for _ in range(10):
        await client.ask(produce("t", (0, batch(b"x"))), 9)
    state = await broker.side.share_persister.read(key_of(broker, "t", 0), 3)
    done = StateBatch(Offset(5), Offset(6), DeliveryState.ACKNOWLEDGED, 1)
    await broker.side.share_persister.write(key_of(broker, "t", 0), state.state_epoch, 3, Offset(4), [done])
    assert await offsets(client) == {0: (4, 3, 4, 0), 1: (-1, 0, -1, 0)}
    assert await offsets(client, [("t", [0]), ("u", [7])]) == {0: (4, 3, 4, 0), 7: (-1, 0, -1, 3)}
    alter = wire.AlterShareGroupOffsetsRequest
    parts = [alter.AlterShareGroupOffsetsRequestPartition(*each) for each in ((0, 8), (5, 8))]
    topics = [
        alter.AlterShareGroupOffsetsRequestTopic("t", parts),
        alter.AlterShareGroupOffsetsRequestTopic("u", parts[:1]),
    ]
    assert (await client.ask(alter("g", topics), 0)).error_code == ErrorCode.NON_EMPTY_GROUP
    await member.beat(-1)
    answer = await client.ask(alter("g", topics), 0)
    assert [[each.error_code for each in topic.partitions] for topic in answer.responses] == [[0, 3], [3]]
    assert (await offsets(client))[0] == (8, 3, 2, 0)
    # What the leader still has to write concerns a state that is over.
    with pytest.raises(Exception, match="state epoch"):
        await broker.side.share_persister.write(key_of(broker, "t", 0), state.state_epoch, 3, Offset(9), [])
    request = wire.DeleteShareGroupOffsetsRequest
    asked = request("g", [request.DeleteShareGroupOffsetsRequestTopic(name) for name in ("t", "u")])
    answer = await client.ask(asked, 0)
    assert [each.error_code for each in answer.responses] == [0, ErrorCode.UNKNOWN_TOPIC_OR_PARTITION]
    assert await offsets(client) == {}
    assert await broker.side.share_persister.start_offset(key_of(broker, "t", 0)) == -1
    await member.beat(0)
    assert member.count == 2


async def test_offsets_of_a_group_that_is_new(broker: Broker) -> None:
    """Found by franz-go's TestShareGroupOffsetsAdmin: Kafka creates the group."""
    client = await started(broker)
    for _ in range(10):
        await client.ask(produce("t", (0, batch(b"x"))), 9)
    alter = wire.AlterShareGroupOffsetsRequest
    parts = [alter.AlterShareGroupOffsetsRequestPartition(0, 8)]
    unknown = alter("g", [alter.AlterShareGroupOffsetsRequestTopic("u", parts)])
    answer = await client.ask(unknown, 0)
    assert [each.error_code for each in answer.responses[0].partitions] == [ErrorCode.UNKNOWN_TOPIC_OR_PARTITION]
    assert (await client.ask(wire.DeleteGroupsRequest(["g"]), 2)).results[0].error_code == ErrorCode.GROUP_ID_NOT_FOUND
    answer = await client.ask(alter("g", [alter.AlterShareGroupOffsetsRequestTopic("t", parts)]), 0)
    assert [each.error_code for each in answer.responses[0].partitions] == [0]
    assert await offsets(client) == {0: (8, 0, 2, 0)}
    member = Member(client, "m", "t")
    assert (await member.beat()).error_code == 0 and member.count == 4
    assert (await offsets(client))[0][0] == 8


async def offsets(client: FrameClient, topics: Any = None) -> dict[int, tuple[int, int, int, int]]:
    request = wire.DescribeShareGroupOffsetsRequest
    named = topics and [request.DescribeShareGroupOffsetsRequestTopic(*each) for each in topics]
    # A group that is named twice is described once.
    asked = request([request.DescribeShareGroupOffsetsRequestGroup("g", named)] * 2)
    [group] = (await client.ask(asked, 1)).groups
    assert group.error_code == 0, group
    return {
        part.partition_index: (part.start_offset, part.leader_epoch, part.lag, part.error_code)
        for topic in group.topics
        for part in topic.partitions
    }


async def test_a_deleted_group_leaves_nothing(broker: Broker) -> None:
    client = await started(broker)
    member = Member(client, "m", "t")
    await member.beat()
    delete = wire.DeleteGroupsRequest(["g"])
    assert (await client.ask(delete, 2)).results[0].error_code == ErrorCode.NON_EMPTY_GROUP
    await member.beat(-1)
    assert (await client.ask(delete, 2)).results[0].error_code == 0
    assert (await client.ask(delete, 2)).results[0].error_code == ErrorCode.GROUP_ID_NOT_FOUND
    assert not any(partition.entries for partition in broker.side.shares.log.states())
    reload(broker)
    await until(lambda: not broker.side.groups.log.is_loading)
    assert (await described(client)).error_code == ErrorCode.GROUP_ID_NOT_FOUND
    await member.beat(0)
    assert member.count == 4


async def test_a_deleted_topic_takes_its_states_along(broker: Broker) -> None:
    client = await started(broker)
    member = Member(client, "m", "t")
    await member.beat()
    request = wire.DeleteTopicsRequest
    assert (await client.ask(request(topic_names=["t"], timeout_ms=1000), 4)).responses[0].error_code == 0
    await broker.side.groups.removal.topics_deleted(["t"])
    assert not any(partition.entries for partition in broker.side.shares.log.states())
    assert not broker.side.groups.describe("g").share.shared.initialized  # type: ignore[union-attr]
    assert not broker.side.groups.describe("g").share.shared.deleting  # type: ignore[union-attr]


@pytest.mark.parametrize("where", ["group", "share coordinator"])
async def test_states_of_a_deleted_topic_are_deleted_however_often_it_fails(
    broker: Broker, monkeypatch: pytest.MonkeyPatch, where: str
) -> None:
    """They stayed, and the group named the former topic beside the present one of its name."""
    monkeypatch.setattr(states, "_DELETE_AGAIN_S", 0.001)
    client = await started(broker)
    await Member(client, "m", "t").beat()
    assert (await client.ask(wire.DeleteTopicsRequest(topic_names=["t"]), 4)).responses[0].error_code == 0
    refused = asyncio.Event()

    async def refuse(key: ShareKey) -> None:
        refused.set()
        raise api_error(ErrorCode.COORDINATOR_NOT_AVAILABLE)

    with monkeypatch.context() as patched:
        if where == "group":
            broker.services.partitions.fail_appends = ErrorCode.NOT_ENOUGH_REPLICAS
            refused.set()
        else:
            patched.setattr(broker.side.share_persister, "delete", refuse)
        deleting = asyncio.create_task(broker.side.groups.removal.topics_deleted(["t"]))
        await refused.wait()
        await asyncio.sleep(0.01)
    broker.services.partitions.fail_appends = None
    await deleting
    assert not any(partition.entries for partition in broker.side.shares.log.states())
    shared = broker.side.groups.describe("g").share.shared  # type: ignore[union-attr]
    assert not shared.initialized and not shared.initializing and not shared.deleting


async def test_what_is_left_of_a_former_topic_does_not_stand_for_the_present_one(broker: Broker) -> None:
    """An administrator saw the offsets of the former one, and deleted those: the group went on where it was."""
    client = await started(broker)
    await Member(client, "m", "t").beat()
    await Member(client, "m", "t").beat(-1)
    key = key_of(broker, "t", 0)
    await broker.side.share_persister.write(key, 9, 1, Offset(7), [])
    group = broker.side.groups.describe("g").share  # type: ignore[union-attr]
    assert group is not None
    former = {name: SharedTopic("t", frozenset({0})) for name in ("A" * 21 + "A", "z" * 21 + "A")}
    group.shared = replace(group.shared, initialized=dict(sorted((former | dict(group.shared.initialized)).items())))
    shown = await client.ask(
        wire.DescribeShareGroupOffsetsRequest(
            [wire.DescribeShareGroupOffsetsRequest.DescribeShareGroupOffsetsRequestGroup("g", None)]
        ),
        1,
    )
    [topic] = shown.groups[0].topics
    assert UUID(bytes=topic.topic_id) == key.topic_id and topic.partitions[0].start_offset == 7
    request = wire.DeleteShareGroupOffsetsRequest
    deleted = await client.ask(request("g", [request.DeleteShareGroupOffsetsRequestTopic("t")]), 0)
    assert [(each.error_code, UUID(bytes=each.topic_id)) for each in deleted.responses] == [(0, key.topic_id)]
    assert not group.shared.initialized
    assert await broker.side.share_persister.start_offset(key) == -1


@pytest.mark.checklist("C19")
async def test_a_sweep_keeps_the_states_of_a_topic_that_has_vanished(broker: Broker) -> None:
    """Those of a topic whose deletion was reported go."""
    client = await started(broker)
    await Member(client, "m", "t").beat()
    key, removal = key_of(broker, "t", 0), broker.side.groups.removal
    await broker.side.share_persister.write(key, 9, 1, Offset(7), [])
    restore = broker.services.vanish("t")
    for _ in range(3):
        await removal.sweep()
    restore()
    assert (await broker.side.share_persister.read(key, 1)).start_offset == 7
    reload(broker)
    await until(lambda: not broker.side.groups.log.is_loading)
    await broker.services.delete_topics(DeleteTopicsRequest(("t",)), {})
    for _ in range(2):
        assert any(partition.entries for partition in broker.side.shares.log.states())
        await removal.sweep()
    assert not any(partition.entries for partition in broker.side.shares.log.states())


async def test_a_deletion_that_was_interrupted_goes_on(broker: Broker, monkeypatch: pytest.MonkeyPatch) -> None:
    """Otherwise the group would never get this topic again."""
    client = await started(broker)
    member = Member(client, "m", "t")
    await member.beat()
    await broker.side.share_persister.write(key_of(broker, "t", 0), 9, 1, Offset(7), [])
    await member.beat(-1)
    dying = asyncio.Event()

    async def delete(key: ShareKey) -> None:
        dying.set()
        await asyncio.sleep(60)

    with monkeypatch.context() as patched:
        patched.setattr(broker.side.share_persister, "delete", delete)
        request = wire.DeleteShareGroupOffsetsRequest
        asked = asyncio.ensure_future(client.ask(request("g", [request.DeleteShareGroupOffsetsRequestTopic("t")]), 0))
        await dying.wait()
        reload(broker)
        await until(lambda: not broker.side.groups.log.is_loading)
        asked.cancel()
    client = await broker.client()
    member = Member(client, "m2", "t")
    async with asyncio.timeout(150):
        while member.count < 4:
            assert not (await member.beat()).error_code
            await asyncio.sleep(0.05)
    assert await broker.side.share_persister.start_offset(key_of(broker, "t", 0)) == -1


async def test_targets_of_many_members_are_written_in_several_appends(broker: Broker) -> None:
    """Each names the group: forty together were more than a batch may have, and the group got nothing of a new topic."""
    name = "g" * 30_000
    client = await started(broker, partitions=40)
    await coordinator(client, name)
    members = [Member(client, f"m{number}", "t", "u", group=name) for number in range(40)]
    for member in members:
        assert (await member.beat()).error_code == 0
    await broker.create("u", 40)
    async with asyncio.timeout(120):
        while not all(len(member.assigned) == 2 for member in members):
            for member in members:
                assert (await member.beat()).error_code == 0
