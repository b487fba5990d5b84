"""Fields inside of objects that appear after the first batch: where records have them, and the types with them. Pure but for PySpark's types.

Spark says which fields the values of a column have as the schema of a variant: `OBJECT<a: BIGINT, b: ARRAY<OBJECT<c: STRING>>>`.
"""

from __future__ import annotations

import re
from collections.abc import Mapping
from typing import Any

#: The fields of an object by name, each with its own; none: a value without fields. An array has those of its elements.
Fields = Mapping[str, "Fields"]

_TOKEN = re.compile(r"OBJECT<|ARRAY<|>|, |`((?:[^`]|``)*)`: |([^`<>,:]+): |[A-Z_]+(?:\(\d+(?:,\s*\d+)?\))?")


def fields_of_variants(text: str) -> Fields:
    """What the schema of variants says."""
    try:
        fields, _ = _read(_TOKEN.finditer(text))
    except RecursionError:  # deeper than any table
        return {}
    return fields


def _read(tokens: Any) -> tuple[dict[str, Fields], bool]:
    """The fields of the next type; whether there is one."""
    for token in tokens:
        match token[0]:
            case "OBJECT<":
                return _object(tokens), True
            case "ARRAY<":
                fields, is_type = _read(tokens)
                if is_type:
                    next(tokens, None)  # its end
                return fields, True
            case ">":
                return {}, False
            case _:
                return {}, True
    return {}, False


def _object(tokens: Any) -> dict[str, Fields]:
    found: dict[str, Fields] = {}
    for token in tokens:
        if token[0] == ">":
            break
        if token[0] != ", ":
            name = token[1].replace("``", "`") if token[1] is not None else token[2]
            found[name], _ = _read(tokens)
    return found


def has_new(found: Fields, kind: Any) -> bool:
    """Whether values have a field that the column's type lacks. One that differs in case only is not new: to Spark they are the same."""
    match type(kind).__name__:
        case "StructType":
            known = {field.name.lower(): field for field in kind.fields}
            return any(
                name != "" and (name.lower() not in known or has_new(inner, known[name.lower()].dataType))
                for name, inner in found.items()
            )
        case "ArrayType":
            return has_new(found, kind.elementType)
    return False


def grown(known: Any, found: Any) -> Any:
    """A Spark type with the fields that only `found` has, at the end of their objects. All others keep their types."""
    from pyspark.sql.types import ArrayType, StructField, StructType

    if isinstance(known, ArrayType) and isinstance(found, ArrayType):
        return ArrayType(grown(known.elementType, found.elementType))
    if not (isinstance(known, StructType) and isinstance(found, StructType)):
        return known
    theirs = {field.name: field.dataType for field in found.fields}
    fields = [StructField(f.name, grown(f.dataType, theirs.get(f.name, f.dataType))) for f in known.fields]
    taken = {field.name.lower() for field in known.fields}
    for field in found.fields:
        if field.name and field.name.lower() not in taken:
            fields.append(StructField(field.name, field.dataType))
            taken.add(field.name.lower())
    return StructType(fields)
