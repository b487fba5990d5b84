"""A pipeline as a streaming query: Spark plans micro-batches, each is processed and committed once."""

from __future__ import annotations

import logging
from collections.abc import Callable, Mapping
from typing import TYPE_CHECKING, Any

from kafkalite_pipelines.batches import Batches, BatchResult
from kafkalite_pipelines.cluster import completed
from kafkalite_pipelines.definition import Pipeline, PipelineError
from kafkalite_pipelines.places import Checkpoint
from kafkalite_pipelines.remote import RemoteBatches, is_remote
from kafkalite_pipelines.sinks.opening import open_sink
from kafkalite_pipelines.sinks.sink import Batch, OpenSink
from kafkalite_pipelines.source import FORMAT, stream_options

if TYPE_CHECKING:
    from pyspark.sql import DataFrame, SparkSession

log = logging.getLogger("kafkalite_pipelines")


def start(pipeline: Pipeline, spark: SparkSession, on_batch: Callable[[BatchResult], None] = lambda _: None) -> Any:
    """Start the pipeline; returns Spark's StreamingQuery. On Spark Connect `remote.results` has what `on_batch` gets elsewhere.

    Raises:
        PipelineError: a sink cannot be opened, a step is wrong, a table and the pipeline do not fit.
    """
    for topic in filter(pipeline.source.reads, pipeline.written_topics):
        raise PipelineError(f"topic {topic} is also read by this pipeline, which would never end")
    location = pipeline.place(pipeline.checkpoint)
    checkpoint = Checkpoint(f"{location}/query")
    sinks = [open_sink(pipeline, sink) for sink in pipeline.sinks]
    recorded = resume_from(pipeline, sinks) if checkpoint.last_batch() is None else None
    if recorded is not None:
        log.warning("%s has a new checkpoint: it continues where %s ends", pipeline.name, sinks[0].name)
    batches = Batches(pipeline, spark, sinks)

    def here(frame: DataFrame, number: int) -> None:
        query, offsets = checkpoint.query_id(), checkpoint.offsets(number)
        assert query is not None and offsets is not None, "Spark writes both before a batch runs"
        result = batches.process(frame, Batch(pipeline.name, query, number, offsets))
        if result is not None:
            on_batch(result)

    reader = spark.readStream.format(FORMAT).options(**stream_options(pipeline, recorded))
    stream = batches.prepared(reader.load())
    each_batch = RemoteBatches(pipeline) if is_remote(spark) else here
    writer = stream.writeStream.foreachBatch(each_batch).queryName(pipeline.name)
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
    for name in [name for name, recorded in found.items() if not recorded.offsets]:
        raise PipelineError(
            f"{pipeline.name} has no checkpoint, and the log of {name} no longer says where its batches end: "
            "bring the checkpoint back, or give the pipeline another name or an empty table"
        )
    ends = {str(sorted((t, sorted(p.items())) for t, p in each.offsets.items())) for each in found.values()}
    tables = [sink.name for sink in sinks if sink.eager]
    if len(ends) > 1 or len(found) < len(tables):
        raise PipelineError(
            f"{pipeline.name} has no checkpoint, and its tables end at different offsets ({', '.join(tables)}): "
            "bring the checkpoint back, or give the pipeline another name or empty tables"
        )
    # partitions and topics that are new since then are read from their first record
    return completed(pipeline, next(iter(found.values())).offsets)
