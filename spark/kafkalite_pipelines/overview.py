"""What is known of a pipeline without starting Spark: for `plan` and `status`."""

from __future__ import annotations

import dataclasses
from pathlib import Path
from typing import Any

from kafkalite.wording import number_of
from kafkalite_pipelines import control
from kafkalite_pipelines.cluster import Position, positions
from kafkalite_pipelines.definition import Pipeline, PipelineError, Sink, TopicSink
from kafkalite_pipelines.redaction import secrets_of, without
from kafkalite_pipelines.session import submit_command
from kafkalite_pipelines.sinks.opening import open_sink
from kafkalite_pipelines.sinks.sink import Recorded


def overview(pipeline: Pipeline, file: Path) -> dict[str, Any]:
    """What a run of `file` would do. Raises PipelineError: no broker answers, a table cannot be opened."""
    done = control.position(pipeline)
    sinks = [open_sink(pipeline, sink) for sink in pipeline.sinks]
    recorded = [sink.recorded() for sink in sinks]
    first = next((each for each in recorded if each is not None), None)
    offsets = done[1] if done is not None else None if first is None else first.offsets
    found = positions(pipeline, offsets)
    decode = pipeline.decode
    columns = ", ".join(f"{name} {kind}" for name, kind in decode.columns.items())
    return {
        "pipeline": pipeline.name,
        "partitions": [{**dataclasses.asdict(each), "waiting": each.waiting} for each in found],
        "decode": f"{decode.format}: {columns or 'columns are found in the records'}"
        if decode.format == "json"
        else decode.format,
        "sinks": [
            {"name": sink.name, "state": _state(described, each)}
            for described, sink, each in zip(pipeline.sinks, sinks, recorded, strict=True)
        ],
        "trigger": _trigger(pipeline),
        "checkpoint": pipeline.place(pipeline.checkpoint),
        "submit": submit_command(pipeline, file, pipeline.master or "spark://HOST:7077").shown(),
    }


def _state(sink: Sink, recorded: Recorded | None) -> str:
    if isinstance(sink, TopicSink):  # the brokers know its batches
        return sink.delivery
    if recorded is not None and not recorded.offsets:
        return "has batches whose end its log no longer names"
    return "new" if recorded is None else f"has batch {recorded.number} of query {recorded.query[:8]}"


def _trigger(pipeline: Pipeline) -> str:
    if pipeline.every_s is None:
        return "what is there now, then end"
    return f"every {pipeline.every_s:g} s" if pipeline.every_s else "as fast as possible"


def state(pipeline: Pipeline) -> dict[str, Any]:
    """Whether it runs, its last batch, how far behind it is."""
    run = control.status(pipeline)
    done = control.position(pipeline)
    try:
        found: list[Position] | None = positions(pipeline, None if done is None else done[1])
        unknown = ""
    except PipelineError as error:
        found, unknown = None, without(secrets_of(pipeline), str(error))
    behind = None if found is None else sum(each.waiting for each in found)
    value: dict[str, Any] = {
        "pipeline": pipeline.name,
        "state": "new" if run is None else run["state"],
        "behind": behind,
        "batch": None if done is None else done[0],
        "run": run,
        "partitions": []
        if found is None
        else [{**dataclasses.asdict(each), "waiting": each.waiting} for each in found],
    }
    value["lines"] = _lines(value, run, unknown)
    return value


def _lines(value: dict[str, Any], run: dict[str, Any] | None, unknown: str) -> list[str]:
    lines = [f"pipeline   {value['pipeline']}", f"state      {value['state']}"]
    if run is not None:
        lines[1] += f", process {run['pid']} on {run['host']}, started {run['started']}"
        if "error" in run:
            lines.append(f"error      {run['error']}")
    if value["batch"] is not None:
        lines.append(f"batch      {value['batch']} is complete")
    if run is not None and (last := run.get("last")) is not None:
        text = (
            f"{number_of(last['records'], 'record')} in {last['seconds']:.1f} s, {last['records_per_s']:,.0f} a second"
        )
        lines.append(f"last       {text}, {last['bad']:,} not decoded, at {run.get('updated', '')}")
    if run is not None and (undecoded := run.get("undecoded")) is not None:
        text = f"{number_of(undecoded['records'], 'record')} since the start, the last in batch {undecoded['batch']}"
        lines.append(f"undecoded  {text}")
    lines.append(
        f"behind     {unknown}" if value["behind"] is None else f"behind     {number_of(value['behind'], 'record')}"
    )
    return lines
