"""Pipelines through Spark: decoding, steps, tables and topics, each batch once. Every run takes what is there and ends."""

from __future__ import annotations

import json
from pathlib import Path
from typing import Any

import pytest

from kafkalite.model import TopicPartition as Tp
from kafkalite_pipelines import PipelineError, parse
from kafkalite_pipelines.control import supervise

pytestmark = [pytest.mark.spark, pytest.mark.timeout(600)]

SCHEMA = {"n": "long", "name": "string"}


@pytest.fixture
def log(served):
    served.log.add_topic("t", 2)
    served.log.add_topic("dead", 1)
    served.log.add_topic("out", 1)
    return served


def put(served, first: int, last: int, **more: Any) -> None:
    for n in range(first, last):
        value = {"n": n, "name": f"name {n}"} | more
        served.log.put("t", n % 2, (b"%d" % n, json.dumps(value).encode()))


def described(served, directory: Path, *sinks: dict[str, Any], **more: Any):
    values = {
        "name": "p",
        "kafka": {"bootstrap.servers": served.address},
        "source": {"topics": ["t"]},
        "decode": {"schema": SCHEMA},
        "trigger": "available-now",
        "sinks": list(sinks),
    }
    return parse(values | more, directory)


def run(spark, pipeline) -> list[Any]:
    shown: list[Any] = []
    assert supervise(pipeline, spark, shown.append) == 0
    return shown


def iceberg(directory: Path, name: str = "t"):
    from pyiceberg.catalog import load_catalog

    return load_catalog("default", type="sql", uri=f"sqlite:///{directory}/tables/catalog.db").load_table(
        f"default.{name}"
    )


def numbers(rows) -> list[int]:
    return sorted(rows.column("n").to_pylist())


def test_every_sink_has_each_record_once_over_restarts(spark, log, tmp_path: Path) -> None:
    import pyarrow.dataset as ds
    from deltalake import DeltaTable

    sinks = [
        {"format": "iceberg", "table": "t", "partition_by": ["day(_timestamp)"]},
        {"format": "delta", "path": "delta", "partition_by": ["month(_timestamp)"]},
        {"format": "parquet", "path": "files"},
        {"format": "topic", "topic": "out", "key_column": "n"},
    ]
    steps = [{"sql": "SELECT n, upper(name) AS name, _offset, _timestamp FROM input WHERE n <> 7"}]
    pipeline = described(
        log,
        tmp_path,
        *sinks,
        steps=steps,
        dead_letters={"topic": "dead"},
        decode={"schema": SCHEMA, "required": ["name"]},
    )
    put(log, 0, 10)
    log.log.put("t", 0, (b"bad", b"{nope"), (b"null", b'{"n": 1}'), (b"wrong", b'{"n": "x", "name": "y"}'))
    [first] = run(spark, pipeline)
    assert (first.records, first.bad) == (13, 3) and first.rows["Iceberg table t"] == first.rows["files files"] == 9
    put(log, 10, 20)
    [second] = run(spark, pipeline)
    assert (second.batch, second.records, second.bad, second.behind) == (1, 10, 0, 0)

    expected = [n for n in range(20) if n != 7]
    table = iceberg(tmp_path)
    assert numbers(table.scan().to_arrow()) == expected
    assert [field.name for field in table.spec().fields] == ["_timestamp_day"]
    summary = table.current_snapshot().summary
    assert summary["kafkalite.batch"] == "1" and json.loads(summary["kafkalite.offsets"]) == {"t": {"0": 13, "1": 10}}
    delta = DeltaTable(str(tmp_path / "delta"))
    assert numbers(delta.to_pyarrow_table() if hasattr(delta, "to_pyarrow_table") else delta.to_arrow()) == expected
    assert numbers(ds.dataset(tmp_path / "files", partitioning="hive").to_table()) == expected
    out = log.log.records("out", 0)
    assert sorted(json.loads(record.value)["n"] for record in out) == expected
    assert {record.key for record in out} == {b"%d" % n for n in expected}
    dead = log.log.records("dead", 0)
    assert [record.value for record in dead] == [b"{nope", b'{"n": 1}', b'{"n": "x", "name": "y"}']
    headers = dict(dead[1].headers)
    assert headers["kafkalite.error"] == b"column name is missing" and headers["kafkalite.offset"] == b"6"
    assert log.log.committed["p"] == {Tp("t", 0): 13, Tp("t", 1): 10}  # every tool that shows groups shows the lag


def test_columns_that_are_found_and_a_table_that_grows(spark, log, tmp_path: Path) -> None:
    pipeline = described(log, tmp_path, {"format": "iceberg", "table": "t"}, decode={}, dead_letters={"topic": "dead"})
    put(log, 0, 5)
    run(spark, pipeline)
    put(log, 5, 8, price=1.5, tags=["a"])
    run(spark, pipeline)
    # the columns are kept: the table and the pipeline agree after a restart
    put(log, 8, 9, price="cheap")
    put(log, 9, 10)
    run(spark, pipeline)
    table = iceberg(tmp_path)
    rows = {row["n"]: row for row in table.scan().to_arrow().to_pylist()}
    assert (
        sorted(rows) == [*range(8), 9]
        and rows[6]["price"] == 1.5
        and rows[6]["tags"] == ["a"]
        and rows[0]["price"] is None
    )
    assert [json.loads(record.value)["n"] for record in log.log.records("dead", 0)] == [8]


def test_a_lost_checkpoint_continues_where_the_table_ends(spark, log, tmp_path: Path) -> None:
    import shutil

    pipeline = described(log, tmp_path, {"format": "iceberg", "table": "t"})
    put(log, 0, 6)
    run(spark, pipeline)
    shutil.rmtree(tmp_path / "checkpoints")
    put(log, 6, 9)
    run(spark, pipeline)
    assert numbers(iceberg(tmp_path).scan().to_arrow()) == list(range(9))


def test_a_record_that_cannot_be_decoded_stops_the_pipeline_before_anything_is_visible(
    spark, log, tmp_path: Path
) -> None:
    pipeline = described(log, tmp_path, {"format": "iceberg", "table": "t"})
    put(log, 0, 4)
    log.log.put("t", 0, (b"bad", b"{nope"))
    with pytest.raises(PipelineError, match="1 records cannot be decoded, the first: t-0 at offset 2 is not JSON"):
        run(spark, pipeline)
    assert iceberg(tmp_path).current_snapshot() is None


def test_steps_that_are_wrong_are_refused_in_one_line(spark, log, tmp_path: Path) -> None:
    table = {"format": "iceberg", "table": "t"}
    put(log, 0, 4)
    for sql, line in (
        ("SELECT nmber FROM input", "nmber"),
        ("SELECT count(*) AS n FROM input", "the query groups rows, which would be done in each batch alone"),
    ):
        with pytest.raises(PipelineError, match=line):
            run(spark, described(log, tmp_path, table, steps=[{"sql": sql}]))
    (tmp_path / "mine.py").write_text("def triple(rows):\n    return rows.selectExpr('n * 3 AS n')\n")
    run(spark, described(log, tmp_path, table, steps=[{"python": "mine:triple"}]))
    assert numbers(iceberg(tmp_path).scan().to_arrow()) == [0, 3, 6, 9]


def test_an_aggregation_over_the_whole_stream(spark, log, tmp_path: Path) -> None:
    for n in range(6):
        value = {"n": n, "at": f"2026-11-22T10:{n * 10:02d}:00Z"}
        log.log.put("t", 0, (b"", json.dumps(value).encode()))
    pipeline = described(
        log, tmp_path, {"format": "iceberg", "table": "hourly"},
        decode={"schema": {"n": "long", "at": "timestamp"}}, watermark={"column": "at", "delay": "1m"},
        steps=[{"sql": "SELECT window.start AS at, count(*) AS n FROM input GROUP BY window(at, '20 minutes')"}],
    )  # fmt: skip
    run(spark, pipeline)
    rows = iceberg(tmp_path, "hourly").scan().to_arrow().to_pylist()
    assert [row["n"] for row in rows] == [2, 2]
