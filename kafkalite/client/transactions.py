"""Groups of transactions for the blocking client: several writers, one decision that commits all of them or none."""

from __future__ import annotations

from collections.abc import Iterable
from typing import TypeVar

from kafkalite.client.blocking import BlockingClient, left_ms
from kafkalite.errors import ApiError, ErrorCode, KafkaliteError, ProtocolError, api_error, error_code, is_retriable
from kafkalite.extension.messages.transactions import EndTxnGroupRequest, EndTxnGroupResponse, TransactionMember
from kafkalite.lazy_dataclass import dataclass
from kafkalite.model import BrokerId, ProducerId, TopicPartition
from kafkalite.rpc.answers import RpcError
from kafkalite.rpc.messages.base import Message
from kafkalite.rpc.messages.data import InitProducerIdRequest, InitProducerIdResponse
from kafkalite.rpc.messages.transactions import (
    AddPartitionsToTxnRequest,
    AddPartitionsToTxnResponse,
    FindCoordinatorRequest,
    FindCoordinatorResponse,
)
from kafkalite.rpc.transaction_groups import coordinator_key, transactional_id

M = TypeVar("M", bound=Message)

#: Every batch write is a group of its own.
_COORDINATORS_KEPT = 1000
#: These say that another node is the coordinator by now, or is about to be.
_FIND_AGAIN = frozenset(
    {ErrorCode.NOT_COORDINATOR, ErrorCode.COORDINATOR_NOT_AVAILABLE, ErrorCode.COORDINATOR_LOAD_IN_PROGRESS}
)


@dataclass(frozen=True, slots=True)
class GroupVersion:
    """What is decided: version `version` of `owner` in `group`."""

    group: str
    owner: str
    version: int

    def __str__(self) -> str:
        return f"batch {self.version} of {self.group}"


class TransactionalClient(BlockingClient):
    """A BlockingClient that finds coordinators, follows them, and repeats what is safe to repeat (all of it here is)."""

    _coordinators: dict[str, BrokerId] | None = None

    def begin_transaction(
        self, wanted: GroupVersion, member: str, *, transaction_timeout_ms: int, timeout_ms: int | None = None
    ) -> TransactionMember | None:
        """Open the group's transaction `member`; whoever had it open is fenced and what it wrote is aborted.

        None: the version is decided already, nothing is to be written. Raises ApiError, RpcError.
        """
        name = transactional_id(wanted.group, member)
        request = InitProducerIdRequest(
            name,
            transaction_timeout_ms,
            group_owner=wanted.owner,
            group_version=wanted.version,
        )
        answer = self._ask_coordinator(name, request, InitProducerIdResponse, timeout_ms)
        if answer.is_decided:
            return None
        return TransactionMember(name, answer.producer_id, answer.producer_epoch)

    def add_partitions(
        self, member: TransactionMember, partitions: Iterable[TopicPartition], *, timeout_ms: int | None = None
    ) -> None:
        """Before the first batch for each partition. Raises ApiError (PRODUCER_FENCED, ...), RpcError."""
        wanted = tuple((tp.topic, tp.partition) for tp in sorted(partitions))
        producer = (ProducerId(member.producer_id), member.producer_epoch)
        request = AddPartitionsToTxnRequest(member.transactional_id, *producer, wanted)
        self._ask_coordinator(member.transactional_id, request, AddPartitionsToTxnResponse, timeout_ms)

    def commit_group(
        self,
        decided: GroupVersion,
        members: Iterable[TransactionMember],
        *,
        wait_ms: int = 0,
        timeout_ms: int | None = None,
    ) -> EndTxnGroupResponse:
        """Commit exactly `members`, all or none; see EndTxnGroupRequest. Raises ApiError, RpcError."""
        return self._end(decided, members, True, wait_ms, timeout_ms)

    def abort_group(
        self, decided: GroupVersion, members: Iterable[TransactionMember], *, timeout_ms: int | None = None
    ) -> None:
        """Abort those of `members` that are open still. Raises ApiError, RpcError."""
        self._end(decided, members, False, 0, timeout_ms)

    def _end(
        self,
        decided: GroupVersion,
        members: Iterable[TransactionMember],
        is_commit: bool,
        wait_ms: int,
        timeout_ms: int | None,
    ) -> EndTxnGroupResponse:
        request = EndTxnGroupRequest(decided.group, decided.owner, decided.version, tuple(members), is_commit, wait_ms)
        return self._ask_coordinator(decided.group, request, EndTxnGroupResponse, timeout_ms)

    # --- inside ------------------------------------------------------------------------------

    def _ask_coordinator(self, key: str, message: Message, answer_class: type[M], timeout_ms: int | None) -> M:
        deadline = self._deadline(timeout_ms or self.config.delivery_timeout_ms)
        key = coordinator_key(key)
        known = self._coordinators = self._coordinators if self._coordinators is not None else {}
        if len(known) > _COORDINATORS_KEPT:
            known.clear()
        attempts = 0
        while True:
            error: KafkaliteError
            try:
                node = known.get(key)
                if node is None:
                    node = known[key] = self._find(key, deadline)
                answer, _ = self._call_node(node, message, (), deadline)
                if not isinstance(answer, answer_class):
                    raise ProtocolError(f"{type(answer).__name__} as answer to {type(message).__name__}")
                code = error_code(answer.error)  # type: ignore[attr-defined]
                if code is ErrorCode.NONE:
                    return answer
                error = api_error(code, answer.message)  # type: ignore[attr-defined]
                if not is_retriable(code):
                    raise error
                if code in _FIND_AGAIN:
                    known.pop(key, None)
            except RpcError as failure:
                known.pop(key, None)
                error = failure
            except ApiError as refusal:
                if not is_retriable(refusal.code):
                    raise
                error = refusal
            attempts += 1
            self._pause(attempts, deadline, error)

    def _find(self, key: str, deadline: float, *, is_consumer_group: bool = False) -> BrokerId:
        """Raises ApiError, RpcError."""
        request = FindCoordinatorRequest(key, is_consumer_group)
        attempts = 0
        while True:
            left = left_ms(deadline)
            answer = self.call_any(request, FindCoordinatorResponse, timeout_ms=left)
            code = error_code(answer.error)
            if code is ErrorCode.NONE:
                if self.view.endpoint(answer.node_id) is None:
                    self.metadata((), timeout_ms=left)
                return answer.node_id
            error = api_error(code, f"no coordinator for {key}: {answer.message}")
            if not is_retriable(code):
                raise error
            attempts += 1
            self._pause(attempts, deadline, error)
