"""Ranges and targets of `kafkalite pipeline backfill` and `replay`, as they are written on a command line."""

from __future__ import annotations

import dataclasses
import json
import re
from collections.abc import Callable, Sequence
from datetime import datetime
from typing import TYPE_CHECKING, Any, TypeVar

import click

if TYPE_CHECKING:
    from kafkalite_pipelines import IcebergSink, Pipeline
    from kafkalite_pipelines.definition import Sink

_Sink = TypeVar("_Sink", bound="Sink")


def bound(text: str) -> Any:
    """earliest, latest, a time with its zone, or offsets by topic and partition. Raises UsageError."""
    if text in ("earliest", "latest"):
        return text
    if text.startswith("{"):
        return _offsets(text)
    try:
        found = datetime.fromisoformat(text)
    except ValueError:
        raise click.UsageError(
            f"{text!r} is not earliest, latest, a time (2026-11-22T08:00:00Z) or offsets as JSON"
        ) from None
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
    from kafkalite_pipelines import DeltaSink, IcebergSink, ParquetSink, TopicSink
    from kafkalite_pipelines.reading import TABLE

    chosen = [value for value in (table, path, topic) if value is not None]
    if len(chosen) + same_sinks != 1:
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
        return (_moved(topics, "topic", topic, lambda sink: sink.topic) or TopicSink(topic),)
    if table is not None:
        if not TABLE.fullmatch(table):
            raise click.UsageError(f"--table: {table!r} is not a name or namespace.name")
        tables = [sink for sink in pipeline.sinks if isinstance(sink, IcebergSink)]
        return (_moved(tables, "table", table, _place) or IcebergSink(table),)
    assert path is not None
    paths = [sink for sink in pipeline.sinks if isinstance(sink, DeltaSink | ParquetSink)]
    found = _moved(paths, "path", path, lambda sink: pipeline.place(sink.path))
    if found is None:
        raise click.UsageError("--path needs a delta or parquet sink in the file; use --table")
    return (found,)


def _moved(sinks: Sequence[_Sink], field: str, value: str, place: Callable[[_Sink], object]) -> _Sink | None:
    """The first of these sinks, but with this topic, table or path. Raises UsageError: one of them writes there."""
    if not sinks:
        return None
    change: dict[str, Any] = {field: value}
    found = dataclasses.replace(sinks[0], **change)
    if any(place(sink) == place(found) for sink in sinks):
        raise click.UsageError(f"--{field} {value} is the file's own; --same-sinks if that is meant")
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
