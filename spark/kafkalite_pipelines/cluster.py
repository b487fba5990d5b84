"""What the cluster says of a pipeline's topics: partitions, where they begin and end. No Spark is started."""

from __future__ import annotations

from collections.abc import Mapping
from typing import TYPE_CHECKING

from kafkalite.errors import KafkaliteError
from kafkalite.lazy_dataclass import dataclass
from kafkalite.model import TopicPartition
from kafkalite_pipelines.definition import Pipeline, PipelineError
from kafkalite_pipelines.places import Checkpoint
from kafkalite_pipelines.source import as_in_the_file, kafka_options, start_options, subscription

if TYPE_CHECKING:
    from pyspark_kafkalite.cluster import TopicReader

Offsets = Mapping[str, Mapping[str, int]]


@dataclass(frozen=True, slots=True)
class Position:
    """One partition: [begin, end) are in the log now, `next` is what the pipeline reads next."""

    topic: str
    partition: int
    begin: int
    end: int
    next: int

    @property
    def waiting(self) -> int:
        """Records that the pipeline has not read (an upper bound: markers of transactions count too)."""
        return max(self.end - self.next, 0)


def partitions(pipeline: Pipeline, topic: str) -> list[int]:
    """The partitions of one topic. Raises PipelineError: it does not exist, or no broker answers."""
    found = connected(pipeline, {"subscribe": topic}, {})
    try:
        return sorted(tp.partition for tp in found.partitions())
    except KafkaliteError as error:
        raise PipelineError(str(error)) from None


def positions(pipeline: Pipeline, offsets: Offsets | None) -> list[Position]:
    """Every partition of the source. `offsets`: what is read next; None: the pipeline has not begun.

    Raises:
        PipelineError: no broker answers, or a topic does not exist.
    """
    cluster = connected(pipeline, subscription(pipeline), start_options(pipeline.source.start))
    try:
        found = cluster.partitions()
        begins, ends = cluster.earliest(found), cluster.latest(found)
        starts = dict(begins)
        if offsets is None:
            starts = cluster.start_offsets(found, cluster.options.starting)
    except KafkaliteError as error:
        raise PipelineError(as_in_the_file(str(error))) from None
    if offsets is not None:
        for tp in found:
            starts[tp] = offsets.get(tp.topic, {}).get(str(tp.partition), begins[tp])
    return [
        Position(tp.topic, tp.partition, begins[tp], ends[tp], max(starts[tp], 0))
        for tp in sorted(found, key=lambda tp: (tp.topic, tp.partition))
    ]


def check_source(pipeline: Pipeline) -> None:
    """Raises PipelineError: no broker answers, or a topic of a pipeline that has not begun does not exist. Spark would say the same,
    seconds after its start."""
    found = connected(pipeline, subscription(pipeline), {})
    begun = Checkpoint(f"{pipeline.place(pipeline.checkpoint)}/query").last_batch() is not None
    try:
        if begun:
            found.existing_partitions()
        else:
            found.partitions()
    except KafkaliteError as error:
        raise PipelineError(as_in_the_file(str(error))) from None


def completed(pipeline: Pipeline, offsets: Offsets) -> Offsets:
    """Offsets of every partition that exists now: those that are new are read from their first record (-2)."""
    found: dict[str, dict[str, int]] = {}
    for position in positions(pipeline, offsets):
        known = offsets.get(position.topic, {}).get(str(position.partition), -2)
        found.setdefault(position.topic, {})[str(position.partition)] = known
    return found


def committed(pipeline: Pipeline) -> Mapping[TopicPartition, int]:
    """The progress in the group of the pipeline's name. Raises KafkaliteError, OSError."""
    return connected(pipeline, subscription(pipeline), {}).client.committed_offsets(pipeline.name)


def connected(pipeline: Pipeline, which: Mapping[str, str], start: Mapping[str, str]) -> TopicReader:
    """The cluster, asked about the topics that `which` subscribes to, with a starting position. Raises OptionError."""
    from pyspark_kafkalite.clients import shared
    from pyspark_kafkalite.cluster import TopicReader
    from pyspark_kafkalite.option_parsing import read_options

    options = read_options(kafka_options(pipeline) | dict(which) | dict(start), streaming=True)
    return TopicReader(shared(options.client), options)


def as_json(pairs: Mapping[TopicPartition, int]) -> dict[str, dict[str, int]]:
    """topic -> partition -> offset."""
    nested: dict[str, dict[str, int]] = {}
    for tp, offset in sorted(pairs.items(), key=lambda each: (each[0].topic, each[0].partition)):
        nested.setdefault(tp.topic, {})[str(tp.partition)] = offset
    return nested
