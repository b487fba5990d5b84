"""Where a step's SQL reads the rows of the step before, which it calls input. Pure."""

from __future__ import annotations

import re

#: Texts, names in backticks and comments are passed over; what is found in `input` is the table.
_TOKENS = re.compile(
    r"""'(?:[^'\\]|\\.)*'|"(?:[^"\\]|\\.)*"|`[^`]*`|--[^\n]*|/\*.*?\*/|\b(?P<input>input)\b""", re.DOTALL
)


def reads_input(sql: str) -> bool:
    return any(found["input"] for found in _TOKENS.finditer(sql))


def with_input(sql: str) -> str:
    """`sql` for `SparkSession.sql` with the argument `input`: {input} stands for the table, other braces are doubled."""
    escaped = sql.replace("{", "{{").replace("}", "}}")
    return _TOKENS.sub(lambda found: "{input}" if found["input"] else found[0], escaped)
