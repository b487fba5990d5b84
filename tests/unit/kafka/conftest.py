"""A listener in memory."""

from __future__ import annotations

import contextlib
from collections.abc import AsyncIterator, Awaitable, Callable
from typing import Any

import pytest

from kafkalite.config import BrokerConfig
from kafkalite.env.real import RealClock
from kafkalite.env.real_network import RealNetwork
from kafkalite.env.supervisor import Supervisor
from kafkalite.kafka.broker_apis import KafkaSide
from kafkalite.model import Buffer
from kafkalite.protocol import wire
from kafkalite.record.builder import RecordBatchBuilder
from kafkalite.testing.kafka_client import FrameClient
from tests.support.memory_services import MemoryServices
from tests.support.security import listener_security


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
        self.clients: list[FrameClient] = []

    async def start(self) -> Broker:
        endpoint = await self.side.start("127.0.0.1", 0)
        self.services.kafka_endpoint = (endpoint.host, endpoint.port)
        return self

    async def client(self) -> FrameClient:
        client = FrameClient()
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


@contextlib.asynccontextmanager
async def sasl_brokers() -> AsyncIterator[Callable[..., Awaitable[Broker]]]:
    """Starts brokers whose clients have to log in; they end with the block."""
    brokers: list[Broker] = []

    async def started(**changes: Any) -> Broker:
        broker = Broker()
        broker.services.security["PLAINTEXT"] = listener_security(**changes)
        brokers.append(await broker.start())
        return broker

    yield started
    for broker in brokers:
        await broker.close()


def batch(*values: bytes, **arguments: Any) -> bytearray:
    builder = RecordBatchBuilder(**arguments)
    for value in values:
        builder.append(None, value, (), 1_000)
    return bytearray(builder.build())


def produce(
    topic: str, *parts: tuple[int, Buffer | None], acks: int = -1, timeout_ms: int = 1000, **fields: Any
) -> Any:
    request = wire.ProduceRequest
    data = [request.PartitionProduceData(index, records) for index, records in parts]
    return request(
        acks=acks, timeout_ms=timeout_ms, topic_data=[request.TopicProduceData(topic, partition_data=data)], **fields
    )


def fetch(topic: str, offset: int = 0, partition: int = 0, **fields: Any) -> Any:
    request = wire.FetchRequest
    fields = {"max_wait_ms": 0, "min_bytes": 1, "max_bytes": 2**20} | fields
    part = request.FetchPartition(partition, fetch_offset=offset, partition_max_bytes=2**20)
    return request(topics=[request.FetchTopic(topic, partitions=[part])], **fields)


__all__ = ["Broker", "FrameClient", "batch", "fetch", "produce"]

pytest.register_assert_rewrite(__name__)
