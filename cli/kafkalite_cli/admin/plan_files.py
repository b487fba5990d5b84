"""A plan of moves as a file: Kafka's own format, with our sizes."""

from __future__ import annotations

import json
from collections.abc import Mapping
from pathlib import Path
from typing import Any, TypeGuard

import click

from kafkalite.admin.decisions.planner import ReassignmentPlan
from kafkalite.model import MAX_NAME_LENGTH, BrokerId, TopicPartition
from kafkalite_cli.output import size_text
from kafkalite_cli.parameters import MAX_ID

#: Of a plan file. A hundred thousand partitions are some 15 MB.
MAX_PLAN_BYTES = 64_000_000


def plan_document(made: ReassignmentPlan, assignment: Mapping[TopicPartition, tuple[BrokerId, ...]]) -> dict[str, Any]:
    """Kafka's format; `current` is for people, and for a plan back."""
    return {
        "version": 1,
        "partitions": [
            {
                "topic": partition.topic,
                "partition": partition.partition,
                "replicas": list(target),
                "current": list(assignment[partition]),
            }
            for partition, target in made.targets.items()
        ],
    }


def save_plan(path: str, document: dict[str, Any]) -> None:
    try:
        Path(path).write_text(json.dumps(document, indent=1) + "\n")
    except OSError as error:
        raise click.FileError(path, error.strerror) from None


def _is_id(value: object) -> TypeGuard[int]:
    return type(value) is int and 0 <= value <= MAX_ID


def read_plan(path: str) -> dict[TopicPartition, tuple[BrokerId, ...]]:
    """A plan file: Kafka's JSON. Raises click.BadParameter."""

    def bad(reason: str) -> click.BadParameter:
        return click.BadParameter(f"{path or repr(path)}: {reason}", param_hint="PLAN")

    try:
        with open(path, "rb") as file:
            data = file.read(MAX_PLAN_BYTES + 1)
        if len(data) > MAX_PLAN_BYTES:
            raise bad(f"a plan has at most {size_text(MAX_PLAN_BYTES)}")
        value = json.loads(data.decode("utf-8-sig"))  # with the mark that Windows puts in front
    except OSError as error:
        raise bad(error.strerror or "cannot be read") from None
    except RecursionError:
        raise bad("not JSON: nested too deep") from None
    except UnicodeDecodeError:
        raise bad("not JSON: it is not UTF-8") from None
    except ValueError as error:
        # Only JSON's own errors say where; the other one is about a number of thousands of digits.
        reason = str(error) if isinstance(error, json.JSONDecodeError) else "a number is too long"
        raise bad(f"not JSON: {reason}" if data.strip() else "the file is empty") from None
    if isinstance(value, dict) and value.get("version", 1) != 1:
        raise bad(f"version {value['version']!r} is not 1")
    items = value.get("partitions") if isinstance(value, dict) else None
    if not isinstance(items, list) or not items:
        raise bad("no partitions in it")
    targets: dict[TopicPartition, tuple[BrokerId, ...]] = {}
    for index, item in enumerate(items):
        try:
            partition, replicas = _plan_line(item)
        except ValueError as error:
            raise bad(f"partitions[{index}]: {error}") from None
        if partition in targets:
            raise bad(f"{partition} occurs twice")
        targets[partition] = replicas
    return targets


def _plan_line(item: object) -> tuple[TopicPartition, tuple[BrokerId, ...]]:
    """Raises ValueError."""
    if not isinstance(item, dict):
        raise ValueError("it is not an object")
    topic, number, replicas = item.get("topic"), item.get("partition"), item.get("replicas")
    if not isinstance(topic, str) or not topic.isprintable() or not 0 < len(topic) <= MAX_NAME_LENGTH:
        raise ValueError("topic is not the name of a topic")
    if not _is_id(number):
        raise ValueError("partition is not a number from 0")
    if not isinstance(replicas, list) or not replicas or not all(map(_is_id, replicas)):
        raise ValueError("replicas is not a list of brokers")
    directories = item.get("log_dirs")
    if directories is not None and (not isinstance(directories, list) or any(each != "any" for each in directories)):
        raise ValueError('log_dirs other than "any" are not accepted; see `kafkalite admin disk move`')
    return TopicPartition(topic, number), tuple(BrokerId(each) for each in replicas)
