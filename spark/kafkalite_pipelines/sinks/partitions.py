"""Partitioning of tables: columns, and years, months, days, hours of a time. UTC, as the table formats define it."""

from __future__ import annotations

import re
from typing import TYPE_CHECKING
from urllib.parse import quote

from kafkalite.lazy_dataclass import dataclass
from kafkalite_pipelines.definition import PipelineError

if TYPE_CHECKING:
    from pyspark.sql import Column, DataFrame

_DAY_US = 86_400_000_000
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


def check(rows: DataFrame, partition_by: tuple[PartitionField, ...]) -> None:
    """Raises PipelineError: a column does not exist, or has no time."""
    types = {column.name: column.dataType.typeName() for column in rows.schema}
    for field in partition_by:
        if field.column not in types:
            raise PipelineError(f"partition_by: the rows have no column {field.column} ({', '.join(types)})")
        if field.transform != "identity" and types[field.column] not in ("timestamp", "timestamp_ntz", "date"):
            raise PipelineError(
                f"partition_by: {field.transform}({field.column}): the column is a {types[field.column]}, no time"
            )


def _days(rows: DataFrame, column: str) -> Column:
    """Days since 1970 in UTC, whatever the session's time zone is."""
    from pyspark.sql import functions as f

    kind = rows.schema[column].dataType.typeName()
    if kind == "date":
        return f.unix_date(column)
    micros = f.unix_micros(f.col(column).cast("timestamp"))
    return f.floor(micros / f.lit(_DAY_US)).cast("int")


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
    if field.transform == "hour" and rows.schema[field.column].dataType.typeName() != "date":
        return f.floor(f.unix_micros(f.col(field.column).cast("timestamp")) / f.lit(3_600_000_000)).cast("int")
    return days * (24 if field.transform == "hour" else 1)


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
    """name=value/… as Hive writes it."""
    shown = ["__HIVE_DEFAULT_PARTITION__" if value is None else quote(str(value), safe=" ") for value in values]
    return "/".join(f"{name}={value}" for name, value in zip(names, shown, strict=True))
