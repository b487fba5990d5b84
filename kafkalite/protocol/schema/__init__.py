"""The Kafka protocol's messages as tables.

A table line is one field: `name type versions`, indented by its depth, then any of

    ?versions     the versions in which it may be null
    =value        its default (absent: 0, false, empty, null for `records` and nested structs)
    #tag          a tagged field of the flexible versions; `#tag:versions` if tagged in those only
    ~versions     flexible encoding in these versions only, whatever the message says

`versions` is `3`, `3+` or `3-5`. A message begins with an unindented line `Name versions flexible [api key]`.
Types are Kafka's: bool, int8 to int64, uint16, float64, string, bytes, records, uuid, a struct's name, and
`[]` in front of any of them. A struct's fields follow its first use, one level deeper.

Source of the facts: the message definitions of Apache Kafka 3.9 and 4.4 (`kafkalite.testing.kafka_jar` compares).
"""

from __future__ import annotations

from functools import cache

from kafkalite.lazy_dataclass import dataclass
from kafkalite.protocol.schema import (
    admin,
    cluster,
    extension,
    features,
    groups,
    log,
    records,
    sasl,
    security,
    share_records,
    shares,
    streams,
    telemetry,
    tokens,
    transactions,
)  # fmt: skip

TABLES = (
    log.TABLE,
    cluster.TABLE,
    admin.TABLE,
    groups.TABLE,
    transactions.TABLE,
    records.TABLE,
    security.TABLE,
    share_records.TABLE,
    features.TABLE,
    streams.TABLE,
    telemetry.TABLE,
    tokens.TABLE,
    shares.TABLE,
    sasl.TABLE,
    extension.TABLE,
)
_NO_VERSIONS = range(0)
_HIGHEST = 2**15


@dataclass(frozen=True, slots=True)
class Field:
    """One field. `struct` is set for nested structs; `is_array` makes it a list of `type`."""

    name: str
    type: str
    is_array: bool
    versions: range
    nullable: range
    default: str | None
    tag: int | None
    tagged: range
    flexible: range | None
    struct: Struct | None


@dataclass(frozen=True, slots=True)
class Struct:
    name: str
    fields: tuple[Field, ...]


@dataclass(frozen=True, slots=True)
class MessageSchema:
    """One message. `api_key` is -1 if it is neither a request nor a response; `table` are the lines of its fields."""

    name: str
    versions: range
    flexible: range
    api_key: int
    table: str

    @property
    def root(self) -> Struct:
        """Its fields. Raises ValueError if they are indented too far."""
        return _root(self.name, self.table)


def parse_versions(text: str) -> range:
    """`3`, `3+`, `3-5` or `none`, as Kafka's message definitions and our tables write versions."""
    if text == "none":
        return _NO_VERSIONS
    if text.endswith("+"):
        return range(int(text[:-1]), _HIGHEST)
    low, _, high = text.partition("-")
    return range(int(low), int(high or low) + 1)


def _field(words: list[str], struct: Struct | None) -> Field:
    name, kind, versions = words[:3]
    marks = {word[0]: word[1:] for word in words[3:]}
    tag, _, tagged = marks.get("#", "").partition(":")
    return Field(
        name=name,
        type=kind.removeprefix("[]"),
        is_array=kind.startswith("[]"),
        versions=parse_versions(versions),
        nullable=parse_versions(marks.get("?", "none")),
        default=marks.get("="),
        tag=int(tag) if tag else None,
        tagged=parse_versions(tagged or versions) if tag else _NO_VERSIONS,
        flexible=parse_versions(marks["~"]) if "~" in marks else None,
        struct=struct,
    )


def _fields(lines: list[str], depth: int) -> tuple[Field, ...]:
    """Take the fields of one struct off the front of `lines`."""
    fields: list[Field] = []
    prefix = "  " * depth
    while lines and lines[0].startswith(prefix):
        words = lines.pop(0).split()
        nested = _fields(lines, depth + 1)
        fields.append(_field(words, Struct(words[1].removeprefix("[]"), nested) if nested else None))
    return tuple(fields)


@cache
def _root(name: str, table: str) -> Struct:
    lines = table.splitlines()
    root = Struct(name, _fields(lines, 1))
    if lines:
        raise ValueError(f"{name}: {lines[0]!r} is indented too far")
    return root


def _parse(block: str) -> MessageSchema:
    head, _, table = block.partition(
        "\n"
    )  # a node must know of all APIs, but it uses few: fields come when they are used
    name, versions, flexible, *key = head.split()
    return MessageSchema(name, parse_versions(versions), parse_versions(flexible), int(key[0]) if key else -1, table)


@cache
def schemas() -> dict[str, MessageSchema]:
    """Every message by name."""
    blocks = [block for table in TABLES for block in table.strip().split("\n\n")]
    return {schema.name: schema for schema in map(_parse, blocks)}
