"""A connection to another node's Kafka listener: requests of one API, one at a time."""

from __future__ import annotations

import asyncio
from typing import Generic, TypeVar

from kafkalite.coordinators.services import Services
from kafkalite.env.streams import cut
from kafkalite.protocol import wire
from kafkalite.protocol.codec import decode, encode
from kafkalite.protocol.errors import WireError
from kafkalite.protocol.schema import schemas
from kafkalite.protocol.structs import WireStruct
from kafkalite.rpc.messages.control import Broker

_Response = TypeVar("_Response", bound=WireStruct)

#: A connection is used for this share of its session.
_USED_SHARE = 0.8
_MAX_RESPONSE_BYTES = 16 * 2**20


def node_address(broker: Broker, listener: str) -> tuple[str, int]:
    """Where another node takes requests of nodes (`inter.broker.listener.name`). Raises OSError: it has no such listener."""
    endpoint = broker.kafka_on(listener)
    if endpoint is None:
        raise OSError(f"broker {broker.broker_id} has no listener {listener} (inter.broker.listener.name)")
    return endpoint.host, endpoint.port


class NodeConnection(Generic[_Response]):
    """Opened with the first request, and again after a failure. `response`: the class of the responses."""

    def __init__(self, services: Services, address: tuple[str, int], response: type[_Response]) -> None:
        self.address = address
        self._services = services
        self._response = response
        self._key = schemas()[response.__name__].api_key
        self._streams: tuple[asyncio.StreamReader, asyncio.StreamWriter] | None = None
        #: When another connection is opened instead (monotonic seconds): the session ends a while later (KIP-368).
        self._used_until = float("inf")
        self._correlation_id = 0

    def close(self) -> None:
        """Give the connection up. A request that the peer has not got yet never arrives: it may be repeated elsewhere."""
        if self._streams is not None:
            (_, writer), self._streams = self._streams, None
            cut(writer.transport)

    async def ask(self, message: object, version: int) -> _Response:
        """The response. After any error `close` the connection.

        Args:
            version: one that is flexible in request and response.

        Raises OSError, EOFError, ApiError (the node refused the connection), WireError.
        """
        now = self._services.clock.monotonic()
        if now > self._used_until or (self._streams is not None and self._streams[1].transport.is_closing()):
            self.close()
        if self._streams is None:
            reader, writer, lifetime_s = await self._services.dial_kafka(*self.address)
            self._streams = (reader, writer)
            self._used_until = now + lifetime_s * _USED_SHARE
        reader, writer = self._streams
        self._correlation_id += 1
        head = wire.RequestHeader(self._key, version, self._correlation_id, "kafkalite")
        frame = encode(head, 2) + encode(message, version)
        writer.write(len(frame).to_bytes(4) + frame)
        await writer.drain()
        size = int.from_bytes(await reader.readexactly(4))
        if not 5 <= size <= _MAX_RESPONSE_BYTES:
            raise WireError(f"a response of {size} bytes")
        answer = await reader.readexactly(size)
        if int.from_bytes(answer[:4], signed=True) != self._correlation_id or answer[4] != 0:
            raise WireError("the response does not belong to the request")
        return decode(self._response, version, answer[5:])
