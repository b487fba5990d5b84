"""Errors in responses, as exceptions."""

from __future__ import annotations

from kafkalite.errors import api_error, error_code


def refuse(code: int, message: str | None = "") -> None:
    """Raise the refusal that a response carries, if any."""
    if code:
        raise api_error(error_code(code), message or error_code(code).name)
