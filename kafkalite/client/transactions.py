"""Groups of transactions for the blocking client: several writers, one decision that commits all of them or none."""

from __future__ import annotations

from collections.abc import Callable, Iterable
from typing import Any, TypeVar

from kafkalite.client import messages
from kafkalite.client.blocking import BlockingClient
from kafkalite.client.exchange import Request
from kafkalite.extension.messages.transactions import (
    BeginTxnGroupRequest,
    BeginTxnGroupResponse,
    EndTxnGroupRequest,
    EndTxnGroupResponse,
    TransactionMember,
)
from kafkalite.extension.transaction_groups import group_of, transactional_id
from kafkalite.lazy_dataclass import dataclass
from kafkalite.model import TopicPartition
from kafkalite.rpc.messages.base import Message

M = TypeVar("M", bound=Message)


@dataclass(frozen=True, slots=True)
class GroupVersion:
    """What is decided: version `version` of `owner` in `group`."""

    group: str
    owner: str
    version: int

    def __str__(self) -> str:
        return f"batch {self.version} of {self.group}"


@dataclass(frozen=True, slots=True)
class Decided:
    """A version is decided already: nothing is to be written. `newest_version`: the owner's newest; -1: unknown."""

    newest_version: int


class TransactionalClient(BlockingClient):
    """A BlockingClient that finds coordinators, follows them, and repeats what is safe to repeat (all of it here is)."""

    def begin_transaction(
        self,
        wanted: GroupVersion,
        member: str,
        *,
        transaction_timeout_ms: int,
        writer: str = "",
        timeout_ms: int | None = None,
    ) -> TransactionMember | Decided:
        """Open the group's transaction `member`; an earlier owner is fenced and its records are aborted. Raises ApiError, RpcError.

        `writer`: if it has the transaction open already, that stays, and the error is INVALID_TXN_STATE.
        """
        name = transactional_id(wanted.group, member)
        request = BeginTxnGroupRequest(name, wanted.owner, wanted.version, transaction_timeout_ms, writer)
        answer = self._ask_group(wanted.group, request, BeginTxnGroupResponse, timeout_ms)
        if answer.is_decided:
            return Decided(answer.newest_version)
        return TransactionMember(name, answer.producer_id, answer.producer_epoch)

    def add_partitions(
        self, member: TransactionMember, partitions: Iterable[TopicPartition], *, timeout_ms: int | None = None
    ) -> None:
        """Before the first batch for each partition. Raises ApiError (PRODUCER_FENCED, ...), RpcError."""
        request = messages.add_partitions_request(
            member.transactional_id, member.producer_id, member.producer_epoch, partitions
        )
        group = group_of(member.transactional_id)
        assert group is not None
        self._ask(group, request, messages.first_added_error, timeout_ms)

    def commit_group(
        self,
        decided: GroupVersion,
        members: Iterable[TransactionMember],
        *,
        wait_ms: int = 0,
        timeout_ms: int | None = None,
    ) -> EndTxnGroupResponse:
        """Commit exactly `members`, all or none; see EndTxnGroupRequest. Raises ApiError, RpcError.

        The wait is at most half of the request's timeout: the decision holds when the answer comes, also where readers do not see it yet.
        """
        wait_ms = min(wait_ms, self.config.request_timeout_ms // 2)
        return self._end(decided, members, wait_ms, timeout_ms, is_commit=True)

    def abort_group(
        self, decided: GroupVersion, members: Iterable[TransactionMember], *, timeout_ms: int | None = None
    ) -> None:
        """Abort those of `members` that are open still. Raises ApiError, RpcError."""
        self._end(decided, members, 0, timeout_ms, is_commit=False)

    def _end(
        self,
        decided: GroupVersion,
        members: Iterable[TransactionMember],
        wait_ms: int,
        timeout_ms: int | None,
        *,
        is_commit: bool,
    ) -> EndTxnGroupResponse:
        request = EndTxnGroupRequest(decided.group, decided.owner, decided.version, tuple(members), is_commit, wait_ms)
        return self._ask_group(decided.group, request, EndTxnGroupResponse, timeout_ms)

    # --- inside ------------------------------------------------------------------------------

    def _ask_group(self, group: str, message: Message, answer_class: type[M], timeout_ms: int | None) -> M:
        response = self._ask(group, message, lambda each: (each.error, each.message), timeout_ms)
        assert isinstance(response, answer_class)
        return response

    def _ask(
        self, group: str, request: Request, error_of: Callable[[Any], tuple[int, str]], timeout_ms: int | None
    ) -> Any:
        # Any transactional id of the group finds its coordinator; a client that may use them may ask for this one, too.
        key = transactional_id(group, "")
        timeout_s = (timeout_ms or self.config.delivery_timeout_ms) / 1000
        return self.run(self.routing.to_coordinator(messages.TRANSACTION, key, request, error_of, timeout_s))[1]
