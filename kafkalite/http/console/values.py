"""Values for JSON, and what people type into addresses. Pure."""

from __future__ import annotations

from collections.abc import Mapping
from typing import Any

#: Of one bytes value in a list of records; more is cut, and asked for one record at a time.
PREVIEW_BYTES = 2_000
FULL_BYTES = 200_000


def whole(query: Mapping[str, str], name: str, default: int, low: int, high: int) -> int:
    """A whole number within bounds. Raises ValueError."""
    text = query.get(name, "")
    if not text:
        return default
    try:
        value = int(text)
    except ValueError:
        raise ValueError(f"{name}: {text!r} is not a whole number") from None
    if not low <= value <= high:
        raise ValueError(f"{name}: {value} is not between {low} and {high}")
    return value


def shown(data: bytes | None, most: int = PREVIEW_BYTES) -> Any:
    """Bytes for a page: None; a text if they are UTF-8, else hexadecimal; `size` in bytes, and whether it was cut."""
    if data is None:
        return None
    part = bytes(data[:most])
    value: dict[str, Any] = {"size": len(data)}
    if len(data) > most:
        value["is_cut"] = True
    try:
        # A character may be cut in the middle: up to three bytes of it are left out.
        text = part.decode() if len(data) <= most else _cut_text(part)
    except UnicodeDecodeError:
        return {**value, "hex": part[: most // 4].hex(" ")}
    return {**value, "text": text}


def _cut_text(part: bytes) -> str:
    for missing in range(4):
        try:
            return part[: len(part) - missing].decode()
        except UnicodeDecodeError:
            if missing == 3:
                raise
    raise AssertionError
