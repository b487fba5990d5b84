"""Values in JSON that Spark takes for others without an error: 200 as a tinyint is -56, "1,5" as a decimal is 15, "10:30" as a timestamp
is today. Their records are read once more, with text in place of these types.
"""

from __future__ import annotations

from typing import TYPE_CHECKING, Any

from kafkalite_pipelines.decoding.nested import anywhere
from kafkalite_pipelines.decoding.types import quoted

if TYPE_CHECKING:
    from pyspark.sql import Column

_MOST_FLOAT = 3.4028235677973366e38  # the next number rounds to infinity
#: Type -> what a record has that may be misread (Java's regular expressions): others are not read again.
_SUSPECTS = {
    "ByteType": "[0-9]{3}",
    "FloatType": "[eE][+]?[0-9]{2}|[0-9]{39}",
    "DecimalType": "[\"'][-+,.0-9]*[0-9],",
    "DateType": "[\"']\\s*[-+]?[0-9]{1,3}\\s*[\"']",
    "TimestampType": "[0-9]{14}|[\"']\\s*T?[0-9]{1,2}:",
}
_FRACTIONS = "[0-9][.][0-9]|[0-9][eE]-"


def misread(text: Column, row: Any, *, found: bool) -> Column | None:
    """The error of a JSON object with such a value, else null. None: there is no such column in `row`.

    Args:
        found: the types are those of records, so that a decimal comes from whole numbers: a fraction does not fit it.
    """
    from pyspark.sql import functions as f

    kind = _as_text(row)
    if kind is None:
        return None

    def is_misread(value: Column, kind: Any) -> Column | None:
        return _is_misread(value, kind, found=found)

    read_again = f.from_json(text, kind)
    reasons = [
        f.when(wrong, f.lit(f"has a value that does not fit the type of its column: {field.name}"))
        for field in row.fields
        if (wrong := anywhere(read_again[field.name], field.dataType, is_misread)) is not None
    ]
    types = _types(row)
    suspects = [_SUSPECTS[name] for name in sorted(types)]
    if found and "DecimalType" in types:
        suspects.append(_FRACTIONS)
    return f.when(text.rlike("|".join(suspects)), f.coalesce(*reasons))


def _is_misread(value: Column, kind: Any, *, found: bool) -> Column | None:
    """`value` is the text of what should have the type."""
    from pyspark.sql import functions as f

    match type(kind).__name__:
        case "ByteType":
            return ~value.try_cast("int").between(-128, 127)
        case "FloatType":
            number = f.abs(value.try_cast("double"))
            return (number > _MOST_FLOAT) & (number != float("inf"))
        case "DecimalType":
            return value.rlike(",|[.][0-9]*[1-9]|E-" if found else ",")
        case "DateType":  # days since 1970
            return value.rlike("^\\s*[-+]?[0-9]{1,3}\\s*$")
        case (
            "TimestampType"
        ):  # more seconds than fit, of which Spark takes the lowest bits; a time of the day, which it takes for today's
            return value.rlike("^-?[0-9]{14}|^\\s*T?[0-9]{1,2}:")
    return None


def _as_text(kind: Any) -> str | None:
    """The type with text in place of these types, without what has none of them. None: there are none."""
    match type(kind).__name__:
        case "ArrayType":
            inner = _as_text(kind.elementType)
            return None if inner is None else f"array<{inner}>"
        case "MapType":
            inner = _as_text(kind.valueType)
            return None if inner is None else f"map<string,{inner}>"
        case "StructType":
            parts = {field.name: _as_text(field.dataType) for field in kind.fields}
            fields = [f"{quoted(name)}:{inner}" for name, inner in parts.items() if inner is not None]
            return f"struct<{','.join(fields)}>" if fields else None
        case name:
            return "string" if name in _SUSPECTS else None


def _types(kind: Any) -> set[str]:
    """The names of these types in a type."""
    match type(kind).__name__:
        case "ArrayType":
            return _types(kind.elementType)
        case "MapType":
            return _types(kind.valueType)
        case "StructType":
            return {name for field in kind.fields for name in _types(field.dataType)}
        case name:
            return {name} & _SUSPECTS.keys()
