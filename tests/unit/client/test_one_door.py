"""The client against the Kafka listener itself: its services in memory, its protocol real."""

from __future__ import annotations

import asyncio
from collections.abc import AsyncIterator

import pytest

from kafkalite.client.async_client import AsyncClient
from kafkalite.env.seams import ConnectionHandler
from kafkalite.errors import ApiError, ErrorCode
from kafkalite.extension.messages.topics import NewTopic
from kafkalite.extension.messages.watching import HealthRequest
from kafkalite.model import EARLIEST_TIMESTAMP, LATEST_TIMESTAMP, BrokerId, TopicPartition
from kafkalite.rpc.answers import RpcError
from tests.unit.kafka.conftest import Broker, batch, produce

KEY = TopicPartition("t", 0)


@pytest.fixture
async def broker() -> AsyncIterator[Broker]:
    made = await Broker().start()
    yield made
    await made.close()


def address(broker: Broker) -> str:
    host, port = broker.services.kafka_endpoint
    return f"{host}:{port}"


async def test_topics_offsets_and_records(broker: Broker) -> None:
    async with AsyncClient.connect(address(broker)) as client:
        [created] = await client.create_topics([NewTopic("t", 2, 1)])
        assert (created.error, created.partitions, created.replication_factor) == (0, 2, 1)
        [again] = await client.create_topics([NewTopic("t", 2, 1)])
        assert again.error == ErrorCode.TOPIC_ALREADY_EXISTS
        told = await client.metadata(["t"])
        assert [p.leader for p in told.topics[0].partitions] == [1, 1]
        assert told.brokers[0].endpoint.port == broker.services.kafka_endpoint[1]
        records = batch(b"one", b"x" * 10_000)
        response = await client.call_leader(BrokerId(1), produce("t", (0, records)), [KEY], timeout_s=150)
        assert response.responses[0].partition_responses[0].base_offset == 0
        fetched, found = await client.fetch_raw(KEY, 0)
        assert (fetched.high_watermark, fetched.log_start_offset, len(found)) == (2, 0, fetched.records_size)
        assert isinstance(found, memoryview) and bytes(found[61:]) == bytes(records[61:])
        offsets = await client.list_offsets({KEY: LATEST_TIMESTAMP, TopicPartition("t", 1): EARLIEST_TIMESTAMP})
        assert {key: each.offset for key, each in offsets.items()} == {KEY: 2, ("t", 1): 0}
        with pytest.raises(ApiError, match="OFFSET_OUT_OF_RANGE at offset 9"):
            await client.fetch_raw(KEY, 9)
        [deleted] = await client.delete_topics(["t"])
        assert deleted.error == 0
        with pytest.raises(ApiError, match="there is no topic 't2'") as unknown:
            await client.known_topic("t2", timeout_s=5)
        assert unknown.value.code is ErrorCode.UNKNOWN_TOPIC_OR_PARTITION


async def test_producer_ids_are_given_and_those_of_a_transaction_are_fenced(broker: Broker) -> None:
    async with AsyncClient.connect(address(broker)) as client:
        first, second = await client.init_producer_id(), await client.init_producer_id()
        assert first[0] != second[0] and first[1] == second[1] == 0
        first, second = await client.init_producer_id("txn"), await client.init_producer_id("txn")
        assert first[0] == second[0] and (first[1], second[1]) == (0, 1)


async def test_a_broker_without_the_extension_api_is_named(broker: Broker) -> None:
    broker.side.listener.apis.pop(20_000)
    async with AsyncClient.connect(address(broker)) as client:
        with pytest.raises(ApiError, match="does not offer kafkalite's extension API"):
            await client.call_any(HealthRequest(), timeout_s=150)


async def listening(handler: ConnectionHandler) -> tuple[asyncio.Server, str]:
    server = await asyncio.start_server(handler, "127.0.0.1", 0)
    host, port = server.sockets[0].getsockname()
    return server, f"{host}:{port}"


@pytest.mark.parametrize(
    ("answer", "text"),
    [
        (b"", "not a Kafka listener"),
        (b"HTTP/1.1 400 Bad Request\r\n\r\n", "answers in HTTP"),
        (b"\x15\x03\x01\x00\x02\x02\x46", "answers in TLS"),
        (b"\0\0\0\x08\0\0\0\0\0\0\0\0", "not a Kafka listener"),
    ],
)
async def test_a_port_that_is_no_kafka_listener_is_named(answer: bytes, text: str) -> None:
    async def handle(reader: asyncio.StreamReader, writer: asyncio.StreamWriter) -> None:
        await reader.read(10)
        writer.write(answer)
        writer.close()

    server, where = await listening(handle)
    async with AsyncClient.connect(where) as client:
        said, wait_s = "", 0.2
        while text not in said and wait_s < 60:  # a busy machine may have heard nothing yet
            with pytest.raises(RpcError) as refusal:
                await client.metadata(timeout_s=wait_s)
            said, wait_s = str(refusal.value), wait_s * 4
        assert text in said
    server.close()
