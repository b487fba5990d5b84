"""Offsets of a group without members, committed by whoever reads for it."""

from __future__ import annotations

from collections.abc import Mapping

from kafkalite.client.blocking import left_ms
from kafkalite.client.transactions import TransactionalClient
from kafkalite.errors import ErrorCode, KafkaliteError, api_error, is_retriable
from kafkalite.model import BrokerId, Offset, TopicPartition
from kafkalite.rpc.answers import RpcError, error_code
from kafkalite.rpc.messages import OffsetCommitRequest, OffsetCommitResponse, OffsetToCommit

_ELSEWHERE = frozenset({ErrorCode.NOT_COORDINATOR})


class OffsetsClient(TransactionalClient):
    """A TransactionalClient that commits offsets, too."""

    _group_coordinators: dict[str, BrokerId] | None = None

    def commit_offsets(
        self, group_id: str, offsets: Mapping[TopicPartition, int], *, timeout_ms: int | None = None
    ) -> None:
        """All of them, or an error. Raises ApiError (UNKNOWN_MEMBER_ID: the group has members of its own), RpcError."""
        deadline = self._deadline(timeout_ms or self.config.request_timeout_ms)
        wanted = tuple(OffsetToCommit(tp.topic, tp.partition, Offset(offset)) for tp, offset in sorted(offsets.items()))
        request = OffsetCommitRequest(group_id, wanted)
        known = self._group_coordinators = self._group_coordinators if self._group_coordinators is not None else {}
        attempts = 0
        while True:
            error: KafkaliteError
            node = known.pop(group_id, None)
            try:
                if node is None:
                    answer = self.call_any(request, OffsetCommitResponse, timeout_ms=left_ms(deadline))
                else:
                    got, _ = self._call_node(node, request, (), deadline)
                    assert isinstance(got, OffsetCommitResponse)
                    answer = got
                code = error_code(answer.error)
                if answer.node_id >= 0:
                    known[group_id] = answer.node_id
                if code is ErrorCode.NONE:
                    return
                error = api_error(code, answer.message)
                if code in _ELSEWHERE and answer.node_id not in (node, BrokerId(-1)):
                    if node is None:
                        self.metadata((), timeout_ms=left_ms(deadline))  # where that node is
                    continue
                if not is_retriable(code):
                    raise error
            except RpcError as failure:
                error = failure
            attempts += 1
            self._pause(attempts, deadline, error)
