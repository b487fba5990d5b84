"""Rules of a Delta table that each writer keeps: NOT NULL, CHECK constraints, invariants, generated columns. Readers rely on them.

deltalake does not read the files that Spark's tasks have written. The rules are Spark's SQL, so Spark evaluates them.
Source: Delta's protocol, "CHECK Constraints", "Column Invariants", "Generated Columns".
"""

from __future__ import annotations

import json
from collections.abc import Iterator
from typing import TYPE_CHECKING

from deltalake import DeltaTable

from kafkalite_pipelines.decoding.types import quoted
from kafkalite_pipelines.definition import DELETED

if TYPE_CHECKING:
    from pyspark.sql import DataFrame

_CONSTRAINT = "delta.constraints."


def checked(rows: DataFrame, table: DeltaTable, name: str) -> DataFrame:
    """The rows. Their job fails, with one line, at a row that breaks a rule of the table `name`; a deletion breaks none."""
    from pyspark.sql import functions as f

    rules = list(_rules(table))
    if not rules:
        return rows
    missing = [field.name for field in table.schema().fields if field.name not in rows.columns]
    whole = rows.withColumns({name: f.lit(None) for name in missing}) if missing else rows
    is_deletion = f.col(DELETED) if DELETED in rows.columns else f.lit(False)
    for what, sql in rules:
        refusal = f.raise_error(f.lit(f"{name}: a row breaks {what}")).cast("boolean")
        whole = whole.where(f.when(is_deletion | f.coalesce(f.expr(sql), f.lit(False)), True).otherwise(refusal))
    return whole.drop(*missing)


def _rules(table: DeltaTable) -> Iterator[tuple[str, str]]:
    """(the rule in words, the condition that is true of each row)."""
    for field in table.schema().fields:
        column, metadata = quoted(field.name), field.metadata
        if not field.nullable:
            yield f"the rule that column {field.name} is NOT NULL", f"{column} IS NOT NULL"
        if "delta.invariants" in metadata:
            sql = json.loads(metadata["delta.invariants"])["expression"]["expression"]
            yield f"the invariant of column {field.name} ({sql})", sql
        if "delta.generationExpression" in metadata:
            sql = metadata["delta.generationExpression"]
            yield f"the rule that column {field.name} is {sql}: a step can make it", f"{column} <=> ({sql})"
    for key, sql in table.metadata().configuration.items():
        if key.startswith(_CONSTRAINT):
            yield f"its constraint {key.removeprefix(_CONSTRAINT)} ({sql})", sql
