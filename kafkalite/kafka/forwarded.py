"""Requests that another node forwards for a user: answered by the code that serves the Kafka listener, as that user.

The node that forwards has authenticated the user; only nodes may forward, over RPC. So the user's rights are checked here
once more, by the same guard as a client's, and the node needs no rights of its own.
"""

from __future__ import annotations

import asyncio
from collections.abc import Iterable
from typing import Any

from kafkalite.errors import ErrorCode, api_error
from kafkalite.kafka.connection import KafkaConnection
from kafkalite.kafka.listener import KafkaListener
from kafkalite.kafka.request import Request
from kafkalite.model import Buffer
from kafkalite.rpc.messages.forwarding import ForwardRequest
from kafkalite.security.principal import Principal

#: SaslHandshake and SaslAuthenticate: who the user is has been settled.
_LOGINS = (17, 36)
_LENGTH_BYTES = 4


class Forwarded:
    """Answers ForwardRequest.

    Args:
        listener_name: the Kafka listener whose addresses a response names.
    """

    def __init__(self, listener: KafkaListener, listener_name: str) -> None:
        self._listener = listener
        self._name = listener_name

    async def answer(self, request: ForwardRequest, data: bytes) -> bytes:
        """The response to `data`. Raises ApiError INVALID_REQUEST: it is no request that a user can send, or has no response."""
        try:
            principal = Principal.parse(request.principal)
        except ValueError as error:
            raise api_error(ErrorCode.INVALID_REQUEST, str(error)) from None
        frame = memoryview(data)
        if len(frame) < _LENGTH_BYTES or int.from_bytes(frame[:2]) in _LOGINS:
            raise api_error(ErrorCode.INVALID_REQUEST, "not a request that is forwarded")
        transport = _Answer()
        connection = _UserConnection(self._listener, self._name, transport, principal, request.host)
        try:
            connection.take(frame)
            return await transport.frame
        finally:
            connection.connection_lost(None)


class _UserConnection(KafkaConnection):
    """No peer is connected: one request comes from another node, for this user at this host."""

    def __init__(
        self, listener: KafkaListener, listener_name: str, transport: asyncio.Transport, principal: Principal, host: str
    ) -> None:
        super().__init__(listener, listener_name)
        self.out.transport = transport
        self.principal = principal
        self.peer_host = self.peer = host

    def take(self, frame: memoryview) -> None:
        """One request as a whole, without its length."""
        self._frame(frame, self.listener.monotonic())
        self._flush()

    def answered(self, request: Request) -> None:
        if not request.buffers and self.out.transport is not None:
            self.out.transport.close()
        super().answered(request)


class _Answer(asyncio.Transport):
    """Keeps the one response that is written to it."""

    def __init__(self) -> None:
        super().__init__()
        self.frame: asyncio.Future[bytes] = asyncio.get_running_loop().create_future()
        self._data = bytearray()

    def write(self, data: Buffer) -> None:
        self._data += data
        if len(self._data) >= _LENGTH_BYTES and not self.frame.done():
            end = _LENGTH_BYTES + int.from_bytes(self._data[:_LENGTH_BYTES])
            if len(self._data) >= end:
                self.frame.set_result(bytes(self._data[_LENGTH_BYTES:end]))

    def writelines(self, list_of_data: Iterable[Any]) -> None:
        for data in list_of_data:
            self.write(data)

    def close(self) -> None:
        """The request was malformed or has no response, or the node stops."""
        if not self.frame.done():
            self.frame.set_exception(api_error(ErrorCode.INVALID_REQUEST, "the request has no response"))

    def abort(self) -> None:
        self.close()

    def is_closing(self) -> bool:
        return False

    def get_write_buffer_size(self) -> int:
        return 0

    def pause_reading(self) -> None:
        """Nothing comes after the one request."""

    def resume_reading(self) -> None:
        """Likewise."""
