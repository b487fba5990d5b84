"""Topics through the wire: created, given more partitions, deleted."""

from __future__ import annotations

import asyncio
from collections.abc import Callable
from functools import partial
from typing import Any

import pytest

from kafkalite.coordination.coordinator import NotSentError
from kafkalite.errors import ErrorCode, api_error
from kafkalite.extension.messages.topics import DeleteTopicsRequest, DeleteTopicsResponse, TopicResult
from kafkalite.protocol import topic_ids, wire

from .conftest import Broker


async def test_new_partitions_are_waited_for_as_long_as_the_client_says(
    broker: Broker, monkeypatch: pytest.MonkeyPatch
) -> None:
    for name in ("t", "u"):
        await broker.create(name)
    waited: list[int] = []

    async def create(
        topic: str, count: int, assignments: object, *, timeout_ms: int, validate_only: bool
    ) -> TopicResult:
        waited.append(timeout_ms)
        await asyncio.sleep(0.01)
        return TopicResult(
            topic, int(ErrorCode.REQUEST_TIMED_OUT), "the partitions were requested, but do not exist yet"
        )

    monkeypatch.setattr(broker.services, "create_partitions", create)
    request = wire.CreatePartitionsRequest
    topics = [request.CreatePartitionsTopic(name, 5) for name in ("t", "u")]
    answer = await (await broker.client()).ask(request(topics, timeout_ms=2_000), 3)
    assert [each.error_code for each in answer.results] == [ErrorCode.REQUEST_TIMED_OUT] * 2
    assert 2_000 >= waited[0] > waited[1] > 0


@pytest.mark.parametrize("version", range(8))
async def test_create_topics(broker: Broker, version: int) -> None:
    client = await broker.client()
    request = wire.CreateTopicsRequest
    topic = request.CreatableTopic
    wanted = [
        topic("good", 2, 1, configs=[request.CreatableTopicConfig("retention.ms", "9")]),
        topic("bad name", 1, 1),
        topic("none", 0, 1),
        topic("far", 1, 3),
        topic("odd", 1, 1, configs=[request.CreatableTopicConfig("retention.ms", "x")]),
        topic("twice", 1, 1),
        topic("twice", 1, 1),
    ]
    answer = await client.ask(request(wanted, 1000), version)
    assert {result.name: result.error_code for result in answer.topics} == {
        "good": 0,
        "bad name": ErrorCode.INVALID_TOPIC_EXCEPTION,
        "none": ErrorCode.INVALID_PARTITIONS,
        "far": ErrorCode.INVALID_REPLICATION_FACTOR,
        "odd": ErrorCode.INVALID_CONFIG,
        "twice": ErrorCode.INVALID_REQUEST,
    }
    again = await client.ask(request([topic("good", 2, 1)], 1000), version)
    assert again.topics[0].error_code == ErrorCode.TOPIC_ALREADY_EXISTS


@pytest.mark.parametrize(
    "error", [partial(NotSentError, "ZooKeeper is away"), partial(api_error, ErrorCode.UNKNOWN_SERVER_ERROR)]
)
async def test_a_topic_that_was_made_is_confirmed_without_its_settings_if_they_cannot_be_read(
    broker: Broker, monkeypatch: pytest.MonkeyPatch, error: Callable[[], Exception]
) -> None:
    """If it were refused, the client would repeat it, and hear that the topic exists."""

    async def refuse(*_: object) -> dict[str, str]:
        raise error()

    monkeypatch.setattr(broker.services, "entity_overrides", refuse)
    client = await broker.client()
    request = wire.CreateTopicsRequest
    [made] = (await client.ask(request([request.CreatableTopic("t", 1, 1)], 1000), 7)).topics
    assert (made.error_code, made.configs, made.topic_config_error_code) == (0, None, ErrorCode.UNKNOWN_SERVER_ERROR)


async def test_a_partition_assigned_twice_is_refused(broker: Broker) -> None:
    client = await broker.client()
    request = wire.CreateTopicsRequest
    replicas = [request.CreatableReplicaAssignment(0, [1])] * 2
    answer = await client.ask(request([request.CreatableTopic("t", -1, -1, replicas)], 1000), 7)
    assert answer.topics[0].error_code == ErrorCode.INVALID_REPLICA_ASSIGNMENT
    assert not broker.services.metadata(["t"]).topics[0].partitions


async def test_create_topics_with_too_many_partitions_is_refused_as_a_whole(broker: Broker) -> None:
    client = await broker.client()
    request = wire.CreateTopicsRequest
    wanted = [request.CreatableTopic("a", 1, 1), request.CreatableTopic("b", 10_000, 1)]
    answer = await client.ask(request(wanted, 1000), 7)
    assert {result.name: result.error_code for result in answer.topics} == {
        "a": ErrorCode.POLICY_VIOLATION,
        "b": ErrorCode.POLICY_VIOLATION,
    }


async def test_too_many_more_partitions_are_refused_as_a_whole(broker: Broker) -> None:
    for name in ("a", "b"):
        await broker.create(name, 2)
    client = await broker.client()
    request = wire.CreatePartitionsRequest

    async def add(**counts: int) -> set[int]:
        topics = [request.CreatePartitionsTopic(name, count, None) for name, count in counts.items()]
        answer = await client.ask(request(topics, 1000, validate_only=True), 3)
        return {each.error_code for each in answer.results}

    assert await add(a=5_002, b=5_002) == {0}
    assert await add(a=5_002, b=5_003) == {ErrorCode.POLICY_VIOLATION}
    assert len(broker.services.metadata(["a"]).topics[0].partitions) == 2


async def test_many_unknown_topics_are_looked_for_together(broker: Broker, monkeypatch: pytest.MonkeyPatch) -> None:
    """Each was read from ZooKeeper: 190,000 of them took more than a minute."""
    await broker.create("t", 2)
    asked, create = [], broker.services.create_partitions

    async def counted(topic: str, *rest: Any, **more: Any) -> Any:
        asked.append(topic)
        return await create(topic, *rest, **more)

    monkeypatch.setattr(broker.services, "create_partitions", counted)
    client = await broker.client()
    request = wire.CreatePartitionsRequest
    for count, left in ((10, 10), (998, 0)):
        names = ["no name", "", *(f"unknown{number}" for number in range(count - 2))]
        topics = [request.CreatePartitionsTopic(name, 3, None) for name in ("__consumer_offsets", "t", *names)]
        answer = await client.ask(request(topics, 1000, validate_only=True), 3)
        errors = {each.name: each.error_code for each in answer.results}
        assert errors.pop("t") == 0 and errors.pop("__consumer_offsets")
        assert errors == dict.fromkeys(names, int(ErrorCode.UNKNOWN_TOPIC_OR_PARTITION))
        assert len(asked) == 2 + left, asked
        asked.clear()


@pytest.mark.parametrize("version", range(7))
async def test_delete_topics_and_add_partitions(broker: Broker, version: int) -> None:
    await broker.create("t", 2)
    client = await broker.client()
    more = wire.CreatePartitionsRequest
    answer = await client.ask(more([more.CreatePartitionsTopic("t", 4, None)], 1000), 3)
    assert answer.results[0].error_code == 0
    fewer = await client.ask(more([more.CreatePartitionsTopic("t", 1, None)], 1000), 3)
    assert fewer.results[0].error_code == ErrorCode.INVALID_PARTITIONS
    request = wire.DeleteTopicsRequest
    states = [request.DeleteTopicState("t"), request.DeleteTopicState(None, bytes(range(16)))]
    answer = await client.ask(request(states, ["t", "nowhere"], 1000), version)
    codes = {result.name: result.error_code for result in answer.responses}
    if version >= 6:
        assert codes == {"t": 0, None: ErrorCode.UNKNOWN_TOPIC_ID}
    else:
        assert codes == {"t": 0, "nowhere": ErrorCode.UNKNOWN_TOPIC_OR_PARTITION}
    assert broker.services.metadata(None).topics == ()


@pytest.mark.parametrize("version", [0, 5, 6])
async def test_a_topic_that_is_named_twice_is_not_deleted(broker: Broker, version: int) -> None:
    """Source: Kafka's ControllerApis.deleteTopics."""
    for name in ("twice", "once"):
        await broker.create(name)
    client = await broker.client()
    names = ["twice", "once", "twice"]
    request = wire.DeleteTopicsRequest
    answer = await client.ask(request([request.DeleteTopicState(name) for name in names], names, 1000), version)
    codes = [(result.name, result.error_code) for result in answer.responses]
    assert sorted(codes) == [("once", 0), ("twice", ErrorCode.INVALID_REQUEST)]
    assert [topic.topic for topic in broker.services.metadata(None).topics] == ["twice"]


async def test_a_topic_that_is_named_by_its_id_and_once_more_is_not_deleted(broker: Broker) -> None:
    for name in ("t", "u"):
        await broker.create(name)
    client = await broker.client()
    t, u = (topic_ids.to_wire(each.topic_id) for each in broker.services.metadata(["t", "u"]).topics)
    request = wire.DeleteTopicsRequest
    by_id = [request.DeleteTopicState(None, each) for each in (t, u, u)]
    answer = await client.ask(request([*by_id, request.DeleteTopicState("t")], timeout_ms=1000), 6)
    codes = {(result.name, result.topic_id): result.error_code for result in answer.responses}
    assert codes == {("t", t): ErrorCode.INVALID_REQUEST, (None, u): ErrorCode.INVALID_REQUEST}
    assert len(broker.services.metadata(None).topics) == 2


@pytest.mark.parametrize("version", range(1, 7))
async def test_old_clients_know_no_error_for_deletions_that_are_off(
    broker: Broker, monkeypatch: pytest.MonkeyPatch, version: int
) -> None:
    await broker.create("t")

    async def refused(request: DeleteTopicsRequest, ids: object) -> DeleteTopicsResponse:
        return DeleteTopicsResponse(
            tuple(TopicResult(name, ErrorCode.TOPIC_DELETION_DISABLED) for name in request.topics)
        )

    monkeypatch.setattr(broker.services, "delete_topics", refused)
    request = wire.DeleteTopicsRequest
    topics = {"topics": [request.DeleteTopicState("t")]} if version >= 6 else {"topic_names": ["t"]}
    answer = await (await broker.client()).ask(request(timeout_ms=1_000, **topics), version)
    expected = ErrorCode.TOPIC_DELETION_DISABLED if version >= 3 else ErrorCode.INVALID_REQUEST
    assert [each.error_code for each in answer.responses] == [expected]
