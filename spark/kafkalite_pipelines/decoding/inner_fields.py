"""Fields inside of objects: which of a record are no columns' fields yet, or are spelt in another case; types with more fields.

A record is read once for each level of objects, with a type in which the objects of this level are maps: those have every name as it is.
"""

from __future__ import annotations

from collections.abc import Iterator
from typing import TYPE_CHECKING, Any

from kafkalite_pipelines.decoding.types import quoted

if TYPE_CHECKING:
    from pyspark.sql import Column

#: Objects and arrays that are deeper within a column become its text: each level costs every record something.
_LEVELS = 15

#: In front of a name that is new, and of one that differs in case only.
NEW, RESPELT = "+", "="


def strange_names(text: Column, row: Any) -> Column:
    """The names in a record that are no columns of `row`, and those in objects that are no fields there: `+order.Lines` if it is new,
    `=order.Lines` if it differs from another in case only. An array of text; null if the record is no object."""
    from pyspark.sql import functions as f

    # json_object_keys does not know the numbers without digits, which from_json takes
    top = f.coalesce(f.json_object_keys(text), f.map_keys(f.from_json(text, "map<string,string>")))
    within = [_names(f.from_json(text, ddl), row, depth, "") for depth, ddl in _levels(row)]
    return f.concat(_strange(top, row.names, ""), *within)


def _strange(names: Column, known: list[str], path: str) -> Column:
    from pyspark.sql import functions as f

    exact, lower = (f.array(*map(f.lit, each)) for each in (known, [name.lower() for name in known]))
    strange = f.filter(names, lambda name: ~f.array_contains(exact, name) & (name != ""))
    return f.transform(
        strange,
        lambda name: f.concat(
            f.when(f.array_contains(lower, f.lower(name)), RESPELT).otherwise(NEW), f.lit(path), name
        ),
    )


def _levels(row: Any) -> Iterator[tuple[int, str]]:
    """Each depth at which there are objects, with its type."""
    depth = 1
    while (ddl := maps_at(row, depth)) is not None:
        yield depth, ddl
        depth += 1


def maps_at(kind: Any, depth: int) -> str | None:
    """The type that reads the objects at a depth as maps, and what is around them. None: there are none so deep."""
    match type(kind).__name__:
        case "ArrayType":
            inner = maps_at(kind.elementType, depth)
            return None if inner is None else f"array<{inner}>"
        case "StructType":
            if depth == 0:
                return "map<string,string>"
            parts = {field.name: maps_at(field.dataType, depth - 1) for field in kind.fields}
            fields = [f"{quoted(name)}:{inner}" for name, inner in parts.items() if inner is not None]
            return f"struct<{','.join(fields)}>" if fields else None
    return None


def _names(value: Column, kind: Any, depth: int, path: str) -> Column:
    """Those in a value that was read with `maps_at(kind, depth)`."""
    from pyspark.sql import functions as f

    none = f.array().cast("array<string>")
    if type(kind).__name__ == "ArrayType":
        names = f.flatten(f.transform(value, lambda element: _names(element, kind.elementType, depth, path)))
    elif depth == 0:
        names = _strange(f.map_keys(value), kind.names, path)
    else:
        parts = [
            _names(value[field.name], field.dataType, depth - 1, f"{path}{field.name}.")
            for field in kind.fields
            if maps_at(field.dataType, depth - 1) is not None
        ]
        names = f.concat(*parts)
    return f.coalesce(names, none)


def fields_of(kind: Any) -> int:
    """How many fields a Spark type has at all depths; anything but an object counts as one."""
    match type(kind).__name__:
        case "ArrayType":
            return fields_of(kind.elementType)
        case "StructType":
            return sum(fields_of(field.dataType) for field in kind.fields)
    return 1


def grown(known: Any, found: Any) -> Any:
    """A Spark type with the fields that only `found` has, at the end of their objects. All others keep their types."""
    return _grown(known, found, _LEVELS)


def _grown(known: Any, found: Any, levels: int) -> Any:
    from pyspark.sql.types import ArrayType, StructField, StructType

    if isinstance(known, ArrayType) and isinstance(found, ArrayType):
        return ArrayType(_grown(known.elementType, found.elementType, levels - 1))
    if not (isinstance(known, StructType) and isinstance(found, StructType)):
        return known
    theirs = {field.name: field.dataType for field in found.fields}
    fields = [StructField(f.name, _grown(f.dataType, theirs.get(f.name, f.dataType), levels - 1)) for f in known.fields]
    taken = {field.name.lower() for field in known.fields}
    for field in found.fields:
        if field.name and field.name.lower() not in taken:
            fields.append(StructField(field.name, as_column(field.dataType, levels - 1)))
            taken.add(field.name.lower())
    return StructType(fields)


def as_column(kind: Any, levels: int = _LEVELS) -> Any:
    """A Spark type that was found in records, as a column can have it: of names that differ in case only the first stays, and what is too
    deep is text."""
    from pyspark.sql.types import ArrayType, StringType, StructType

    if isinstance(kind, ArrayType | StructType) and levels == 0:
        return StringType()
    if isinstance(kind, ArrayType):
        return ArrayType(as_column(kind.elementType, levels - 1))
    return _grown(StructType([]), kind, levels) if isinstance(kind, StructType) else kind
