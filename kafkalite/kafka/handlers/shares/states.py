"""The five APIs of share group state, for nodes (KIP-932). Translation only; see `kafkalite.coordinators.shares`."""

from __future__ import annotations

import asyncio
from collections.abc import Awaitable, Callable, Sequence
from typing import Any, TypeVar
from uuid import UUID

from kafkalite.coordinators.services import Services
from kafkalite.coordinators.shares.coordinator import ShareCoordinator
from kafkalite.coordinators.shares.persistence import ShareKey
from kafkalite.coordinators.shares.records import batches_of, wire_batches
from kafkalite.env.side_by_side import SideBySide
from kafkalite.env.turns import Slices
from kafkalite.errors import ApiError, ErrorCode, api_error
from kafkalite.kafka.node_requests import may_be_node
from kafkalite.kafka.request import Handler, Request
from kafkalite.kafka.stepped import STEP
from kafkalite.protocol import wire
from kafkalite.protocol.errors import WireError

_Asked = TypeVar("_Asked")
#: Serves one partition: returns the fields of its result after the error, for the response's class.
_Serve = Callable[[ShareKey, _Asked], Awaitable[Sequence[object]]]


class ShareStateHandlers:
    def __init__(self, services: Services, shares: ShareCoordinator) -> None:
        self._services = services
        self._shares = shares
        self._access = services.rights.access

    def table(self) -> dict[str, Handler]:
        return {
            "InitializeShareGroupState": self.initialize,
            "ReadShareGroupState": self.read,
            "WriteShareGroupState": self.write,
            "DeleteShareGroupState": self.delete,
            "ReadShareGroupStateSummary": self.summary,
        }

    async def initialize(
        self, request: Request, message: wire.InitializeShareGroupStateRequest
    ) -> wire.InitializeShareGroupStateResponse:
        async def serve(key: ShareKey, asked: wire.InitializeShareGroupStateRequest.PartitionData) -> Sequence[object]:
            await self._shares.initialize(key, asked.state_epoch, asked.start_offset)
            return ()

        response = wire.InitializeShareGroupStateResponse
        return response(await self._serve(request, message, serve, response.InitializeStateResult, response))

    async def read(
        self, request: Request, message: wire.ReadShareGroupStateRequest
    ) -> wire.ReadShareGroupStateResponse:
        response = wire.ReadShareGroupStateResponse

        async def serve(key: ShareKey, asked: wire.ReadShareGroupStateRequest.PartitionData) -> Sequence[object]:
            state = await self._shares.read(key, asked.leader_epoch)
            batches = wire_batches(response.StateBatch, state.batches)
            return state.state_epoch, state.start_offset, batches

        return response(await self._serve(request, message, serve, response.ReadStateResult, response))

    async def write(
        self, request: Request, message: wire.WriteShareGroupStateRequest
    ) -> wire.WriteShareGroupStateResponse:
        async def serve(key: ShareKey, asked: wire.WriteShareGroupStateRequest.PartitionData) -> Sequence[object]:
            try:
                batches = batches_of(asked.state_batches)
            except WireError as error:
                raise api_error(ErrorCode.INVALID_REQUEST, str(error)) from None
            await self._shares.write(key, asked.state_epoch, asked.leader_epoch, asked.start_offset, batches)
            return ()

        response = wire.WriteShareGroupStateResponse
        return response(await self._serve(request, message, serve, response.WriteStateResult, response))

    async def delete(
        self, request: Request, message: wire.DeleteShareGroupStateRequest
    ) -> wire.DeleteShareGroupStateResponse:
        async def serve(key: ShareKey, asked: wire.DeleteShareGroupStateRequest.PartitionData) -> Sequence[object]:
            await self._shares.delete(key)
            return ()

        response = wire.DeleteShareGroupStateResponse
        return response(await self._serve(request, message, serve, response.DeleteStateResult, response))

    async def summary(
        self, request: Request, message: wire.ReadShareGroupStateSummaryRequest
    ) -> wire.ReadShareGroupStateSummaryResponse:
        async def serve(key: ShareKey, asked: wire.ReadShareGroupStateSummaryRequest.PartitionData) -> Sequence[object]:
            found = await self._shares.summary(key)
            return found.state_epoch, found.leader_epoch, found.start_offset, found.completed

        response = wire.ReadShareGroupStateSummaryResponse
        return response(await self._serve(request, message, serve, response.ReadStateSummaryResult, response))

    async def _serve(
        self, request: Request, message: Any, serve: _Serve[_Asked], topic_of: Any, response: Any
    ) -> list[Any]:
        """The results of all partitions, which are served side by side: each waits for replication."""
        if not self._is_allowed(request):
            raise api_error(ErrorCode.CLUSTER_AUTHORIZATION_FAILED)

        async def one(topic_id: bytes, asked: Any) -> Any:
            key = ShareKey(message.group_id, UUID(bytes=bytes(topic_id)), asked.partition)
            try:
                return response.PartitionResult(asked.partition, 0, None, *await serve(key, asked))
            except ApiError as error:
                return response.PartitionResult(asked.partition, int(error.code), str(error))

        slices = Slices(request.connection.listener.turns, request.connection.owner)
        answers: list[tuple[bytes, list[asyncio.Task[Any]]]] = []
        async with SideBySide() as tasks:
            number = 0
            for topic in message.topics:
                results: list[asyncio.Task[Any]] = []
                answers.append((topic.topic_id, results))
                for asked in topic.partitions:
                    number += 1
                    if not number % STEP:  # those that were begun run before the next ones are begun
                        await slices.next()
                    results.append(tasks.create_task(one(topic.topic_id, asked)))
        return [topic_of(topic_id, [task.result() for task in results]) for topic_id, results in answers]

    def _is_allowed(self, request: Request) -> bool:
        """Whether a node asks; with an authorizer, the guard has checked that the user has the right of nodes."""
        return self._access.authorizer is not None or may_be_node(self._services, request)
