"""Plain Parquet files: a directory per batch. It has its name only when all its files are written."""

from __future__ import annotations

import json
from typing import TYPE_CHECKING

from kafkalite_pipelines.definition import ParquetSink, Pipeline
from kafkalite_pipelines.places import Place
from kafkalite_pipelines.sinks import partitions, writing
from kafkalite_pipelines.sinks.keyed import without_deletions
from kafkalite_pipelines.sinks.sink import Batch, Recorded, merged_json

if TYPE_CHECKING:
    from pyspark.sql import DataFrame

#: The last batch, beside the data. Readers skip names that begin with _.
_LAST = "_kafkalite.json"


class ParquetFiles:
    """Files below `path`: batch=<query>-<number>/…; Spark, DuckDB and pyarrow read the directory."""

    eager = True

    def __init__(self, pipeline: Pipeline, sink: ParquetSink) -> None:
        self._name = sink.path
        self.location = pipeline.place(sink.path)
        self._fields = partitions.fields(sink.partition_by)
        self.place = Place(self.location)

    @property
    def name(self) -> str:
        return f"files {self._name}"

    def recorded(self) -> Recorded | None:
        value = self.place.read_json(_LAST)
        return None if value is None else Recorded(value["query"], value["number"], value["offsets"])

    def stage(self, rows: DataFrame, batch: Batch) -> _StagedFiles:
        from kafkalite_pipelines.sinks.schemas import arrow_schema

        partitions.check(rows, self._fields)
        kept = without_deletions(rows)
        staging = f"{self.location}/_staging/{batch.prefix}"
        self.place.remove_tree(f"_staging/{batch.prefix}")
        named = [
            partitions.derived(kept, field).alias(f"{writing.PARTITION}{n}") for n, field in enumerate(self._fields)
        ]
        schema = arrow_schema(kept)
        for field in [field for field in self._fields if field.transform == "identity"]:
            schema = schema.remove(schema.get_field_index(field.column))  # it is in the directory's name
        target = writing.Target(staging, schema, tuple(field.name for field in self._fields))
        written = writing.write(kept.select("*", *named), target, batch.prefix)
        return _StagedFiles(self, batch, sum(file.rows for file in written), empty=not written)

    def maintain(self) -> str | None:
        return None


class _StagedFiles:
    def __init__(self, sink: ParquetFiles, batch: Batch, rows: int, *, empty: bool) -> None:
        self._sink = sink
        self._batch = batch
        self._rows = rows
        self._empty = empty

    def commit(self) -> int:
        """The rename makes the batch visible; what ran before under the same number is replaced by the same records."""
        place, batch = self._sink.place, self._batch
        name = f"batch={batch.prefix}"
        recorded = self._sink.recorded()
        if recorded is not None and recorded.has(batch):
            self.discard()
            return 0
        place.remove_tree(name)
        if not self._empty:
            place.move(f"_staging/{batch.prefix}", name)
        last = {"query": batch.query, "number": batch.number, "offsets": json.loads(merged_json(batch.offsets))}
        place.write(_LAST, json.dumps(last))
        return self._rows

    def discard(self) -> None:
        self._sink.place.remove_tree(f"_staging/{self._batch.prefix}")
