"""Regular expressions that clients send: RE2, as in Kafka (KIP-848, KIP-1152).

RE2 takes time linear in the text: a pattern cannot stop the event loop. The package is loaded with the first pattern.
"""

from __future__ import annotations

from collections.abc import Callable
from typing import Any

from kafkalite.errors import ErrorCode, api_error

#: Bytes that one compiled pattern may take.
_MAX_MEMORY = 1 << 20


def full_match(pattern: str) -> Callable[[str], bool]:
    """Whether a whole text matches `pattern`. Raises ApiError INVALID_REGULAR_EXPRESSION."""
    compiled = _compiled(pattern)
    return lambda text: compiled.fullmatch(text) is not None


def search(pattern: str) -> Callable[[str], bool]:
    """Whether `pattern` is somewhere in a text. Raises ApiError INVALID_REGULAR_EXPRESSION."""
    compiled = _compiled(pattern)
    return lambda text: compiled.search(text) is not None


def _compiled(pattern: str) -> Any:
    try:
        import re2  # only who gets a pattern loads it
    except ImportError:
        # Python's own `re` is no substitute: a pattern of a client could keep it busy for ever.
        text = "this broker resolves no regular expressions: google-re2 is not installed"
        raise api_error(ErrorCode.INVALID_REGULAR_EXPRESSION, text) from None

    options = re2.Options()
    options.log_errors = False
    options.max_mem = _MAX_MEMORY
    try:
        return re2.compile(pattern, options)
    except re2.error as error:
        reason = (
            error.args[0].decode(errors="replace") if error.args and isinstance(error.args[0], bytes) else str(error)
        )
        raise api_error(ErrorCode.INVALID_REGULAR_EXPRESSION, f"{pattern[:100]!r}: {reason}") from None
