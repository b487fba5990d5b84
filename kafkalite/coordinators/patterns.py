"""Regular expressions that clients send: RE2, as in Kafka (KIP-848, KIP-1152).

RE2 takes time linear in the text, but it may be 10 us for each of its bytes: whole lists are matched in a thread (RE2 lets the
others run meanwhile). The package is loaded with the first pattern.
"""

from __future__ import annotations

from collections.abc import Callable, Iterable, Iterator
from typing import Any

from kafkalite.errors import ErrorCode, api_error

#: Bytes that one compiled pattern may take.
_MAX_MEMORY = 1 << 20
#: Of texts that are matched at a time, in characters: half a second with the worst pattern.
_PIECE = 50_000


def full_match(pattern: str) -> Callable[[str], bool]:
    """Whether a whole text matches `pattern`. Raises ApiError INVALID_REGULAR_EXPRESSION."""
    compiled = _compiled(pattern)
    return lambda text: compiled.fullmatch(text) is not None


def text_pieces(texts: Iterable[str]) -> Iterator[list[str]]:
    """The texts, in lists to be matched one after the other."""
    piece: list[str] = []
    size = 0
    for text in texts:
        piece.append(text)
        size += len(text)
        if size >= _PIECE:
            yield piece
            piece, size = [], 0
    if piece:
        yield piece


def matching_texts(matches: Callable[[str], bool], texts: list[str]) -> list[str]:
    """Those that match. For a thread."""
    return list(filter(matches, texts))


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
