"""Ranges and targets of `kafkalite pipeline backfill` and `replay`, as they are written on a command line."""

from __future__ import annotations

import dataclasses
import json
import re
from collections.abc import Callable, Sequence
from datetime import UTC, datetime
from typing import TYPE_CHECKING, Any, TypeVar

import click

from kafkalite.env.real import RealClock
from kafkalite_cli.parameters import MOMENTS, parse_moment

if TYPE_CHECKING:
    from kafkalite_pipelines import DeltaSink, IcebergSink, ParquetSink, Pipeline
    from kafkalite_pipelines.definition import Sink

_Sink = TypeVar("_Sink", bound="Sink")
_SAME = "--same-sinks if that is meant"


def bound(text: str) -> Any:
    """earliest, latest, a time with its zone, how long ago, or offsets by topic and partition. Raises UsageError."""
    if text in ("earliest", "latest"):
        return text
    if text.startswith("{"):
        return _offsets(text)
    try:
        if text.startswith("-"):
            return datetime.fromtimestamp(parse_moment(text).at_ms(RealClock().wall_ms()) / 1000, UTC)
        found = datetime.fromisoformat(text)
    except ValueError:
        raise click.UsageError(f"{text!r} is not earliest, latest, {MOMENTS} or offsets as JSON") from None
    if found.tzinfo is None:
        raise click.UsageError(f"{text}: the time has no time zone; 2026-11-22T08:00:00Z")
    return found


def _offsets(text: str) -> dict[str, dict[str, int]]:
    try:
        value = json.loads(text)
        offsets = {
            topic: {str(int(p)): int(offset) for p, offset in numbers.items()} for topic, numbers in value.items()
        }
    except (ValueError, AttributeError, TypeError, OverflowError, RecursionError):
        raise click.UsageError(f'{text!r} is no JSON of offsets: {{"topic": {{"0": 23}}}}') from None
    return offsets


def targets(
    pipeline: Pipeline, table: str | None, path: str | None, topic: str | None, *, same_sinks: bool
) -> tuple[Sink, ...]:
    """The sinks of a backfill: the file's, or one of them with another place. Raises UsageError."""
    from kafkalite_pipelines import TopicSink

    if _chosen(table, path, topic) + same_sinks != 1:
        raise click.UsageError("give one of --table, --path, --topic and --same-sinks")
    if same_sinks:
        if pipeline.key:
            raise click.UsageError(
                "--same-sinks: old records would replace newer rows of a table with a key; use another table"
            )
        return pipeline.sinks
    if topic is not None:
        check_topic(topic)
        if pipeline.source.reads(topic):
            raise click.UsageError(f"--topic {topic} is the topic that is read")
        topics = [sink for sink in pipeline.sinks if isinstance(sink, TopicSink)]
        return (_moved(topics, "topic", topic, lambda sink: sink.topic, _SAME) or TopicSink(topic),)
    return (_table(pipeline, table, path, _SAME),)


def replay_target(
    pipeline: Pipeline, table: str | None, path: str | None, topic: str | None, *, at_least_once: bool
) -> Sink:
    """Where a replay writes: a topic, or a table where the file's are. Records as they are have no other columns than key, value,
    headers and the hidden ones: the table has no key, and only partitions that are made of these. Raises UsageError."""
    from kafkalite_pipelines import ParquetSink, TopicSink
    from kafkalite_pipelines.definition import HIDDEN
    from kafkalite_pipelines.sinks.partitions import partition_field

    if _chosen(table, path, topic) != 1:
        raise click.UsageError("give one of --table, --path and --topic")
    if topic is not None:
        check_topic(topic)
        return TopicSink(topic, None, "at-least-once" if at_least_once else "exactly-once")
    if at_least_once:
        raise click.UsageError("--at-least-once is for --topic: a table has each record once on every cluster")
    sink = _table(pipeline, table, path, "a replay goes into another one")
    kept = tuple(each for each in sink.partition_by if partition_field(each)[1] in HIDDEN)
    if isinstance(sink, ParquetSink):
        return dataclasses.replace(sink, partition_by=kept)
    return dataclasses.replace(sink, partition_by=kept, key=())


def _chosen(*places: str | None) -> int:
    return sum(place is not None for place in places)


def _table(pipeline: Pipeline, table: str | None, path: str | None, hint: str) -> IcebergSink | DeltaSink | ParquetSink:
    """A table of this name or path, otherwise as the file's first one. Raises UsageError."""
    from kafkalite_pipelines import DeltaSink, IcebergSink, ParquetSink
    from kafkalite_pipelines.reading import TABLE

    if table is not None:
        if not TABLE.fullmatch(table):
            raise click.UsageError(f"--table: {table!r} is not a name or namespace.name")
        tables = [sink for sink in pipeline.sinks if isinstance(sink, IcebergSink)]
        return _moved(tables, "table", table, _place, hint) or IcebergSink(table)
    assert path is not None
    paths = [sink for sink in pipeline.sinks if isinstance(sink, DeltaSink | ParquetSink)]
    found = _moved(paths, "path", path, lambda sink: pipeline.place(sink.path), hint)
    if found is None:
        raise click.UsageError("--path needs a delta or parquet sink in the file; use --table")
    return found


def _moved(sinks: Sequence[_Sink], field: str, value: str, place: Callable[[_Sink], object], hint: str) -> _Sink | None:
    """The first of these sinks, but with this topic, table or path. Raises UsageError: one of them writes there."""
    if not sinks:
        return None
    change: dict[str, Any] = {field: value}
    found = dataclasses.replace(sinks[0], **change)
    if any(place(sink) == place(found) for sink in sinks):
        raise click.UsageError(f"--{field} {value} is the file's own; {hint}")
    return found


def _place(sink: IcebergSink) -> tuple[str, ...]:
    """Equal for two sinks that write to one table."""
    table = sink.table if "." in sink.table else f"default.{sink.table}"
    return table, sink.warehouse, str(sorted(sink.catalog.items()))


def check_topic(topic: str) -> None:
    """Raises UsageError: that is no topic's name."""
    from kafkalite_pipelines.reading import TOPIC

    if not TOPIC.fullmatch(topic):
        raise click.UsageError(f"--topic: {topic!r} is not a topic's name")


def label(name: str | None, verb: str, target: str) -> str:
    """The name of a range: the given one, or one made of its target. Raises UsageError."""
    from kafkalite_pipelines.reading import NAME

    if name is not None:
        if not NAME.fullmatch(name):
            raise click.UsageError(f"--name: must be letters, digits, '.', '_' and '-', 200 at most, not {name!r}")
        return name
    return f"{verb}-{re.sub(r'[^A-Za-z0-9._-]', '-', target)[-100:]}"
