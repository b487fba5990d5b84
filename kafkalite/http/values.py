"""What people type into addresses. Pure."""

from __future__ import annotations

import re
from collections.abc import Mapping

#: The longest number that is read: 2^63 has 19 digits.
_WHOLE = re.compile(r"-?[0-9]{1,30}", re.ASCII)
#: Characters of what was typed that an error repeats.
_SHOWN = 100


def cut(text: str) -> str:
    """What somebody typed, for an error: quoted, and not longer than can be read."""
    return repr(text) if len(text) <= _SHOWN else f"{text[:_SHOWN]!r}…"


def given(query: Mapping[str, str], name: str) -> str:
    """It is there. Raises ValueError."""
    if not (text := query.get(name, "")):
        raise ValueError(f"{name} is missing")
    return text


def whole(query: Mapping[str, str], name: str, default: int | None, low: int, high: int) -> int:
    """A whole number within bounds. `default`: without one it has to be there. Raises ValueError."""
    text = query.get(name, "")
    if not text:
        if default is None:
            raise ValueError(f"{name} is missing")
        return default
    return number(name, text, low, high)


def number(name: str, text: str, low: int, high: int) -> int:
    """A whole number within bounds. Raises ValueError."""
    if _WHOLE.fullmatch(text) is None:
        raise ValueError(f"{name}: {cut(text)} is not a whole number")
    value = int(text)
    if not low <= value <= high:
        raise ValueError(f"{name}: {value} is not between {low} and {high}")
    return value
