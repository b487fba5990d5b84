"""What a pipeline has written, read by others: pyiceberg, deltalake, DuckDB, and Spark with Iceberg's own jar. Run by `make pipelines`.

The environment names each reader's Python (KAFKALITE_DUCKDB_PYTHON, KAFKALITE_ICEBERG_PYTHON) and the jar (KAFKALITE_ICEBERG_JAR).
"""

from __future__ import annotations

import json
import os
import subprocess
from pathlib import Path

import pytest

from tests.spark.test_pipelines import described, iceberg, put, run

pytestmark = [pytest.mark.spark, pytest.mark.timeout(1200)]

_DUCKDB = """
import importlib, json, sys
from pathlib import Path
import duckdb
connection = duckdb.connect()
for name in ("avro", "iceberg", "delta"):
    module = importlib.import_module(f"duckdb_extension_{name}")
    [file] = Path(module.__file__).parent.rglob("*.duckdb_extension")
    connection.execute(f"LOAD '{file}'")
rows = connection.execute(f"SELECT n, name, even, epoch_ms(_timestamp) FROM {sys.argv[1]}('{sys.argv[2]}') ORDER BY n").fetchall()
print(json.dumps(rows))
"""

_SPARK = """
import json, sys
from pyspark.sql import SparkSession
spark = (
    SparkSession.builder.master("local[1]").config("spark.jars", sys.argv[2]).config("spark.ui.enabled", "false")
    .config("spark.driver.host", "127.0.0.1").config("spark.driver.bindAddress", "127.0.0.1").getOrCreate()
)
rows = spark.read.format("iceberg").load(sys.argv[1]).selectExpr("n", "name", "even", "unix_millis(_timestamp)").orderBy("n")
print(json.dumps([list(row) for row in rows.collect()]))
"""


@pytest.fixture
def tables(spark, log, tmp_path: Path) -> Path:
    """Tables with partitions, a column that came later, and rows that were replaced and deleted."""
    step = {"sql": "SELECT *, n % 2 = 0 AS even FROM input"}
    sinks = [
        {"format": "iceberg", "table": "t", "partition_by": ["even", "hour(_timestamp)"], "key": ["n"]},
        {"format": "delta", "path": "delta", "partition_by": ["even"], "key": ["n"]},
    ]
    pipeline = described(
        log,
        tmp_path,
        *sinks,
        decode={"schema": {"n": "long"}, "key_column": "n"},
        steps=[step],
        source={"topics": ["t"]},
    )
    put(log, 0, 6)
    run(spark, pipeline)
    log.log.put("t", 0, (b"2", None), (b"4", b'{"name": "new"}'))
    put(log, 6, 8)
    columns = {"n": "long", "name": "string"}
    run(spark, described(log, tmp_path, *sinks, decode={"schema": columns, "key_column": "n"}, steps=[step]))
    return tmp_path


def expected() -> list[tuple[int, str | None, bool]]:
    found: list[tuple[int, str | None, bool]] = [(n, None, n % 2 == 0) for n in (0, 1, 3, 5)]
    return sorted([*found, (4, "new", True), (6, "name 6", True), (7, "name 7", False)])


def read_by(python: str, program: str, *arguments: str) -> list[tuple[int, str | None, bool]]:
    done = subprocess.run([python, "-c", program, *arguments], capture_output=True, text=True, env=os.environ)
    assert done.returncode == 0, done.stderr[-3000:]
    return [tuple(row[:3]) for row in json.loads(done.stdout.splitlines()[-1])]


def test_pyiceberg_duckdb_and_spark_read_the_same_rows(tables: Path) -> None:
    table = iceberg(tables)
    rows = sorted((row["n"], row["name"], row["even"]) for row in table.scan().to_arrow().to_pylist())
    assert rows == expected()
    metadata = table.metadata_location.removeprefix("file://")
    duckdb = os.environ["KAFKALITE_DUCKDB_PYTHON"]
    assert read_by(duckdb, _DUCKDB, "iceberg_scan", metadata) == expected()
    assert read_by(duckdb, _DUCKDB, "delta_scan", str(tables / "delta")) == expected()
    jar = os.environ.get("KAFKALITE_ICEBERG_JAR")
    if jar:
        assert read_by(os.environ["KAFKALITE_ICEBERG_PYTHON"], _SPARK, metadata, jar) == expected()
