"""What concerns several tables of a pipeline file at once: topics that would be read again, columns, places. Pure."""

from __future__ import annotations

import re
from collections.abc import Iterator, Mapping

from kafkalite_pipelines.definition import (
    DeltaSink,
    IcebergSink,
    ParquetSink,
    Pipeline,
    Sink,
    TopicSink,
)
from kafkalite_pipelines.sections import Section
from kafkalite_pipelines.sinks.partitions import PARTITION_BY, partition_field

#: Of every row: where its record is in Kafka.
_OWN = {"_topic": "string", "_partition": "int", "_offset": "bigint", "_timestamp": "timestamp"}
_RAW = {"key": "binary", "value": "binary", "headers": "array<struct<key:string,value:binary>>"}
_NESTED = ("array", "map", "struct")
#: Settings of Spark's that a pipeline sets itself.
_SPARK_INSTEAD = {
    "spark.master": "it is the key master of the file",
    "spark.remote": "a Spark Connect server is chosen by `run --remote`",
    "spark.submit.deployMode": "the driver runs on the host of `run`",
    "spark.sql.streaming.checkpointLocation": "it is the key checkpoint of the file",
}


def check_whole(pipeline: Pipeline, top: Section) -> None:
    """Adds a line for each mistake to the section's problems."""
    _check_topics(pipeline, top)
    _check_places(pipeline, top)
    _check_spark(pipeline, top)
    columns = _columns(pipeline)
    _check_watermark(pipeline, top, columns)
    if columns is None and pipeline.decode.debezium and _finds_columns(pipeline):
        top.problem("decode.schema", "is missing: decode.debezium needs the columns")
    if columns is not None and not pipeline.steps:
        where = "a column of raw records" if pipeline.decode.format == "raw" else "in decode.schema"
        for number, sink in enumerate(pipeline.sinks, 1):
            for key, problem in _column_problems(sink, columns, where):
                top.problem(f"sinks[{number}]{key}", problem)


def _check_topics(pipeline: Pipeline, top: Section) -> None:
    """Records that a pipeline writes must not come back to it."""
    try:
        read_again = {topic for topic in pipeline.written_topics if pipeline.source.reads(topic)}
    except re.error:  # the pattern has its own line
        return
    by = "is also read by this pipeline" if pipeline.source.pattern is None else "matches source.pattern"
    dead = set() if pipeline.dead_letters is None else {pipeline.dead_letters.topic}
    by_sinks = {sink.topic for sink in pipeline.sinks if isinstance(sink, TopicSink)}
    for key, topics in ("sinks", by_sinks), ("dead_letters.topic", dead):
        for topic in sorted(topics & read_again):
            top.problem(key, f"topic {topic} {by}, which would never end")


def _check_places(pipeline: Pipeline, top: Section) -> None:
    places = [_place(pipeline, sink) for sink in pipeline.sinks]
    if len(set(places)) < len(places):
        top.problem("sinks", "two sinks write to the same place")
    dead = pipeline.dead_letters
    if dead is not None and dead.topic and ("topic", dead.topic) in places:
        top.problem(
            "dead_letters.topic", f"{dead.topic} is also the topic of a sink: dead letters need one of their own"
        )
    checkpoint = pipeline.place(pipeline.checkpoint)
    paths = {
        n: pipeline.place(s.path)
        for n, s in enumerate(pipeline.sinks, 1)
        if isinstance(s, DeltaSink | ParquetSink) and s.path
    }
    for number, path in paths.items():
        if path == checkpoint:
            top.problem("checkpoint", f"is also the path of sinks[{number}]")
        elif _is_inside(checkpoint, path):
            top.problem("checkpoint", f"is inside the path of sinks[{number}]")
        for other, outer in paths.items():
            if other != number and _is_inside(path, outer):
                top.problem(f"sinks[{number}].path", f"is inside the path of sinks[{other}]")


def _is_inside(path: str, outer: str) -> bool:
    """Whether readers of `outer` would meet the files of `path`."""
    return path.startswith(f"{outer.rstrip('/')}/")


def _place(pipeline: Pipeline, sink: Sink) -> tuple[str, ...]:
    """Where a sink writes; equal for two sinks that write to one table or topic."""
    if isinstance(sink, TopicSink):
        return "topic", sink.topic
    if isinstance(sink, IcebergSink):
        table = sink.table if "." in sink.table else f"default.{sink.table}"
        return "table", table, pipeline.place(sink.warehouse), str(sorted(sink.catalog.items()))
    return "path", pipeline.place(sink.path)


def _check_spark(pipeline: Pipeline, top: Section) -> None:
    for name in pipeline.spark:
        if not name.startswith("spark."):
            whole = f"spark.{name}"
            instead = _SPARK_INSTEAD.get(whole, f'write "{whole}" = …')
            top.problem(f"spark.{name}", f"the names of Spark's settings begin with spark.; {instead}")
        elif name in _SPARK_INSTEAD:
            top.problem(f"spark.{name}", f"has no effect here; {_SPARK_INSTEAD[name]}")


def _finds_columns(pipeline: Pipeline) -> bool:
    decode = pipeline.decode
    return decode.format == "json" and not decode.columns and decode.registry is None


def _columns(pipeline: Pipeline) -> Mapping[str, str] | None:
    """Column -> type of the decoded rows; None: known only when the pipeline runs."""
    decode = pipeline.decode
    if decode.format == "raw":
        return _RAW | _OWN
    if not decode.columns:
        return None
    keys = {} if decode.key_column is None else {decode.key_column: "string"}
    return {**keys, **decode.columns, **_OWN}


def _check_watermark(pipeline: Pipeline, top: Section, columns: Mapping[str, str] | None) -> None:
    if pipeline.watermark is None:
        return
    if pipeline.decode.on_error != "skip" and pipeline.decode.format != "raw":
        top.problem(
            "watermark",
            'with it records that cannot be decoded are left out; decode.on_error = "skip" says that this is meant',
        )
    if _finds_columns(pipeline):
        top.problem("decode.schema", "is missing: a watermark needs the columns")
    column = pipeline.watermark[0]
    if columns is None or not column:  # a missing column has its own line
        return
    name = column.partition(".")[0]
    if name not in columns:
        top.problem("watermark.column", f"{column!r} is not in decode.schema")
    elif columns.get(column, "timestamp") != "timestamp":
        top.problem("watermark.column", f"{column!r} must be a timestamp, not {columns[column]}")


def _column_problems(sink: Sink, columns: Mapping[str, str], where: str) -> Iterator[tuple[str, str]]:
    """(key of the sink with a dot in front, or nothing; what is wrong with it), for rows with `columns`."""
    if isinstance(sink, TopicSink):
        if sink.key_column is not None and sink.key_column not in columns:
            yield ".key_column", f"{sink.key_column!r} is not {where}"
        return
    fields = [partition_field(each) for each in sink.partition_by if PARTITION_BY.fullmatch(each)]
    key = () if isinstance(sink, ParquetSink) else sink.key
    for name in dict.fromkeys([*sorted(column for _, column in fields), *key]):
        if name not in columns:
            yield "", f"column {name!r} is not {where}"
    taken = {name.lower() for name in columns}
    for transform, name in fields:
        kind = columns.get(name, "timestamp")
        if transform == "identity" and kind.startswith(_NESTED):
            yield ".partition_by", f"{name!r} is {kind}, which has no single value"
        elif transform == "identity" and kind == "binary" and not isinstance(sink, IcebergSink):
            yield ".partition_by", f"{name!r} is binary, which has no text"
        elif transform == "hour" and kind == "date" and isinstance(sink, IcebergSink):
            yield ".partition_by", f"hour({name}): a date has no hour; day({name})"
        elif transform != "identity" and f"{name}_{transform}".lower() in taken and not isinstance(sink, IcebergSink):
            yield (
                ".partition_by",
                f"{transform}({name}) makes a column {name}_{transform}, and there is one of this name",
            )
        elif transform != "identity" and kind not in ("timestamp", "date"):
            yield ".partition_by", f"{transform}({name}): the column is {kind}, not a timestamp or date"
    for name in key:
        if columns.get(name, "").startswith(_NESTED):
            yield ".key", f"{name!r} is {columns[name]}, which has no single value"
