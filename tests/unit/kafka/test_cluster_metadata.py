"""What clients are shown of the cluster: Metadata and DescribeCluster."""

from __future__ import annotations

import asyncio
import dataclasses
from typing import Any

import pytest

from kafkalite.errors import ErrorCode
from kafkalite.model import BrokerId
from kafkalite.protocol import wire

from .conftest import Broker


@pytest.mark.parametrize("version", range(13))
async def test_metadata_creates_topics_on_demand(broker: Broker, version: int) -> None:
    client = await broker.client()
    request = wire.MetadataRequest
    named = [request.MetadataRequestTopic(name=name) for name in ("fresh", "not a name")]
    answer = await client.ask(request(named), version)
    assert {topic.name: topic.error_code for topic in answer.topics} == {
        "fresh": 0,
        "not a name": ErrorCode.INVALID_TOPIC_EXCEPTION,
    }
    assert answer.brokers[0].port == broker.services.kafka_endpoint[1]
    if version >= 4:
        quiet = await client.ask(
            request([request.MetadataRequestTopic(name="other")], allow_auto_topic_creation=False), version
        )
        assert quiet.topics[0].error_code == ErrorCode.UNKNOWN_TOPIC_OR_PARTITION
    everything = await client.ask(request([] if version == 0 else None), version)
    assert [topic.name for topic in everything.topics] == ["fresh"]
    if version >= 12:
        by_id = request.MetadataRequestTopic(everything.topics[0].topic_id, None)
        unknown = request.MetadataRequestTopic(bytes(range(16)), None)
        answer = await client.ask(request([by_id, unknown]), version)
        assert [(topic.name, topic.error_code) for topic in answer.topics] == [
            ("fresh", 0),
            (None, ErrorCode.UNKNOWN_TOPIC_ID),
        ]


@pytest.mark.parametrize("version", [10, 11])
async def test_metadata_by_id_before_version_12_is_refused(broker: Broker, version: int) -> None:
    """Its answer has no room for a topic without a name (found by bench.fuzz_kafka)."""
    client = await broker.client()
    request = wire.MetadataRequest
    for topic in (request.MetadataRequestTopic(bytes(range(16)), "t"), request.MetadataRequestTopic(name=None)):
        answer = await client.ask(request([topic]), version)
        assert [found.error_code for found in answer.topics] == [ErrorCode.INVALID_REQUEST]
    assert (await client.ask(request([]), version)).topics == []


@pytest.mark.parametrize(
    ("version", "endpoint_type", "code"),
    [(1, 2, ErrorCode.MISMATCHED_ENDPOINT_TYPE), (2, 0, ErrorCode.UNSUPPORTED_ENDPOINT_TYPE), (1, 3, 115)],
)
async def test_endpoints_of_controllers_are_not_here(
    broker: Broker, version: int, endpoint_type: int, code: int
) -> None:
    """Source: Kafka's AuthHelper.computeDescribeClusterResponse (KIP-919)."""
    client = await broker.client()
    answer = await client.ask(wire.DescribeClusterRequest(endpoint_type=endpoint_type), version)
    assert (answer.error_code, answer.brokers) == (code, [])


@pytest.mark.parametrize("version", range(2))
async def test_describe_cluster(broker: Broker, version: int) -> None:
    client = await broker.client()
    answer = await client.ask(wire.DescribeClusterRequest(), version)
    assert (answer.cluster_id, answer.controller_id, len(answer.brokers)) == ("memory", 1, 1)


@pytest.mark.parametrize("hears_of_it", [True, False])
async def test_metadata_waits_a_moment_for_the_first_word_of_a_controller(
    broker: Broker, monkeypatch: pytest.MonkeyPatch, *, hears_of_it: bool
) -> None:
    known = broker.services.metadata
    words = 0

    def nothing_yet(topics: Any) -> Any:
        return (
            known(topics)
            if hears_of_it and words >= 3
            else dataclasses.replace(known(topics), controller_id=BrokerId(-1))
        )

    async def word() -> None:
        nonlocal words
        words += 1
        await asyncio.sleep(0)  # the group coordinator waits here in a loop, too

    monkeypatch.setattr(broker.services, "metadata", nothing_yet)
    monkeypatch.setattr(broker.services, "metadata_changed", word)
    monkeypatch.setattr("kafkalite.kafka.handlers.cluster._CONTROLLER_WAIT_S", 60 if hears_of_it else 0)
    client = await broker.client()
    answer = await client.ask(wire.MetadataRequest([]), 9)
    assert answer.controller_id == (1 if hears_of_it else -1)
    assert [found.node_id for found in answer.brokers] == [1]


async def test_a_node_that_does_not_know_the_cluster_yet_names_neither_brokers_nor_topics(
    broker: Broker, monkeypatch: pytest.MonkeyPatch
) -> None:
    """librdkafka (2.10 to 2.16) gave up all brokers after a response with a topic and without brokers; read in its
    rd_kafka_metadata_decommission_unavailable_brokers. It asks again after an empty one, as Java's clients and sarama do (KAFKA-7924).
    """
    known = broker.services.metadata
    monkeypatch.setattr(broker.services, "metadata", lambda topics: dataclasses.replace(known(topics), brokers=()))
    monkeypatch.setattr("kafkalite.kafka.handlers.cluster._CONTROLLER_WAIT_S", 0)
    client = await broker.client()
    request = wire.MetadataRequest
    for topics in (
        None,
        [request.MetadataRequestTopic(name="t")],
        [request.MetadataRequestTopic(bytes(range(16)), None)],
    ):
        answer = await client.ask(request(topics), 12)
        assert (answer.brokers, answer.topics, answer.controller_id) == ([], [], -1)
