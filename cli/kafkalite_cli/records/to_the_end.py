"""`consume --exit-at-end`: where the end is, and when to stop waiting for it."""

from __future__ import annotations

from collections.abc import Mapping, Sequence

from kafkalite.client.async_client import AsyncClient
from kafkalite.client.consumer import Consumer
from kafkalite.errors import ErrorCode, api_error
from kafkalite.model import TopicPartition

#: Partitions that are named in an error.
_MAX_NAMED = 10


class ToTheEnd:
    """The ends of partitions as they were at the beginning.

    Nothing may be read for the client's `timeout_s` before them.

    Args:
        ends: the offset after the last record, by partition.
    """

    def __init__(self, client: AsyncClient, consumer: Consumer, ends: Mapping[TopicPartition, int]) -> None:
        self._client = client
        self._consumer = consumer
        self._ends = ends
        self._positions: dict[TopicPartition, int] = {}
        self._moved_at = client.now()

    @staticmethod
    async def of(client: AsyncClient, consumer: Consumer, keys: Sequence[TopicPartition]) -> ToTheEnd:
        """The ends of these partitions now, as this consumer can reach them. Raises ApiError, RpcError."""
        ends = await client.end_offsets(keys, isolation=consumer.isolation)
        return ToTheEnd(client, consumer, ends)

    def is_before(self, key: TopicPartition, offset: int) -> bool:
        """Whether a record was there at the beginning."""
        return offset < self._ends[key]

    def is_reached(self) -> bool:
        """Raises ApiError: nothing could be read for too long, and the end is not reached."""
        positions = {key: self._consumer.position(key) or 0 for key in self._ends}
        missing = [key for key, end in self._ends.items() if positions[key] < end]
        if not missing:
            return True
        now = self._client.now()
        if positions != self._positions:
            self._positions, self._moved_at = positions, now
        if now - self._moved_at >= self._client.timeout_s:
            named = ", ".join(map(self._describe, missing[:_MAX_NAMED]))
            more = f" and {len(missing) - _MAX_NAMED} more" if len(missing) > _MAX_NAMED else ""
            raise api_error(
                ErrorCode.REQUEST_TIMED_OUT, f"nothing to read for {self._client.timeout_s:g} s: {named}{more}"
            )
        return False

    def _describe(self, key: TopicPartition) -> str:
        error = self._consumer.last_error(key)
        where = f"{key} at {self._positions[key]} of {self._ends[key]}"
        return where if error is None else f"{where} ({error})"
