"""Upserts into an Iceberg table that another engine has partitioned otherwise meanwhile. Without Spark: no row is new, some are deleted."""

from __future__ import annotations

from datetime import UTC, date, datetime
from pathlib import Path
from types import SimpleNamespace
from typing import Any

import pyarrow as pa
import pytest

pytest.importorskip("pyiceberg")

from pyspark.sql.types import DateType, LongType, StringType, StructField, StructType, TimestampType

from kafkalite_pipelines import parse
from kafkalite_pipelines.sinks import iceberg_keyed, writing
from kafkalite_pipelines.sinks.iceberg_files import target_of
from kafkalite_pipelines.sinks.iceberg_keyed import KeyedIcebergTable, _Upserted
from kafkalite_pipelines.sinks.sink import Batch

COLUMNS = {"n": LongType(), "at": TimestampType(), "d": DateType(), "s": StringType()}
ROWS: Any = SimpleNamespace(schema=StructType([StructField(*column) for column in COLUMNS.items()]))
MARCH = (2024 - 1970) * 12 + 2


def opened(directory: Path, *partition_by: str) -> KeyedIcebergTable:
    sink = {"format": "iceberg", "table": "t", "key": ["n"], "partition_by": list(partition_by)}
    values = {"name": "p", "kafka": {"bootstrap.servers": "a:1"}, "source": {"topics": ["t"]}, "sinks": [sink]}
    pipeline = parse(values, directory)
    return KeyedIcebergTable(pipeline, pipeline.sinks[0])  # type: ignore[arg-type]


class LocalSpark:
    """Runs the function of `mapInArrow` here, for each number."""

    def range(self, first: int, last: int, *_: int) -> Any:
        def map_in_arrow(task: Any, _: str) -> Any:
            numbers = iter(pa.record_batch({"id": pa.array([number], pa.int64())}) for number in range(first, last))
            rows = [SimpleNamespace(**row) for batch in task(numbers) for row in batch.to_pylist()]
            return SimpleNamespace(collect=lambda: rows)

        return SimpleNamespace(mapInArrow=map_in_arrow)


def upserted(sink: KeyedIcebergTable, number: int, new: list[writing.WrittenFile], *deleted: int) -> _Upserted:
    batch = Batch("p", "q", number, {"t": {"0": number}})
    keys = pa.table({"n": pa.array(deleted, pa.int64())})
    spark: Any = LocalSpark()
    return _Upserted(sink, batch, sink.prepared(ROWS), spark, new, keys)


def found(sink: KeyedIcebergTable, row_filter: str) -> list[int]:
    table = sink.table()
    assert table is not None
    return sorted(table.scan(row_filter=row_filter).to_arrow().column("n").to_pylist())


@pytest.mark.parametrize("in_tasks", [False, True])
def test_files_that_were_partitioned_otherwise_are_in_the_partitions_of_now(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch, *, in_tasks: bool
) -> None:
    """The file of the other rows had the values of the old partition in the place of the new ones: month 650 was day 650, in 1971. A query for
    the day did not find its rows any more."""
    monkeypatch.setattr(iceberg_keyed, "_HERE_BYTES", 0 if in_tasks else 1 << 20)
    sink = opened(tmp_path, "month(at)")
    target = target_of(sink.prepared(ROWS))
    days = [datetime(2024, 3, day, 12, tzinfo=UTC) for day in (1, 1, 2, 3)]
    more = {"n": [5], "at": days[:1], "d": [None], "s": ["c"]}
    columns = {"n": [1, 2, 3, 4], "at": days, "d": [at.date() for at in days], "s": ["a", "a", None, "b"]}
    rows = pa.table(columns).cast(target.schema)
    files = [writing.files_of(each, target, "first", (MARCH,)) for each in (rows, pa.table(more).cast(target.schema))]
    upserted(sink, 0, [file for [file] in files]).commit()
    table = sink.table()
    assert table is not None
    with table.update_spec() as update:  # as `ALTER TABLE … REPLACE PARTITION FIELD` does
        update.remove_field("at_month")
        for column, transform, name in (("at", "day", "at_day"), ("d", "identity", "d"), ("s", "identity", "s")):
            update.add_field(column, transform, name)
    sink = opened(tmp_path, "day(at)", "d", "s")
    assert upserted(sink, 1, [], 2, 4).commit() == 2
    assert found(sink, "n > 0") == [1, 3, 5]
    assert found(sink, "at >= '2024-03-01T00:00:00+00:00' AND at < '2024-03-02T00:00:00+00:00'") == [1, 5]
    assert (found(sink, f"d = '{date(2024, 3, 2)}'"), found(sink, "s = 'a'"), found(sink, "s IS NULL")) == (
        [3],
        [1],
        [3],
    )
    assert upserted(sink, 2, [], 1, 5).commit() == 2 and found(sink, "n > 0") == [3]
