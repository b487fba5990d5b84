"""A node as a client of another node's Kafka listener: the SASL exchange at the beginning of a connection."""

from __future__ import annotations

import asyncio
from typing import Any

from kafkalite.protocol import wire
from kafkalite.protocol.codec import decode, encode
from kafkalite.protocol.errors import WireError
from kafkalite.protocol.login import log_in
from kafkalite.protocol.schema import schemas
from kafkalite.security.sasl import SaslClient

_MAX_ANSWER_BYTES = 64 * 1024
_CLIENT_ID = "kafkalite"


async def authenticate(
    reader: asyncio.StreamReader, writer: asyncio.StreamWriter, mechanism: str, client: SaslClient
) -> float:
    """How long the session lasts, in seconds; inf: it has no end.

    Raises ApiError when one side does not believe the other; OSError, EOFError, WireError.
    """
    exchange = log_in(mechanism, client)
    try:
        request, version = next(exchange)
        while True:
            request, version = exchange.send(await _ask(reader, writer, request, version))
    except StopIteration as done:
        lifetime_s: float = done.value
        return lifetime_s


async def _ask(reader: asyncio.StreamReader, writer: asyncio.StreamWriter, request: object, version: int) -> Any:
    schema = schemas()[type(request).__name__]
    head = wire.RequestHeader(schema.api_key, version, 0, _CLIENT_ID)
    frame = encode(head, 1) + encode(request, version)
    writer.write(len(frame).to_bytes(4) + frame)
    await writer.drain()
    size = int.from_bytes(await reader.readexactly(4))
    if not 4 <= size <= _MAX_ANSWER_BYTES:
        raise WireError(f"an answer of {size} bytes")
    name = schema.name.removesuffix("Request") + "Response"
    return decode(name, version, (await reader.readexactly(size))[4:])
