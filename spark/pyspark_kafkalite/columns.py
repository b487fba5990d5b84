"""The columns of a topic's rows: those of Spark's own Kafka source, names, types and order.

Spark's planning processes need them at each start, without Arrow: its types of these columns are in `arrow_types`.
Source: Spark's KafkaRecordToRowConverter (spark-sql-kafka-0-10).
"""

from __future__ import annotations

from pyspark.sql.types import (
    ArrayType,
    BinaryType,
    DataType,
    IntegerType,
    LongType,
    StringType,
    StructField,
    StructType,
    TimestampType,
)

from kafkalite.lazy_dataclass import dataclass
from pyspark_kafkalite.options import OptionError

HEADERS_SPARK = ArrayType(StructType([StructField("key", StringType()), StructField("value", BinaryType())]))

_TYPES: dict[str, DataType] = {
    "key": BinaryType(),
    "value": BinaryType(),
    "topic": StringType(),
    "partition": IntegerType(),
    "offset": LongType(),
    "timestamp": TimestampType(),
    "timestampType": IntegerType(),
    "headers": HEADERS_SPARK,
}


@dataclass(frozen=True, slots=True)
class Column:
    """One column to produce: `field` is its name in `_TYPES`, `name` how the user's schema spells it."""

    field: str
    name: str
    nullable: bool = True


def spark_schema(*, include_headers: bool) -> StructType:
    """The schema of the source; `headers` only when asked for, as Spark's Kafka source does it."""
    names = [name for name in _TYPES if include_headers or name != "headers"]
    return StructType([StructField(name, _TYPES[name]) for name in names])


def columns_of(schema: StructType) -> tuple[Column, ...]:
    """What to produce for `schema`: any subset of the columns, in any order, with the source's types.

    Raises:
        OptionError: an unknown column, or a type that is not the source's.
    """
    by_lower = {name.lower(): name for name in _TYPES}
    columns = []
    for field in schema.fields:
        known = by_lower.get(field.name.lower())
        if known is None:
            raise OptionError(f"the schema asks for column {field.name!r}; the columns are {', '.join(_TYPES)}")
        expected = _TYPES[known]
        # the simple string leaves nullability aside
        if field.dataType.simpleString() != expected.simpleString():
            raise OptionError(
                f"column {field.name!r} is {expected.simpleString()}, the schema asks for {field.dataType.simpleString()}: "
                "read it as it is and cast it in the query"
            )
        columns.append(Column(known, field.name, field.nullable))
    return tuple(columns)
