"""The consumer group protocol (KIP-848) through the wire: what members see, what is stored, what survives a move."""

from __future__ import annotations

import asyncio
from typing import Any

from kafkalite.coordinators.internal_log import partition_of
from kafkalite.errors import ErrorCode
from kafkalite.extension.messages.topics import DeleteTopicsRequest
from kafkalite.model import GROUP_TOPIC, TopicPartition
from kafkalite.protocol import wire
from kafkalite.record.reader import read_records

from .conftest import Broker
from .consumer_members import HEARTBEAT_S, Member, described, settled, started
from .coordinator_requests import commit, coordinator, fetched, move


async def test_a_member_gets_all_and_gives_up_half(broker: Broker) -> None:
    client = await started(broker)
    first, second = Member(client, "m1", "t"), Member(client, "m2", "t")
    await first.beat()
    assert (first.epoch, len(first.partitions)) == (2, 4)
    await second.beat()
    assert (second.epoch, second.partitions) == (3, [])
    asked = await first.beat()
    assert (asked.member_epoch, len(first.partitions)) == (2, 2)  # to be given up, said by the next heartbeat
    [shown] = [each for each in (await described(client)).members if each.member_id == "m1"]
    assert sorted(shown.assignment.topic_partitions[0].partitions) == [0, 1, 2, 3]  # with what it has still to give up
    assert (len(shown.target_assignment.topic_partitions[0].partitions), shown.subscribed_topic_regex) == (2, "")
    await second.beat()
    assert second.partitions == []
    await settled(first, second, count=4)
    group = await described(client)
    assert (group.group_state, group.group_epoch, group.assignment_epoch, group.assignor_name) == (
        "Stable",
        3,
        3,
        "uniform",
    )
    assert [(m.member_id, m.member_epoch, m.member_type, m.subscribed_topic_names) for m in group.members] == [
        ("m1", 3, 1, ["t"]),
        ("m2", 3, 1, ["t"]),
    ]
    assert group.members[0].assignment.topic_partitions[0].topic_name == "t"
    left = await second.beat(-1)
    assert (left.member_epoch, left.error_code) == (-1, 0)
    await settled(first, count=4)
    listed = (await client.ask(wire.ListGroupsRequest([], ["consumer"]), 5)).groups
    assert [(each.group_id, each.group_type, each.group_state) for each in listed] == [("g", "consumer", "Stable")]
    assert not (await client.ask(wire.ListGroupsRequest([], ["classic"]), 5)).groups


async def test_another_assignor_assigns_at_once(broker: Broker) -> None:
    """As in Kafka. Static members that were restarted with another assignor kept the former one's assignment."""
    client = await started(broker)
    first, second = (Member(client, f"m{number}", "t", instance_id=f"i{number}") for number in (1, 2))
    await first.beat(server_assignor="uniform")
    await second.beat(server_assignor="uniform")
    await settled(first, second, count=4)
    for member, name in ((first, "m3"), (second, "m4")):
        await member.beat(-2)
        member.name = name
        await member.beat(0, server_assignor="range")
    group = await described(client)
    assert (group.group_epoch, group.assignment_epoch, group.assignor_name) == (4, 4, "range")
    await first.beat(server_assignor="range")
    assert (await described(client)).group_epoch == 4


async def test_a_member_that_owns_nothing_yet_has_given_nothing_up(broker: Broker) -> None:
    """Java's clients say so while they take in an assignment: they are about to have what another member would get."""
    client = await started(broker)
    first, second = Member(client, "m1", "t"), Member(client, "m2", "t")
    await first.beat()
    await second.beat()
    asked = await first.beat(topic_partitions=[])
    assert (asked.member_epoch, len(first.partitions)) == (2, 2)
    for _ in range(2):
        await first.beat(topic_partitions=[])
        await second.beat()
        assert (first.epoch, second.partitions) == (2, [])
    await settled(first, second, count=4)
    await first.beat(0)  # it was started again: now it owns nothing
    assert (first.epoch, len(first.partitions)) == (3, 2)
    await settled(first, second, count=4)


async def test_a_member_need_not_own_what_was_deleted_before_it_can_give_up_the_rest(broker: Broker) -> None:
    """It was assigned a topic that was gone before it had taken it in. What it gave up had no owner until its rebalance timeout ended."""
    client = await started(broker, partitions=1)
    await broker.create("u", 1)
    first, second = Member(client, "m1", "t", "u"), Member(client, "m2", "t")
    await first.beat(rebalance_timeout_ms=300_000)
    await second.beat()
    await first.beat(topic_partitions=[])
    assert (len(first.partitions), second.partitions) == (1, [])
    await broker.services.delete_topics(DeleteTopicsRequest(("u",)), {})
    async with asyncio.timeout(60):
        while not second.partitions:
            await first.beat(topic_partitions=[])
            await second.beat()
            await asyncio.sleep(HEARTBEAT_S)
    assert not (first.error or second.error)


async def test_requests_that_make_no_sense_are_refused(broker: Broker) -> None:
    client = await started(broker)
    member = Member(client, "m", "t")
    cases: list[tuple[dict[str, Any], ErrorCode]] = [
        ({"epoch": 3}, ErrorCode.GROUP_ID_NOT_FOUND),
        ({"epoch": -1}, ErrorCode.GROUP_ID_NOT_FOUND),
        ({"epoch": -2}, ErrorCode.INVALID_REQUEST),
        ({"epoch": -3}, ErrorCode.INVALID_REQUEST),
        ({"epoch": 0, "member_id": ""}, ErrorCode.INVALID_REQUEST),
        ({"epoch": 0, "rebalance_timeout_ms": -1}, ErrorCode.INVALID_REQUEST),
        ({"epoch": 0, "subscribed_topic_names": None}, ErrorCode.INVALID_REQUEST),
        ({"epoch": 0, "rack_id": ""}, ErrorCode.INVALID_REQUEST),
        ({"epoch": 0, "server_assignor": "mine"}, ErrorCode.UNSUPPORTED_ASSIGNOR),
        ({"epoch": 0, "subscribed_topic_regex": "("}, ErrorCode.INVALID_REGULAR_EXPRESSION),
    ]
    for fields, code in cases:
        answer = await member.beat(**fields)
        assert answer.error_code == code, (fields, answer)
        assert answer.error_message
    await member.beat()
    stranger = Member(client, "x", "t")
    assert (await stranger.beat(1)).error_code == ErrorCode.UNKNOWN_MEMBER_ID
    assert (await member.beat(5)).error_code == ErrorCode.FENCED_MEMBER_EPOCH
    assert (await described(client, "other")).error_code == ErrorCode.GROUP_ID_NOT_FOUND


async def test_a_member_may_subscribe_to_nothing(broker: Broker) -> None:
    """Also by an empty expression, as with Kafka since 4.3."""
    client = await started(broker)
    member = Member(client, "m", "t")
    subscriptions: tuple[dict[str, Any], ...] = (
        {"subscribed_topic_names": None, "subscribed_topic_regex": ""},
        {"subscribed_topic_names": []},
    )
    for said in subscriptions:
        await member.beat(0, **said)
        assert (member.error, member.partitions) == (0, [])
    await member.beat(subscribed_topic_names=["t"])
    await settled(member, count=4)


async def test_a_group_has_a_largest_size(make_broker: Any) -> None:
    broker = await make_broker(group_consumer_max_size=1)
    client = await started(broker)
    await Member(client, "m1", "t").beat()
    assert (await Member(client, "m2", "t").beat()).error_code == ErrorCode.GROUP_MAX_SIZE_REACHED


async def test_a_lost_answer_is_given_again(broker: Broker) -> None:
    client = await started(broker)
    first = Member(client, "m1", "t")
    await first.beat()
    again = Member(client, "m1", "t")
    await again.beat()
    assert (again.epoch, again.partitions) == (first.epoch, first.partitions)


async def test_new_partitions_are_assigned(broker: Broker) -> None:
    client = await started(broker)
    member = Member(client, "m", "t", "later")
    await member.beat()
    await broker.create("later", 3)
    await settled(member, count=7)


async def test_a_static_member_keeps_its_partitions_over_a_restart(broker: Broker) -> None:
    client = await started(broker)
    first, second = Member(client, "m1", "t", instance_id="i1"), Member(client, "m2", "t", instance_id="i2")
    await first.beat()
    await second.beat()
    await settled(first, second, count=4)
    held, epoch = first.partitions, first.epoch
    early = Member(client, "m3", "t", instance_id="i1")
    assert (await early.beat()).error_code == ErrorCode.UNRELEASED_INSTANCE_ID
    await first.beat(-2)
    again = Member(client, "m3", "t", instance_id="i1")
    await again.beat()
    assert (again.partitions, again.epoch) == (held, epoch)
    await settled(again, second, count=4)
    assert (await first.beat(epoch)).error_code == ErrorCode.FENCED_INSTANCE_ID


async def test_offsets_are_fenced_by_the_member_epoch(broker: Broker) -> None:
    client = await started(broker)
    first, second = Member(client, "m1", "t"), Member(client, "m2", "t")
    await first.beat()

    async def committed(member: Member, epoch: int, version: int = 9, partition: int = 0) -> int:
        request = commit("g", 7, generation_id_or_member_epoch=epoch, member_id=member.name)
        request.topics[0].partitions[0].partition_index = partition
        code: int = (await client.ask(request, version)).topics[0].partitions[0].error_code
        return code

    assert await committed(first, 2) == 0
    assert await committed(first, 2, version=8) == ErrorCode.UNSUPPORTED_VERSION
    assert await committed(first, 3) == ErrorCode.STALE_MEMBER_EPOCH
    assert await committed(first, -1) == ErrorCode.STALE_MEMBER_EPOCH
    assert await committed(second, 1) == ErrorCode.UNKNOWN_MEMBER_ID
    await second.beat()
    await settled(first, second, count=4)
    # It has had some of its partitions since epoch 2 (KIP-1251); the others have another owner by now.
    kept = first.partitions[0][1]
    given = second.partitions[0][1]
    assert await committed(first, 2, partition=kept) == 0
    assert await committed(first, 2, partition=given) == ErrorCode.STALE_MEMBER_EPOCH
    assert await committed(first, 1, partition=kept) == ErrorCode.STALE_MEMBER_EPOCH

    async def read(member: str | None, epoch: int) -> Any:
        request = wire.OffsetFetchRequest
        asked = request.OffsetFetchRequestGroup(
            "g", member, epoch, [request.OffsetFetchRequestTopics("t", partition_indexes=[kept])]
        )
        return (await client.ask(request(groups=[asked]), 9)).groups[0]

    assert (await read("m1", first.epoch)).topics[0].partitions[0].committed_offset == 7
    assert (await read("m1", 1)).error_code == ErrorCode.STALE_MEMBER_EPOCH
    assert (await read("x", 1)).error_code == ErrorCode.UNKNOWN_MEMBER_ID
    assert (await read(None, -1)).error_code == 0


async def test_a_member_that_is_silent_is_removed(make_broker: Any) -> None:
    broker = await make_broker(group_consumer_session_timeout_ms=1_500)
    client = await started(broker)
    first, second = Member(client, "m1", "t"), Member(client, "m2", "t")
    await second.beat()
    # Of the one that goes on a session lasts longer, as the machine may stand still.
    broker.services.settings["groups"]["g"] = {"consumer.session.timeout.ms": "45000"}
    await first.beat()
    await settled(first, count=4)
    assert (await second.beat()).error_code == ErrorCode.UNKNOWN_MEMBER_ID


async def test_a_group_has_a_session_and_an_interval_of_its_own(make_broker: Any) -> None:
    broker = await make_broker(group_consumer_min_session_timeout_ms=1_500, group_consumer_min_heartbeat_interval_ms=50)
    own = {"consumer.session.timeout.ms": "1500", "consumer.heartbeat.interval.ms": "50"}
    broker.services.settings["groups"]["g"] = own
    client = await started(broker)
    first, second = Member(client, "m1", "t"), Member(client, "m2", "t")
    await second.beat()
    own["consumer.session.timeout.ms"] = "45000"  # of the one that goes on, as the machine may stand still
    assert (await first.beat()).heartbeat_interval_ms == 50
    await settled(first, count=4)
    assert (await second.beat()).error_code == ErrorCode.UNKNOWN_MEMBER_ID


async def test_a_group_has_an_interval_between_assignments(broker: Broker) -> None:
    broker.services.settings["groups"]["g"] = {"consumer.assignment.interval.ms": "15000"}
    client = await started(broker)
    first, second = Member(client, "m1", "t"), Member(client, "m2", "t")
    await first.beat()
    second.client = await broker.client()
    joining = asyncio.create_task(second.beat())  # answered with the next assignment
    try:
        async with asyncio.timeout(150):
            while (group := await described(client)).group_epoch < 3:
                await asyncio.sleep(HEARTBEAT_S)
        assert (group.assignment_epoch, joining.done()) == (2, False)
    finally:
        joining.cancel()


async def test_a_member_that_does_not_give_up_its_partitions_is_removed(broker: Broker) -> None:
    client = await started(broker)
    first, second = Member(client, "m1", "t"), Member(client, "m2", "t")
    await first.beat(rebalance_timeout_ms=200)
    await second.beat()
    async with asyncio.timeout(150):
        while len(second.partitions) < 4:
            await first.beat(topic_partitions=None)  # it is there, but still reads all it has
            await second.beat()
            await asyncio.sleep(HEARTBEAT_S)
    assert first.error == ErrorCode.UNKNOWN_MEMBER_ID


async def test_a_group_survives_its_coordinator(broker: Broker) -> None:
    client = await started(broker)
    members = [Member(client, f"m{n}", "t", instance_id=f"i{n}" if n else None) for n in range(3)]
    for member in members:
        await member.beat()
    await settled(*members, count=4)
    before = [(member.epoch, member.partitions) for member in members]
    shown = await described(client)
    await move(broker, GROUP_TOPIC)
    await coordinator(client, "g")
    for member in members:
        assert (await member.beat()).error_code == 0
    assert [(member.epoch, member.partitions) for member in members] == before
    again = await described(client)
    assert (again.group_epoch, again.assignment_epoch) == (shown.group_epoch, shown.assignment_epoch)
    assert again.members == shown.members


async def test_nothing_is_said_that_could_still_be_lost(broker: Broker) -> None:
    """A record that cannot be appended changes nothing; one that is not replicated is no basis for an answer."""
    client = await started(broker)
    first, second = Member(client, "m1", "t"), Member(client, "m2", "t")
    await first.beat()
    log = TopicPartition(GROUP_TOPIC, partition_of("g", broker.side.groups.log.partition_count()))
    partitions = broker.services.partitions
    end = partitions.logs[log].log_end_offset
    partitions.fail_appends = ErrorCode.NOT_ENOUGH_REPLICAS
    assert (await second.beat()).error_code == ErrorCode.COORDINATOR_NOT_AVAILABLE
    assert partitions.logs[log].log_end_offset == end
    assert len((await described(client)).members) == 1
    partitions.fail_appends = None
    partitions.committed[log] = end - 1
    assert (await first.beat()).error_code == ErrorCode.COORDINATOR_NOT_AVAILABLE
    del partitions.committed[log]
    assert (await first.beat()).error_code == 0


async def test_a_coordinator_is_not_ready_before_the_end_of_its_log_is_committed(broker: Broker) -> None:
    """A new leader acts on nothing that its log may still lose: a group's members, an offset."""
    client = await started(broker)
    await client.ask(commit("g", 3), 8)
    log = TopicPartition(GROUP_TOPIC, partition_of("g", broker.side.groups.log.partition_count()))
    partitions = broker.services.partitions
    partitions.committed[log] = partitions.logs[log].log_end_offset - 1
    await move(broker, GROUP_TOPIC)
    codes = set()
    for _ in range(5):
        await asyncio.sleep(0.01)
        codes.add((await fetched(client, "g")).error_code)
    assert codes == {int(ErrorCode.COORDINATOR_LOAD_IN_PROGRESS)}
    del partitions.committed[log]
    await coordinator(client, "g")
    assert (await fetched(client, "g", TopicPartition("t", 0))).topics[0].partitions[0].committed_offset == 3


async def test_an_empty_group_is_deleted_with_all_its_records(broker: Broker) -> None:
    client = await started(broker)
    member = Member(client, "m", "t")
    await member.beat()
    await client.ask(commit("g", 3, generation_id_or_member_epoch=1, member_id="m"), 9)
    deleted = await client.ask(wire.DeleteGroupsRequest(["g"]), 2)
    assert deleted.results[0].error_code == ErrorCode.NON_EMPTY_GROUP
    delete = wire.OffsetDeleteRequest
    topics = [delete.OffsetDeleteRequestTopic("t", [delete.OffsetDeleteRequestPartition(0)])]
    kept = await client.ask(delete("g", topics), 0)
    assert kept.topics[0].partitions[0].error_code == ErrorCode.GROUP_SUBSCRIBED_TO_TOPIC
    await member.beat(-1)
    assert (await client.ask(wire.DeleteGroupsRequest(["g"]), 2)).results[0].error_code == 0
    log = TopicPartition(GROUP_TOPIC, partition_of("g", broker.side.groups.log.partition_count()))
    last: dict[bytes | None, bytes | None] = {}
    for _, piece in broker.services.partitions.logs[log].batches:
        last |= {record.key: record.value for record in read_records(piece)}
    assert set(last.values()) == {None}
    assert (await described(client)).error_code == ErrorCode.GROUP_ID_NOT_FOUND


# --- both protocols ---


async def test_groups_are_off_if_the_feature_is(broker: Broker) -> None:
    client = await started(broker)
    versions = await client.ask(wire.ApiVersionsRequest("test", "1"), 4)
    assert [each.max_version_level for each in versions.finalized_features if each.name == "group.version"] == [1]
    await broker.services.update_features({"group.version": 0})
    assert (await Member(client, "m", "t").beat()).error_code == ErrorCode.UNSUPPORTED_VERSION


async def test_targets_of_many_members_are_written_in_several_appends(make_broker: Any) -> None:
    """Each names the group: fifty together were more than a batch may have, and no member that came with others got anything."""
    broker = await make_broker(group_consumer_assignment_interval_ms=1_000)
    name = "g" * 30_000
    await coordinator(await started(broker, partitions=120), name)
    members = [Member(await broker.client(), f"m{number}", "t", group=name) for number in range(120)]
    async with asyncio.timeout(120):
        await asyncio.gather(*(member.beat() for member in members))
    await settled(*members, count=120)
    assert {len(member.partitions) for member in members} == {1}
    await move(broker, GROUP_TOPIC)
    await coordinator(members[0].client, name)
    group = await described(members[0].client, name)
    assert [len(each.target_assignment.topic_partitions[0].partitions) for each in group.members] == [1] * 120
