"""Commits of so many offsets that one batch cannot have them."""

from __future__ import annotations

from typing import Any

import pytest

from kafkalite.config import TopicConfig
from kafkalite.coordinators.groups import commits
from kafkalite.errors import ErrorCode
from kafkalite.model import GROUP_TOPIC, TopicPartition
from kafkalite.protocol import wire

from .conftest import Broker, FrameClient
from .consumer_members import started
from .coordinator_requests import coordinator, fetched
from .test_share_groups import reload

COUNT = 200


@pytest.fixture
async def client(broker: Broker, monkeypatch: pytest.MonkeyPatch) -> FrameClient:
    """A batch may have half of the offsets of a commit."""
    client = await started(broker, partitions=COUNT)
    await coordinator(client, "g")
    monkeypatch.setattr(commits, "APPEND_BYTES", 2_000, raising=False)
    broker.services.partitions.configs[GROUP_TOPIC] = TopicConfig(max_message_bytes=6_000)
    return client


async def codes(client: FrameClient) -> list[int]:
    request = wire.OffsetCommitRequest
    parts = [request.OffsetCommitRequestPartition(number, number) for number in range(COUNT)]
    answer = await client.ask(request("g", topics=[request.OffsetCommitRequestTopic("t", partitions=parts)]), 9)
    assert [each.partition_index for each in answer.topics[0].partitions] == list(range(COUNT))
    return [each.error_code for each in answer.topics[0].partitions]


async def offsets(client: FrameClient) -> list[int]:
    found = await fetched(client, "g", *(TopicPartition("t", number) for number in range(COUNT)))
    return [part.committed_offset for topic in found.topics for part in topic.partitions]


async def test_they_are_written_in_several_batches(broker: Broker, client: FrameClient) -> None:
    """A consumer of 12,000 partitions could not commit: INVALID_COMMIT_OFFSET_SIZE, as from Kafka."""
    assert await codes(client) == [0] * COUNT
    assert await offsets(client) == list(range(COUNT))
    reload(broker)
    await coordinator(client, "g")
    assert await offsets(client) == list(range(COUNT))


async def test_what_could_not_be_appended_of_them_has_its_error(
    broker: Broker, client: FrameClient, monkeypatch: pytest.MonkeyPatch
) -> None:
    partitions = broker.services.partitions
    append, appends = partitions.append_internal, 0

    def second_fails(*arguments: Any, **more: Any) -> None:
        nonlocal appends
        appends += 1
        partitions.fail_appends = ErrorCode.NOT_ENOUGH_REPLICAS if appends == 2 else None
        append(*arguments, **more)

    monkeypatch.setattr(partitions, "append_internal", second_fails)
    found = await codes(client)
    assert set(found) == {0, ErrorCode.COORDINATOR_NOT_AVAILABLE} and appends > 2
    failed = [number for number, code in enumerate(found) if code]
    assert failed == list(range(failed[0], failed[-1] + 1)), "those of one batch"
    assert await offsets(client) == [-1 if number in failed else number for number in range(COUNT)]


async def test_a_group_of_which_nothing_could_be_appended_is_not_there(broker: Broker, client: FrameClient) -> None:
    broker.services.partitions.fail_appends = ErrorCode.NOT_ENOUGH_REPLICAS
    assert set(await codes(client)) == {ErrorCode.COORDINATOR_NOT_AVAILABLE}
    broker.services.partitions.fail_appends = None
    assert (await client.ask(wire.ListGroupsRequest(), 4)).groups == []
