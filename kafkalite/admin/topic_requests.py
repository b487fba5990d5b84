"""Requests about topics, answered when they have come true: the topic has leaders, or is gone, as far as this node knows."""

from __future__ import annotations

import asyncio
from collections.abc import Callable, Mapping
from dataclasses import replace
from types import MappingProxyType

from kafkalite.admin.topics import TopicAdmin
from kafkalite.errors import ErrorCode
from kafkalite.extension.messages.topics import (
    CreateTopicsRequest,
    CreateTopicsResponse,
    DeleteTopicsRequest,
    DeleteTopicsResponse,
    TopicResult,
)
from kafkalite.model import NO_LEADER, TopicId
from kafkalite.replica.metadata_cache import MetadataCache

#: No client makes a node wait longer than this.
_MAX_WAIT_MS = 300_000


class TopicRequests:
    """Writes the request (durable in ZooKeeper), then waits for the controller's work to be seen here."""

    def __init__(self, topics: TopicAdmin, metadata: MetadataCache) -> None:
        self._topics = topics
        self._metadata = metadata

    async def create_topics(self, request: CreateTopicsRequest) -> CreateTopicsResponse:
        """REQUEST_TIMED_OUT: the topic was accepted and will come, but has not got all its leaders in time."""
        began = asyncio.get_running_loop().time()
        response = await self._topics.create_topics(request)
        if request.validate_only:
            return response
        made = [result for result in response.topics if result.error == ErrorCode.NONE]
        if await self._within(began, request.timeout_ms, lambda: all(self._is_led(result) for result in made)):
            return response
        return CreateTopicsResponse(
            tuple(
                _late(result, "created, but not every partition has a leader yet")
                if result.error == ErrorCode.NONE and not self._is_led(result)
                else result
                for result in response.topics
            )
        )

    async def delete_topics(
        self, request: DeleteTopicsRequest, ids: Mapping[str, TopicId] = MappingProxyType({})
    ) -> DeleteTopicsResponse:
        """REQUEST_TIMED_OUT: the deletion was requested and continues (a dead replica may have to return first)."""
        began = asyncio.get_running_loop().time()
        response = await self._topics.delete_topics(request, ids)
        accepted = [result.topic for result in response.topics if result.error == ErrorCode.NONE]
        if await self._within(
            began, request.timeout_ms, lambda: all(self._metadata.topic(t) is None for t in accepted)
        ):
            return response
        return DeleteTopicsResponse(
            tuple(
                _late(result, "the deletion was requested and continues")
                if result.error == ErrorCode.NONE and self._metadata.topic(result.topic) is not None
                else result
                for result in response.topics
            )
        )

    def _is_led(self, result: TopicResult) -> bool:
        partitions = self._metadata.topic(result.topic) or {}
        if len(partitions) < result.partitions or self._metadata.topic_id(result.topic) != result.topic_id:
            return False
        return all(state.leader != NO_LEADER for state in partitions.values())

    async def _within(self, began: float, timeout_ms: int, holds: Callable[[], bool]) -> bool:
        """Wait until it holds, at most `timeout_ms` after `began`, of which ZooKeeper's return may have taken a part."""
        if holds():
            return True
        if timeout_ms <= 0:
            return False
        try:
            async with asyncio.timeout_at(began + min(timeout_ms, _MAX_WAIT_MS) / 1000):
                while not holds():
                    await asyncio.shield(self._metadata.changed())
        except TimeoutError:
            return False
        return True


def _late(result: TopicResult, why: str) -> TopicResult:
    return replace(result, error=ErrorCode.REQUEST_TIMED_OUT, message=why)
