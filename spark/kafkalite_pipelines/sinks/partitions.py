"""Partitioning of tables: columns, and years, months, days, hours of a time. UTC, as the table formats define it."""

from __future__ import annotations

import re
from typing import TYPE_CHECKING
from urllib.parse import quote

from kafkalite.lazy_dataclass import dataclass
from kafkalite_pipelines.definition import PipelineError

if TYPE_CHECKING:
    from pyspark.sql import Column, DataFrame

_DAY_US, _HOUR_US = 86_400_000_000, 3_600_000_000
#: One entry of partition_by in a pipeline file.
PARTITION_BY = re.compile(r"(?:(year|month|day|hour)\(\s*([A-Za-z_][A-Za-z0-9_]*)\s*\)|([A-Za-z_][A-Za-z0-9_]*))")


@dataclass(frozen=True, slots=True)
class PartitionField:
    """One field: the column it is made from, how, and its own name."""

    transform: str
    column: str
    name: str


def partition_field(text: str) -> tuple[str, str]:
    """(transform, column) of one entry of partition_by; the transform of a plain column is "identity"."""
    found = PARTITION_BY.fullmatch(text)
    assert found is not None, text
    return (found[1], found[2]) if found[1] else ("identity", found[3])


def fields(partition_by: tuple[str, ...]) -> tuple[PartitionField, ...]:
    found = [partition_field(each) for each in partition_by]
    return tuple(
        PartitionField(transform, column, column if transform == "identity" else f"{column}_{transform}")
        for transform, column in found
    )


def check(rows: DataFrame, partition_by: tuple[PartitionField, ...], *, as_text: bool = False) -> None:
    """`as_text`: of a format that has the values as text, in columns of their own. Raises PipelineError: a column does not exist, has no
    time or no text, or the rows have a column with the name of one that partition_by makes."""
    types = {column.name: column.dataType.typeName() for column in rows.schema}
    taken = {name.lower(): name for name in types}
    for field in partition_by:
        if field.column not in types:
            raise PipelineError(f"partition_by: the rows have no column {field.column} ({', '.join(types)})")
        if field.transform != "identity" and types[field.column] not in ("timestamp", "timestamp_ntz", "date"):
            raise PipelineError(
                f"partition_by: {field.transform}({field.column}): the column is a {types[field.column]}, no time"
            )
        if as_text and field.transform != "identity" and field.name.lower() in taken:
            raise PipelineError(
                f"partition_by: {field.transform}({field.column}) makes a column {field.name}, and the rows have a column "
                f"{taken[field.name.lower()]}: a step can leave it out or give it another name"
            )
        if as_text and types[field.column] == "binary":
            raise PipelineError(f"partition_by: {field.column} is binary, which has no text: use hex({field.column})")


def _days(rows: DataFrame, column: str) -> Column:
    """Days since 1970 in UTC, whatever the session's time zone is; a time without a zone has its own days."""
    from pyspark.sql import functions as f

    if rows.schema[column].dataType.typeName() == "timestamp":
        return _whole(f.unix_micros(column), _DAY_US)
    return f.unix_date(f.col(column).cast("date"))


def _whole(micros: Column, unit: int) -> Column:
    """Whole units, rounded down. In whole numbers: `/` is of doubles, which have no last microsecond of the year 9999."""
    from pyspark.sql import functions as f

    return f.call_function("div", micros - f.pmod(micros, f.lit(unit)), f.lit(unit)).cast("int")


def number(rows: DataFrame, field: PartitionField) -> Column:
    """The value of Iceberg's transform: years, months, days, hours since 1970; the column itself for identity."""
    from pyspark.sql import functions as f

    if field.transform == "identity":
        return f.col(field.column)
    days = _days(rows, field.column)
    date = f.date_from_unix_date(days)
    if field.transform == "year":
        return f.year(date) - 1970
    if field.transform == "month":
        return (f.year(date) - 1970) * 12 + f.month(date) - 1
    if field.transform != "hour":
        return days
    kind = rows.schema[field.column].dataType.typeName()
    if kind == "timestamp":
        return _whole(f.unix_micros(field.column), _HOUR_US)
    return days * 24 + (f.hour(field.column) if kind == "timestamp_ntz" else 0)


def derived(rows: DataFrame, field: PartitionField) -> Column:
    """A column of its own, for formats whose partitions are columns: 2013, "2013-01", a date, "2013-01-31-23"."""
    from pyspark.sql import functions as f

    if field.transform == "identity":
        return f.col(field.column)
    date = f.date_from_unix_date(_days(rows, field.column))
    if field.transform == "year":
        return f.year(date)
    if field.transform == "month":
        return f.date_format(date, "yyyy-MM")
    if field.transform == "day":
        return date
    hour = f.pmod(number(rows, field), f.lit(24))
    return f.concat(f.date_format(date, "yyyy-MM-dd"), f.lit("-"), f.lpad(hour.cast("string"), 2, "0"))


def directory(names: list[str], values: list[object]) -> str:
    """name=value/… as Hive writes it. An empty text is null there: Spark reads no directory with an empty value."""
    shown = ["__HIVE_DEFAULT_PARTITION__" if value in (None, "") else quote(text(value), safe=" ") for value in values]
    return "/".join(f"{name}={value}" for name, value in zip(names, shown, strict=True))


def text(value: object) -> str:
    """A value of a partition as text, for formats that have no other form."""
    return str(value).lower() if isinstance(value, bool) else str(value)
