"""Groups of transactions: the blocking client against a coordinator that refuses, or has something else to do."""

from __future__ import annotations

import asyncio
from collections.abc import Callable
from typing import Any, TypeVar

import pytest

from kafkalite.client.blocking import BlockingClientConfig
from kafkalite.client.transactions import GroupVersion, TransactionalClient
from kafkalite.coordinators.transactions.groups import TransactionGroups
from kafkalite.errors import ApiError, ErrorCode
from kafkalite.extension.messages.transactions import EndTxnGroupRequest, EndTxnGroupResponse, TransactionMember
from kafkalite.model import TopicPartition

from .conftest import Broker

E = ErrorCode
T = TypeVar("T")
T0 = TopicPartition("t", 0)
QUERY = GroupVersion("g", "q", 0)


class Coordinator:
    """A broker with topic t. `refuse`: answers to give to the end of a group before it is really asked."""

    def __init__(self, broker: Broker, patch: pytest.MonkeyPatch) -> None:
        self.broker = broker
        self.refuse: list[ErrorCode] = []
        self.ends = 0
        end = TransactionGroups.end

        async def ending(groups: TransactionGroups, request: EndTxnGroupRequest) -> EndTxnGroupResponse:
            self.ends += 1
            return EndTxnGroupResponse(self.refuse.pop()) if self.refuse else await end(groups, request)

        patch.setattr(TransactionGroups, "end", ending)

    async def ask(self, work: Callable[[TransactionalClient], T]) -> T:
        host, port = self.broker.services.kafka_endpoint

        def run() -> T:
            with TransactionalClient(BlockingClientConfig(f"{host}:{port}", delivery_timeout_ms=10_000)) as client:
                return work(client)

        return await asyncio.to_thread(run)


@pytest.fixture
async def listener(broker: Broker, monkeypatch: pytest.MonkeyPatch) -> Coordinator:
    await broker.create("t")
    return Coordinator(broker, monkeypatch)


def prepare(client: TransactionalClient, member: str = "0-0") -> TransactionMember:
    opened = client.begin_transaction(QUERY, member, transaction_timeout_ms=60_000)
    assert opened is not None
    client.add_partitions(opened, [T0])
    return opened


@pytest.mark.checklist("F27")
async def test_begin_add_commit_and_then_it_is_decided(listener: Coordinator) -> None:
    def work(client: TransactionalClient) -> tuple[Any, ...]:
        members = [prepare(client), prepare(client, "1-0")]
        first = client.commit_group(QUERY, members, wait_ms=5_000)
        again = client.commit_group(QUERY, members, wait_ms=5_000)
        return first, again, client.begin_transaction(QUERY, "0-1", transaction_timeout_ms=60_000)

    first, again, late = await listener.ask(work)
    assert (first.was_decided, first.is_complete) == (False, True)
    assert (again.was_decided, again.is_complete) == (True, True)
    assert late is None
    found = listener.broker.side.listener.requests.by_api["FindCoordinator"]
    assert sum(found.total.counts) <= 3  # one that counts, others while the topic was made


@pytest.mark.parametrize("code", [E.NOT_COORDINATOR, E.CONCURRENT_TRANSACTIONS, E.COORDINATOR_LOAD_IN_PROGRESS])
async def test_what_passes_is_asked_again_of_whoever_coordinates_by_then(
    listener: Coordinator, code: ErrorCode
) -> None:
    listener.refuse = [code, code]
    assert not (await listener.ask(lambda client: client.commit_group(QUERY, [prepare(client)]))).was_decided
    assert listener.ends == 3


@pytest.mark.checklist("F27")
async def test_refusals_reach_the_caller_with_their_reason(listener: Coordinator) -> None:
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
