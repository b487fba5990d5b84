"""Requests of the extension API that the transaction coordinator serves. Refusals are in the responses."""

from __future__ import annotations

from collections.abc import Generator, Mapping

from kafkalite.coordination.coordinator import CoordinatorError
from kafkalite.coordinators.services import ExtensionHandler
from kafkalite.coordinators.transactions.coordinator import TransactionCoordinator
from kafkalite.coordinators.transactions.decisions import Decision
from kafkalite.coordinators.transactions.groups import TransactionGroups
from kafkalite.coordinators.transactions.markers import LocalMarkers, Marker
from kafkalite.env.turns import result_of
from kafkalite.errors import ApiError, ErrorCode
from kafkalite.extension.messages.open_transactions import (
    AbortTransactionRequest,
    AbortTransactionResponse,
    ListedTransaction,
    ListTransactionsRequest,
    ListTransactionsResponse,
)
from kafkalite.extension.messages.transactions import (
    BeginTxnGroupRequest,
    BeginTxnGroupResponse,
    EndTxnGroupRequest,
    EndTxnGroupResponse,
)
from kafkalite.model import TopicPartition
from kafkalite.rpc.messages.base import Message
from kafkalite.telemetry.logs import get_logger

_log = get_logger(__name__)

#: Transactions that are looked at between two yields: less than a millisecond.
_STEP = 500


class TransactionExtension:
    """Handlers by class of request. Those of a node that leads a partition are here, too."""

    def __init__(self, transactions: TransactionCoordinator, groups: TransactionGroups, markers: LocalMarkers) -> None:
        self._markers = markers
        self._transactions = transactions
        self._groups = groups

    def handlers(self) -> Mapping[type[Message], ExtensionHandler]:
        return {
            BeginTxnGroupRequest: self.begin,
            EndTxnGroupRequest: self.end,
            ListTransactionsRequest: self.list,
            AbortTransactionRequest: self.abort,
        }

    async def begin(self, message: BeginTxnGroupRequest) -> BeginTxnGroupResponse:
        try:
            granted = await self._groups.begin(
                message.transactional_id,
                message.transaction_timeout_ms,
                message.owner,
                message.version,
                message.writer,
            )
        except ApiError as error:
            return BeginTxnGroupResponse(error.code, str(error))
        except CoordinatorError as error:
            return BeginTxnGroupResponse(ErrorCode.COORDINATOR_NOT_AVAILABLE, str(error))
        if isinstance(granted, Decision):
            return BeginTxnGroupResponse(ErrorCode.NONE, is_decided=True, newest_version=granted.version)
        producer_id, epoch = granted
        return BeginTxnGroupResponse(ErrorCode.NONE, "", producer_id, epoch)

    async def end(self, message: EndTxnGroupRequest) -> EndTxnGroupResponse:
        try:
            return await self._groups.end(message)
        except ApiError as error:
            return EndTxnGroupResponse(error.code, message=str(error))

    async def list(self, message: ListTransactionsRequest) -> ListTransactionsResponse:
        return await result_of(self._listing(message))

    def _listing(self, message: ListTransactionsRequest) -> Generator[None, None, ListTransactionsResponse]:
        """In steps: anybody may ask, and a node may coordinate many transactional ids."""
        log = self._transactions.log
        loaded = list(log.states())
        states, producer_ids = set(message.states), set(message.producer_ids)
        found: list[ListedTransaction] = []
        for number, each in enumerate(self._transactions.transactions(), 1):
            if (not states or each.state.wire_name in states) and (
                not producer_ids or each.producer_id in producer_ids
            ):
                found.append(ListedTransaction(each.transactional_id, each.producer_id, each.state.wire_name))
            if not number % _STEP:
                yield
        coordinated = tuple(each.index for each in loaded if log.ready_state(each.index) is each)
        return ListTransactionsResponse(ErrorCode.NONE, transactions=tuple(found), coordinated=coordinated)

    async def abort(self, message: AbortTransactionRequest) -> AbortTransactionResponse:
        key = TopicPartition(message.topic, message.partition)
        marker = Marker(
            message.producer_id,
            message.producer_epoch,
            is_commit=False,
            coordinator_epoch=max(message.coordinator_epoch, 0),
            partitions=(key,),
        )
        error = (await self._markers.write(marker))[key]
        _log.warning(
            "transaction.aborted_by_operator",
            partition=str(key),
            producer_id=message.producer_id,
            producer_epoch=message.producer_epoch,
            error=error.name,
        )
        return AbortTransactionResponse(error, error.name if error else "")
