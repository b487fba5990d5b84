"""Iceberg tables without a jar: Spark's tasks write the files, the driver commits them with pyiceberg (docs/adr/0033).

One commit has the batch's files, its number and its offsets: in the snapshot's summary, and in a property of the table, which
survives the expiry of snapshots. A commit is based on the table as it was when the number was looked up. If something else was
committed meanwhile, it fails, and the number is looked up again.
"""

from __future__ import annotations

import json
from typing import TYPE_CHECKING, Any

from pyiceberg.catalog import Catalog, load_catalog
from pyiceberg.exceptions import CommitFailedException, NoSuchTableError
from pyiceberg.table import Table, Transaction
from pyiceberg.table.update import AssertRefSnapshotId, RemovePartitionSpecsUpdate

from kafkalite_pipelines.definition import IcebergSink, Pipeline, PipelineError
from kafkalite_pipelines.places import Place
from kafkalite_pipelines.sinks import partitions, writing
from kafkalite_pipelines.sinks.iceberg_files import OneTry, data_file, file_schema, remove_files, target_of
from kafkalite_pipelines.sinks.iceberg_maintenance import maintain
from kafkalite_pipelines.sinks.keyed import without_deletions
from kafkalite_pipelines.sinks.schemas import arrow_schema, as_required, check_decimals, check_names
from kafkalite_pipelines.sinks.sink import Batch, Recorded, Staged, merged_json
from kafkalite_pipelines.sinks.tables import Interval, repeated

if TYPE_CHECKING:
    import pyarrow as pa
    from pyspark.sql import DataFrame

#: In summaries of snapshots.
_SUMMARY = "kafkalite."
#: Property of a table, with the pipeline's name behind it.
RECORD = "kafkalite.pipeline."
#: Property of a table: the pipeline that made it. Until a batch is committed, this pipeline may replace its columns.
MADE_BY = "kafkalite.made.by"
_NEW_TABLE = {
    "format-version": "2",
    "write.parquet.compression-codec": "zstd",
    "write.metadata.delete-after-commit.enabled": "true",
    "write.metadata.previous-versions-max": "100",
}


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
    name = properties.pop("name", "default")
    for others in (True, True, False):
        try:
            catalog = load_catalog(name, **properties)
            if properties.get("uri", "").startswith("thrift:"):
                catalog.list_namespaces()  # Hive's connects at the first question only
            return catalog
        except Exception as error:
            if others and "already exists" in str(error):
                continue  # two pipelines that begin together make the tables of a catalog in SQL
            said = (str(error).splitlines() or [type(error).__name__])[0]
            raise PipelineError(f"the Iceberg catalog cannot be opened: {said}") from error
    raise AssertionError("unreachable")


class IcebergTable:
    """One table, created when its first rows are known."""

    eager = True

    def __init__(self, pipeline: Pipeline, sink: IcebergSink) -> None:
        self._pipeline = pipeline
        self.sink = sink
        self._catalog = open_catalog(pipeline, sink)
        self._identifier = sink.table if "." in sink.table else f"default.{sink.table}"
        self.fields = partitions.fields(sink.partition_by)
        self._maintenance = Interval(pipeline, self.name)

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
        return repeated(self.name, "its columns are changed", lambda: self._prepared(schema), CommitFailedException)

    def _prepared(self, schema: pa.Schema) -> Table:
        table = self.table()
        if table is None:
            check_names((), schema, self.name)
            self.make_namespace()
            properties = _NEW_TABLE | {MADE_BY: self._pipeline.name} | dict(self.sink.properties)
            try:
                table = self._catalog.create_table_if_not_exists(self._identifier, schema, properties=properties)
            except ValueError as error:  # names with dots that are those of fields in objects
                raise self._no_table(error) from None
            return self._partitioned(table)
        try:
            check_names(file_schema(table), schema, self.name)
            return self._partitioned(evolved(table, schema, self.name, evolve=self.sink.evolve))
        except PipelineError:
            if not is_left_over(table, self._pipeline.name):
                raise
        check_names((), schema, self.name)
        try:
            return self._partitioned(made_again(table, schema))
        except ValueError as error:
            raise self._no_table(error) from None

    def _no_table(self, error: ValueError) -> PipelineError:
        return PipelineError(f"{self.name}: no Iceberg table can have these columns: {error}")

    def make_namespace(self) -> None:
        """The namespace of a new table, if there is none."""
        namespace = self._identifier.rpartition(".")[0]
        try:
            self._catalog.create_namespace_if_not_exists(namespace)
        except Exception:  # a catalog in SQL says in its database's words that another pipeline has made it meanwhile
            if not self._catalog.namespace_exists(namespace):
                raise

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
        try:
            with table.update_spec() as update:
                for field in self.fields:
                    update.add_field(field.column, field.transform, field.name)
        except ValueError as error:  # the rows have a column with the name of a partition field
            raise PipelineError(f"{self.name}: partition_by: {error}") from None
        return self._catalog.load_table(self._identifier)

    def commit(self, batch: Batch, written_for: Table, change: Any) -> int:
        """`change(transaction, summary)` adds the batch's files and returns the number of rows; again after a conflict.

        Args:
            written_for: the table as the files were written for it.
        """

        def attempt() -> int:
            table = self._catalog.load_table(self._identifier)
            recorded = recorded_in(table, self._pipeline.name)
            if recorded is not None and recorded.has(batch):
                return 0
            if replaced := replaced_columns(written_for, table):
                raise PipelineError(
                    f"{self.name}: {', '.join(replaced)} became another column while batch {batch.number} was written, "
                    "which is to be done again: start the pipeline again"
                )
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

        return repeated(self.name, f"batch {batch.number} is committed", attempt, CommitFailedException)

    def maintain(self) -> str | None:
        plan = self.sink.maintenance
        if plan is None or not self._maintenance.is_over(plan.every_s) or (table := self.table()) is None:
            return None
        done = maintain(table, plan)
        return f"{self.name}: {done}" if done else None


def is_left_over(table: Table, pipeline: str) -> bool:
    """Whether a batch of this pipeline that failed made the table, and nobody has committed anything since."""
    used = table.current_snapshot() is not None or any(name.startswith(RECORD) for name in table.properties)
    return not used and table.properties.get(MADE_BY) == pipeline


def made_again(table: Table, schema: pa.Schema) -> Table:
    """The table without its partition fields and with the columns of `schema` alone.

    Raises:
        CommitFailedException: somebody has committed to it.
    """
    from pyiceberg.io.pyarrow import _pyarrow_to_schema_without_ids

    wanted = _pyarrow_to_schema_without_ids(schema)
    kinds = {field.name: field.field_type for field in wanted.fields}
    transaction = OneTry(table)
    if table.spec().fields:
        with transaction.update_spec() as spec:
            for field in table.spec().fields:
                spec.remove_field(field.name)
        transaction._apply(
            (RemovePartitionSpecsUpdate(spec_ids=[table.spec().spec_id]),)
        )  # else it keeps the columns' names
    with transaction.update_schema() as columns:
        for field in table.schema().fields:
            if field.field_type != kinds.get(field.name):
                columns.delete_column((field.name,))
    with transaction.update_schema() as columns:
        columns.union_by_name(wanted)
    transaction._apply((), (AssertRefSnapshotId(ref="main", snapshot_id=None),))
    return transaction.commit_transaction()


def replaced_columns(written_for: Table, now: Table) -> list[str]:
    """Columns that have another field id since: readers would not find the values that are in the files."""
    ids = {field.name: field.field_id for field in now.schema().fields}
    return [
        field.name for field in written_for.schema().fields if ids.get(field.name, field.field_id) != field.field_id
    ]


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

        added = self._sink.commit(self._batch, self._table, change)
        if added == 0 and self._files:
            self.discard()
        return added

    def discard(self) -> None:
        remove_files(self._table, self._files)


def evolved(table: Table, schema: pa.Schema, name: str, *, evolve: bool) -> Table:
    """The table with the columns of `schema` too; errors have its `name`. Types are widened where Iceberg allows that (int to long, float to double,
    a decimal's precision).

    Raises:
        PipelineError: a column has another type, or there are new columns and the sink does not evolve.
    """
    present = file_schema(table)
    check_decimals(present, schema, name)
    schema = as_required(schema, present)
    from pyiceberg.exceptions import ValidationError
    from pyiceberg.io.pyarrow import _pyarrow_to_schema_without_ids

    existing = {field.name for field in table.schema().fields}
    new = [field.name for field in schema if field.name not in existing]
    if new and not evolve:
        raise PipelineError(
            f"{name}: the rows have columns that the table does not have ({', '.join(new)}), and evolve is false"
        )
    try:
        wanted = _pyarrow_to_schema_without_ids(schema)
        narrower = [field for field in wanted.fields if field.name in existing]
        if not new and all(table.schema().find_field(f.name).field_type == f.field_type for f in narrower):
            return table
        with table.update_schema() as update:
            update.union_by_name(widening(table, schema))
    except (ValidationError, ValueError, TypeError) as error:
        raise PipelineError(f"{name}: the rows do not fit the table: {error}") from None
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
