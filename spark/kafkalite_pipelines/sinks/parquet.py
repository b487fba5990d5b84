"""Plain Parquet files: a directory per batch. It has its name only when all its files are written."""

from __future__ import annotations

import dataclasses
import json
import logging
from typing import TYPE_CHECKING
from urllib.parse import quote

from kafkalite_pipelines.definition import ParquetSink, Pipeline
from kafkalite_pipelines.places import Place
from kafkalite_pipelines.sinks import partitions, writing
from kafkalite_pipelines.sinks.keyed import without_deletions
from kafkalite_pipelines.sinks.sink import Batch, Recorded, merged_json, prefix

if TYPE_CHECKING:
    from pyspark.sql import DataFrame


log = logging.getLogger("kafkalite_pipelines")


class ParquetFiles:
    """Files below `path`: batch=<query>-<number>/…; Spark, DuckDB and pyarrow read the directory."""

    eager = True

    def __init__(self, pipeline: Pipeline, sink: ParquetSink) -> None:
        self._name = sink.path
        self.location = pipeline.place(sink.path)
        self._fields = partitions.fields(sink.partition_by)
        self.place = Place(self.location)
        #: The pipeline's last batch, beside the data. Readers skip names that begin with _.
        self.last = f"_kafkalite-{quote(pipeline.name, safe='')}.json"

    @property
    def name(self) -> str:
        return f"files {self._name}"

    def recorded(self) -> Recorded | None:
        value = self.place.read_json(self.last)
        if (
            value is not None
            and "before" in value
            and not self.place.exists(_directory(value["query"], value["number"]))
        ):
            value = value["before"]  # it died before the rename
        return None if value is None else Recorded(value["query"], value["number"], value["offsets"])

    def stage(self, rows: DataFrame, batch: Batch) -> _StagedFiles:
        from kafkalite_pipelines.sinks.schemas import arrow_schema

        partitions.check(rows, self._fields, as_text=True)
        kept = without_deletions(rows)
        self.place.remove_tree(_staging(batch))
        named = [
            partitions.derived(kept, field).alias(f"{writing.PARTITION}{n}") for n, field in enumerate(self._fields)
        ]
        schema = arrow_schema(kept)
        for field in [field for field in self._fields if field.transform == "identity"]:
            schema = schema.remove(schema.get_field_index(field.column))  # it is in the directory's name
        target = writing.Target(
            f"{self.location}/{_staging(batch)}", schema, tuple(field.name for field in self._fields)
        )
        return _StagedFiles(self, batch, writing.write(kept.select("*", *named), target, batch.prefix))

    def maintain(self) -> str | None:
        return None


class _StagedFiles:
    """Beside these files there may be others: of task attempts that failed, or were slower than another. They stay behind."""

    def __init__(self, sink: ParquetFiles, batch: Batch, files: list[writing.WrittenFile]) -> None:
        self._sink = sink
        self._batch = batch
        self._files = files

    def commit(self) -> int:
        """The last rename makes the batch visible, and the record in front of it true: which batch, and what counts without it."""
        place, batch = self._sink.place, self._batch
        recorded = self._sink.recorded()
        if recorded is not None and recorded.has(batch):
            self.discard()
            return 0
        name, complete = _directory(batch.query, batch.number), f"{_staging(batch)}-complete"
        place.remove_tree(complete)
        for file in self._files:
            place.move(f"{_staging(batch)}/{file.path}", f"{complete}/{file.path}")
        place.remove_tree(name)  # of a version that wrote the record behind the rename
        last = {"query": batch.query, "number": batch.number, "offsets": json.loads(merged_json(batch.offsets))}
        if self._files:
            before = None if recorded is None else dataclasses.asdict(recorded)
            place.write(self._sink.last, json.dumps(last | {"before": before}))
            place.move(complete, name)
        place.write(self._sink.last, json.dumps(last))
        self.discard()
        return sum(file.rows for file in self._files)

    def discard(self) -> None:
        """A failure costs room only: an attempt that lost may still write there."""
        try:
            self._sink.place.remove_tree(_staging(self._batch))
        except OSError as error:
            log.warning("files that are not used could not be removed: %s", error)


def _staging(batch: Batch) -> str:
    return f"_staging/{batch.prefix}"


def _directory(query: str, number: int) -> str:
    """Of a batch that is complete."""
    return f"batch={prefix(query, number)}"
