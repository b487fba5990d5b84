"""Where a step's SQL reads the rows of the step before, which it calls input. Pure."""

from __future__ import annotations

import re

#: Texts, names in backticks and comments are passed over; what is found in `input` is the table.
_TOKENS = re.compile(
    r"""'(?:[^'\\]|\\.)*'|"(?:[^"\\]|\\.)*"|`[^`]*`|--[^\n]*|/\*.*?\*/|\b(?P<input>input)\b""", re.DOTALL
)


_COMMENTS = re.compile(r"--[^\n]*|/\*.*?\*/", re.DOTALL)
_QUERY = re.compile(r"[\s(]*(SELECT|WITH|FROM|TABLE|VALUES|MAP|REDUCE)\b", re.IGNORECASE)


def no_query(sql: str) -> str | None:
    """Why this is not one query, by its first word and its end; None: it may be one. Only Spark knows the grammar."""
    bare = _TOKENS.sub(lambda found: " " if _COMMENTS.fullmatch(found[0]) else "input" if found["input"] else "x", sql)
    if _QUERY.match(bare) is None:
        first = next(iter(bare.split()), "")
        return f"a step is a query, SELECT … FROM input, and not {first[:40] or 'a comment'}"
    if bare.rstrip().rstrip(";").count(";"):
        return "a step is one query, and there is a semicolon within; each query has a [[steps]] of its own"
    return None


def reads_input(sql: str) -> bool:
    return any(found["input"] for found in _TOKENS.finditer(sql))


def with_input(sql: str) -> str:
    """`sql` for `SparkSession.sql` with the argument `input`: {input} stands for the table, other braces are doubled."""
    escaped = sql.replace("{", "{{").replace("}", "}}")
    return _TOKENS.sub(lambda found: "{input}" if found["input"] else found[0], escaped)
