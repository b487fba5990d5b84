"""A client that speaks the Kafka protocol frame by frame: no retries, no metadata, nothing of its own."""

from __future__ import annotations

import asyncio
from typing import Any, Self

from kafkalite.model import Endpoint
from kafkalite.protocol import codec, wire
from kafkalite.protocol.schema import schemas

#: A guard, on a machine of any speed.
_ANSWER_S = 120


def frame(message: Any, version: int, correlation_id: int, client_id: str = "test") -> bytes:
    """A request with its header and its length in front."""
    schema = schemas()[type(message).__name__]
    head = codec.encode(
        wire.RequestHeader(schema.api_key, version, correlation_id, client_id), 2 if version in schema.flexible else 1
    )
    body = head + codec.encode(message, version)
    return len(body).to_bytes(4) + body


class FrameClient:
    """One connection. `ask` sends and waits; `send` and `receive` do one of the two. Raises OSError, IncompleteReadError."""

    def __init__(self) -> None:
        self.correlation_id = 0
        self.asked: dict[int, tuple[str, int]] = {}

    @classmethod
    async def to(cls, where: Endpoint | str) -> Self:
        """Connected to an endpoint, or to "host:port"."""
        client = cls()
        host, _, port = str(where).rpartition(":")
        await client.connect(host, int(port))
        return client

    async def connect(self, host: str, port: int) -> None:
        self.reader, self.writer = await asyncio.open_connection(host, port)

    def frame(self, message: Any, version: int) -> bytes:
        self.correlation_id += 1
        name = type(message).__name__
        self.asked[self.correlation_id] = (name.removesuffix("Request") + "Response", version)
        return frame(message, version, self.correlation_id)

    def send(self, message: Any, version: int) -> int:
        self.writer.write(self.frame(message, version))
        return self.correlation_id

    async def receive(self) -> tuple[int, Any]:
        size = int.from_bytes(await self.reader.readexactly(4))
        data = await self.reader.readexactly(size)
        correlation_id = int.from_bytes(data[:4])
        name, version = self.asked.pop(correlation_id)
        start = 4
        if name != "ApiVersionsResponse" and version in schemas()[name].flexible:
            assert data[4] == 0
            start = 5
        return correlation_id, codec.decode(name, version, data[start:])

    async def receive_raw(self) -> bytes:
        return await self.reader.readexactly(int.from_bytes(await self.reader.readexactly(4)))

    async def ask(self, message: Any, version: int) -> Any:
        sent = self.send(message, version)
        async with asyncio.timeout(_ANSWER_S):
            correlation_id, answer = await self.receive()
        assert correlation_id == sent
        return answer

    async def is_closed(self) -> bool:
        """Whether the broker closes the connection (soon)."""
        try:
            async with asyncio.timeout(60):
                return await self.reader.read() == b""
        except ConnectionError:
            return True

    def close(self) -> None:
        self.writer.close()
