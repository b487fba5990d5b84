"""What others typed, as text that a terminal only shows: names of groups, clients and users may have any character."""

from __future__ import annotations

import re

#: Control characters (below U+0020, U+007F to U+009F), and those that change the direction of text, hide, or end a line.
_UNSEEN = "[\x00-\x1f\x7f-\x9f\xad\u061c\u200b-\u200f\u2028-\u202e\u2060-\u206f\ufeff]"
_NAMED = {"\n": "\\n", "\r": "\\r", "\t": "\\t"}


def visible(text: str, *, keeps_lines: bool = False) -> str:
    """Escape sequences become text: \\x1b. `keeps_lines`: a line break of our own stays one."""
    if text.isascii() and text.isprintable():
        return text
    return re.sub(_UNSEEN, lambda found: "\n" if keeps_lines and found[0] == "\n" else _escaped(found[0]), text)


def _escaped(character: str) -> str:
    number = ord(character)
    return _NAMED.get(character) or (f"\\x{number:02x}" if number < 256 else f"\\u{number:04x}")
