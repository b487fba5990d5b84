"""A listener in memory, and a client that speaks frames by hand."""

from __future__ import annotations

import asyncio
from collections.abc import AsyncIterator
from typing import Any

import pytest

from kafkalite.config import BrokerConfig
from kafkalite.env.real import RealClock, RealNetwork
from kafkalite.env.supervisor import Supervisor
from kafkalite.kafka import codec, wire
from kafkalite.kafka.broker_apis import KafkaSide
from kafkalite.kafka.schema import schemas
from kafkalite.record.builder import RecordBatchBuilder
from kafkalite.testing.memory_services import MemoryServices


class Broker:
    """The Kafka side of a node over services in memory."""

    def __init__(self, **settings: Any) -> None:
        defaults: dict[str, Any] = {
            "group_initial_rebalance_delay_ms": 0,
            "offsets_topic_num_partitions": 2,
            "transaction_state_log_num_partitions": 2,
        }
        self.fatal: list[BaseException] = []
        self.supervisor = Supervisor(self.fatal.append)
        config = BrokerConfig(**(defaults | settings))
        self.services = MemoryServices(config, RealClock(), RealNetwork(self.fatal.append), self.supervisor)
        self.side = KafkaSide(self.services)
        self.clients: list[Client] = []

    async def start(self) -> Broker:
        endpoint = await self.side.start("127.0.0.1", 0)
        self.services.kafka_endpoint = (endpoint.host, endpoint.port)
        return self

    async def client(self) -> Client:
        client = Client()
        await client.connect(*self.services.kafka_endpoint)
        self.clients.append(client)
        return client

    async def create(self, topic: str, partitions: int = 1) -> None:
        client = await self.client()
        request = wire.CreateTopicsRequest
        answer = await client.ask(request([request.CreatableTopic(topic, partitions, 1)], 1000), 4)
        assert answer.topics[0].error_code == 0
        client.close()

    async def close(self) -> None:
        for client in self.clients:
            client.close()
        await self.side.close()
        await self.supervisor.stop()
        assert not self.fatal


class Client:
    """Frames over a stream. `ask` sends and waits; `send` and `receive` do one of the two."""

    def __init__(self) -> None:
        self.correlation_id = 0
        self.asked: dict[int, tuple[str, int]] = {}

    async def connect(self, host: str, port: int) -> None:
        self.reader, self.writer = await asyncio.open_connection(host, port)

    def frame(self, message: Any, version: int) -> bytes:
        name = type(message).__name__
        schema = schemas()[name]
        self.correlation_id += 1
        self.asked[self.correlation_id] = (name.removesuffix("Request") + "Response", version)
        head = codec.encode(
            wire.RequestHeader(schema.api_key, version, self.correlation_id, "test"),
            2 if version in schema.flexible else 1,
        )
        body = head + codec.encode(message, version)
        return len(body).to_bytes(4) + body

    def send(self, message: Any, version: int) -> int:
        self.writer.write(self.frame(message, version))
        return self.correlation_id

    async def receive(self) -> tuple[int, Any]:
        size = int.from_bytes(await self.reader.readexactly(4))
        data = await self.reader.readexactly(size)
        correlation_id = int.from_bytes(data[:4])
        name, version = self.asked.pop(correlation_id)
        start = 4
        if name != "ApiVersionsResponse" and version in schemas()[name].flexible:
            assert data[4] == 0
            start = 5
        return correlation_id, codec.decode(name, version, data[start:])

    async def receive_raw(self) -> bytes:
        return await self.reader.readexactly(int.from_bytes(await self.reader.readexactly(4)))

    async def ask(self, message: Any, version: int) -> Any:
        sent = self.send(message, version)
        async with asyncio.timeout(10):
            correlation_id, answer = await self.receive()
        assert correlation_id == sent
        return answer

    async def is_closed(self) -> bool:
        """Whether the broker closes the connection (soon)."""
        try:
            async with asyncio.timeout(5):
                return await self.reader.read() == b""
        except ConnectionError:
            return True

    def close(self) -> None:
        self.writer.close()


@pytest.fixture
async def broker() -> AsyncIterator[Broker]:
    made = await Broker().start()
    yield made
    await made.close()


@pytest.fixture
async def make_broker() -> AsyncIterator[Any]:
    made: list[Broker] = []

    async def make(**settings: Any) -> Broker:
        made.append(await Broker(**settings).start())
        return made[-1]

    yield make
    for each in made:
        await each.close()


def batch(*values: bytes, **arguments: Any) -> bytearray:
    builder = RecordBatchBuilder(**arguments)
    for value in values:
        builder.append(None, value, (), 1_000)
    return bytearray(builder.build())


def produce(topic: str, *parts: tuple[int, bytes | None], acks: int = -1, **fields: Any) -> Any:
    request = wire.ProduceRequest
    data = [request.PartitionProduceData(index, records) for index, records in parts]
    return request(acks=acks, timeout_ms=1000, topic_data=[request.TopicProduceData(topic, data)], **fields)


def fetch(topic: str, offset: int = 0, partition: int = 0, **fields: Any) -> Any:
    request = wire.FetchRequest
    fields = {"max_wait_ms": 0, "min_bytes": 1, "max_bytes": 2**20} | fields
    part = request.FetchPartition(partition, fetch_offset=offset, partition_max_bytes=2**20)
    return request(topics=[request.FetchTopic(topic, partitions=[part])], **fields)


pytest.register_assert_rewrite(__name__)
