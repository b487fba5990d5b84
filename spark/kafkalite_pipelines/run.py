"""A pipeline as a streaming query: each micro-batch is decoded, goes through the steps, and is committed to every sink once."""

from __future__ import annotations

import importlib
import importlib.util
import logging
import re
import sys
import threading
from collections.abc import Callable, Mapping
from pathlib import Path
from typing import TYPE_CHECKING, Any

from kafkalite.lazy_dataclass import dataclass
from kafkalite_pipelines import topics
from kafkalite_pipelines.cluster import completed
from kafkalite_pipelines.decoders import Decoding
from kafkalite_pipelines.decoding import ERROR, RECORD
from kafkalite_pipelines.definition import DELETED, Pipeline, PipelineError, SqlStep
from kafkalite_pipelines.places import Checkpoint
from kafkalite_pipelines.sinks import Batch, OpenSink, open_sink
from kafkalite_pipelines.source import FORMAT, stream_options

if TYPE_CHECKING:
    from pyspark.sql import DataFrame, SparkSession

log = logging.getLogger("kafkalite_pipelines")

#: Nodes of a plan that need rows of other batches.
_STATEFUL = {
    "Aggregate": "groups rows", "Deduplicate": "removes duplicates", "Distinct": "removes duplicates",
    "Window": "uses a window function", "GlobalLimit": "has a LIMIT",
}  # fmt: skip


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


def start(pipeline: Pipeline, spark: SparkSession, on_batch: Callable[[BatchResult], None] = lambda _: None) -> Any:
    """Start the pipeline; returns Spark's StreamingQuery.

    Raises:
        PipelineError: a sink cannot be opened, a step is wrong, a table and the pipeline do not fit.
    """
    location = pipeline.place(pipeline.checkpoint)
    checkpoint = Checkpoint(f"{location}/query")
    sinks = [open_sink(pipeline, sink) for sink in pipeline.sinks]
    recorded = resume_from(pipeline, sinks) if checkpoint.last_batch() is None else None
    if recorded is not None:
        log.warning("%s has a new checkpoint: it continues where %s ends", pipeline.name, sinks[0].name)
    batches = _Batches(pipeline, spark, checkpoint, sinks, on_batch)
    reader = spark.readStream.format(FORMAT).options(**stream_options(pipeline, recorded))
    stream = batches.prepared(reader.load())
    writer = stream.writeStream.foreachBatch(batches).queryName(pipeline.name)
    writer = writer.option("checkpointLocation", checkpoint.place.location)
    if pipeline.every_s is None:
        writer = writer.trigger(availableNow=True)
    else:
        writer = writer.trigger(processingTime=f"{int(pipeline.every_s * 1000)} milliseconds")
    return writer.start()


def resume_from(pipeline: Pipeline, sinks: list[OpenSink]) -> Mapping[str, Mapping[str, int]] | None:
    """Where the tables end, for a pipeline without a checkpoint: nothing is lost or added twice. None: they are new.

    Raises:
        PipelineError: they end at different places.
    """
    found = {sink.name: recorded for sink in sinks if (recorded := sink.recorded()) is not None}
    if not found:
        return None
    ends = {str(sorted((t, sorted(p.items())) for t, p in each.offsets.items())) for each in found.values()}
    tables = [sink.name for sink in sinks if sink.eager]
    if len(ends) > 1 or len(found) < len(tables):
        raise PipelineError(
            f"{pipeline.name} has no checkpoint, and its tables end at different offsets ({', '.join(tables)}): "
            "bring the checkpoint back, or give the pipeline another name or empty tables"
        )
    # partitions and topics that are new since then are read from their first record
    return completed(pipeline, next(iter(found.values())).offsets)


class _Batches:
    """The function that Spark calls with each micro-batch, one after the other."""

    def __init__(
        self,
        pipeline: Pipeline,
        spark: SparkSession,
        checkpoint: Checkpoint,
        sinks: list[OpenSink],
        on_batch: Callable[[BatchResult], None],
    ) -> None:
        self._pipeline = pipeline
        self._spark = spark
        self._checkpoint = checkpoint
        self._sinks = sinks
        self._on_batch = on_batch
        self._decoding = Decoding(pipeline, spark)
        self._steps = [step_function(spark, pipeline, step) for step in pipeline.steps]
        self._checked = False
        self._counting = threading.Lock()

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

    def __call__(self, frame: DataFrame, number: int) -> None:
        batch = self._batch(number)
        if self._is_done(batch):
            return  # it was committed by a run that died before Spark's own commit
        result = self._stateful(frame, batch) if self._pipeline.watermark is not None else self._stateless(frame, batch)
        self._on_batch(result)

    def _is_done(self, batch: Batch) -> bool:
        """Whether every sink has the batch, and dead letters cannot be missing: they are written before the tables commit."""
        if not all(sink.eager for sink in self._sinks):
            return False
        found = [sink.recorded() for sink in self._sinks]
        return all(recorded is not None and recorded.has(batch) for recorded in found)

    def _batch(self, number: int) -> Batch:
        query = self._checkpoint.query_id()
        offsets = self._checkpoint.offsets(number)
        assert query is not None and offsets is not None, "Spark writes both before a batch runs"
        return Batch(self._pipeline.name, query, number, offsets)

    def _stateless(self, records: DataFrame, batch: Batch) -> BatchResult:
        from pyspark.sql import Observation
        from pyspark.sql import functions as f

        while True:
            decoded = self._decoding.decoded(records)
            observation = Observation()
            measured = decoded.observe(
                observation,
                f.count(f.lit(1)).alias("records"),
                f.count(ERROR).alias("bad"),
                *self._decoding.observed(decoded),
            )
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
        if policy == "stop":
            raise PipelineError(
                f"{count} records cannot be decoded, the first: {where}. "
                '[dead_letters] with a topic puts such records aside; decode.on_error = "skip" skips them'
            )
        log.warning("batch %d: %d records cannot be decoded, the first: %s", batch.number, count, where)
        dead = self._pipeline.dead_letters
        if policy == "dead-letters" and dead is not None:
            topics.write(self._pipeline, dead.topic, dead.delivery, topics.dead_letters(self._pipeline, bad), batch)

    def _check_stateless(self, rows: DataFrame) -> None:
        if self._checked or not hasattr(rows, "_jdf"):  # Spark Connect shows no plan
            return
        self._checked = True
        plan = rows._jdf.queryExecution().analyzed().toString()
        for node in re.findall(r"^[\s:+\-~]*([A-Z]\w+)", plan, re.MULTILINE):
            if node in _STATEFUL:
                raise PipelineError(
                    f"steps: the query {_STATEFUL[node]}, which would be done in each batch alone; "
                    "[watermark] with column and delay lets it see the whole stream"
                )


def step_function(spark: SparkSession, pipeline: Pipeline, step: Any) -> Callable[[DataFrame], DataFrame]:
    """A step as a function of DataFrames. Raises PipelineError: it cannot be found."""
    if isinstance(step, SqlStep):

        def run_sql(rows: DataFrame) -> DataFrame:
            try:
                return rows.sparkSession.sql(re.sub(r"\binput\b", "{input}", _braces(step.sql)), input=rows)
            except Exception as error:
                raise _step_error(error, step.sql) from error

        return run_sql
    if callable(step.function):
        return step.function  # type: ignore[no-any-return]
    return imported(step.function, pipeline.directory)


def _braces(sql: str) -> str:
    return sql.replace("{", "{{").replace("}", "}}")


def _step_error(error: Exception, sql: str) -> Exception:
    """Spark's error in the first line of its message."""
    if type(error).__name__ not in ("AnalysisException", "ParseException"):
        return error
    text = next((line for line in str(error).splitlines() if line.strip()), "")
    return PipelineError(f"steps: {text.strip()} (in {' '.join(sql.split())[:80]})")


def imported(name: str, directory: Path) -> Callable[[Any], Any]:
    """The function `module:function`; modules beside the pipeline file are found first."""
    module_name, _, function_name = name.partition(":")
    beside = directory / f"{module_name}.py"
    try:
        if beside.is_file():
            spec = importlib.util.spec_from_file_location(module_name, beside)
            assert spec is not None and spec.loader is not None
            module = importlib.util.module_from_spec(spec)
            sys.modules[module_name] = module
            spec.loader.exec_module(module)
        else:
            module = importlib.import_module(module_name)
        found = getattr(module, function_name)
    except (ImportError, AttributeError) as error:
        raise PipelineError(f"steps: {name} cannot be found: {error}") from None
    if not callable(found):
        raise PipelineError(f"steps: {name} is no function")
    return found  # type: ignore[no-any-return]
