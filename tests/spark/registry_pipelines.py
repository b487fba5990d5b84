"""Pipelines against a node's own schema registry: confluent-kafka's serializers write, tables are read by pyiceberg and pyarrow.

Run by `make pipelines`. KAFKALITE_CONFLUENT_PYTHON names a Python with tests/interop/requirements.txt.
"""

from __future__ import annotations

import json
import os
import subprocess
from datetime import UTC, datetime
from pathlib import Path
from typing import Any

import pytest

from kafkalite.testing.processes import ProcessCluster
from kafkalite_pipelines import parse
from tests.spark.test_pipelines import iceberg, run

pytestmark = [pytest.mark.spark]

WRITER = Path(__file__).with_name("registry_writer.py")


@pytest.fixture(scope="module")
def nodes(tmp_path_factory: pytest.TempPathFactory):
    """(bootstrap, URL of the registry)."""
    with ProcessCluster(tmp_path_factory.mktemp("nodes"), nodes=1, settings={"num.partitions": 1}) as cluster:
        yield ",".join(cluster.bootstrap), f"http://{cluster.http(1)}"


def write(nodes: tuple[str, str], format_: str, *values: Any, fields: str | None = None) -> None:
    """`fields`: of the schema; None: no serializer, the values are texts."""
    bootstrap, url = nodes
    given = json.dumps({"fields": fields, "values": values})
    done = subprocess.run(
        [os.environ["KAFKALITE_CONFLUENT_PYTHON"], str(WRITER), bootstrap, url, format_, given],
        capture_output=True, text=True, timeout=120, check=False,
    )  # fmt: skip
    assert done.returncode == 0, done.stderr[-3000:]


def dead(nodes: tuple[str, str], topic: str) -> list[str]:
    done = subprocess.run(
        [os.environ["KAFKALITE_CONFLUENT_PYTHON"], str(WRITER), nodes[0], topic],
        capture_output=True, text=True, timeout=120, check=False,
    )  # fmt: skip
    assert done.returncode == 0, done.stderr[-3000:]
    found: list[str] = json.loads(done.stdout)
    return found


@pytest.mark.parametrize("format_", ["avro", "protobuf", "json"])
def test_serializers_of_confluent_into_a_table_that_grows(spark, nodes, format_: str, tmp_path: Path) -> None:
    values = {
        "name": "p", "kafka": {"bootstrap.servers": nodes[0]}, "source": {"topics": [format_]}, "trigger": "available-now",
        "decode": {"format": format_, "registry": nodes[1]}, "dead_letters": {"topic": f"{format_}-dead"},
        "sinks": [{"format": "iceberg", "table": "t"}, {"format": "parquet", "path": "files"}],
    }  # fmt: skip
    pipeline = parse(values, tmp_path)
    place = {"name": "JFK"}
    write(nodes, format_, {"n": 1, "place": place}, {"n": 2, "place": place, "tags": ["a", "b"]}, fields="first")
    write(nodes, format_, "{}")
    [first] = run(spark, pipeline)
    assert (first.records, first.bad) == (3, 1)
    # a new column, and one that is wider
    write(nodes, format_, {"n": 2**40, "place": place, "at": "2026-11-22T08:00:00Z"}, fields="second")
    write(nodes, format_, {"n": 4, "place": place}, fields="first")
    # written with a schema that the registry has under another subject only: it does not fit the columns
    write(nodes, format_, {"n": "five"}, fields="other")
    [second] = run(spark, pipeline)
    assert (second.records, second.bad) == (3, 1)

    rows = {row["n"]: row for row in iceberg(tmp_path).scan().to_arrow().to_pylist()}
    assert sorted(rows) == [1, 2, 4, 2**40]
    assert rows[1]["place"] == place and rows[2]["tags"] == ["a", "b"]
    at = rows[2**40]["at"]
    assert (at, rows[4]["at"]) == (datetime(2026, 11, 22, 8, tzinfo=UTC), None)
    errors = dead(nodes, f"{format_}-dead")
    assert len(errors) == 2 and "has no schema id in front" in errors[0]
    assert {"avro": "is not Avro of schema", "protobuf": "does not fit the columns", "json": "does not fit"}[
        format_
    ] in errors[1]
