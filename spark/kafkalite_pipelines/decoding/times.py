"""Times that Spark has and tables do not have: Python, and with it pyiceberg and pyarrow, knows the years 1 to 9999."""

from __future__ import annotations

from typing import TYPE_CHECKING, Any

from kafkalite_pipelines.decoding.nested import anywhere

if TYPE_CHECKING:
    from pyspark.sql import Column

#: The first and the last moment, in microseconds and in days since 1970.
MICROS = (-62_135_596_800_000_000, 253_402_300_799_999_999)
DAYS = (-719_162, 2_932_896)


def outside_of_years(value: Column, kind: Any) -> Column | None:
    """Whether a time in `value` (of Spark's type `kind`, in any nesting) is of another year. None: there can be no time in it."""
    return anywhere(value, kind, _is_outside)


def _is_outside(value: Column, kind: Any) -> Column | None:
    from pyspark.sql import functions as f

    match type(kind).__name__:
        case "DateType" | "TimestampNTZType":  # which has the days of no zone
            return ~f.unix_date(value.cast("date")).between(*DAYS)
        case "TimestampType":
            return ~f.unix_micros(value).between(*MICROS)
    return None
