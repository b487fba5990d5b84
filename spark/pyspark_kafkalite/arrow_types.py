"""The columns of a topic's rows as Arrow has them (`columns` has them as Spark does)."""

from __future__ import annotations

import pyarrow as pa

from pyspark_kafkalite.columns import Column

HEADER_ARROW = pa.struct([pa.field("key", pa.string()), pa.field("value", pa.binary())])

_TYPES: dict[str, pa.DataType] = {
    "key": pa.binary(),
    "value": pa.binary(),
    "topic": pa.string(),
    "partition": pa.int32(),
    "offset": pa.int64(),
    "timestamp": pa.timestamp("us", tz="UTC"),
    "timestampType": pa.int32(),
    "headers": pa.list_(HEADER_ARROW),
}


def arrow_schema(columns: tuple[Column, ...]) -> pa.Schema:
    """The Arrow schema that Spark compares ours with, nullability included."""
    return pa.schema([pa.field(column.name, _TYPES[column.field], column.nullable) for column in columns])
