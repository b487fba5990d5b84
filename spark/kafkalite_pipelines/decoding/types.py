"""Types of columns as a pipeline file names them: Spark's names, in any nesting. Pure.

A file is checked without Spark, so this reads what Spark's own parser accepts for the types that a table can have.
"""

from __future__ import annotations

import re
from typing import Any

#: Name in a file -> Spark's name.
SIMPLE = {
    "boolean": "boolean",
    "bool": "boolean",
    "byte": "tinyint",
    "tinyint": "tinyint",
    "short": "smallint",
    "smallint": "smallint",
    "int": "int",
    "integer": "int",
    "long": "bigint",
    "bigint": "bigint",
    "float": "float",
    "double": "double",
    "string": "string",
    "binary": "binary",
    "date": "date",
    "timestamp": "timestamp",
}

_DECIMAL = re.compile(r"decimal\s*\(\s*(\d{1,2})\s*,\s*(\d{1,2})\s*\)")
_NESTED = re.compile(r"(array|map|struct)\s*<(.*)>", re.DOTALL)
_NAME = re.compile(r"[A-Za-z_][A-Za-z0-9_]*")


class BadType(ValueError):
    """A type that does not exist. The message names the part that is wrong."""


def spark_type(text: str) -> str:
    """The DDL type that Spark understands.

    Raises:
        BadType: `text` is no type.
    """
    cleaned = text.strip()
    lowered = cleaned.lower()
    if lowered in SIMPLE:
        return SIMPLE[lowered]
    if (decimal := _DECIMAL.fullmatch(lowered)) is not None:
        precision, scale = int(decimal[1]), int(decimal[2])
        if not 1 <= precision <= 38 or scale > precision:
            raise BadType(f"{cleaned!r}: the precision is 1 to 38, and the scale not more than that")
        return f"decimal({precision},{scale})"
    nested = _NESTED.fullmatch(cleaned) if lowered.startswith(("array", "map", "struct")) else None
    if nested is None:
        raise BadType(
            f"{cleaned!r} is not a type ({', '.join(sorted(SIMPLE))}, decimal(P,S), array<>, map<,>, struct<name:type>)"
        )
    return _nested(nested[1].lower(), _parts(nested[2]), cleaned)


def _nested(kind: str, parts: list[str], text: str) -> str:
    if kind == "array":
        if len(parts) != 1:
            raise BadType(f"{text!r}: an array has one type, array<string>")
        return f"array<{spark_type(parts[0])}>"
    if kind == "map":
        if len(parts) != 2:
            raise BadType(f"{text!r}: a map has two types, map<string,long>")
        if (key := spark_type(parts[0])) != "string":  # Spark refuses others in JSON
            raise BadType(f"{text!r}: the keys of a map are string, as names in JSON are")
        return f"map<{key},{spark_type(parts[1])}>"
    fields = []
    spelt: dict[str, str] = {}
    for part in parts:
        name, colon, type_ = part.partition(":")
        if not colon or not _NAME.fullmatch(name.strip()):
            raise BadType(f"{text!r}: a struct has fields, struct<name:string,size:long>")
        if (other := spelt.get(name.strip().lower())) is not None:
            how = (
                "is there twice"
                if other == name.strip()
                else f"differs from {other} in upper and lower case only: to Spark they are the same"
            )
            raise BadType(f"{text!r}: {name.strip()} {how}")
        spelt[name.strip().lower()] = name.strip()
        fields.append(f"{name.strip()}:{spark_type(type_)}")
    return f"struct<{','.join(fields)}>"


def _parts(text: str) -> list[str]:
    """`text` cut at the commas that are in no brackets."""
    parts, depth, begin = [], 0, 0
    for at, character in enumerate(text):
        depth += (character in "<(") - (character in ">)")
        if character == "," and depth == 0:
            parts.append(text[begin:at])
            begin = at + 1
    return [*parts, text[begin:]]


def ddl(columns: dict[str, str]) -> str:
    """The schema of `columns` (name -> Spark type) as Spark's DDL."""
    return ", ".join(f"{quoted(name)} {type_}" for name, type_ in columns.items())


def quoted(name: str) -> str:
    """A name as it stands in DDL, whatever is in it."""
    return f"`{name.replace('`', '``')}`"


def ddl_of(kind: Any) -> str:
    """The DDL of a Spark DataType. Its own `simpleString` does not quote the names of fields."""
    match type(kind).__name__:
        case "StructType":
            fields = {field.name: ddl_of(field.dataType) for field in kind.fields}  # JSON may name one twice
            return f"struct<{','.join(f'{quoted(name)}:{type_}' for name, type_ in fields.items())}>"
        case "ArrayType":
            return f"array<{ddl_of(kind.elementType)}>"
        case "MapType":
            return f"map<{ddl_of(kind.keyType)},{ddl_of(kind.valueType)}>"
    return str(kind.simpleString())


def arrow_type(text: str) -> Any:
    """The Arrow type of a Spark type in DDL, as Spark hands it to Python functions. Names may be in backticks."""
    import pyarrow as pa

    cleaned = text.strip()
    if (decimal := _DECIMAL.fullmatch(cleaned)) is not None:
        return pa.decimal128(int(decimal[1]), int(decimal[2]))
    nested = _NESTED.fullmatch(cleaned)
    if nested is None:
        simple = {
            "boolean": pa.bool_(), "tinyint": pa.int8(), "smallint": pa.int16(), "int": pa.int32(), "bigint": pa.int64(),
            "float": pa.float32(), "double": pa.float64(), "string": pa.string(), "binary": pa.binary(), "date": pa.date32(),
            "timestamp": pa.timestamp("us", "UTC"), "timestamp_ntz": pa.timestamp("us"),
        }  # fmt: skip
        return simple[cleaned]
    kind, parts = nested[1], _parts(nested[2])
    if kind == "array":
        return pa.list_(pa.field("element", arrow_type(parts[0])))
    if kind == "map":
        return pa.map_(arrow_type(parts[0]), arrow_type(parts[1]))
    fields = [part.partition(":") for part in parts]
    return pa.struct([pa.field(name.strip().strip("`"), arrow_type(type_)) for name, _, type_ in fields])
