"""What a schema is: a type, a text, and the other schemas that it refers to."""

from __future__ import annotations

import json
from collections.abc import Sequence
from typing import Any, Protocol

from kafkalite.errors import KafkaliteError
from kafkalite.lazy_dataclass import dataclass

AVRO = "AVRO"
JSON = "JSON"
PROTOBUF = "PROTOBUF"
TYPES = (JSON, PROTOBUF, AVRO)

#: A longer text is refused: parsing it would hold a thread for long, and the record would not fit into `_schemas`.
MAX_TEXT_BYTES = 900_000
#: How deep and how far references may go.
MAX_REFERENCES = 100
#: Nested levels of a schema: the parsers and the comparisons recurse.
MAX_DEPTH = 100
#: What the packages raise over a malformed schema, beside errors of their own.
STUMBLES = (ArithmeticError, AttributeError, LookupError, TypeError, ValueError)
#: Objects, arrays and other values of a schema in JSON: some comparisons grow with their square (2,800 fields of Avro: seconds).
MAX_VALUES = 20_000


class InvalidSchema(KafkaliteError):
    """The text is not a schema of its type; the message is for the person who wrote it."""


@dataclass(frozen=True, slots=True)
class Reference:
    """`name`: how the text names it (a full Avro name, a $ref, an import)."""

    name: str
    subject: str
    version: int


@dataclass(frozen=True, slots=True)
class Schema:
    """`text` is canonical: two texts that differ in white space only are one schema."""

    type: str
    text: str
    references: tuple[Reference, ...] = ()


@dataclass(frozen=True, slots=True)
class Import:
    """A schema that another one refers to, with the name by which it does."""

    name: str
    text: str


class ParsedSchema(Protocol):
    """A schema that is valid."""

    @property
    def text(self) -> str:
        """Canonical."""
        ...

    def normalized(self) -> str:
        """The text of `normalize=true`: the same for all schemas that differ only in order and in spelling."""
        ...

    def cannot_read(self, writer: ParsedSchema) -> Sequence[str]:
        """Why data written with `writer` (of the same type) cannot be read with this one; empty if it can."""
        ...


def check_size(text: str) -> None:
    """Raises InvalidSchema."""
    size = len(text.encode())
    if size > MAX_TEXT_BYTES:
        raise InvalidSchema(f"the schema has {size:,} bytes; at most {MAX_TEXT_BYTES:,} are allowed")


def has_more_values(text: str, most: int) -> bool:
    """Whether a text in JSON has more than about that many values, never if it has fewer.

    They are counted without parsing: the parser keeps the interpreter until it is done (a megabyte of numbers or of keys: 20 to 40 ms).
    """
    plain = text.replace(r"\\", "").replace(r"\"", "")
    if plain.count('"') > 4 * most:  # a value has a key at most, and both are strings at most
        return True
    around = "".join(plain.split('"')[::2])
    return sum(map(around.count, ",[{")) > 2 * most


def read_json(text: str) -> Any:
    """Raises InvalidSchema, ValueError."""
    if has_more_values(text, MAX_VALUES):
        raise InvalidSchema(f"the schema has more than {MAX_VALUES:,} values")
    value = json.loads(text)
    check_depth(value)
    return value


def check_depth(value: object) -> None:
    """Of parsed JSON, and how many values it has. Raises InvalidSchema."""
    level, depth = [value], 0
    count = 0
    while level:
        count += len(level)
        if count > MAX_VALUES:
            raise InvalidSchema(f"the schema has more than {MAX_VALUES:,} values")
        if depth > MAX_DEPTH:
            raise InvalidSchema(f"the schema is nested more than {MAX_DEPTH} levels deep")
        following: list[object] = []
        for each in level:
            if isinstance(each, dict):
                following += each.values()
            elif isinstance(each, list):
                following += each
        level, depth = following, depth + 1
