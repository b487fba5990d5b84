"""A range of records once more: through a pipeline's decoding and steps into another table or topic (backfill), or as they are
(replay). Exactly once, at a limited rate, and resumable, while the pipeline itself runs.

It reads batches of the range, one after the other, and keeps the ends of the next one in a file before it runs: a batch that runs again
has the same records and the same number, and the tables know it.
"""

from __future__ import annotations

import dataclasses
import json
import time
import uuid
from collections.abc import Callable, Iterable, Mapping
from datetime import datetime
from typing import TYPE_CHECKING, Any

from kafkalite.errors import KafkaliteError
from kafkalite.lazy_dataclass import dataclass
from kafkalite.model import TopicPartition
from kafkalite_pipelines.batches import Batches, BatchResult
from kafkalite_pipelines.cluster import as_json, connected
from kafkalite_pipelines.control import in_one_line, only_one, own
from kafkalite_pipelines.decoding.decoders import SCHEMA
from kafkalite_pipelines.definition import Decode, DeltaSink, IcebergSink, Pipeline, PipelineError, Sink, TopicSink
from kafkalite_pipelines.places import OWN, Place
from kafkalite_pipelines.sinks.opening import open_sink
from kafkalite_pipelines.sinks.sink import Batch, OpenSink
from kafkalite_pipelines.source import FORMAT, as_in_the_file, kafka_options, start_options, subscription

if TYPE_CHECKING:
    from pyspark.sql import DataFrame, SparkSession

#: Where a range begins or ends: "earliest", "latest", a time, or offsets.
Bound = str | datetime | Mapping[str, Mapping[str, int]]
Ends = dict[TopicPartition, int]

_STATE = "backfill.json"
_UNDECIDED_TOO = {"kafka.isolation.level": "read_uncommitted"}
#: Records of a batch if nothing else is said.
BATCH_RECORDS = 500_000


@dataclass(frozen=True, slots=True)
class Range:
    """Records from `begin` on, before `end`."""

    begin: Bound
    end: Bound


@dataclass(frozen=True, slots=True)
class Report:
    """After each batch; once with `batch` None if nothing is left to do."""

    batch: int | None
    records: int
    bad: int
    rows: Mapping[str, int]
    seconds: float
    #: Offsets of the range, and those of them that are done.
    total: int
    done: int


def backfill_of(pipeline: Pipeline, name: str, sinks: tuple[Sink, ...]) -> Pipeline:
    """The pipeline's decoding and steps, into other sinks.

    Raises:
        PipelineError: the steps see the whole stream; a range has no state.
    """
    if pipeline.watermark is not None:
        raise PipelineError(
            "a pipeline with [watermark] cannot be backfilled: run it from another start, with another name"
        )
    return _named(pipeline, name, sinks=sinks)


def replay_of(pipeline: Pipeline, name: str, sink: Sink) -> Pipeline:
    """The records as they are, into a topic, or into a table of keys, values and headers.

    Raises:
        PipelineError: the topic is one that the pipeline reads.
    """
    if isinstance(sink, TopicSink) and pipeline.source.reads(sink.topic):
        raise PipelineError(f"topic {sink.topic} is the one that is read: a replay goes into another topic")
    return _named(pipeline, name, sinks=(sink,), steps=(), decode=Decode("raw"), dead_letters=None, watermark=None)


def _named(pipeline: Pipeline, name: str, **changes: Any) -> Pipeline:
    checkpoint = f"{pipeline.place(pipeline.checkpoint)}/{OWN}/{name}"
    return dataclasses.replace(pipeline, name=f"{pipeline.name}.{name}", checkpoint=checkpoint, **changes)


def run(
    pipeline: Pipeline,
    spark: SparkSession | Callable[[], SparkSession],
    wanted: Range,
    on_batch: Callable[[Report], None] = lambda _: None,
    *,
    max_records: int = BATCH_RECORDS,
    records_per_s: float | None = None,
    sleep: Callable[[float], None] = time.sleep,
) -> int:
    """Write the range; returns the number of batches of this run. A range that was begun is continued, with its own bounds.

    Args:
        spark: the session, or what starts one: only a range with records starts it.

    Raises:
        PipelineError: the same name was used for another range; a sink cannot be opened; records cannot be decoded.
    """
    place = own(pipeline)
    with only_one(pipeline):
        state = _opened(pipeline, place, wanted)
        sinks = [open_sink(pipeline, sink) for sink in pipeline.sinks]
        if state["number"] == 0 and state["next"] is None:
            _begin(pipeline, place, sinks)
            state["ids"] = _topic_ids(pipeline)
        elif state["position"] != state["ends"]:
            _check_topics(pipeline, state.get("ids", {}))
        if state["position"] == state["ends"]:
            on_batch(_report(None, None, 0.0, state))
            return 0
        with in_one_line():
            session = spark() if callable(spark) else spark
        batches = Batches(pipeline, session, sinks)
        count = 0
        while (position := _ends(state["position"])) != (ends := _ends(state["ends"])):
            began = time.monotonic()
            following = _ends(state["next"]) if state["next"] else _following(position, ends, max_records)
            state["next"] = as_json(following)
            place.write(_STATE, json.dumps(state))
            _check_topics(pipeline, state.get("ids", {}))
            batch = Batch(pipeline.name, state["query"], state["number"], as_json(following))
            with in_one_line(Exception):  # of a table's library too, as in a query
                result = batches.process(_records(pipeline, session, position, following), batch)
            number, state = (
                state["number"],
                state | {"position": as_json(following), "next": None, "number": state["number"] + 1},
            )
            place.write(_STATE, json.dumps(state))
            count += 1
            size = _size(position, following)
            if records_per_s is not None:
                sleep(max(size / records_per_s - (time.monotonic() - began), 0.0))
            on_batch(_report(number, result, time.monotonic() - began, state))
        return count


def _begin(pipeline: Pipeline, place: Place, sinks: list[OpenSink]) -> None:
    """Before the first batch: the columns that the pipeline itself has found count here, too.

    Raises:
        PipelineError: a table has batches under this name already.
    """
    for sink in sinks:
        if sink.recorded() is not None:
            raise PipelineError(
                f"{sink.name} has batches of {pipeline.name}, but {place.location} no longer says which: they would be written "
                "twice. --name gives another name, for a table without them"
            )
    found = Place(pipeline.place(pipeline.checkpoint).rpartition("/")[0]).read(SCHEMA)
    if found is not None:
        place.write(SCHEMA, found)


def _opened(pipeline: Pipeline, place: Place, wanted: Range) -> dict[str, Any]:
    """The state of a run that was begun, or a new one with the bounds as offsets."""
    asked = [_text(wanted.begin), _text(wanted.end), *[_target(pipeline, sink) for sink in pipeline.sinks]]
    state = place.read_json(_STATE)
    if state is not None:
        if state["asked"] != asked:
            raise PipelineError(
                f"{pipeline.name} is the name of another range or target: --name gives this one a name of its own"
            )
        return dict(state)
    begins, ends = _bounds(pipeline, wanted)
    return {
        "asked": asked, "query": uuid.uuid4().hex, "number": 0,
        "begins": as_json(begins), "position": as_json(begins), "next": None, "ends": as_json(ends),
    }  # fmt: skip


def _bounds(pipeline: Pipeline, wanted: Range) -> tuple[Ends, Ends]:
    """The offsets of the range now: what is written later is not part of it.

    Raises:
        PipelineError: no broker answers, or a time lies beyond the beginning of a transaction that is open.
    """
    places = ("the beginning of the range", wanted.begin), ("the end of the range", wanted.end)
    try:
        decided = connected(pipeline, subscription(pipeline), {})
        partitions = decided.partitions()
        found = [_offsets(pipeline, partitions, bound, place) for place, bound in places]
        # after the bounds, which may be the end of what is written meanwhile
        first, last = decided.earliest(partitions), decided.latest(partitions)
    except PipelineError:
        raise
    except KafkaliteError as error:
        raise PipelineError(str(error)) from None
    for bound, offsets in zip((wanted.begin, wanted.end), found, strict=True):
        beyond = [tp for tp in sorted(partitions) if isinstance(bound, datetime) and offsets[tp] > last[tp]]
        if beyond:
            raise PipelineError(
                f"{_text(bound)} lies beyond the beginning of an open transaction: {beyond[0]} is decided up to offset "
                f"{last[beyond[0]]}, and the time is at {offsets[beyond[0]]}. Wait until it is committed or aborted, or give "
                "latest, which is what is decided now"
            )
    if not any(found[0][tp] < found[1][tp] for tp in partitions) and any(
        found[1][tp] < found[0][tp] for tp in partitions
    ):
        raise PipelineError("the range ends before it begins")
    begins = {tp: min(max(offset, first[tp]), last[tp]) for tp, offset in found[0].items()}
    return begins, {tp: min(max(offset, begins[tp]), last[tp]) for tp, offset in found[1].items()}


def _offsets(pipeline: Pipeline, partitions: Iterable[TopicPartition], bound: Bound, place: str) -> Ends:
    """A bound as offsets; `place` says in errors which one it is."""
    # the records that are decided do not say where a time is that lies beyond them
    which = subscription(pipeline) | (_UNDECIDED_TOO if isinstance(bound, datetime) else {})
    try:
        cluster = connected(pipeline, which, start_options(bound))
        return cluster.start_offsets(partitions, cluster.options.starting)
    except KafkaliteError as error:
        raise PipelineError(as_in_the_file(str(error).replace("startingOffsets", place))) from None


def _check_topics(pipeline: Pipeline, ids: Mapping[str, str]) -> None:
    """Raises PipelineError: an offset of the range means another record now."""
    for topic, _ in sorted(ids.items() - _topic_ids(pipeline).items()):
        raise PipelineError(
            f"topic {topic} was deleted, or created again, after {pipeline.name} was begun: --name begins another range"
        )


def _topic_ids(pipeline: Pipeline) -> dict[str, str]:
    from pyspark_kafkalite.stream_offsets import topic_ids

    try:
        found = connected(pipeline, subscription(pipeline), {}).existing_partitions()
    except KafkaliteError as error:
        raise PipelineError(str(error)) from None
    return topic_ids(found, found)


def _following(position: Ends, ends: Ends, max_records: int) -> Ends:
    from pyspark_kafkalite.offsets import limit

    return dict(limit(position, ends, max_records))


def _records(pipeline: Pipeline, spark: SparkSession, begins: Ends, ends: Ends) -> DataFrame:
    options = kafka_options(pipeline) | {
        "assign": json.dumps({topic: sorted(map(int, numbers)) for topic, numbers in as_json(ends).items()}),
        "startingOffsets": json.dumps(as_json(begins)),
        "endingOffsets": json.dumps(as_json(ends)),
        "failOnDataLoss": str(pipeline.source.fail_on_data_loss).lower(),
        "includeHeaders": str(pipeline.dead_letters is not None or pipeline.decode.format == "raw").lower(),
    }
    return spark.read.format(FORMAT).options(**options).load()


def _report(number: int | None, result: BatchResult | None, seconds: float, state: Mapping[str, Any]) -> Report:
    total = _size(_ends(state["begins"]), _ends(state["ends"]))
    done = _size(_ends(state["begins"]), _ends(state["position"]))
    if result is None:
        return Report(number, 0, 0, {}, seconds, total, done)
    return Report(number, result.records, result.bad, result.rows, seconds, total, done)


def _ends(value: Mapping[str, Mapping[str, int]]) -> Ends:
    return {TopicPartition(topic, int(p)): offset for topic, numbers in value.items() for p, offset in numbers.items()}


def _size(begins: Ends, ends: Ends) -> int:
    return sum(ends[tp] - begins[tp] for tp in ends)


def _target(pipeline: Pipeline, sink: Sink) -> str:
    """Where a sink writes. No credentials: this is kept in a file, and they may change before the range is done."""
    if isinstance(sink, IcebergSink):
        return f"iceberg {sink.table} {pipeline.place(sink.warehouse)} {sink.catalog.get('name', '')}".strip()
    if isinstance(sink, TopicSink):
        return f"topic {sink.topic}"
    return f"{'delta' if isinstance(sink, DeltaSink) else 'parquet'} {pipeline.place(sink.path)}"


def _text(bound: Bound) -> str:
    return bound.isoformat() if isinstance(bound, datetime) else json.dumps(bound, sort_keys=True)
