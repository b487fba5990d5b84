"""Requests to the present controller, wherever it is."""

from __future__ import annotations

import asyncio

from kafkalite.controller.client import ControllerClient
from kafkalite.controller.controller import Controller
from kafkalite.env.seams import Network
from kafkalite.env.supervisor import Supervisor
from kafkalite.errors import ErrorCode, api_error
from kafkalite.replica.metadata_cache import MetadataCache
from kafkalite.rpc.answers import RpcTimeout
from kafkalite.rpc.client import RpcConnection
from kafkalite.rpc.local_broker import LocalBroker
from kafkalite.rpc.messages.base import Message
from kafkalite.rpc.messages.control import ControlledShutdownRequest, IsrChangedRequest


class ControllerRpc:
    """One connection, or none if the controller is in this process.

    Attributes:
        client: what is asked over it.
    """

    def __init__(
        self,
        network: Network,
        supervisor: Supervisor,
        local: LocalBroker,
        metadata: MetadataCache,
        controller: Controller,
        *,
        max_frame_bytes: int,
    ) -> None:
        self._network = network
        self._supervisor = supervisor
        self._local = local
        self._metadata = metadata
        self._controller = controller
        self._max_frame_bytes = max_frame_bytes
        self._connection: RpcConnection | None = None
        self.client = ControllerClient(self.call, local.identity)

    async def call(self, request: Message, timeout_s: float) -> Message:
        """Raises KafkaliteError or OSError when there is no controller, or when it does not answer."""
        controller_id = self._metadata.controller_id
        if controller_id == self._local.broker_id:
            async with asyncio.timeout(timeout_s):
                if isinstance(request, IsrChangedRequest):
                    return await self._controller.on_isr_changed(request)
                assert isinstance(request, ControlledShutdownRequest)
                return await self._controller.controlled_shutdown(request)
        endpoint = self._metadata.rpc_endpoint(controller_id)
        if endpoint is None:
            raise api_error(ErrorCode.NOT_CONTROLLER, "no controller is known")
        connection = self._connection
        if connection is None or connection.closed or connection.endpoint != endpoint:
            if connection is not None:
                await connection.close()
            opened = await RpcConnection.open(
                self._network,
                endpoint,
                self._local.hello("controller-link"),
                supervisor=self._supervisor,
                max_frame_bytes=self._max_frame_bytes,
                timeout_s=timeout_s,
            )
            other = self._connection
            if other is not None and other is not connection and not other.closed and other.endpoint == endpoint:
                opened.abort("another call was faster")
                connection = other
            else:
                if other is not None:
                    other.abort("the controller is elsewhere")
                self._connection = connection = opened
        try:
            answer, _ = await connection.call(request, timeout_s=timeout_s)
        except RpcTimeout:
            # After a partition of the network, TCP may let a connection wait for minutes: a new one is answered at once.
            connection.abort("no answer")
            raise
        return answer

    async def close(self) -> None:
        """Close the connection."""
        if self._connection is not None:
            await self._connection.close()
