"""Iceberg tables without a jar: Spark's tasks write the files, the driver commits them with pyiceberg (docs/adr/0033).

One commit has the batch's files, its number and its offsets: in the snapshot's summary, and in a property of the table, which
survives the expiry of snapshots. A commit is based on the table as it was when the number was looked up. If something else was
committed meanwhile, it fails, and the number is looked up again.
"""

from __future__ import annotations

import functools
import json
import logging
from typing import TYPE_CHECKING, Any

from kafkalite_pipelines.definition import IcebergSink, Pipeline, PipelineError
from kafkalite_pipelines.places import Place
from kafkalite_pipelines.sinks import partitions, writing
from kafkalite_pipelines.sinks.keyed import without_deletions
from kafkalite_pipelines.sinks.schemas import arrow_schema
from kafkalite_pipelines.sinks.sink import Batch, Recorded, Staged, merged_json
from kafkalite_pipelines.sinks.tables import Interval, commit_batch

try:
    from pyiceberg.catalog import Catalog, load_catalog
    from pyiceberg.exceptions import CommitFailedException, NoSuchTableError
    from pyiceberg.manifest import DataFile, DataFileContent, FileFormat
    from pyiceberg.table import Table, Transaction
    from pyiceberg.typedef import Record
except ImportError as error:
    raise PipelineError(f"Iceberg tables need a package: pip install 'kafkalite[pipelines]' ({error})") from None

if TYPE_CHECKING:
    import pyarrow as pa
    from pyspark.sql import DataFrame

log = logging.getLogger("kafkalite_pipelines")

#: In summaries of snapshots.
_SUMMARY = "kafkalite."
#: Property of a table, with the pipeline's name behind it.
RECORD = "kafkalite.pipeline."
_NEW_TABLE = {
    "format-version": "2",
    "write.parquet.compression-codec": "zstd",
    "write.metadata.delete-after-commit.enabled": "true",
    "write.metadata.previous-versions-max": "100",
}


class OneTry(Transaction):  # type: ignore[misc]
    """A transaction that is not put on top of commits that it has not seen: they could be this batch's."""

    def _rebuild_snapshot_updates(self) -> None:
        raise CommitFailedException("the table was changed at the same time")


def open_catalog(pipeline: Pipeline, sink: IcebergSink) -> Catalog:
    """The catalog that the sink names: SQLite in its warehouse if it names none."""
    properties = dict(sink.catalog)
    warehouse = pipeline.place(sink.warehouse)
    if not properties:
        if "://" in warehouse:
            raise PipelineError(
                f"sinks: a catalog in SQLite must be in a local directory, not {warehouse}; "
                '[sinks.catalog] with type = "rest", "hive" or "sql" and uri names another'
            )
        Place(warehouse).make()
        properties = {"type": "sql", "uri": f"sqlite:///{warehouse}/catalog.db"}
    properties.setdefault("warehouse", warehouse if "://" in warehouse else f"file://{warehouse}")
    try:
        catalog = load_catalog(properties.pop("name", "default"), **properties)
        if properties.get("uri", "").startswith("thrift:"):
            catalog.list_namespaces()  # Hive's connects at the first question only
        return catalog
    except Exception as error:
        raise PipelineError(f"the Iceberg catalog cannot be opened: {error}") from error


class IcebergTable:
    """One table, created when its first rows are known."""

    eager = True

    def __init__(self, pipeline: Pipeline, sink: IcebergSink) -> None:
        self._pipeline = pipeline
        self.sink = sink
        self._catalog = open_catalog(pipeline, sink)
        self._identifier = sink.table if "." in sink.table else f"default.{sink.table}"
        self.fields = partitions.fields(sink.partition_by)
        self._maintenance = Interval()

    @property
    def name(self) -> str:
        return f"Iceberg table {self.sink.table}"

    def table(self) -> Table | None:
        """As it is now; None if it does not exist yet."""
        try:
            return self._catalog.load_table(self._identifier)
        except NoSuchTableError:
            return None

    def recorded(self) -> Recorded | None:
        table = self.table()
        return None if table is None else recorded_in(table, self._pipeline.name)

    def stage(self, rows: DataFrame, batch: Batch) -> Staged:
        partitions.check(rows, self.fields)
        return self._stage(rows, batch)

    def _stage(self, rows: DataFrame, batch: Batch) -> Staged:
        rows = without_deletions(rows)
        table = self.prepared(rows)
        return _IcebergAppend(self, batch, table, self.write(rows, table, batch))

    def write(self, rows: DataFrame, table: Table, batch: Batch) -> list[writing.WrittenFile]:
        """The rows as files of the table, not committed."""
        named = [partitions.number(rows, field).alias(f"{writing.PARTITION}{n}") for n, field in enumerate(self.fields)]
        return writing.write(rows.select("*", *named), target_of(table), batch.prefix)

    def prepared(self, rows: DataFrame) -> Table:
        """The table with all columns of `rows` and with its partition fields."""
        schema = arrow_schema(rows)
        table = self.table()
        if table is None:
            namespace = self._identifier.rpartition(".")[0]
            self._catalog.create_namespace_if_not_exists(namespace)
            properties = _NEW_TABLE | dict(self.sink.properties)
            table = self._catalog.create_table_if_not_exists(self._identifier, schema, properties=properties)
        else:
            table = evolved(table, schema, evolve=self.sink.evolve)
        return self._partitioned(table)

    def _partitioned(self, table: Table) -> Table:
        """Only a table without a snapshot gets partition fields: an existing table keeps its own."""
        named = [field.name for field in table.spec().fields]
        wanted = [field.name for field in self.fields]
        if named == wanted:
            return table
        if table.current_snapshot() is not None or named:
            raise PipelineError(
                f"{self.name} is partitioned by {', '.join(named) or 'nothing'}, not by {', '.join(wanted)}"
            )
        with table.update_spec() as update:
            for field in self.fields:
                update.add_field(field.column, field.transform, field.name)
        return self._catalog.load_table(self._identifier)

    def commit(self, batch: Batch, change: Any) -> int:
        """`change(transaction, summary)` adds the batch's files and returns the number of rows; again after a conflict."""

        def attempt() -> int:
            table = self._catalog.load_table(self._identifier)
            recorded = recorded_in(table, self._pipeline.name)
            if recorded is not None and recorded.has(batch):
                return 0
            transaction = OneTry(table)
            offsets = merged_json(batch.offsets)
            summary = {
                f"{_SUMMARY}pipeline": batch.pipeline,
                f"{_SUMMARY}query": batch.query,
                f"{_SUMMARY}batch": str(batch.number),
                f"{_SUMMARY}offsets": offsets,
            }
            rows: int = change(transaction, summary)
            record = {"query": batch.query, "number": batch.number, "offsets": json.loads(offsets)}
            transaction.set_properties({f"{RECORD}{batch.pipeline}": json.dumps(record, separators=(",", ":"))})
            transaction.commit_transaction()
            return rows

        return commit_batch(self.name, batch.number, attempt, CommitFailedException)

    def maintain(self) -> str | None:
        plan = self.sink.maintenance
        if plan is None or not self._maintenance.is_over(plan.every_s) or (table := self.table()) is None:
            return None
        from kafkalite_pipelines.sinks.iceberg_maintenance import maintain

        return maintain(self, table, plan)


def recorded_in(table: Table, pipeline: str) -> Recorded | None:
    """The last batch of a pipeline that the table has."""
    text = table.properties.get(f"{RECORD}{pipeline}")
    if text is None:
        return None
    value = json.loads(text)
    return Recorded(value["query"], value["number"], value["offsets"])


class _IcebergAppend:
    """Files to be added."""

    def __init__(self, sink: IcebergTable, batch: Batch, table: Table, files: list[writing.WrittenFile]) -> None:
        self._sink = sink
        self._batch = batch
        self._data_files = [data_file(table, file) for file in files if file.rows]
        self._files = files
        self._table = table

    def commit(self) -> int:
        def change(transaction: Transaction, summary: dict[str, str]) -> int:
            if self._data_files:
                with transaction.update_snapshot(snapshot_properties=summary).fast_append() as append:
                    for file in self._data_files:
                        append.append_data_file(file)
            return sum(file.rows for file in self._files)

        added = self._sink.commit(self._batch, change)
        if added == 0 and self._files:
            self.discard()
        return added

    def discard(self) -> None:
        remove_files(self._table, self._files)


def remove_files(table: Table, files: list[writing.WrittenFile]) -> None:
    """Files that no commit names. A failure leaves them, which costs room only."""
    for file in files:
        try:
            table.io.delete(f"{data_location(table)}/{file.path}")
        except OSError as error:
            log.warning("a file that is not used could not be removed: %s", error)


def data_location(table: Table) -> str:
    location = table.properties.get("write.data.path", f"{table.location()}/data")
    return str(location).rstrip("/")


def target_of(table: Table) -> writing.Target:
    """Where and how tasks write files of this table."""
    location = data_location(table)
    local = location.removeprefix("file://") if location.startswith(("file://", "/")) else None
    return writing.Target(
        location=local or location,
        schema=file_schema(table),
        partitions=tuple(field.name for field in table.spec().fields),
        opener=None if local else functools.partial(_open, dict(table.io.properties)),
        target_bytes=int(table.properties.get("write.target-file-size-bytes", 128 << 20)),
    )


def file_schema(table: Table) -> pa.Schema:
    """With the field ids by which readers find columns."""
    import pyarrow as pa
    from pyiceberg.io.pyarrow import schema_to_pyarrow

    return pa.schema([_small(field) for field in schema_to_pyarrow(table.schema(), include_field_ids=True)])


def _small(field: pa.Field) -> pa.Field:
    """A field with the types that Spark hands over: pyiceberg's have 64-bit lengths, which would be converted."""
    import pyarrow as pa

    kind = field.type
    if pa.types.is_large_string(kind):
        return field.with_type(pa.string())
    if pa.types.is_large_binary(kind):
        return field.with_type(pa.binary())
    if pa.types.is_large_list(kind) or pa.types.is_list(kind):
        return field.with_type(pa.list_(_small(kind.value_field)))
    if pa.types.is_map(kind):
        return field.with_type(pa.map_(_small(kind.key_field), _small(kind.item_field)))
    if pa.types.is_struct(kind):
        return field.with_type(pa.struct([_small(kind.field(number)) for number in range(kind.num_fields)]))
    return field


def _open(properties: dict[str, str], location: str, path: str) -> Any:
    """In a task, for object stores: with the catalog's credentials."""
    from pyiceberg.io.pyarrow import PyArrowFileIO

    return PyArrowFileIO(properties).new_output(f"{location}/{path}").create(overwrite=True)


def data_file(table: Table, file: writing.WrittenFile) -> DataFile:
    """What the table's manifest says of a file, statistics of its columns included."""
    import pyarrow as pa
    import pyarrow.parquet as pq
    from pyiceberg.io.pyarrow import (
        compute_statistics_plan,
        data_file_statistics_from_parquet_metadata,
        parquet_path_to_id_mapping,
    )

    statistics = data_file_statistics_from_parquet_metadata(
        parquet_metadata=pq.read_metadata(pa.BufferReader(file.footer)),
        stats_columns=compute_statistics_plan(table.schema(), table.properties),
        parquet_column_mapping=parquet_path_to_id_mapping(table.schema()),
    )
    return DataFile.from_args(
        content=DataFileContent.DATA,
        file_path=f"{data_location(table)}/{file.path}",
        file_format=FileFormat.PARQUET,
        partition=Record(*file.partition),
        file_size_in_bytes=file.size,
        sort_order_id=None,
        spec_id=table.spec().spec_id,
        equality_ids=None,
        key_metadata=None,
        **statistics.to_serialized_dict(),
    )


def evolved(table: Table, schema: pa.Schema, *, evolve: bool) -> Table:
    """The table with the columns of `schema` too. Types are widened where Iceberg allows that (int to long, float to double,
    a decimal's precision).

    Raises:
        PipelineError: a column has another type, or there are new columns and the sink does not evolve.
    """
    from pyiceberg.exceptions import ValidationError
    from pyiceberg.io.pyarrow import _pyarrow_to_schema_without_ids

    existing = {field.name for field in table.schema().fields}
    new = [field.name for field in schema if field.name not in existing]
    if new and not evolve:
        raise PipelineError(f"the rows have columns that the table has not ({', '.join(new)}), and evolve is false")
    wanted = _pyarrow_to_schema_without_ids(schema)
    narrower = [field for field in wanted.fields if field.name in existing]
    if not new and all(table.schema().find_field(f.name).field_type == f.field_type for f in narrower):
        return table
    try:
        with table.update_schema() as update:
            update.union_by_name(widening(table, schema))
    except (ValidationError, ValueError, TypeError) as error:
        raise PipelineError(f"the rows do not fit the table: {error}") from None
    return table


def widening(table: Table, schema: pa.Schema) -> Any:
    """`schema` without the columns whose type in the table is already wider: an int goes into a long."""
    import pyarrow as pa
    from pyiceberg.exceptions import ResolveError
    from pyiceberg.io.pyarrow import _pyarrow_to_schema_without_ids
    from pyiceberg.schema import promote
    from pyiceberg.types import PrimitiveType

    wanted = _pyarrow_to_schema_without_ids(schema)
    kept = []
    for arrow, field in zip(schema, wanted.fields, strict=True):
        present = next((each for each in table.schema().fields if each.name == field.name), None)
        if (
            present is not None
            and isinstance(present.field_type, PrimitiveType)
            and isinstance(field.field_type, PrimitiveType)
        ):
            if present.field_type == field.field_type:
                continue
            try:
                promote(field.field_type, present.field_type)
                continue  # the table's type takes these values
            except ResolveError:
                pass
        kept.append(arrow)
    return pa.schema(kept)
