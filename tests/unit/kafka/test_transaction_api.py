"""Transactions over the RPC listener: the blocking client against the handlers, with coordinators that move."""

from __future__ import annotations

import asyncio
from collections.abc import AsyncIterator, Callable
from typing import Any, TypeVar

import pytest
from kafkalite.node.transaction_api import TransactionApi
from kafkalite.rpc.messages.transactions import FindCoordinatorRequest

from kafkalite.client.blocking import BlockingClientConfig
from kafkalite.client.transactions import GroupVersion, TransactionalClient
from kafkalite.env.real import RealNetwork
from kafkalite.errors import ApiError, ErrorCode
from kafkalite.extension.messages.transactions import EndTxnGroupRequest, EndTxnGroupResponse, TransactionMember
from kafkalite.model import BrokerEpoch, BrokerId, TopicPartition
from kafkalite.replica.requests import InitProducerIdRequest, MetadataRequest, MetadataResponse
from kafkalite.rpc.handling import Reply, Request
from kafkalite.rpc.messages.base import Message
from kafkalite.rpc.messages.control import Broker as BrokerEntry
from kafkalite.rpc.server import Identity, RpcServer

from .conftest import Broker

E = ErrorCode
T = TypeVar("T")
T0 = TopicPartition("t", 0)
QUERY = GroupVersion("g", "q", 0)


class Metadata:
    """The part of a MetadataCache that the handlers use."""

    def partition(self, key: TopicPartition) -> object | None:
        return key if key == T0 else None


class Listener:
    """An RPC listener before a node's Kafka side. `refuse`: answers to give before the handlers are asked again."""

    def __init__(self, broker: Broker) -> None:
        self.broker = broker
        self.refuse: list[ErrorCode] = []
        self.asked: list[type[Message]] = []
        self.api = TransactionApi(lambda: broker.side, Metadata())  # type: ignore[arg-type]
        handlers: dict[type[Message], Any] = {
            kind: self._noted(handler) for kind, handler in self.api.handlers().items()
        }
        handlers[InitProducerIdRequest] = self._noted(lambda request: self.api.init_producer(request.message))
        handlers[MetadataRequest] = self._metadata
        self.server = RpcServer(
            network=RealNetwork(broker.fatal.append),
            supervisor=broker.supervisor,
            config=broker.services.config,
            identity=lambda: Identity("c", BrokerId(1), BrokerEpoch(1)),
            handlers=handlers,
        )

    def _noted(self, handler: Any) -> Any:
        async def handle(request: Request) -> Reply:
            self.asked.append(type(request.message))
            if self.refuse and isinstance(request.message, EndTxnGroupRequest):
                return Reply(EndTxnGroupResponse(self.refuse.pop()))
            answer: Reply = await handler(request)
            return answer

        return handle

    def _metadata(self, request: Request) -> Reply:
        broker = BrokerEntry(BrokerId(1), BrokerEpoch(1), "127.0.0.1", 1, "127.0.0.1", self.port)
        return Reply(MetadataResponse("c", BrokerId(1), (broker,), ()))

    async def start(self) -> Listener:
        self.port = (await self.server.start("127.0.0.1", 0)).port
        return self

    async def ask(self, work: Callable[[TransactionalClient], T]) -> T:
        def run() -> T:
            config = BlockingClientConfig(f"127.0.0.1:{self.port}", delivery_timeout_ms=10_000)
            with TransactionalClient(config) as client:
                return work(client)

        return await asyncio.to_thread(run)


@pytest.fixture
async def listener(broker: Broker) -> AsyncIterator[Listener]:
    await broker.create("t")
    made = await Listener(broker).start()
    yield made
    await made.server.close()


def prepare(client: TransactionalClient, member: str = "0-0") -> TransactionMember:
    opened = client.begin_transaction(QUERY, member, transaction_timeout_ms=60_000)
    assert opened is not None
    client.add_partitions(opened, [T0])
    return opened


@pytest.mark.checklist("F27")
async def test_begin_add_commit_and_then_it_is_decided(listener: Listener) -> None:
    def work(client: TransactionalClient) -> tuple[Any, ...]:
        members = [prepare(client), prepare(client, "1-0")]
        first = client.commit_group(QUERY, members, wait_ms=5_000)
        again = client.commit_group(QUERY, members, wait_ms=5_000)
        return first, again, client.begin_transaction(QUERY, "0-1", transaction_timeout_ms=60_000)

    first, again, late = await listener.ask(work)
    assert (first.was_decided, first.is_complete) == (False, True)
    assert (again.was_decided, again.is_complete) == (True, True)
    assert late is None
    assert listener.asked.count(FindCoordinatorRequest) <= 3  # one that counts, others while the topic was made


@pytest.mark.parametrize("code", [E.NOT_COORDINATOR, E.CONCURRENT_TRANSACTIONS, E.COORDINATOR_LOAD_IN_PROGRESS])
async def test_what_passes_is_asked_again_of_whoever_coordinates_by_then(listener: Listener, code: ErrorCode) -> None:
    listener.refuse = [code, code]
    assert not (await listener.ask(lambda client: client.commit_group(QUERY, [prepare(client)]))).was_decided
    assert listener.asked.count(EndTxnGroupRequest) == 3


@pytest.mark.checklist("F27")
async def test_refusals_reach_the_caller_with_their_reason(listener: Listener) -> None:
    def fenced(client: TransactionalClient) -> None:
        first = prepare(client)
        prepare(client)
        client.commit_group(QUERY, [first])

    with pytest.raises(ApiError, match="another attempt has taken its place") as told:
        await listener.ask(fenced)
    assert told.value.code is E.PRODUCER_FENCED

    def aborted(client: TransactionalClient) -> None:
        first = prepare(client)
        client.abort_group(QUERY, [first])
        client.add_partitions(first, [T0])

    with pytest.raises(ApiError) as told:
        await listener.ask(aborted)
    assert told.value.code is E.PRODUCER_FENCED


async def test_without_a_kafka_listener_it_says_so(listener: Listener) -> None:
    listener.broker.side.is_coordinating = False
    with pytest.raises(ApiError, match=r"kafka\.port") as told:
        await listener.ask(prepare)
    assert told.value.code is E.UNSUPPORTED_VERSION
