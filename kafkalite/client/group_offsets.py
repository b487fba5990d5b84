"""Offsets of a group without members, committed by whoever reads for it."""

from __future__ import annotations

from collections.abc import Mapping

from kafkalite.client.transactions import TransactionalClient
from kafkalite.errors import ErrorCode, KafkaliteError, api_error, error_code, is_retriable
from kafkalite.model import BrokerId, Offset, TopicPartition
from kafkalite.rpc.answers import RpcError
from kafkalite.rpc.messages.groups import CommitOffsetsRequest, CommitOffsetsResponse, GroupOffset


class OffsetsClient(TransactionalClient):
    """A TransactionalClient that commits offsets, too."""

    _group_coordinators: dict[str, BrokerId] | None = None

    def commit_offsets(
        self, group_id: str, offsets: Mapping[TopicPartition, int], *, timeout_ms: int | None = None
    ) -> None:
        """All of them, or an error. Raises ApiError (UNKNOWN_MEMBER_ID: the group has members of its own), RpcError."""
        deadline = self._deadline(timeout_ms or self.config.request_timeout_ms)
        wanted = tuple(GroupOffset(tp.topic, tp.partition, Offset(offset)) for tp, offset in sorted(offsets.items()))
        request = CommitOffsetsRequest(group_id, wanted)
        known = self._group_coordinators = self._group_coordinators if self._group_coordinators is not None else {}
        attempts = 0
        while True:
            error: KafkaliteError
            try:
                node = known.get(group_id)
                if node is None:
                    node = known[group_id] = self._find(group_id, deadline, is_consumer_group=True)
                answer, _ = self._call_node(node, request, (), deadline)
                assert isinstance(answer, CommitOffsetsResponse)
                code, where = error_code(answer.error), answer.message
                if code is ErrorCode.NONE and answer.partitions:
                    refused = answer.partitions[0]
                    code, where = error_code(refused.error), f"{refused.topic}-{refused.partition}"
                if code is ErrorCode.NONE:
                    return
                error = api_error(code, f"{where}: {code.name}")
                if not is_retriable(code):
                    raise error
            except RpcError as failure:
                error = failure
            known.pop(group_id, None)  # another node may coordinate it now
            attempts += 1
            self._pause(attempts, deadline, error)
