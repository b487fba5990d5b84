"""A node as a client of another node's Kafka listener: the SASL exchange at the beginning of a connection."""

from __future__ import annotations

import asyncio
from typing import Any

from kafkalite.errors import AuthenticationFailed, ErrorCode, api_error, error_code
from kafkalite.protocol import wire
from kafkalite.protocol.codec import WireError, decode, encode
from kafkalite.security.sasl import SaslClient

_HANDSHAKE, _HANDSHAKE_VERSION = 17, 1
_AUTHENTICATE, _AUTHENTICATE_VERSION = 36, 1
_MAX_ANSWER_BYTES = 64 * 1024
_CLIENT_ID = "kafkalite"


async def authenticate(
    reader: asyncio.StreamReader, writer: asyncio.StreamWriter, mechanism: str, client: SaslClient
) -> float:
    """How long the session lasts, in seconds; inf: it has no end.

    Raises ApiError when one side does not believe the other; OSError, EOFError, WireError.
    """
    answer = await _ask(
        reader, writer, _HANDSHAKE, _HANDSHAKE_VERSION, "SaslHandshake", wire.SaslHandshakeRequest(mechanism)
    )
    _check(answer.error_code, mechanism)
    token = client.first()
    lifetime_ms = 0
    while not client.is_complete:
        request = wire.SaslAuthenticateRequest(token)
        answer = await _ask(reader, writer, _AUTHENTICATE, _AUTHENTICATE_VERSION, "SaslAuthenticate", request)
        _check(answer.error_code, answer.error_message or "")
        lifetime_ms = answer.session_lifetime_ms
        try:
            token = client.step(bytes(answer.auth_bytes))
        except AuthenticationFailed as error:
            raise api_error(ErrorCode.SASL_AUTHENTICATION_FAILED, str(error)) from None
    return lifetime_ms / 1000 if lifetime_ms > 0 else float("inf")


def _check(number: int, text: str) -> None:
    if number:
        code = error_code(number)
        raise api_error(code, f"{code.name}: {text}")


async def _ask(
    reader: asyncio.StreamReader, writer: asyncio.StreamWriter, key: int, version: int, name: str, request: object
) -> Any:
    head = wire.RequestHeader(key, version, 0, _CLIENT_ID)
    frame = encode(head, 1) + encode(request, version)
    writer.write(len(frame).to_bytes(4) + frame)
    await writer.drain()
    size = int.from_bytes(await reader.readexactly(4))
    if not 4 <= size <= _MAX_ANSWER_BYTES:
        raise WireError(f"an answer of {size} bytes")
    return decode(name + "Response", version, (await reader.readexactly(size))[4:])
