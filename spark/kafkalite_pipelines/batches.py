"""What happens to one batch of records: it is decoded, goes through the steps, and is committed to every sink once."""

from __future__ import annotations

import dataclasses
import json
import logging
import uuid
from collections.abc import Mapping
from typing import TYPE_CHECKING

from kafkalite.lazy_dataclass import dataclass
from kafkalite_pipelines.decoding.decoders import Decoding
from kafkalite_pipelines.decoding.records import ERROR, NO_COLUMN, RECORD, STRANGE
from kafkalite_pipelines.definition import DELETED, Pipeline, PipelineError
from kafkalite_pipelines.places import OWN, Place
from kafkalite_pipelines.sinks import topics
from kafkalite_pipelines.sinks.sink import Batch, OpenSink, Staged
from kafkalite_pipelines.steps import check_stateless, step_function, with_deletions

if TYPE_CHECKING:
    from pyspark.sql import DataFrame, SparkSession

log = logging.getLogger("kafkalite_pipelines")

#: Beside the checkpoint: the dead letters that were written last.
_DEAD_LETTERS = "dead-letters.json"


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
        """Raises PipelineError: a step cannot be found, or one topic is written to twice."""
        written = pipeline.written_topics
        for topic in {topic for topic in written if written.count(topic) > 1}:
            # a batch is one transaction of a topic: what comes second would be taken for a repetition
            raise PipelineError(
                f"topic {topic} is named twice: each topic sink, and the dead letters, need one of their own"
            )
        self._pipeline = pipeline
        self._sinks = sinks
        #: Their rows are records, and some column names say what is in them.
        self._into_topics = pipeline.decode.format != "raw" and any(not sink.eager for sink in sinks)
        self._decoding = Decoding(pipeline)
        self._steps = [step_function(spark, pipeline, step) for step in pipeline.steps]
        self._checked = False
        #: The registry's schemas when a stream with a watermark began, by topic: its steps keep their columns.
        self.began_with: Mapping[str, int] = {}
        self._place = Place(f"{pipeline.place(pipeline.checkpoint)}/{OWN}")

    def prepared(self, records: DataFrame) -> DataFrame:
        """The stream that Spark cuts into batches: the records themselves, or the rows of stateful steps."""
        if self._pipeline.watermark is None:
            self._check_steps_early(records)
            return records
        column, delay = self._pipeline.watermark
        self.began_with = self._decoding.schemas()
        return self._stepped(self._good(self._decoding.decoded(records)).withWatermark(column, delay))

    def _check_steps_early(self, records: DataFrame) -> None:
        """Mistakes in SQL are found before the first batch, if the columns are known."""
        if self._steps and self._decoding.known():
            self._check_stateless(self._stepped(self._good(self._decoding.decoded(records))))

    def process(self, frame: DataFrame, batch: Batch) -> BatchResult | None:
        """Write one batch to every sink. None: it was there already, by a run that died before it could note that."""
        if self._is_done(batch):
            return None
        if self._pipeline.watermark is not None:
            return self._stateful(frame, batch)
        return self._stateless(frame, batch)

    def _is_done(self, batch: Batch) -> bool:
        """Whether every sink has the batch, and dead letters cannot be missing: they are written before the tables commit.

        Raises:
            PipelineError: a table has a batch of this number that ends elsewhere, or a later one. To pass over this one would lose
                records.
        """
        found = [(sink, sink.recorded()) for sink in self._sinks if sink.eager]
        for sink, recorded in found:
            if recorded is not None and recorded.is_of_newer_checkpoint(batch):
                same = recorded.number == batch.number
                there = "ends at other offsets" if same else f"is followed by {recorded.number}"
                raise PipelineError(
                    f"the checkpoint {self._pipeline.place(self._pipeline.checkpoint)} is older than {sink.name}, where batch "
                    f"{batch.number} {there}: bring the newest one back, or remove its directory query, and the "
                    "pipeline continues where the table ends"
                )
        has = [recorded is not None and recorded.has(batch) for _, recorded in found]
        return len(has) == len(self._sinks) and all(has)

    def _stateless(self, records: DataFrame, batch: Batch) -> BatchResult:
        from pyspark.sql import Observation
        from pyspark.sql import functions as f

        staged: list[tuple[OpenSink, Staged]] = []
        measured: DataFrame | None = None
        try:
            while True:
                decoded = self._decoding.decoded(records)
                observation = Observation()
                counts = [
                    f.count(f.lit(1)).alias("records"),
                    f.count(ERROR).alias("bad"),
                    f.bit_xor(f.when(f.col(ERROR).isNotNull(), f.xxhash64("_topic", "_partition", "_offset"))).alias(
                        "which"
                    ),
                    *self._decoding.observed(),
                ]
                if not self._decoding.known():  # no columns, so no table
                    seen = decoded.agg(*counts).collect()[0].asDict()
                    if seen["bad"] == seen["records"]:
                        break
                measured = self._kept(decoded.observe(observation, *counts))
                rows = self._stepped(self._good(measured))
                self._check_stateless(rows)
                for sink in self._sinks:
                    staged.append((sink, sink.stage(rows, batch)))
                if not any(sink.eager for sink in self._sinks):
                    measured.write.format("noop").mode("overwrite").save()
                seen = observation.get
                if "records" not in seen:  # Spark Connect loses it behind a query in SQL
                    seen = decoded.agg(*counts).collect()[0].asDict()
                if not self._decoding.learnt(records, seen):
                    break
                discard(staged)  # columns that were not known: again with them
                self._free(measured)
            records_read, bad = int(seen["records"]), int(seen["bad"])
            if bad:
                self._put_aside(decoded.where(f.col(ERROR).isNotNull()), bad, int(seen["which"]), batch)
            added = commit(staged)
        finally:
            discard(staged)
            self._free(measured)
        return BatchResult(batch.number, records_read, bad, added, self._maintain())

    def _stateful(self, rows: DataFrame, batch: Batch) -> BatchResult:
        # A producer registers a schema before it writes: no record of this batch has a newer one than these.
        now = self._decoding.schemas()
        for topic in [topic for topic, number in now.items() if self.began_with.get(topic) != number]:
            raise PipelineError(
                f"the registry has a new schema of {topic}: steps over the whole stream keep the columns with which they began, "
                "and would leave its records out. Start the pipeline again: it continues with this batch"
            )
        staged: list[tuple[OpenSink, Staged]] = []
        rows = self._kept(rows)
        try:
            for sink in self._sinks:
                staged.append((sink, sink.stage(rows, batch)))
            added = commit(staged)
        finally:
            discard(staged)
            self._free(rows)
        return BatchResult(batch.number, 0, 0, added, self._maintain())

    def _kept(self, rows: DataFrame) -> DataFrame:
        """Several sinks read the rows: they are kept until `_free`."""
        return rows.persist() if len(self._sinks) > 1 else rows

    def _free(self, rows: DataFrame | None) -> None:
        if rows is not None and len(self._sinks) > 1:
            rows.unpersist()

    def _maintain(self) -> tuple[str, ...]:
        """What was done. A failure costs a round only: the batch is committed, and another writer may have been in the way."""
        done = []
        for sink in self._sinks:
            try:
                did = sink.maintain()
            except Exception as error:  # noqa: BLE001 - of the table's library, its catalog and its object store
                log.warning("%s: maintenance failed, the next round tries again: %s", sink.name, error)
            else:
                done += [] if did is None else [did]
        return tuple(done)

    def _good(self, decoded: DataFrame) -> DataFrame:
        from pyspark.sql import functions as f

        good = decoded if self._pipeline.decode.format == "raw" else decoded.where(f.col(ERROR).isNull())
        return good.drop(ERROR, STRANGE, NO_COLUMN, *RECORD, *(() if self._pipeline.keyed else (DELETED,)))

    def _stepped(self, rows: DataFrame) -> DataFrame:
        if self._steps and self._into_topics:
            return with_deletions(self._pipeline, topics.with_fields(rows, self._through_steps))
        return with_deletions(self._pipeline, self._through_steps(rows))

    def _through_steps(self, rows: DataFrame) -> DataFrame:
        for step in self._steps:
            rows = step(rows)
        return rows

    def _put_aside(self, bad: DataFrame, count: int, which: int, batch: Batch) -> None:
        """Records that became no rows. `which`: a sum over them."""
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
            named = dead_letters_of(self._place, batch, which)
            topics.write(self._pipeline, dead.topic, dead.delivery, topics.dead_letters(self._pipeline, bad), named)

    def _check_stateless(self, rows: DataFrame) -> None:
        if self._steps and not self._checked:
            check_stateless(rows)
            self._checked = True


def dead_letters_of(place: Place, batch: Batch, records: int) -> Batch:
    """Under which name dead letters of a batch are written. A batch that runs again with another schema may have others: under the same
    name they would be taken for those that are there already.

    Args:
        records: a sum over the records.
    """
    last = place.read_json(_DEAD_LETTERS) or {}
    if (last.get("query"), last.get("number")) != (batch.query, batch.number):
        name = batch.query
    else:
        name = last["name"] if last["records"] == records else f"{batch.query}/{uuid.uuid4().hex}"
    now = {"query": batch.query, "number": batch.number, "records": records, "name": name}
    place.write(_DEAD_LETTERS, json.dumps(now))
    return dataclasses.replace(batch, query=name)


def commit(staged: list[tuple[OpenSink, Staged]]) -> dict[str, int]:
    """Commit one sink after the other; returns the rows that each added. What is committed, or may be, leaves the list.

    Tables come last: a pipeline without its checkpoint continues where they end, and a topic cannot say that it lacks a batch.
    """
    added = {}
    staged.sort(key=lambda each: each[0].eager)
    while staged:
        sink, rows = staged.pop(0)
        added[sink.name] = rows.commit()
    return added


def discard(staged: list[tuple[OpenSink, Staged]]) -> None:
    """Rows whose commit was not tried. After a commit that failed nobody knows: its answer may be what was lost."""
    while staged:
        staged.pop(0)[1].discard()
