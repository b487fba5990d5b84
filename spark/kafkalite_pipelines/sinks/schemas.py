"""Schemas between Spark and Arrow, and how a table's columns may change."""

from __future__ import annotations

from typing import TYPE_CHECKING, Any

if TYPE_CHECKING:
    import pyarrow as pa
    from pyspark.sql import DataFrame


def arrow_schema(rows: DataFrame) -> pa.Schema:
    """The schema of what Spark hands to Python functions; times in UTC; every column may be null."""
    import pyarrow as pa
    from pyspark.sql.pandas.types import to_arrow_schema

    try:
        schema = to_arrow_schema(rows.schema, timezone="UTC")
    except TypeError:  # before Spark 4.2 it is always UTC
        schema = to_arrow_schema(rows.schema)
    return pa.schema([pa.field(field.name, _nullable(field.type)) for field in schema])


def _nullable(kind: Any) -> Any:
    import pyarrow as pa

    if pa.types.is_struct(kind):
        return pa.struct([pa.field(kind.field(n).name, _nullable(kind.field(n).type)) for n in range(kind.num_fields)])
    if pa.types.is_list(kind):
        return pa.list_(pa.field("element", _nullable(kind.value_type)))
    if pa.types.is_map(kind):
        return pa.map_(kind.key_type, pa.field("value", _nullable(kind.item_type)))
    return kind
