"""Regular expressions that clients send: RE2, as in Kafka (KIP-848, KIP-1152).

RE2 takes time linear in the text, but it may be 10 us for each of its bytes: whole lists are matched in a thread (RE2 lets the
others run meanwhile). It does not let them run while it compiles a pattern, so what is costly to compile is refused before. The
package is loaded with the first pattern.
"""

from __future__ import annotations

from collections.abc import Callable, Iterable, Iterator
from typing import Any

from kafkalite.errors import ErrorCode, api_error

#: Bytes that one compiled pattern may take.
_MAX_MEMORY = 1 << 20
#: What compiling may cost, in characters. Twenty milliseconds on a slow processor with the worst pattern; a list of 600 topics fits.
_MAX_COST = 20_000
#: What costs more than a character: RE2 writes repetitions out (190 us and 100 kB each), a class of Unicode has hundreds of ranges (80 us).
_COSTS = {"{": 200, "\\p": 200, "\\P": 200, "?": 20}
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
        import re2  # with the first pattern: most nodes never need it
    except ImportError:
        # Python's own `re` is no substitute: a pattern of a client could keep it busy for ever.
        text = "this broker resolves no regular expressions: google-re2 is not installed"
        raise api_error(ErrorCode.INVALID_REGULAR_EXPRESSION, text) from None

    cost = len(pattern) + sum(each * pattern.count(token) for token, each in _COSTS.items())
    if cost > _MAX_COST:
        text = f"{pattern[:100]!r}: too long, or too many repetitions and classes (cost {cost}, at most {_MAX_COST})"
        raise api_error(ErrorCode.INVALID_REGULAR_EXPRESSION, text)
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
