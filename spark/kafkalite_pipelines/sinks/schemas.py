"""Schemas between Spark and Arrow, and how a table's columns may change."""

from __future__ import annotations

from collections.abc import Iterable, Iterator
from typing import TYPE_CHECKING, Any

from kafkalite_pipelines.definition import PipelineError

if TYPE_CHECKING:
    import pyarrow as pa
    from pyspark.sql import DataFrame


def arrow_schema(rows: DataFrame) -> pa.Schema:
    """The schema of what Spark hands to Python functions; times in UTC; every column may be null.

    Raises:
        PipelineError: a column has no type, which is that of a NULL in SQL.
    """
    import pyarrow as pa
    from pyspark.sql.pandas.types import to_arrow_schema

    try:
        schema = to_arrow_schema(rows.schema, timezone="UTC")
    except TypeError:  # before Spark 4.2 it is always UTC
        schema = to_arrow_schema(rows.schema)
    for path, kind in _fields(schema, ""):
        if _is_of_nulls(kind):
            raise PipelineError(f"column {path} has no type, only NULL: in the step, CAST(NULL AS string) gives it one")
    return pa.schema([pa.field(field.name, _nullable(field.type)) for field in schema])


def as_required(rows: pa.Schema, present: pa.Schema) -> pa.Schema:
    """The schema of the rows, with what the table requires: that columns, fields, elements or values are not null. Every column of Spark's rows may
    be null; a table that took this over would lose its rule."""
    import pyarrow as pa

    return pa.schema([_as_required(field, present) for field in rows])


def _as_required(field: pa.Field, present: Any) -> pa.Field:
    """`present`: the table's fields at this place."""
    index = present.get_field_index(field.name)
    return field if index < 0 else _like(field, present.field(index))


def _like(field: pa.Field, table: pa.Field) -> pa.Field:
    import pyarrow as pa

    kind, wanted = field.type, table.type
    if pa.types.is_struct(kind) and pa.types.is_struct(wanted):
        kind = pa.struct([_as_required(kind.field(number), wanted) for number in range(kind.num_fields)])
    elif pa.types.is_list(kind) and (pa.types.is_list(wanted) or pa.types.is_large_list(wanted)):
        kind = pa.list_(_like(kind.value_field, wanted.value_field))
    elif pa.types.is_map(kind) and pa.types.is_map(wanted):
        kind = pa.map_(kind.key_field, _like(kind.item_field, wanted.item_field))
    return field.with_type(kind).with_nullable(table.nullable)


def check_names(present: Iterable[pa.Field], rows: Iterable[pa.Field], name: str) -> None:
    """Raises PipelineError: a column of the rows, or a field in an object, differs from one of the table `name` (of type `present`), or from
    another one of the rows, in upper and lower case only. Spark could read neither of them."""
    known: dict[str, set[str]] = {}
    for path, _ in _fields(present, ""):
        known.setdefault(path.lower(), set()).add(path)
    for path, _ in _fields(rows, ""):
        others = known.setdefault(path.lower(), {path})
        if path not in others:
            raise PipelineError(
                f"{name}: {path} differs from {min(others)} in upper and lower case only: to Spark they are the same. In a step, "
                "AS gives a column the table's name"
            )


def check_decimals(present: Iterable[pa.Field], rows: Iterable[pa.Field], name: str) -> None:
    """Raises PipelineError: a decimal of the rows has more digits behind the point than that of the Iceberg table `name`, or fewer and does
    not fit in front of it. Iceberg's decimals keep their scale: values in the files that are there would become others. (pyiceberg 0.12
    does not look at it.)"""
    import pyarrow as pa

    def decimals(kinds: Iterable[pa.Field]) -> dict[str, Any]:
        return {path: kind for path, kind in _fields(kinds, "") if pa.types.is_decimal(kind)}

    known = decimals(present)
    for path, kind in decimals(rows).items():
        table = known.get(path, kind)
        fits = kind.scale < table.scale and kind.precision - kind.scale <= table.precision - table.scale
        if kind.scale != table.scale and not fits:
            raise PipelineError(
                f"{name}: the rows do not fit the table: column {path} is decimal({table.precision},{table.scale}), and the rows have "
                f"decimal({kind.precision},{kind.scale}); the digits behind the point stay as they are"
            )


def _fields(kinds: Any, path: str) -> Iterator[tuple[str, Any]]:
    """(path, type) of fields, elements and values at all depths."""
    for field in kinds:
        yield f"{path}{field.name}", field.type
        yield from _inner(field.type, f"{path}{field.name}.")


def _inner(kind: Any, path: str) -> Iterator[tuple[str, Any]]:
    import pyarrow as pa

    if pa.types.is_struct(kind):
        yield from _fields(kind, path)
    elif pa.types.is_map(kind):
        yield from ((f"{path[:-1]}{{key}}", kind.key_type), (f"{path[:-1]}{{}}", kind.item_type))
        yield from _inner(kind.item_type, path)
    elif pa.types.is_list(kind) or pa.types.is_large_list(kind) or pa.types.is_list_view(kind):
        yield f"{path[:-1]}[]", kind.value_type
        yield from _inner(kind.value_type, path)


def _is_of_nulls(kind: Any) -> bool:
    import pyarrow as pa

    if pa.types.is_list(kind):
        return _is_of_nulls(kind.value_type)
    if pa.types.is_map(kind):
        return _is_of_nulls(kind.key_type) or _is_of_nulls(kind.item_type)
    return bool(pa.types.is_null(kind))


def _nullable(kind: Any) -> Any:
    import pyarrow as pa

    if pa.types.is_struct(kind):
        return pa.struct([pa.field(kind.field(n).name, _nullable(kind.field(n).type)) for n in range(kind.num_fields)])
    if pa.types.is_list(kind):
        return pa.list_(pa.field("element", _nullable(kind.value_type)))
    if pa.types.is_map(kind):
        return pa.map_(kind.key_type, pa.field("value", _nullable(kind.item_type)))
    return kind
