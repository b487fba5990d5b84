"""Rows that replace and delete others: the last row of each key in a batch is what counts. Other tables only grow."""

from __future__ import annotations

from typing import TYPE_CHECKING

from kafkalite_pipelines.decoding.types import ddl_of, quoted
from kafkalite_pipelines.definition import DELETED, PipelineError

if TYPE_CHECKING:
    from pyspark.sql import DataFrame

_LAST = "__last"


def without_deletions(rows: DataFrame) -> DataFrame:
    """The rows of a table that is only added to: a deletion, which another sink with a key takes, is none of them."""
    from pyspark.sql import functions as f

    return rows.where(~f.col(DELETED)).drop(DELETED) if DELETED in rows.columns else rows


def last_of_each_key(rows: DataFrame, key: tuple[str, ...]) -> DataFrame:
    """One row per key, the one with the highest offset; with DELETED. All records of a key are in one partition, as every
    producer with keys writes them: their offsets say which is the last.

    Raises:
        PipelineError: the rows lack a column that this needs.
    """
    from pyspark.sql import functions as f
    from pyspark.sql.types import AtomicType

    for name in (*key, "_partition", "_offset"):
        if name not in rows.columns:
            needed = "the key" if name in key else f"{name}, which orders the rows of a key: select it in the steps"
            raise PipelineError(f"key: the rows have no column {name} ({needed})")
    for name in key:
        kind = rows.schema[name].dataType
        if not isinstance(kind, AtomicType):
            raise PipelineError(
                f"key: {name} is {ddl_of(kind)}, which has no single value: make a column of each of its fields in a step"
            )
    if DELETED not in rows.columns:
        rows = rows.withColumn(DELETED, f.lit(False))
    columns = rows.columns
    row, order = f.struct(*[f.col(quoted(name)) for name in columns]), f.struct("_offset", "_partition")
    present = f.lit(True)
    for name in key:
        present = present & f.col(name).isNotNull()
    refusal = f.raise_error(f.lit(f"a row has no key ({', '.join(key)}): the steps must leave such rows out"))
    last = (
        rows.where(f.when(present, True).otherwise(refusal.cast("boolean")))
        .groupBy(*key)
        .agg(f.max_by(row, order).alias(_LAST))
    )
    return last.select(f"{_LAST}.*")
