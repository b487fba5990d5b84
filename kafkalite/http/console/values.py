"""Values for JSON. Pure."""

from __future__ import annotations

from typing import Any

#: Of one bytes value in a list of records; more is cut, and asked for one record at a time.
PREVIEW_BYTES = 2_000
FULL_BYTES = 200_000


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
