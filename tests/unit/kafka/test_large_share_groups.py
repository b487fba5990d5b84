"""A share group's record of its states says all of them. It is limited like any other record (max.message.bytes, 1 MiB)."""

from __future__ import annotations

import pytest

from kafkalite.config import TopicConfig
from kafkalite.errors import ApiError, ErrorCode
from kafkalite.model import GROUP_TOPIC
from kafkalite.protocol import wire

from .conftest import Broker, FrameClient
from .consumer_members import started
from .test_share_groups import Member, described
from .test_share_state_changes import group_of

TOPICS = [f"{number:02}{'t' * 200}" for number in range(40)]
#: Just enough for one record that names all topics once, with their states.
LIMIT = 9_500


async def many_topics(broker: Broker) -> FrameClient:
    """An empty group with states of all topics, whose record is nearly as large as it may be."""
    client = await started(broker)
    for name in TOPICS:
        await broker.create(name)
    member = Member(client, "m", *TOPICS)
    await member.beat()
    assert member.count == len(TOPICS)
    await member.beat(-1)
    broker.services.partitions.configs[GROUP_TOPIC] = TopicConfig(max_message_bytes=LIMIT)
    return client


async def test_a_group_with_many_topics_is_deleted(broker: Broker) -> None:
    """The note of what is being deleted has the names once more: nobody could delete the group."""
    client = await many_topics(broker)
    assert (await client.ask(wire.DeleteGroupsRequest(["g"]), 2)).results[0].error_code == 0
    assert (await described(client)).error_code == ErrorCode.GROUP_ID_NOT_FOUND


async def test_offsets_of_many_topics_are_deleted(broker: Broker) -> None:
    client = await many_topics(broker)
    request = wire.DeleteShareGroupOffsetsRequest
    topics = [request.DeleteShareGroupOffsetsRequestTopic(name) for name in TOPICS]
    answer = await client.ask(request("g", topics), 0)
    assert [each.error_code for each in answer.responses] == [0] * len(TOPICS)
    assert not group_of(broker).shared.initialized and not group_of(broker).shared.deleting


async def test_what_fits_into_no_record_is_said(broker: Broker) -> None:
    client = await started(broker)
    for name in TOPICS:
        await broker.create(name)
    broker.services.partitions.configs[GROUP_TOPIC] = TopicConfig(max_message_bytes=LIMIT - 500)
    answer = await Member(client, "m", *TOPICS).beat()
    assert answer.error_code == ErrorCode.INVALID_COMMIT_OFFSET_SIZE
    assert answer.error_message.startswith("9,") and "max.message.bytes of __consumer_offsets" in answer.error_message
    broker.services.partitions.configs[GROUP_TOPIC] = TopicConfig(max_message_bytes=LIMIT)
    member = Member(client, "m2", *TOPICS)
    assert (await member.beat()).error_code == 0
    assert member.count == len(TOPICS) // 2, "the first one is a member until its session ends"
    broker.services.partitions.configs[GROUP_TOPIC] = TopicConfig(max_message_bytes=300)
    entry = broker.side.groups.describe("g")
    assert entry is not None
    with pytest.raises(ApiError, match=r"raise max\.message\.bytes of __consumer_offsets"):
        await broker.side.groups.share_states.delete_states(entry, group_of(broker).shared.initialized)


async def test_a_member_that_names_too_many_topics_hears_of_it(broker: Broker) -> None:
    """Its connection was closed each time."""
    client = await started(broker)
    answer = await Member(client, "m", *(f"t{number}" for number in range(10_001))).beat()
    assert answer.error_code == ErrorCode.INVALID_REQUEST and "10,000" in answer.error_message
