"""Errors in responses, as exceptions."""

from __future__ import annotations

from kafkalite.errors import ErrorCode, api_error, error_code

#: For responses that Kafka gives no message.
_WORDS = {
    ErrorCode.DELEGATION_TOKEN_REQUEST_NOT_ALLOWED: "tokens need an authenticated listener: log in as a user (SASL, or a client certificate), and not with a token",
    ErrorCode.DELEGATION_TOKEN_AUTH_DISABLED: "the brokers have no delegation.token.secret.key",
}


def refuse(code: int, message: str | None = "") -> None:
    """Raise the refusal that a response carries, if any."""
    if code:
        raise api_error(error_code(code), message or _WORDS.get(error_code(code), error_code(code).name))
