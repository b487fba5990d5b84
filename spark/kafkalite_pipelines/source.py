"""The options of the Kafka source of a pipeline. Pure."""

from __future__ import annotations

import json
import re
from collections.abc import Mapping
from datetime import datetime
from typing import Any

from kafkalite_pipelines.definition import Pipeline

FORMAT = "kafkalite"
#: At the beginning of a regular expression, such as (?i).
_FLAGS = re.compile(r"\(\?[aimsux]+\)")


def kafka_options(pipeline: Pipeline) -> dict[str, str]:
    """How to reach the cluster: every option of the source and the sink that is a client's setting."""
    return {f"kafka.{key}": value for key, value in pipeline.kafka.items()}


def subscription(pipeline: Pipeline) -> dict[str, str]:
    pattern = pipeline.source.pattern
    if pattern is None:
        return {"subscribe": ",".join(pipeline.source.topics)}
    # Spark's option is searched in the name; a pipeline's pattern is the whole name. Python wants flags first
    flags = found[0] if (found := _FLAGS.match(pattern)) else ""
    return {"subscribePattern": rf"{flags}\A(?:{pattern.removeprefix(flags)})\Z"}


def start_options(start: Any) -> dict[str, str]:
    """Where a new query begins. An offset of -1 is the end, -2 the beginning, as in Spark's own source."""
    if isinstance(start, datetime):
        return {"startingTimestamp": str(int(start.timestamp() * 1000)), "startingOffsetsByTimestampStrategy": "latest"}
    if isinstance(start, Mapping):
        return {"startingOffsets": json.dumps({topic: dict(numbers) for topic, numbers in start.items()})}
    return {"startingOffsets": str(start)}


def stream_options(pipeline: Pipeline, recorded: Mapping[str, Mapping[str, int]] | None) -> dict[str, str]:
    """Of the streaming read. `recorded`: where the tables of the pipeline end, which counts for a new checkpoint."""
    source = pipeline.source
    options = kafka_options(pipeline) | subscription(pipeline) | start_options(recorded or source.start)
    options["failOnDataLoss"] = str(source.fail_on_data_loss).lower()
    # the lag of the pipeline is seen by every tool that shows consumer groups
    options["kafkalite.group.id"] = pipeline.name
    if source.max_records is not None:
        options["maxOffsetsPerTrigger"] = str(source.max_records)
    if source.max_bytes is not None:
        options["maxBytesPerTrigger"] = str(source.max_bytes)
    if pipeline.dead_letters is not None or pipeline.decode.format == "raw":
        options["includeHeaders"] = "true"
    return options


def as_in_the_file(line: str) -> str:
    """An error of the source, with the keys of a pipeline's file instead of the options of Spark's reader."""
    line = line.replace("Set failOnDataLoss=false", "Set source.fail_on_data_loss to false")
    # a range has these options too, from its own state: there the partition and its offsets say all
    return (
        line.replace("startingOffsets: ", "").replace("endingOffsets: ", "").replace("startingOffsets", "source.start")
    )
