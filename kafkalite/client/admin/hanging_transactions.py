"""Transactions for operators: those of the coordinators, those that are open on partitions, and which of these hang.

`hanging` decides, without any I/O; `Transactions` asks.
"""

from __future__ import annotations

import asyncio
from collections.abc import Iterable, Mapping, Sequence
from typing import TypeVar

from kafkalite.client.admin.refusals import refuse
from kafkalite.client.async_client import AsyncClient
from kafkalite.client.messages import TRANSACTION
from kafkalite.errors import ApiError, ErrorCode, KafkaliteError, api_error, is_retriable
from kafkalite.extension.messages.open_transactions import (
    AbortTransactionRequest,
    AbortTransactionResponse,
    ListedTransaction,
    ListTransactionsRequest,
    ListTransactionsResponse,
    OpenTransactionsRequest,
    OpenTransactionsResponse,
    PartitionTransaction,
)
from kafkalite.lazy_dataclass import dataclass
from kafkalite.model import TRANSACTION_TOPIC, BrokerId, ProducerId, TopicPartition
from kafkalite.protocol import wire
from kafkalite.rpc.messages.base import Message, of_kind

#: Kafka's names of a transaction's states, all that a coordinator may report.
STATES = (
    "Empty", "Ongoing", "PrepareCommit", "PrepareAbort", "PrepareEpochFence", "CompleteCommit", "CompleteAbort", "Dead",
)  # fmt: skip
#: States in which a coordinator will end the transaction on each of its partitions: open, or decided.
_ENDING = frozenset({"Ongoing", "PrepareCommit", "PrepareAbort", "PrepareEpochFence"})

M = TypeVar("M", bound=Message)


@dataclass(frozen=True, slots=True)
class TransactionDescription:
    """`started_ms`: wall time; -1: no transaction is open. Partitions that the asking user may not see are left out."""

    transactional_id: str
    state: str
    producer_id: ProducerId
    producer_epoch: int
    timeout_ms: int
    started_ms: int
    partitions: tuple[tuple[str, int], ...]


@dataclass(frozen=True, slots=True)
class Coordinated:
    """What the coordinator of a transactional id knows."""

    transactional_id: str
    state: str
    partitions: frozenset[TopicPartition]


@dataclass(frozen=True, slots=True)
class Hanging:
    """An open transaction that will never end. `transactional_id` "": no coordinator knows the producer."""

    transaction: PartitionTransaction
    transactional_id: str
    reason: str


def hanging(
    transactions: Iterable[PartitionTransaction], coordinated: Mapping[ProducerId, Coordinated], min_open_ms: int
) -> list[Hanging]:
    """Those of `transactions`, open on a partition for at least `min_open_ms`, that their coordinator does not have open.

    Args:
        transactions: seen on the partitions BEFORE the coordinators were asked. A producer adds a partition to its
            transaction before it writes there, so what is open there and unknown to the coordinator either hangs, or was
            ended meanwhile: ask the partition again.
        coordinated: by producer id; every coordinator has answered.
    """
    found = []
    for each in transactions:
        if each.open_ms < min_open_ms:
            continue
        known = coordinated.get(each.producer_id)
        if known is None:
            found.append(Hanging(each, "", "no coordinator knows this producer"))
        elif known.state not in _ENDING:
            found.append(Hanging(each, known.transactional_id, f"its coordinator has it as {known.state}"))
        elif TopicPartition(each.topic, each.partition) not in known.partitions:
            reason = f"its coordinator has a transaction without this partition ({known.state})"
            found.append(Hanging(each, known.transactional_id, reason))
    return found


def _identity(each: PartitionTransaction) -> tuple[object, ...]:
    return each.topic, each.partition, each.producer_id, each.producer_epoch, each.start_offset


class TransactionAdmin:
    """Asks all nodes. Every method raises ApiError and RpcError."""

    def __init__(self, client: AsyncClient, *, timeout_s: float | None = None) -> None:
        self._client = client
        self._timeout_s = client.patience_s(timeout_s)

    async def listed(
        self, states: Sequence[str] = (), producer_ids: Sequence[ProducerId] = ()
    ) -> list[tuple[BrokerId, ListedTransaction]]:
        """(coordinator, transactional id), by name."""
        answers = await self._every(
            ListTransactionsRequest(tuple(states), tuple(producer_ids)), ListTransactionsResponse
        )
        found = [(node, each) for node, answer in answers.items() for each in answer.transactions]
        return sorted(found, key=lambda row: row[1].transactional_id)

    async def describe(self, transactional_id: str) -> tuple[BrokerId, TransactionDescription]:
        """(coordinator, transaction). Raises ApiError TRANSACTIONAL_ID_NOT_FOUND."""
        try:
            node, answer = await self._client.call_coordinator(
                TRANSACTION,
                transactional_id,
                wire.DescribeTransactionsRequest([transactional_id]),
                lambda each: (each.transaction_states[0].error_code, ""),
                timeout_s=self._timeout_s,
            )
        except ApiError as error:
            if error.code is not ErrorCode.TRANSACTIONAL_ID_NOT_FOUND:
                raise
            raise api_error(error.code, f"there is no transactional id {transactional_id!r}") from None
        [described] = answer.transaction_states
        partitions = tuple((topic.topic, number) for topic in described.topics for number in sorted(topic.partitions))
        return node, TransactionDescription(
            described.transactional_id,
            described.transaction_state,
            ProducerId(described.producer_id),
            described.producer_epoch,
            described.transaction_timeout_ms,
            described.transaction_start_time_ms if described.transaction_state in _ENDING else -1,
            partitions,
        )

    async def open(self, partitions: Iterable[TopicPartition] = ()) -> list[tuple[BrokerId, PartitionTransaction]]:
        """(leader, open transaction) of these partitions, or of all, by partition and first offset."""
        wanted = tuple((key.topic, key.partition) for key in sorted(partitions))
        answers = await self._every(OpenTransactionsRequest(wanted), OpenTransactionsResponse)
        found = [(node, each) for node, answer in answers.items() for each in answer.transactions]
        return sorted(found, key=lambda row: (row[1].topic, row[1].partition, row[1].start_offset))

    async def find_hanging(self, min_open_ms: int, *, topics: Sequence[str] = ()) -> list[tuple[BrokerId, Hanging]]:
        """(leader, hanging transaction), of these topics, or of all; see `hanging`."""
        before = [
            (node, each)
            for node, each in await self.open()
            if each.open_ms >= min_open_ms and (not topics or each.topic in topics)
        ]
        return await self._hanging(before, min_open_ms)

    async def _hanging(
        self, before: Sequence[tuple[BrokerId, PartitionTransaction]], min_open_ms: int
    ) -> list[tuple[BrokerId, Hanging]]:
        if not before:
            return []
        coordinated = await self._coordinated({each.producer_id for _, each in before})
        suspects = {
            _identity(each.transaction): each for each in hanging((t for _, t in before), coordinated, min_open_ms)
        }
        if not suspects:
            return []
        places = {TopicPartition(each.transaction.topic, each.transaction.partition) for each in suspects.values()}
        still_open = await self.open(places)
        return [(node, suspects[_identity(each)]) for node, each in still_open if _identity(each) in suspects]

    async def _coordinated(self, producer_ids: set[ProducerId]) -> dict[ProducerId, Coordinated]:
        """What the coordinators know of these producers. Raises ApiError unless all of them have answered, with everything."""
        deadline = self._client.now() + self._timeout_s
        attempts = 0
        while True:
            try:
                listed = await self._all_listed(producer_ids)
                break
            except ApiError as error:
                attempts += 1
                pause = self._client.backoff.pause_s(attempts)
                if not is_retriable(error.code) or self._client.now() + pause > deadline:
                    raise
            await asyncio.sleep(pause)
        known: dict[ProducerId, Coordinated] = {}
        for each in listed:
            try:
                _, described = await self.describe(each.transactional_id)
            except ApiError as error:
                if error.code is not ErrorCode.TRANSACTIONAL_ID_NOT_FOUND:
                    raise
                continue  # it has expired meanwhile
            if described.producer_id == each.producer_id:
                partitions = frozenset(TopicPartition(*key) for key in described.partitions)
                known[each.producer_id] = Coordinated(each.transactional_id, described.state, partitions)
        return known

    async def _all_listed(self, producer_ids: set[ProducerId]) -> list[ListedTransaction]:
        metadata = await self._client.metadata([TRANSACTION_TOPIC], timeout_s=self._timeout_s)
        topic = next((each for each in metadata.topics if not each.error), None)
        wanted = {each.partition for each in topic.partitions} if topic is not None else set()
        answers = await self._every(ListTransactionsRequest((), tuple(sorted(producer_ids))), ListTransactionsResponse)
        if any(answer.is_partial for answer in answers.values()):
            raise api_error(
                ErrorCode.TRANSACTIONAL_ID_AUTHORIZATION_FAILED,
                "transactional ids of open transactions may not be seen: finding hanging transactions needs DESCRIBE on them",
            )
        missing = wanted.difference(*(answer.coordinated for answer in answers.values()))
        if missing:
            raise api_error(
                ErrorCode.COORDINATOR_LOAD_IN_PROGRESS,
                f"no node coordinates {TRANSACTION_TOPIC}-{min(missing)} ({len(missing)} of {len(wanted)} partitions): "
                "hanging transactions cannot be found",
            )
        return [each for answer in answers.values() for each in answer.transactions]

    async def abort(
        self,
        partition: TopicPartition,
        *,
        start_offset: int | None = None,
        producer: tuple[ProducerId, int] | None = None,
        force: bool = False,
    ) -> PartitionTransaction:
        """End the transaction that begins at `start_offset`, or that of `producer` (id, epoch); returns what it was.

        Raises ApiError INVALID_TXN_STATE: there is none, or its coordinator has it open (unless `force`).
        """
        matching = [
            (node, each)
            for node, each in await self.open([partition])
            if each.start_offset == start_offset or (each.producer_id, each.producer_epoch) == producer
        ]
        if not matching:
            raise api_error(ErrorCode.INVALID_TXN_STATE, f"{partition} has no such open transaction")
        [(node, found)] = matching
        if not force and not await self._hanging(matching, 0):
            raise api_error(
                ErrorCode.INVALID_TXN_STATE,
                f"{partition}: its coordinator has the transaction of producer {found.producer_id} open, and ends it; "
                "it does not hang",
            )
        request = AbortTransactionRequest(
            found.topic, found.partition, found.producer_id, found.producer_epoch, found.coordinator_epoch
        )
        described = of_kind(
            await self._client.call_node(node, request, timeout_s=self._timeout_s), AbortTransactionResponse
        )
        refuse(described.error, described.message)
        return found

    async def _every(self, request: Message, answer: type[M]) -> dict[BrokerId, M]:
        """Every live node's answer. Raises the first error."""
        found: dict[BrokerId, M] = {}
        for node, each in (await self._client.every_node(request, timeout_s=self._timeout_s)).items():
            if isinstance(each, KafkaliteError):
                raise each
            response = of_kind(each, answer)
            refuse(response.error, response.message)  # type: ignore[attr-defined]  # every such response has both
            found[node] = response
        return found
