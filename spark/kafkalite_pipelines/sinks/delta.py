"""Delta tables without a jar: Spark's tasks write the files, the driver commits them with deltalake (docs/adr/0033).

The commit has Delta's own transaction entry (application, version): two commits of one batch are refused by the format itself.
"""

from __future__ import annotations

import functools
import json
import logging
import re
import time
from collections.abc import Mapping
from typing import TYPE_CHECKING, Any

from deltalake import CommitProperties, DeltaTable, Transaction, write_deltalake
from deltalake import Schema as DeltaSchema
from deltalake.exceptions import CommitFailedError, DeltaError, TableNotFoundError
from deltalake.transaction import AddAction

from kafkalite_pipelines.definition import DeltaSink, Pipeline, PipelineError
from kafkalite_pipelines.sinks import partitions, writing
from kafkalite_pipelines.sinks.delta_rules import checked
from kafkalite_pipelines.sinks.delta_types import has_only_more_fields, merged, plain, shown
from kafkalite_pipelines.sinks.keyed import without_deletions
from kafkalite_pipelines.sinks.schemas import arrow_schema, check_names
from kafkalite_pipelines.sinks.sink import Batch, Recorded, Staged, merged_json
from kafkalite_pipelines.sinks.tables import Interval, repeated

if TYPE_CHECKING:
    import pyarrow as pa
    from pyspark.sql import DataFrame

log = logging.getLogger("kafkalite_pipelines")

#: In commits' information.
_PIPELINE = "kafkalite"
#: How far back the newest batch of a pipeline is looked for, one file each: where it usually is, and in tables whose commits do not
#: say where it is (`_newest`).
_COMMITS, _OLD_COMMITS = 10, 1000
#: How many versions behind the one that a commit expected it may have become.
_LATER = 100


class DeltaSinkTable:
    """One table, created when its first rows are known."""

    eager = True

    def __init__(self, pipeline: Pipeline, sink: DeltaSink) -> None:
        self._pipeline = pipeline
        self.sink = sink
        self.location = pipeline.place(sink.path)
        self.fields = partitions.fields(sink.partition_by)
        self.storage = dict(sink.storage)
        self._maintenance = Interval(pipeline, self.name)

    @property
    def name(self) -> str:
        return f"Delta table {self.sink.path}"

    def table(self) -> DeltaTable | None:
        """As it is now; None if it does not exist yet."""
        try:
            return DeltaTable(self.location, storage_options=self.storage or None)
        except TableNotFoundError:
            return None
        except (DeltaError, OSError) as error:  # that of an object store has colours of a terminal
            said = " ".join(re.sub(r"(\x1b|\\x1b)\[[0-9;]*m", "", str(error)).split())
            raise PipelineError(f"{self.name} cannot be opened: {said}") from error

    def recorded(self) -> Recorded | None:
        table = self.table()
        if table is None:
            return None
        if (found := self._record_among(table.history(_COMMITS))) is not None:
            return found
        version = table.transaction_version(_newest(self._pipeline.name))
        if version is None:
            return self._record_among(table.history(_OLD_COMMITS))
        return self._recorded_from(version, table.version())

    def _recorded_from(self, version: int, last: int) -> Recorded:
        """The record in the commit that expected to become `version`."""
        for number in range(version, min(version + _LATER, last + 1)):
            try:
                then = DeltaTable(self.location, version=number, storage_options=self.storage or None)
                found = self._record_among(then.history(1))
            except DeltaError:
                break  # the log's files are removed after a time, by default of 30 days
            if found is not None:
                return found
        return Recorded("", -1, {})

    def _record_among(self, commits: list[dict[str, Any]]) -> Recorded | None:
        """That of the first commit that is one of this pipeline's."""
        for commit in commits:
            value = commit.get(_PIPELINE)
            found = json.loads(value) if isinstance(value, str) else value
            if found and found["pipeline"] == self._pipeline.name:
                return Recorded(found["query"], found["batch"], found["offsets"])
        return None

    def stage(self, rows: DataFrame, batch: Batch) -> Staged:
        partitions.check(rows, self.fields, as_text=True)
        derived = [field for field in self.fields if field.transform != "identity"]
        if derived:  # Spark Connect refuses to add no columns
            rows = rows.withColumns({field.name: partitions.derived(rows, field) for field in derived})
        return self._stage(rows, batch)

    def _stage(self, rows: DataFrame, batch: Batch) -> Staged:
        rows = without_deletions(rows)
        table = self.prepared(rows)
        rows = checked(rows, table, self.name)
        named = [rows[field.name].alias(f"{writing.PARTITION}{n}") for n, field in enumerate(self.fields)]
        return _DeltaAppend(self, batch, writing.write(rows.select("*", *named), self._target(table), batch.prefix))

    def prepared(self, rows: DataFrame) -> DeltaTable:
        """The table with all columns of `rows`."""
        schema = arrow_schema(rows)
        return repeated(self.name, "its columns are changed", lambda: self._prepared(schema), CommitFailedError)

    def _prepared(self, schema: pa.Schema) -> DeltaTable:
        table = self.table()
        check_names(() if table is None else _arrow_schema(table), schema, self.name)
        if table is None:
            table = DeltaTable.create(
                self.location,
                schema=DeltaSchema.from_arrow(schema),
                mode="ignore",
                partition_by=[field.name for field in self.fields],
                storage_options=self.storage or None,
                configuration=dict(self.sink.properties) or None,
            )
            self._check_names(table)
            return table
        self._check_names(table)
        partitioned = table.metadata().partition_columns
        if partitioned != [field.name for field in self.fields]:
            wanted = ", ".join(field.name for field in self.fields) or "nothing"
            raise PipelineError(f"{self.name} is partitioned by {', '.join(partitioned) or 'nothing'}, not by {wanted}")
        return self._evolved(table, schema)

    def _check_names(self, table: DeltaTable) -> None:
        """Raises PipelineError: the table's files call its columns otherwise. Readers would see null in all of our rows."""
        mode = table.metadata().configuration.get("delta.columnMapping.mode", "none")
        if mode != "none":
            raise PipelineError(f"{self.name} has delta.columnMapping.mode = {mode}, which a pipeline cannot write")

    def _evolved(self, table: DeltaTable, schema: pa.Schema) -> DeltaTable:
        import pyarrow as pa

        kinds = {field.name: field.type for field in _arrow_schema(table)}
        new = [field for field in schema if field.name not in kinds]
        more: list[pa.Field] = []
        wider: dict[str, pa.DataType] = {}
        for field in schema:
            if (present := kinds.get(field.name)) is None:
                continue
            kind = merged(present, field.type)
            if kind is None:
                raise PipelineError(
                    f"{self.name}: column {field.name} is {shown(plain(present))}, and the rows have {shown(field.type)}"
                )
            if not has_only_more_fields(plain(present), kind):
                wider[field.name] = kind
            elif kind != plain(present):
                more.append(pa.field(field.name, kind))
        if (new or more or wider) and not self.sink.evolve:
            if wider:
                changes = ", ".join(f"{name} becomes {shown(kind)}" for name, kind in wider.items())
                raise PipelineError(f"{self.name}: the rows have wider types ({changes}), and evolve is false")
            names = ", ".join(field.name for field in [*new, *more])
            raise PipelineError(
                f"{self.name}: the rows have columns or fields that the table does not have ({names}), and evolve is false"
            )
        if wider:
            table = self._widened(table, wider)
        if new or more:  # deltalake puts fields into the objects that are there
            table.alter.add_columns(DeltaSchema.from_arrow(pa.schema([*new, *more])).fields)
        return DeltaTable(self.location, storage_options=self.storage or None) if new or more or wider else table

    def _widened(self, table: DeltaTable, wider: Mapping[str, pa.DataType]) -> DeltaTable:
        """The table with wider types for these columns: all of its rows are written again, in one commit.

        Delta's own feature for this (type widening) leaves the files as they are, but deltalake cannot switch it on, and few readers
        know it.
        """
        import pyarrow as pa

        changes = ", ".join(f"{name} becomes {shown(kind)}" for name, kind in wider.items())
        log.warning("%s is written again: %s", self.name, changes)
        # with what else the table says of its columns: NOT NULL, invariants, generated columns, comments
        wanted = pa.schema(
            [field.with_type(wider.get(field.name, plain(field.type))) for field in _arrow_schema(table)]
        )
        batches = table.to_pyarrow_dataset().to_batches()
        write_deltalake(
            table,
            pa.RecordBatchReader.from_batches(wanted, (writing.conform(batch, wanted) for batch in batches)),
            mode="overwrite",
            schema_mode="overwrite",
            partition_by=[field.name for field in self.fields] or None,
            storage_options=self.storage or None,
        )
        return DeltaTable(self.location, storage_options=self.storage or None)

    def _target(self, table: DeltaTable) -> writing.Target:
        import pyarrow as pa

        named = {field.name for field in self.fields}
        schema = _arrow_schema(table)
        return writing.Target(
            location=self.location,
            schema=pa.schema([pa.field(field.name, plain(field.type)) for field in schema if field.name not in named]),
            partitions=tuple(field.name for field in self.fields),
            opener=functools.partial(_open, self.storage) if "://" in self.location else None,
        )

    def commit_properties(self, batch: Batch, version: int) -> CommitProperties:
        """`version`: that of the table, which the commit follows."""
        value = {
            "pipeline": batch.pipeline,
            "query": batch.query,
            "batch": batch.number,
            "offsets": json.loads(merged_json(batch.offsets)),
        }
        return CommitProperties(
            custom_metadata={_PIPELINE: json.dumps(value, separators=(",", ":"))},
            app_transactions=[
                Transaction(application(batch), batch.number),
                Transaction(_newest(batch.pipeline), version + 1),
            ],
        )

    def commit(self, batch: Batch, change: Any) -> int:
        """`change(table, properties)` commits and returns the number of rows; again after a conflict."""

        def attempt() -> int:
            table = self.table()
            assert table is not None, "it was made when the batch was staged"
            last = table.transaction_version(application(batch))
            if last is not None and last >= batch.number:
                return 0
            rows: int = change(table, self.commit_properties(batch, table.version()))
            return rows

        return repeated(self.name, f"batch {batch.number} is committed", attempt, CommitFailedError)

    def append(self, table: DeltaTable, actions: list[AddAction], properties: CommitProperties) -> None:
        """One commit, also without a file: it has the batch's number."""
        table.create_write_transaction(
            actions=list(actions),
            mode="append",
            schema=table.schema(),
            partition_by=[field.name for field in self.fields],
            commit_properties=properties,
        )

    def maintain(self) -> str | None:
        plan = self.sink.maintenance
        if plan is None or not self._maintenance.is_over(plan.every_s) or (table := self.table()) is None:
            return None
        return maintained(self.name, table, plan)


def maintained(name: str, table: DeltaTable, plan: Any) -> str | None:
    """Merge small files, remove the files of old versions."""
    from datetime import timedelta

    done = []
    if plan.compact_below is not None:
        merged = table.optimize.compact(target_size=plan.target_bytes)
        if merged["numFilesRemoved"]:
            done.append(f"{merged['numFilesRemoved']} files merged into {merged['numFilesAdded']}")
    if plan.expire_after_s is not None:
        hours = max(int(timedelta(seconds=plan.expire_after_s).total_seconds() // 3600), 1)
        removed = table.vacuum(retention_hours=hours, dry_run=False, enforce_retention_duration=False)
        if removed:
            done.append(f"{len(removed)} files of old versions removed")
    return f"{name}: {', '.join(done)}" if done else None


def application(batch: Batch) -> str:
    """The name in Delta's transaction entries. A new checkpoint counts its batches from 0 under a new name."""
    return f"kafkalite/{batch.pipeline}/{batch.query}"


def _newest(pipeline: str) -> str:
    """The name in Delta's transaction entries whose version is that of the table with the pipeline's newest batch, or a little less:
    the table keeps it when the files of its log with the batch's offsets are far back."""
    return f"kafkalite/{pipeline}"


class _DeltaAppend:
    """Files to be added."""

    def __init__(self, sink: DeltaSinkTable, batch: Batch, files: list[writing.WrittenFile]) -> None:
        self._sink = sink
        self._batch = batch
        self._files = files
        self._actions = [_added(sink, file) for file in files if file.rows]

    def commit(self) -> int:
        tried = False

        def change(table: DeltaTable, properties: CommitProperties) -> int:
            nonlocal tried
            tried = True
            self._sink.append(table, self._actions, properties)
            return sum(file.rows for file in self._files)

        rows = self._sink.commit(self._batch, change)
        if not tried:
            self.discard()
        return rows

    def discard(self) -> None:
        """No version names the files, and a vacuum passes over such files. A failure leaves them, which costs room only."""
        files = _files(self._sink.storage, self._sink.location)
        for file in self._files:
            try:
                files.delete_file(file.path)
            except OSError as error:
                log.warning("a file that is not used could not be removed: %s", error)


def _added(sink: DeltaSinkTable, file: writing.WrittenFile) -> AddAction:
    values = {
        field.name: None if value is None else partitions.text(value)
        for field, value in zip(sink.fields, file.partition, strict=True)
    }
    return AddAction(
        file.path, file.size, values, int(time.time() * 1000), data_change=True, stats=statistics(file.footer)
    )


def statistics(footer: bytes) -> str:
    """Rows, and smallest and largest value of plain columns: readers skip files by them."""
    import pyarrow as pa
    import pyarrow.parquet as pq

    metadata = pq.read_metadata(pa.BufferReader(footer))
    least: dict[str, Any] = {}
    most: dict[str, Any] = {}
    nulls: dict[str, int] = {}
    unknown: set[str] = set()
    for group in range(metadata.num_row_groups):
        for index in range(metadata.num_columns):
            column = metadata.row_group(group).column(index)
            name, found = column.path_in_schema, column.statistics
            if "." in name or found is None or not found.has_null_count:
                unknown.add(name)
                continue
            nulls[name] = nulls.get(name, 0) + found.null_count
            low, high = (found.min, found.max) if found.has_min_max else (None, None)
            if low is None and found.null_count == column.num_values:
                continue
            if not _comparable(low) or not _comparable(high):
                unknown.add(name)
                continue
            least[name] = low if name not in least else min(least[name], low)
            most[name] = high if name not in most else max(most[name], high)

    def kept(values: dict[str, Any]) -> dict[str, Any]:
        return {name: _json_value(value) for name, value in values.items() if name not in unknown}

    counted = {
        "numRecords": metadata.num_rows,
        "minValues": kept(least),
        "maxValues": kept(most),
        "nullCount": kept(nulls),
    }
    return json.dumps(counted)


def _comparable(value: Any) -> bool:
    """Values whose JSON in Delta's statistics is exact: no floats (NaN), no text (which would have to be cut)."""
    from datetime import date

    return isinstance(value, bool | int) or (isinstance(value, date) and not hasattr(value, "hour"))


def _json_value(value: Any) -> Any:
    return value if isinstance(value, bool | int) else str(value)


def _arrow_schema(table: DeltaTable) -> Any:
    import pyarrow as pa

    return pa.schema(table.schema().to_arrow())


def _open(storage: dict[str, str], location: str, path: str) -> Any:
    """In a task, for object stores: with the table's credentials."""
    return _files(storage, location).open_output_stream(path)


def _files(storage: dict[str, str], location: str) -> Any:
    """The table's directory, as a pyarrow file system."""
    from pyarrow.fs import LocalFileSystem, PyFileSystem, SubTreeFileSystem

    if "://" not in location:
        return SubTreeFileSystem(location, LocalFileSystem())
    from deltalake.fs import DeltaStorageHandler

    return PyFileSystem(DeltaStorageHandler(location, storage or None))
