"""Batches of a pipeline on Spark Connect: they run in a Python process of the server, which has the session and the sinks.

What a batch did goes through a file beside the checkpoint, because nothing else comes back from there. So checkpoint, tables
and the file's directory must be places that server and client share.
"""

from __future__ import annotations

import dataclasses
import json
from collections.abc import Iterator, Mapping
from types import MappingProxyType
from typing import TYPE_CHECKING, Any

from kafkalite_pipelines.batches import Batches, BatchResult
from kafkalite_pipelines.definition import Pipeline
from kafkalite_pipelines.places import OWN, Checkpoint, Place
from kafkalite_pipelines.sinks.opening import open_sink
from kafkalite_pipelines.sinks.sink import Batch

if TYPE_CHECKING:
    from pyspark.sql import DataFrame

_DONE = "done"
#: Of this process: a query has one process for all its batches.
_opened: dict[str, Batches] = {}


def is_remote(spark: Any) -> bool:
    """Whether a session is Spark Connect's."""
    return type(spark).__module__.startswith("pyspark.sql.connect")


class RemoteBatches:
    """A function for foreachBatch that holds values only."""

    def __init__(self, pipeline: Pipeline, began_with: Mapping[str, int] = MappingProxyType({})) -> None:
        """`began_with`: as that of Batches."""
        self._pipeline = pipeline
        self._began_with = dict(began_with)

    def __call__(self, frame: DataFrame, number: int) -> None:
        pipeline = self._pipeline
        location = pipeline.place(pipeline.checkpoint)
        batches = _opened.get(location)
        if batches is None:
            sinks = [open_sink(pipeline, sink) for sink in pipeline.sinks]
            batches = _opened[location] = Batches(pipeline, frame.sparkSession, sinks)
        batches.began_with = self._began_with
        checkpoint = Checkpoint(f"{location}/query")
        query, offsets = checkpoint.query_id(), checkpoint.offsets(number)
        assert query is not None and offsets is not None, "Spark writes both before a batch runs"
        result = batches.process(frame, Batch(pipeline.name, query, number, offsets))
        if result is not None:
            _place(pipeline).write(f"{number}.json", json.dumps(dataclasses.asdict(result)))


def results(pipeline: Pipeline) -> Iterator[BatchResult]:
    """What batches did since the last call, in the client. Their files are removed."""
    place = _place(pipeline)
    for name in sorted(place.names(""), key=lambda name: (len(name), name)):
        found = place.read_json(name) if name.endswith(".json") else None
        if found is not None:
            yield BatchResult(**(found | {"maintenance": tuple(found["maintenance"])}))
            place.remove(name)


def _place(pipeline: Pipeline) -> Place:
    return Place(f"{pipeline.place(pipeline.checkpoint)}/{OWN}/{_DONE}")
