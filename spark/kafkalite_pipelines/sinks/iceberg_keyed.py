"""Upserts and deletes in an Iceberg table, by copy on write: data files that have a changed key are written again without it.

Spark's tasks read and write the files. The driver holds the changed keys of one batch, no rows.
"""

from __future__ import annotations

import functools
import pickle
from collections.abc import Iterator
from typing import TYPE_CHECKING, Any

from pyiceberg.expressions import AlwaysTrue, And, BooleanExpression, GreaterThanOrEqual, LessThanOrEqual
from pyiceberg.manifest import DataFile
from pyiceberg.table import FileScanTask, Table, Transaction

from kafkalite_pipelines.definition import DELETED
from kafkalite_pipelines.sinks import writing
from kafkalite_pipelines.sinks.iceberg import IcebergTable
from kafkalite_pipelines.sinks.iceberg_files import data_file, remove_files, target_of
from kafkalite_pipelines.sinks.iceberg_reading import read
from kafkalite_pipelines.sinks.keyed import last_of_each_key
from kafkalite_pipelines.sinks.sink import Batch

if TYPE_CHECKING:
    import pyarrow as pa
    from pyspark.sql import DataFrame, SparkSession

#: Files are rewritten in the driver if there are no more bytes than this: a Spark job takes longer.
_HERE_BYTES = 32 << 20
_REWRITTEN = "file int, matched long, path string, partition binary, rows long, bytes long, footer binary"


class KeyedIcebergTable(IcebergTable):
    """A table with one row for each key."""

    def _stage(self, rows: DataFrame, batch: Batch) -> _Upserted:
        from pyspark.sql import functions as f

        last = last_of_each_key(rows, self.sink.key).persist()
        try:
            table = self.prepared(last.drop(DELETED))
            new = self.write(last.where(~f.col(DELETED)).drop(DELETED), table, batch)
            keys = last.select(*self.sink.key).toArrow()
        finally:
            last.unpersist()
        return _Upserted(self, batch, table, rows.sparkSession, new, keys)


class _Upserted:
    """New rows as files, and the keys that they replace or delete."""

    def __init__(
        self,
        sink: IcebergTable,
        batch: Batch,
        table: Table,
        spark: SparkSession,
        new: list[writing.WrittenFile],
        keys: pa.Table,
    ) -> None:
        self._sink = sink
        self._batch = batch
        self._table = table
        self._spark = spark
        self._new = [file for file in new if file.rows]
        self._keys = keys
        self._rewritten: list[writing.WrittenFile] = []

    def commit(self) -> int:
        return self._sink.commit(self._batch, self._table, self._change)

    def _change(self, transaction: Transaction, summary: dict[str, str]) -> int:
        """Based on the table of this transaction: files that appear later would make the commit fail, and this is done again."""
        table = transaction._table
        self._forget(table)
        replaced: list[DataFile] = []
        added = [data_file(table, file) for file in self._new]
        if self._keys.num_rows:
            for task, files in rewrite(
                self._spark, table, overlapping(table, self._keys), self._keys, self._batch.prefix
            ):
                replaced.append(task.file)
                self._rewritten += files
                added += [data_file(table, file) for file in files]
        if not added and not replaced:
            return 0
        with transaction.update_snapshot(snapshot_properties=summary).overwrite() as overwrite:
            for each in replaced:
                overwrite.delete_data_file(each)
            for each in added:
                overwrite.append_data_file(each)
        return int(self._keys.num_rows)

    def _forget(self, table: Table) -> None:
        remove_files(table, self._rewritten)
        self._rewritten = []

    def discard(self) -> None:
        remove_files(self._table, self._new)


def overlapping(table: Table, keys: pa.Table) -> list[FileScanTask]:
    """The data files that may have one of the keys, by the smallest and largest value of each column of the key."""
    import pyarrow.compute as pc

    expression: BooleanExpression = AlwaysTrue()
    for name in keys.column_names:
        if not _ordered(keys.column(name).type):
            continue
        bounds = pc.min_max(keys.column(name)).as_py()
        expression = And(expression, GreaterThanOrEqual(name, bounds["min"]), LessThanOrEqual(name, bounds["max"]))
    return list(table.scan(row_filter=expression).plan_files())


def _ordered(kind: Any) -> bool:
    import pyarrow as pa

    return bool(
        pa.types.is_integer(kind)
        or pa.types.is_string(kind)
        or pa.types.is_large_string(kind)
        or pa.types.is_date(kind)
    )


def rewrite(
    spark: SparkSession, table: Table, tasks: list[FileScanTask], keys: pa.Table, prefix: str
) -> Iterator[tuple[FileScanTask, list[writing.WrittenFile]]]:
    """The files that have a key: each with the files of its other rows. That is one, or none if it has no other rows, or several if the
    table was partitioned otherwise when it was written."""
    work = functools.partial(
        _rewritten, pickle.dumps(tasks), pickle.dumps(_source(table)), pickle.dumps(keys), target_of(table), prefix
    )
    if sum(task.file.file_size_in_bytes for task in tasks) <= _HERE_BYTES or len(tasks) == 1:
        for number, matched, files in work(range(len(tasks))):
            if matched:
                yield tasks[number], files
        return

    def in_task(batches: Iterator[pa.RecordBatch]) -> Iterator[pa.RecordBatch]:
        for batch in batches:
            for number, matched, files in work(batch.column("id").to_pylist()):
                made: list[writing.WrittenFile | None] = [*files] or [None]
                for file in made:
                    yield _as_batch(number, matched, file)

    numbers = spark.range(0, len(tasks), 1, min(len(tasks), 1000))
    found: dict[int, list[writing.WrittenFile]] = {}
    for row in numbers.mapInArrow(in_task, _REWRITTEN).collect():
        if row.matched:
            files = found.setdefault(row.file, [])
            if row.path:
                partition = pickle.loads(bytes(row.partition))
                files.append(writing.WrittenFile(row.path, partition, row.rows, row.bytes, bytes(row.footer)))
    for number, files in found.items():
        yield tasks[number], files


def _as_batch(number: int, matched: int, file: writing.WrittenFile | None) -> pa.RecordBatch:
    import pyarrow as pa

    values: list[Any] = [number, matched, None, b"", 0, 0, b""]
    if file is not None:
        values[2:] = [file.path, pickle.dumps(file.partition), file.rows, file.size, file.footer]
    types = [pa.int32(), pa.int64(), pa.string(), pa.binary(), pa.int64(), pa.int64(), pa.binary()]
    names = ["file", "matched", "path", "partition", "rows", "bytes", "footer"]
    return pa.RecordBatch.from_arrays(
        [pa.array([value], kind) for value, kind in zip(values, types, strict=True)], names=names
    )


def _source(table: Table) -> tuple[Any, dict[str, str], str]:
    """What reading a file of the table needs, in a form that travels."""
    return table.metadata, dict(table.io.properties), table.metadata_location


def _rewritten(
    tasks: bytes, source: bytes, keys: bytes, target: writing.Target, prefix: str, numbers: Any
) -> Iterator[tuple[int, int, list[writing.WrittenFile]]]:
    """(number, rows that have a key, the files of the others) for some of the tasks. Deletes of other engines are applied."""
    files, wanted = pickle.loads(tasks), pickle.loads(keys)
    metadata, properties, location = pickle.loads(source)
    for number in numbers:
        rows = read(metadata, properties, location, files[number])
        kept = others(rows, wanted)
        matched = rows.num_rows - kept.num_rows
        made: list[writing.WrittenFile] = []
        if matched and kept.num_rows:
            for partition, part in _partitions(metadata, files[number].file, kept):
                made += writing.files_of(part, target, prefix, partition)
        yield number, matched, made


def _partitions(metadata: Any, file: DataFile, rows: pa.Table) -> Iterator[tuple[tuple[Any, ...], pa.Table]]:
    """The rows of a file by the partitions that the table has now. Another engine may have changed what it is partitioned by: the values of the
    file would hide the rows from readers that filter."""
    if file.spec_id == metadata.default_spec_id:
        yield tuple(file.partition), rows
        return
    columns = []
    for field in metadata.spec().fields:
        source = metadata.schema().find_field(field.source_id)
        transform = field.transform.transform(source.field_type)
        values = _in_manifests(rows.column(source.name)).to_pylist()
        known = {value: None if value is None else transform(value) for value in set(values)}
        columns.append([known[value] for value in values])
    places: dict[tuple[Any, ...], list[int]] = {}
    for number in range(rows.num_rows):
        places.setdefault(tuple(column[number] for column in columns), []).append(number)
    for partition, numbers in places.items():
        yield partition, rows.take(numbers)


def _in_manifests(column: pa.ChunkedArray) -> pa.ChunkedArray:
    """Times as microseconds and days as numbers, as Iceberg's transforms take them."""
    import pyarrow as pa

    if pa.types.is_timestamp(column.type):
        return column.cast(pa.timestamp("us", column.type.tz)).cast(pa.int64())
    return column.cast(pa.int32()) if pa.types.is_date32(column.type) else column


def others(rows: pa.Table, keys: pa.Table) -> pa.Table:
    """The rows whose key is none of `keys`."""
    import pyarrow as pa
    import pyarrow.compute as pc

    names = keys.column_names
    wanted = _with_one_zero(keys.cast(pa.schema([rows.schema.field(name) for name in names])))
    present = _with_one_zero(rows.select(names))
    if len(names) == 1:
        return rows.filter(pc.invert(pc.is_in(present.column(0), value_set=wanted.column(0).combine_chunks())))
    numbered = present.append_column("__row", pa.array(range(rows.num_rows), pa.int64()))
    left = numbered.join(wanted, keys=names, join_type="left anti")
    return rows.take(left.column("__row").combine_chunks().sort())


def _with_one_zero(table: pa.Table) -> pa.Table:
    """-0.0 as 0.0: they are one key to Spark, and two to Arrow."""
    import pyarrow as pa
    import pyarrow.compute as pc

    for number, field in enumerate(table.schema):
        if pa.types.is_floating(field.type):
            zeros = pc.add(table.column(number), pa.scalar(0.0, field.type))
            table = table.set_column(number, field, zeros)
    return table
