"""Transactions on the RPC listener, for operators: which are open, where, and how to end those that hang."""

from __future__ import annotations

from collections.abc import Awaitable, Callable, Mapping
from typing import Any

from kafkalite.coordinators.transactions.markers import Marker
from kafkalite.errors import ApiError, ErrorCode, api_error
from kafkalite.extension.messages.open_transactions import (
    AbortTransactionRequest,
    AbortTransactionResponse,
    DescribeTransactionRequest,
    DescribeTransactionResponse,
    ListedTransaction,
    ListTransactionsRequest,
    ListTransactionsResponse,
)
from kafkalite.kafka.broker_apis import KafkaSide
from kafkalite.model import TopicPartition
from kafkalite.rpc.handling import Handler, Reply, Request
from kafkalite.rpc.messages.base import Message
from kafkalite.telemetry.logs import get_logger

_log = get_logger(__name__)


class OpenTransactionsApi:
    """Handlers. Refusals are in the responses."""

    def __init__(self, kafka: Callable[[], KafkaSide]) -> None:
        self._kafka_side = kafka

    def handlers(self) -> Mapping[type[Message], Handler]:
        return {
            ListTransactionsRequest: _refusable(self._list, ListTransactionsResponse),
            DescribeTransactionRequest: _refusable(self._describe, DescribeTransactionResponse),
            AbortTransactionRequest: _refusable(self._abort, AbortTransactionResponse),
        }

    def _kafka(self) -> KafkaSide | None:
        """None: this node has no Kafka listener, so it coordinates nothing."""
        kafka = self._kafka_side()
        return kafka if kafka.is_coordinating else None

    async def _list(self, message: ListTransactionsRequest) -> ListTransactionsResponse:
        kafka = self._kafka()
        if kafka is None:
            return ListTransactionsResponse(ErrorCode.NONE)
        found = tuple(
            ListedTransaction(each.transactional_id, each.producer_id, each.state.wire_name)
            for each in kafka.transactions.transactions()
            if (not message.states or each.state.wire_name in message.states)
            and (not message.producer_ids or each.producer_id in message.producer_ids)
        )
        loaded = tuple(partition.index for partition in kafka.transactions.log.states())
        return ListTransactionsResponse(ErrorCode.NONE, transactions=found, coordinated=loaded)

    async def _describe(self, message: DescribeTransactionRequest) -> DescribeTransactionResponse:
        kafka = self._kafka()
        if kafka is None:
            raise api_error(ErrorCode.NOT_COORDINATOR)
        known = kafka.transactions.describe(message.transactional_id)
        return DescribeTransactionResponse(
            ErrorCode.NONE,
            "",
            known.transactional_id,
            known.state.wire_name,
            known.producer_id,
            known.producer_epoch,
            known.timeout_ms,
            known.started_ms if known.partitions else -1,
            tuple((each.topic, each.partition) for each in sorted(known.partitions)),
        )

    async def _abort(self, message: AbortTransactionRequest) -> AbortTransactionResponse:
        key = TopicPartition(message.topic, message.partition)
        marker = Marker(
            message.producer_id,
            message.producer_epoch,
            is_commit=False,
            coordinator_epoch=max(message.coordinator_epoch, 0),
            partitions=(key,),
        )
        errors = await self._kafka_side().markers.write(marker)
        error = errors[key]
        _log.warning(
            "transaction.aborted_by_operator",
            partition=str(key),
            producer_id=message.producer_id,
            producer_epoch=message.producer_epoch,
            error=error.name,
        )
        if error:
            raise api_error(error)
        return AbortTransactionResponse(ErrorCode.NONE)


def _refusable(serve: Callable[[Any], Awaitable[Message]], answer: Callable[[int, str], Message]) -> Handler:
    async def handle(request: Request) -> Reply:
        try:
            return Reply(await serve(request.message))
        except ApiError as error:
            return Reply(answer(error.code, str(error)))

    return handle
