"""A batch of a pipeline without a streaming query around it, for tests of what is in rows, tables and topics.

The records come through the data source, and decoding, steps and sinks are those of a pipeline that runs. What a query adds (Spark's
checkpoint, and a process that plans its batches, which costs more than all the rest) is in the tests that run one.
"""

from __future__ import annotations

import json
from typing import Any

from kafkalite.model import TopicPartition
from kafkalite_pipelines import Pipeline
from kafkalite_pipelines.backfill import _records
from kafkalite_pipelines.batches import Batches
from kafkalite_pipelines.control import in_one_line, own
from kafkalite_pipelines.sinks.opening import open_sink
from kafkalite_pipelines.sinks.sink import Batch

_STATE = "one_batch.json"


def process(spark: Any, served: Any, pipeline: Pipeline, *, again: bool = False) -> Any:
    """What the topics have and no batch had yet, as a BatchResult. `again`: the last batch once more, as after a kill before Spark's
    own commit; None if it was found.

    Raises:
        PipelineError: as `supervise`; the batch is still to be done.
    """
    place = own(pipeline)
    state = place.read_json(_STATE) or {"number": 0, "begins": {}, "ends": {}}
    number = state["number"] - again
    found = {tp: log for tp, log in served.log.partitions.items() if pipeline.source.reads(tp.topic)}
    begins = state["begins"] if again else state["ends"]
    begins = {tp: begins.get(str(tp), log.log_start_offset) for tp, log in found.items()}
    ends = {tp: state["ends"][str(tp)] if again else log.log_end_offset for tp, log in found.items()}
    with in_one_line(Exception):
        batches = Batches(pipeline, spark, [open_sink(pipeline, sink) for sink in pipeline.sinks])
        records = batches.prepared(_records(pipeline, spark, begins, ends))
        result = batches.process(records, Batch(pipeline.name, "query-of-a-test", number, _nested(ends)))
    done = {"number": number + 1, "begins": _named(begins), "ends": _named(ends)}
    place.write(_STATE, json.dumps(done))
    return result


def _named(offsets: dict[TopicPartition, int]) -> dict[str, int]:
    return {str(tp): offset for tp, offset in offsets.items()}


def _nested(offsets: dict[TopicPartition, int]) -> dict[str, dict[str, int]]:
    nested: dict[str, dict[str, int]] = {}
    for tp, offset in offsets.items():
        nested.setdefault(tp.topic, {})[str(tp.partition)] = offset
    return nested
