"""A pipeline as a streaming query: Spark plans micro-batches, each is processed and committed once."""

from __future__ import annotations

import logging
from collections.abc import Callable, Mapping
from typing import TYPE_CHECKING, Any

from kafkalite.errors import KafkaliteError
from kafkalite_pipelines.batches import Batches, BatchResult
from kafkalite_pipelines.cluster import committed, completed
from kafkalite_pipelines.definition import Pipeline, PipelineError, Sink, TopicSink
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
    recorded = None
    if (planned := checkpoint.last_batch()) is None:
        recorded = resume_from(pipeline, sinks)
    elif not any(sink.eager for sink in sinks) and any(_once(sink) for sink in pipeline.sinks):
        check_progress(pipeline, checkpoint.offsets(planned) or {})
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
    each_batch = RemoteBatches(pipeline, batches.began_with) if is_remote(spark) else here
    writer = stream.writeStream.foreachBatch(each_batch).queryName(pipeline.name)
    writer = writer.option("checkpointLocation", checkpoint.place.location)
    if pipeline.every_s is None:
        writer = writer.trigger(availableNow=True)
    else:
        writer = writer.trigger(processingTime=f"{int(pipeline.every_s * 1000)} milliseconds")
    return writer.start()


def _once(sink: Sink) -> bool:
    return isinstance(sink, TopicSink) and sink.delivery == "exactly-once"


def check_progress(pipeline: Pipeline, planned: Mapping[str, Mapping[str, int]]) -> None:
    """A table says at which offsets its last batch ends, a topic does not: so the group of the pipeline is asked.

    Args:
        planned: where the last batch in the checkpoint ends.

    Raises:
        PipelineError: later batches are done. Their numbers would be planned again, and passed over with other records in them.
    """
    try:
        done = committed(pipeline)
    except (KafkaliteError, OSError) as error:
        log.warning("group %s cannot be asked whether the checkpoint is the newest: %s", pipeline.name, error)
        return
    for tp, offset in sorted(done.items()):
        if offset > (ends := planned.get(tp.topic, {}).get(str(tp.partition), offset)):
            raise PipelineError(
                f"the checkpoint {pipeline.place(pipeline.checkpoint)} ends at offset {ends} of {tp}, and group {pipeline.name} has "
                f"committed {offset}: the checkpoint is older than what is done. Bring the newest one back; or remove its directory "
                "query, and give source.start the group's offsets"
            )


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
