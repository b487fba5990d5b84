"""Times that Spark has and tables have not: Python, and with it pyiceberg and pyarrow, knows the years 1 to 9999."""

from __future__ import annotations

import functools
import operator
from typing import TYPE_CHECKING, Any

if TYPE_CHECKING:
    from pyspark.sql import Column

#: The first and the last moment, in microseconds and in days since 1970.
MICROS = (-62_135_596_800_000_000, 253_402_300_799_999_999)
DAYS = (-719_162, 2_932_896)


def outside_of_years(value: Column, kind: Any) -> Column | None:
    """Whether a time in `value` (of Spark's type `kind`, in any nesting) is of another year. None: there can be no time in it."""
    from pyspark.sql import functions as f

    match type(kind).__name__:
        case "DateType":
            return ~f.unix_date(value).between(*DAYS)
        case "TimestampType" | "TimestampNTZType":
            return ~f.unix_micros(value.cast("timestamp")).between(*MICROS)
        case "ArrayType":
            return _any(value, kind.elementType)
        case "MapType":
            parts = [_any(f.map_keys(value), kind.keyType), _any(f.map_values(value), kind.valueType)]
        case "StructType":
            parts = [outside_of_years(value[field.name], field.dataType) for field in kind.fields]
        case _:
            return None
    found = [part for part in parts if part is not None]
    return functools.reduce(operator.or_, found) if found else None


def _any(values: Column, kind: Any) -> Column | None:
    """The same of the elements of an array."""
    from pyspark.sql import functions as f

    if outside_of_years(f.get(values, 0), kind) is None:
        return None
    return f.exists(values, lambda value: outside_of_years(value, kind))
