"""The client's side of a SASL exchange over Kafka's protocol, without I/O: of clients, and of nodes among themselves."""

from __future__ import annotations

from collections.abc import Generator, Sequence
from typing import TYPE_CHECKING, Any

from kafkalite.errors import AuthenticationFailed, ErrorCode, api_error, error_code
from kafkalite.protocol import wire

if TYPE_CHECKING:
    from kafkalite.security.sasl import SaslClient


def log_in(mechanism: str, client: SaslClient) -> Generator[tuple[Any, int], Any, float]:
    """Yields (request, version) and is sent the response; returns how long the session lasts, in seconds (inf: no end).

    Raises ApiError when one side does not believe the other.
    """
    response = yield wire.SaslHandshakeRequest(mechanism), 1
    if response.error_code:
        code = error_code(response.error_code)
        raise api_error(code, f"{code.name}: {_refused(mechanism, response.mechanisms)}")
    token = client.first()
    lifetime_ms = 0
    while not client.is_complete:
        response = yield wire.SaslAuthenticateRequest(token), 1
        if response.error_code:
            code = error_code(response.error_code)
            raise api_error(code, f"{code.name}: {response.error_message or mechanism}")
        lifetime_ms = response.session_lifetime_ms
        try:
            token = client.step(bytes(response.auth_bytes))
        except AuthenticationFailed as error:
            raise api_error(ErrorCode.SASL_AUTHENTICATION_FAILED, str(error)) from None
    return lifetime_ms / 1000 if lifetime_ms > 0 else float("inf")


def _refused(mechanism: str, offered: Sequence[str]) -> str:
    """Why a broker does not take a login with `mechanism`; `offered`: the mechanisms that it takes."""
    if not offered:
        return "this listener takes no login: set security.protocol to PLAINTEXT or SSL"
    return f"the broker does not take {mechanism}, but {' and '.join(offered)}"
