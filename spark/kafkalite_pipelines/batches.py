"""What happens to one batch of records: it is decoded, goes through the steps, and is committed to every sink once."""

from __future__ import annotations

import logging
from collections.abc import Mapping
from typing import TYPE_CHECKING

from kafkalite.lazy_dataclass import dataclass
from kafkalite_pipelines.decoding.decoders import Decoding
from kafkalite_pipelines.decoding.records import ERROR, RECORD
from kafkalite_pipelines.definition import DELETED, Pipeline, PipelineError
from kafkalite_pipelines.sinks import topics
from kafkalite_pipelines.sinks.sink import Batch, OpenSink
from kafkalite_pipelines.steps import check_stateless, step_function

if TYPE_CHECKING:
    from pyspark.sql import DataFrame, SparkSession

log = logging.getLogger("kafkalite_pipelines")


@dataclass(frozen=True, slots=True)
class BatchResult:
    """What became of one micro-batch."""

    number: int
    #: Records read, and those of them that could not be decoded.
    records: int
    bad: int
    #: Rows added or changed, by sink. A topic's rows are not counted.
    rows: Mapping[str, int]
    maintenance: tuple[str, ...] = ()


class Batches:
    """Batches of one pipeline, one after the other."""

    def __init__(self, pipeline: Pipeline, spark: SparkSession, sinks: list[OpenSink]) -> None:
        self._pipeline = pipeline
        self._sinks = sinks
        self._decoding = Decoding(pipeline)
        self._steps = [step_function(spark, pipeline, step) for step in pipeline.steps]
        self._checked = False

    def prepared(self, records: DataFrame) -> DataFrame:
        """The stream that Spark cuts into batches: the records themselves, or the rows of stateful steps."""
        if self._pipeline.watermark is None:
            self._check_steps_early(records)
            return records
        column, delay = self._pipeline.watermark
        rows = self._good(self._decoding.decoded(records)).withWatermark(column, delay)
        for step in self._steps:
            rows = step(rows)
        return rows

    def _check_steps_early(self, records: DataFrame) -> None:
        """Mistakes in SQL are found before the first batch, if the columns are known."""
        if self._steps and self._decoding.known():
            rows = self._good(self._decoding.decoded(records))
            for step in self._steps:
                rows = step(rows)
            self._check_stateless(rows)

    def process(self, frame: DataFrame, batch: Batch) -> BatchResult | None:
        """Write one batch to every sink. None: it was there already, by a run that died before it could note that."""
        if self._is_done(batch):
            return None
        if self._pipeline.watermark is not None:
            return self._stateful(frame, batch)
        return self._stateless(frame, batch)

    def _is_done(self, batch: Batch) -> bool:
        """Whether every sink has the batch, and dead letters cannot be missing: they are written before the tables commit."""
        if not all(sink.eager for sink in self._sinks):
            return False
        found = [sink.recorded() for sink in self._sinks]
        return all(recorded is not None and recorded.has(batch) for recorded in found)

    def _stateless(self, records: DataFrame, batch: Batch) -> BatchResult:
        from pyspark.sql import Observation
        from pyspark.sql import functions as f

        while True:
            decoded = self._decoding.decoded(records)
            observation = Observation()
            counts = [
                f.count(f.lit(1)).alias("records"),
                f.count(ERROR).alias("bad"),
                *self._decoding.observed(decoded),
            ]
            measured = decoded.observe(observation, *counts)
            if len(self._sinks) > 1:
                measured = measured.persist()
            rows = self._good(measured)
            for step in self._steps:
                rows = step(rows)
            self._check_stateless(rows)
            staged = [sink.stage(rows, batch) for sink in self._sinks]
            if not any(sink.eager for sink in self._sinks):
                measured.write.format("noop").mode("overwrite").save()
            seen = observation.get
            if "records" not in seen:  # Spark Connect loses it behind a query in SQL
                seen = decoded.agg(*counts).collect()[0].asDict()
            if not self._decoding.learnt(records, seen):
                break
            for each in staged:  # columns that were not known: again with them
                each.discard()
        records_read, bad = int(seen["records"]), int(seen["bad"])
        try:
            if bad:
                self._put_aside(decoded.where(f.col(ERROR).isNotNull()), bad, batch)
            added = {sink.name: each.commit() for sink, each in zip(self._sinks, staged, strict=True)}
        except PipelineError:
            for each in staged:
                each.discard()
            raise
        finally:
            if len(self._sinks) > 1:
                measured.unpersist()
        return BatchResult(batch.number, records_read, bad, added, self._maintain())

    def _stateful(self, rows: DataFrame, batch: Batch) -> BatchResult:
        if len(self._sinks) > 1:
            rows = rows.persist()
        staged = [sink.stage(rows, batch) for sink in self._sinks]
        added = {sink.name: each.commit() for sink, each in zip(self._sinks, staged, strict=True)}
        if len(self._sinks) > 1:
            rows.unpersist()
        return BatchResult(batch.number, 0, 0, added, self._maintain())

    def _maintain(self) -> tuple[str, ...]:
        return tuple(done for sink in self._sinks if (done := sink.maintain()) is not None)

    def _good(self, decoded: DataFrame) -> DataFrame:
        from pyspark.sql import functions as f

        good = decoded if self._pipeline.decode.format == "raw" else decoded.where(f.col(ERROR).isNull())
        return good.drop(ERROR, *RECORD) if self._pipeline.keyed else good.drop(ERROR, DELETED, *RECORD)

    def _put_aside(self, bad: DataFrame, count: int, batch: Batch) -> None:
        """Records that became no rows."""
        policy = self._pipeline.decode.on_error
        first = bad.select("_topic", "_partition", "_offset", ERROR).first()
        where = f"{first[0]}-{first[1]} at offset {first[2]} {first[3]}" if first is not None else ""
        counted = "1 record" if count == 1 else f"{count} records"
        if policy == "stop":
            raise PipelineError(
                f"{counted} cannot be decoded, the first: {where}. "
                '[dead_letters] with a topic puts such records aside; decode.on_error = "skip" skips them'
            )
        dead = self._pipeline.dead_letters
        done = "left out" if policy == "skip" or dead is None else f"put into topic {dead.topic}"
        log.warning("batch %d: %s cannot be decoded (%s), the first: %s", batch.number, counted, done, where)
        if policy == "dead-letters" and dead is not None:
            topics.write(self._pipeline, dead.topic, dead.delivery, topics.dead_letters(self._pipeline, bad), batch)

    def _check_stateless(self, rows: DataFrame) -> None:
        if self._steps and not self._checked:
            check_stateless(rows)
            self._checked = True
