"""Groups of transactions as the blocking client asks for them on the Kafka listener, with coordinators that move."""

from __future__ import annotations

import asyncio
from collections.abc import Callable
from dataclasses import replace
from typing import Any, TypeVar

import pytest

from kafkalite.client.blocking import BlockingClientConfig
from kafkalite.client.transactions import Decided, GroupVersion, TransactionalClient
from kafkalite.errors import ApiError, ErrorCode
from kafkalite.extension.messages.transactions import EndTxnGroupResponse, TransactionMember
from kafkalite.model import TopicPartition
from kafkalite.protocol import wire
from kafkalite.rpc.codec import pack
from tests.support.failing import fails_with

from .conftest import Broker

E = ErrorCode
T = TypeVar("T")
T0 = TopicPartition("t", 0)
QUERY = GroupVersion("g", "q", 0)


class Listener:
    """A broker's listener that notes what it is asked. `refuse`: answers to EndTxnGroup before it is asked again."""

    def __init__(self, broker: Broker) -> None:
        self.broker = broker
        self.refuse: list[ErrorCode] = []
        self.asked: list[str] = []
        apis = broker.side.listener.apis
        for key, api in list(apis.items()):
            apis[key] = replace(api, handler=self._noted(api.name, api.handler))

    def _noted(self, name: str, handler: Any) -> Any:
        def handle(request: Any, message: Any) -> Any:
            kind = message.kind if name == "Extension" else name
            self.asked.append(kind)
            if self.refuse and kind == "EndTxnGroupRequest":
                return wire.ExtensionResponse(body=pack(EndTxnGroupResponse(self.refuse.pop())))
            return handler(request, message)

        return handle

    async def ask(self, work: Callable[[TransactionalClient], T]) -> T:
        def run() -> T:
            host, port = self.broker.services.kafka_endpoint
            config = BlockingClientConfig(f"{host}:{port}", delivery_timeout_ms=10_000)
            with TransactionalClient(config) as client:
                return work(client)

        return await asyncio.to_thread(run)


@pytest.fixture
async def listener(broker: Broker) -> Listener:
    await broker.create("t")
    return Listener(broker)


def prepare(client: TransactionalClient, member: str = "0-0") -> TransactionMember:
    opened = client.begin_transaction(QUERY, member, transaction_timeout_ms=60_000)
    assert isinstance(opened, TransactionMember)
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
    assert late == Decided(QUERY.version)
    assert listener.asked.count("FindCoordinator") <= 3  # one that counts, others while the topic was made


@pytest.mark.parametrize("code", [E.NOT_COORDINATOR, E.CONCURRENT_TRANSACTIONS, E.COORDINATOR_LOAD_IN_PROGRESS])
async def test_what_passes_is_asked_again_of_whoever_coordinates_by_then(listener: Listener, code: ErrorCode) -> None:
    listener.refuse = [code, code]
    assert not (await listener.ask(lambda client: client.commit_group(QUERY, [prepare(client)]))).was_decided
    assert listener.asked.count("EndTxnGroupRequest") == 3


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

    with fails_with(E.PRODUCER_FENCED):
        await listener.ask(aborted)
