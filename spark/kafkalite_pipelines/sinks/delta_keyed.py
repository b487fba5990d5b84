"""MERGE into a Delta table: deltalake's own, on the driver, of the last row of each key in the batch."""

from __future__ import annotations

from typing import TYPE_CHECKING, Any

from deltalake import CommitProperties, DeltaTable

from kafkalite_pipelines.definition import DELETED
from kafkalite_pipelines.sinks import writing
from kafkalite_pipelines.sinks.delta import DeltaSinkTable
from kafkalite_pipelines.sinks.delta_rules import checked
from kafkalite_pipelines.sinks.delta_types import plain
from kafkalite_pipelines.sinks.keyed import last_of_each_key
from kafkalite_pipelines.sinks.sink import Batch

if TYPE_CHECKING:
    import pyarrow as pa
    from pyspark.sql import DataFrame


class KeyedDeltaTable(DeltaSinkTable):
    """A table with one row for each key."""

    def _stage(self, rows: DataFrame, batch: Batch) -> _Merged:
        last = last_of_each_key(rows, self.sink.key)
        table = self.prepared(last.drop(DELETED))
        return _Merged(self, batch, checked(last, table, self.name).toArrow())


class _Merged:
    """Changed rows, in the driver's memory."""

    def __init__(self, sink: DeltaSinkTable, batch: Batch, rows: Any) -> None:
        self._sink = sink
        self._batch = batch
        self._rows = rows

    def commit(self) -> int:
        key = self._sink.sink.key

        def change(table: DeltaTable, properties: CommitProperties) -> int:
            source = _as_in(table, self._rows)
            deleted = f"s.{_quoted(DELETED)}"
            data = [name for name in source.schema.names if name != DELETED]
            values = {_quoted(name): f"s.{_quoted(name)}" for name in data}
            before = table.version()
            table.merge(
                source=source,
                predicate=" AND ".join(f"t.{_quoted(name)} = s.{_quoted(name)}" for name in key),
                source_alias="s",
                target_alias="t",
                commit_properties=properties,
            ).when_matched_delete(deleted).when_matched_update(
                values, predicate=f"NOT {deleted}"
            ).when_not_matched_insert(values, predicate=f"NOT {deleted}").execute()
            if table.version() == before:  # deltalake does not commit a merge that changes no row
                self._sink.append(table, [], properties)
            return int(self._rows.num_rows)

        return self._sink.commit(self._batch, change)

    def discard(self) -> None:
        """Nothing is written before the commit."""


def _as_in(table: DeltaTable, rows: pa.Table) -> pa.Table:
    """The rows with all columns of the table, and its types: a row replaces another as a whole, and objects may have fewer fields."""
    import pyarrow as pa

    for batch in rows.to_batches():
        writing.check(batch)
    fields = [pa.field(field.name, plain(field.type)) for field in pa.schema(table.schema().to_arrow())]
    wanted = pa.schema([*fields, pa.field(DELETED, pa.bool_())])
    return pa.Table.from_batches([writing.conform(batch, wanted) for batch in rows.to_batches()], wanted)


def _quoted(name: str) -> str:
    return '"' + name.replace('"', '""') + '"'
