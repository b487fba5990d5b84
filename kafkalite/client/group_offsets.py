"""Offsets of a group without members, committed by the process that reads for it."""

from __future__ import annotations

from collections.abc import Mapping

from kafkalite.client import messages
from kafkalite.client.transactions import TransactionalClient
from kafkalite.model import TopicPartition


class OffsetsClient(TransactionalClient):
    """A TransactionalClient that commits offsets, too."""

    def commit_offsets(
        self, group_id: str, offsets: Mapping[TopicPartition, int], *, timeout_ms: int | None = None
    ) -> None:
        """All of them, or an error. Raises ApiError (UNKNOWN_MEMBER_ID: the group has members of its own), RpcError."""
        request = messages.commit_offsets_request(group_id, offsets)
        timeout_s = self._request_s(timeout_ms)
        self.run(self.routing.to_coordinator(messages.GROUP, group_id, request, messages.first_commit_error, timeout_s))
