"""One connection without I/O: versions that both sides know, frames, and what is no response."""

from __future__ import annotations

from typing import Any

import pytest

from kafkalite.client.async_client import AsyncClient
from kafkalite.client.consumer import EARLIEST, Consumer
from kafkalite.client.exchange import Exchange, introduce
from kafkalite.client.messages import fetch_request, metadata_request, produce_request
from kafkalite.client.producer import Producer
from kafkalite.errors import ApiError, ErrorCode, ProtocolError
from kafkalite.extension.messages.watching import HealthRequest
from kafkalite.model import Endpoint, TopicPartition, numbers_by_topic
from kafkalite.protocol import wire
from kafkalite.protocol.codec import encode
from tests.fake_cluster import FakeCluster

PEER = Endpoint("h", 9092)
T0 = TopicPartition("t", 0)
#: What Kafka 2.1 offers of what is asked here: API key -> highest version.
KAFKA_2_1 = {0: 7, 1: 10, 2: 4, 3: 7, 10: 2, 18: 2, 19: 3, 20: 3, 22: 1}


def knowing(**versions: tuple[int, int]) -> Exchange:
    exchange = Exchange(PEER, "me")
    keys = {"Metadata": 3, "Fetch": 1, "Produce": 0, "Extension": 20_000}
    exchange.versions = {keys[name]: each for name, each in versions.items()}
    return exchange


def framed(number: int, body: bytes) -> bytes:
    return (len(body) + 4).to_bytes(4) + number.to_bytes(4) + body


@pytest.mark.parametrize(
    ("offered", "used"), [((0, 7), 7), ((0, 99), 13), ((4, 12), 12), ((12, 12), 12)], ids=lambda value: str(value)
)
def test_the_highest_version_that_both_know_is_used(offered: tuple[int, int], used: int) -> None:
    assert knowing(Metadata=offered).version_of("Metadata") == used
    _, [frame] = knowing(Metadata=offered).encode(metadata_request(["t"]))
    assert (frame[4:8], frame[8:12]) == (b"\0\3" + used.to_bytes(2), b"\0\0\0\1")
    assert int.from_bytes(frame[:4]) == len(frame) - 4


def test_what_is_not_for_clients_is_not_used() -> None:
    exchange = knowing(Fetch=(4, 17), Produce=(0, 12))
    assert (exchange.version_of("Fetch"), exchange.version_of("Produce")) == (12, 11)


@pytest.mark.parametrize(
    ("exchange", "request_", "text"),
    [
        (knowing(), HealthRequest(), "h:9092: this broker does not offer kafkalite's extension API"),
        (knowing(), metadata_request(()), "does not offer the API Metadata"),
        (knowing(Metadata=(14, 15)), metadata_request(()), "offers Metadata 14 to 15"),
    ],
)
def test_what_a_broker_does_not_know_is_not_sent(exchange: Exchange, request_: Any, text: str) -> None:
    with pytest.raises(ApiError, match=text) as refused:
        exchange.encode(request_)
    assert refused.value.code is ErrorCode.UNSUPPORTED_VERSION


def test_large_batches_are_not_copied() -> None:
    records = bytes(10_000)
    _, buffers = knowing(Produce=(0, 11)).encode(produce_request({T0: records}, -1, 1000))
    assert any(each is records for each in buffers)
    assert int.from_bytes(buffers[0][:4]) == sum(map(len, buffers)) - 4


def test_a_broker_that_does_not_know_our_question_for_versions_is_asked_again() -> None:
    exchange = Exchange(PEER, "me")
    asking = introduce(exchange)
    request, version = next(asking)
    assert version == 3
    number, _ = exchange.encode(request, version=version)
    refusal = (35).to_bytes(2) + bytes(4)
    [frame] = exchange.frames.feed(framed(number, refusal))
    request, version = asking.send(exchange.decode(frame)[1])
    assert version == 0
    number, _ = exchange.encode(request, version=version)
    answer = wire.ApiVersionsResponse(0, [wire.ApiVersionsResponse.ApiVersion(3, 0, 7)])
    [frame] = exchange.frames.feed(framed(number, encode(answer, 0)))
    with pytest.raises(StopIteration):
        asking.send(exchange.decode(frame)[1])
    assert exchange.versions == {3: (0, 7)}


def test_responses_are_views_of_what_came() -> None:
    exchange = knowing(Fetch=(4, 12))
    number, _ = exchange.encode(
        fetch_request({T0: 0}, {}, max_wait_ms=0, max_bytes=1, partition_max_bytes=1, isolation=0)
    )
    response = wire.FetchResponse
    part = response.PartitionData(0, aborted_transactions=None, records=b"x" * 100)
    body = encode(response(responses=[response.FetchableTopicResponse("t", partitions=[part])]), 12)
    data = framed(number, b"\1\5\2ab" + body)  # a tagged field in the header
    [frame] = exchange.frames.feed(data)
    found = exchange.decode(frame)[1].responses[0].partitions[0].records
    assert bytes(found) == b"x" * 100
    assert found.obj is data


@pytest.mark.parametrize("data", [framed(7, b"\0"), b"\0\0\0\1\0", b"\x7f\xff\xff\xff", b"HTTP/1.1 400"])
def test_what_was_not_asked_or_is_no_frame_is_an_error(data: bytes) -> None:
    exchange = knowing(Metadata=(0, 12))
    exchange.encode(metadata_request(()))
    with pytest.raises(ProtocolError):
        for frame in exchange.frames.feed(data):
            exchange.decode(frame)


def test_partitions_by_topic_keep_their_order() -> None:
    keys = [TopicPartition("b", 2), TopicPartition("a", 0), TopicPartition("b", 1)]
    assert numbers_by_topic(keys) == {"b": [2, 1], "a": [0]}


async def test_a_broker_that_offers_what_kafka_2_1_did_is_enough() -> None:
    async with FakeCluster(2) as cluster:
        for node in cluster.nodes.values():
            node.versions = {key: (0, highest) for key, highest in KAFKA_2_1.items()}
        cluster.create("t", 2)
        async with AsyncClient.connect(cluster.bootstrap) as client:
            async with Producer(client) as producer:
                sent = [await producer.send("t", None, b"%d" % n) for n in range(10)]
            assert all(each.result().offset >= 0 for each in sent)
            async with Consumer(client) as consumer:
                await consumer.assign_topics(["t"], EARLIEST)
                found: list[bytes | None] = []
                while len(found) < 10:
                    found += [record.value for record in await consumer.poll()]
            described = (await client.describe_topics(["t"])).topics[0]
            assert [each.elr for each in described.partitions] == [(), ()]


@pytest.mark.parametrize(
    ("request_", "version", "body"),
    [
        (metadata_request(()), 12, b""),  # no tagged fields of the header
        (metadata_request(()), 12, b"\x01"),
        (wire.ApiVersionsRequest("me", "1"), 3, b""),  # no error
        (wire.ApiVersionsRequest("me", "1"), 3, b"\0"),
    ],
)
def test_a_response_that_ends_early_is_no_response(request_: Any, version: int, body: bytes) -> None:
    exchange = knowing()
    number, _ = exchange.encode(request_, version=version)
    with pytest.raises(ProtocolError):
        exchange.decode(memoryview(number.to_bytes(4) + body))


def test_an_answer_of_ours_that_is_no_message_is_no_response() -> None:
    exchange = knowing(Extension=(0, 0))
    for body in (b"", b"\xc1", b"\x92\x01", b"\xff" * 9):
        number, _ = exchange.encode(HealthRequest())
        response = encode(wire.ExtensionResponse(body=body), 0)
        with pytest.raises(ProtocolError):
            exchange.decode(memoryview(number.to_bytes(4) + b"\0" + response))
