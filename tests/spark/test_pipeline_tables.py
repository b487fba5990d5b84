"""Tables that are changed: upserts, deletes, new and wider columns, compaction, batches that run again."""

from __future__ import annotations

import json
import shutil
from datetime import UTC, date, datetime
from decimal import Decimal
from pathlib import Path
from typing import Any

import pytest

from kafkalite_pipelines import PipelineError
from kafkalite_pipelines.definition import Maintenance
from tests.spark.one_batch import process
from tests.spark.test_pipelines import described, iceberg, numbers, put, run

pytestmark = [pytest.mark.spark]


def all_rows(directory: Path, format_: str) -> list[dict[str, Any]]:
    rows: list[dict[str, Any]] = table_of(directory, format_).to_pylist()
    return rows


def table_of(directory: Path, format_: str):
    if format_ == "iceberg":
        return iceberg(directory).scan().to_arrow()
    import pyarrow as pa
    from deltalake import DeltaTable, QueryBuilder

    table = DeltaTable(str(directory / "delta"))
    return pa.table(QueryBuilder().register("t", table).execute("SELECT * FROM t").read_all())


def rows_of(directory: Path, format_: str) -> dict[int, str]:
    found = table_of(directory, format_)
    assert found.num_rows == len(set(found.column("n").to_pylist())), "a key is there twice"
    return dict(zip(found.column("n").to_pylist(), found.column("name").to_pylist(), strict=True))


def sink(format_: str) -> dict[str, Any]:
    return {"format": "iceberg", "table": "t"} if format_ == "iceberg" else {"format": "delta", "path": "delta"}


def event(op: str, n: int, before: str | None, after: str | None) -> tuple[bytes, bytes]:
    def row(name: str | None) -> dict[str, Any] | None:
        return None if name is None else {"n": n, "name": name}

    return b"%d" % n, json.dumps({"payload": {"op": op, "before": row(before), "after": row(after)}}).encode()


@pytest.mark.parametrize("format_", ["iceberg", "delta"])
def test_a_compacted_topic_is_a_table_with_one_row_per_key(spark, log, format_: str, tmp_path: Path) -> None:
    more = {"key": ["n"], "partition_by": ["even"]} if format_ == "iceberg" else {"key": ["n"]}
    steps = [{"sql": "SELECT *, n % 2 = 0 AS even FROM input"}]
    # the key has its column's type, whether the schema is given or found in the records
    given = {"schema": {"n": "long", "name": "string"}} if format_ == "iceberg" else {}
    decode = given | {"key_column": "n"}
    pipeline = described(
        log, tmp_path, sink(format_) | more, decode=decode, dead_letters={"topic": "dead"}, steps=steps
    )
    put(log, 0, 6)
    log.log.put("t", 0, (b"2", b'{"n": 2, "name": "second"}'), (b"4", None))
    process(spark, log, pipeline)
    assert rows_of(tmp_path, format_) == {n: f"name {n}" for n in (0, 1, 3, 5)} | {2: "second"}
    log.log.put("t", 0, (b"0", b'{"n": 0, "name": "new"}'), (b"2", None), (b"8", b'{"n": 8, "name": "eight"}'))
    log.log.put("t", 1, (b"1", None), (b"1", b'{"n": 1, "name": "again"}'))
    second = process(spark, log, pipeline)
    assert rows_of(tmp_path, format_) == {0: "new", 1: "again", 3: "name 3", 5: "name 5", 8: "eight"}
    assert second.bad == 0
    log.log.put("t", 0, (b"no number", None))
    process(spark, log, pipeline)
    assert [record.key for record in log.log.records("dead", 0)] == [b"no number"]


def test_a_raw_record_without_a_value_deletes_its_key(spark, log, tmp_path: Path) -> None:
    """It became a row without a value: the table of a compacted topic had the keys that are gone."""
    pipeline = described(log, tmp_path, sink("iceberg") | {"key": ["key"]}, decode={"format": "raw"})
    log.log.put("t", 0, (b"a", b"1"), (b"b", b"2"), (b"c", None))
    process(spark, log, pipeline)
    log.log.put("t", 0, (b"a", None), (b"b", b"3"))
    process(spark, log, pipeline)
    assert [(row["key"], row["value"]) for row in all_rows(tmp_path, "iceberg")] == [(b"b", b"3")]
    steps = [{"sql": "SELECT key, upper(CAST(value AS string)) AS value, _partition, _offset FROM input"}]
    with pytest.raises(PipelineError, match="steps: the rows have no column _deleted, which says"):
        process(
            spark,
            log,
            described(log, tmp_path, sink("iceberg") | {"key": ["key"]}, decode={"format": "raw"}, steps=steps),
        )


@pytest.mark.parametrize("key", [[], ["n"]])
def test_rules_of_a_delta_table(spark, log, key: list[str], tmp_path: Path) -> None:
    """Rows that break them were in the table, without a word: deltalake does not look into files that others have written."""
    from deltalake import DeltaTable, Field, Schema

    columns = [Field("n", "long", nullable=False), Field("name", "string"), Field("k", "string")]
    table = DeltaTable.create(str(tmp_path / "delta"), Schema(columns))
    table.alter.add_constraint({"named": "name <> 'bad' OR k = 'x'"})
    decode = {"schema": {"n": "long", "name": "string"}, "key_column": "k"}
    pipeline = described(log, tmp_path, sink("delta") | ({"key": key} if key else {}), decode=decode)
    put(log, 0, 4)
    process(spark, log, pipeline)
    assert sorted(rows_of(tmp_path, "delta")) == [0, 1, 2, 3]
    log.log.put("t", 0, (b"8", b'{"n": 8, "name": "bad"}'))
    with pytest.raises(PipelineError, match=r"Delta table delta: a row breaks its constraint named \(name != 'bad'"):
        process(spark, log, pipeline)
    table = DeltaTable(str(tmp_path / "delta"))
    table.alter.drop_constraint("named")
    process(spark, log, pipeline)
    assert sorted(rows_of(tmp_path, "delta")) == [0, 1, 2, 3, 8]
    log.log.put("t", 0, (b"9", b'{"name": "no number"}'))
    with pytest.raises(PipelineError, match=r"column n is NOT NULL|has no key"):
        process(spark, log, pipeline)
    assert sorted(rows_of(tmp_path, "delta")) == [0, 1, 2, 3, 8]


def test_a_column_that_an_iceberg_table_requires(spark, log, tmp_path: Path) -> None:
    from pyiceberg.catalog import load_catalog
    from pyiceberg.schema import Schema
    from pyiceberg.types import LongType, NestedField, StringType

    (tmp_path / "tables").mkdir()
    uri = f"sqlite:///{tmp_path}/tables/catalog.db"
    catalog = load_catalog("default", type="sql", uri=uri, warehouse=f"file://{tmp_path}/tables")
    catalog.create_namespace("default")
    schema = Schema(NestedField(1, "n", LongType(), required=True), NestedField(2, "name", StringType()))
    catalog.create_table("default.t", schema)
    pipeline = described(log, tmp_path, sink("iceberg"))
    put(log, 0, 4)
    process(spark, log, pipeline)
    log.log.put("t", 0, (b"9", b'{"name": "no number"}'))
    with pytest.raises(PipelineError, match="column n has no value in a row, and the table requires one"):
        process(spark, log, pipeline)
    assert sorted(rows_of(tmp_path, "iceberg")) == [0, 1, 2, 3]


def test_change_events_of_a_database(spark, log, tmp_path: Path) -> None:
    decode = {"schema": {"n": "long", "name": "string"}, "debezium": True}
    pipeline = described(log, tmp_path, sink("iceberg") | {"key": ["n"]}, decode=decode, dead_letters={"topic": "dead"})
    log.log.put("t", 0, event("c", 1, None, "a"), event("c", 2, None, "b"), event("r", 3, None, "c"))
    process(spark, log, pipeline)
    log.log.put("t", 0, event("u", 1, "a", "A"), event("d", 2, "b", None), (b"2", None), (b"9", b'{"op": "c"}'))
    process(spark, log, pipeline)
    assert rows_of(tmp_path, "iceberg") == {1: "A", 3: "c"}
    [dead] = log.log.records("dead", 0)
    assert dict(dead.headers)["kafkalite.error"].startswith(b"is a change event without the row")


def test_steps_keep_deletions_or_are_refused(spark, log, tmp_path: Path) -> None:
    """A step that selected columns lost the mark: the deleted row was in the table, as its event's `before` has it."""
    decode = {"schema": {"n": "long", "name": "string"}, "debezium": True}
    log.log.put("t", 0, event("c", 1, None, "a"), event("c", 2, None, "b"), event("c", 3, None, "c"))

    def go(sql: str) -> None:
        steps = [{"sql": sql}]
        process(spark, log, described(log, tmp_path, sink("iceberg") | {"key": ["n"]}, decode=decode, steps=steps))

    with pytest.raises(PipelineError, match="steps: the rows have no column _deleted, which says"):
        go("SELECT n, upper(name) AS name, _partition, _offset FROM input")
    go("SELECT n, upper(name) AS name, _partition, _offset, _deleted FROM input")
    assert rows_of(tmp_path, "iceberg") == {1: "A", 2: "B", 3: "C"}
    nameless = b'{"op": "u", "after": {"n": 3}}'
    log.log.put("t", 0, event("d", 2, "b", None), event("u", 1, "a", "gone"), (b"3", nameless))
    # what the filter leaves out is deleted; null is no deletion
    go("SELECT * EXCEPT (_deleted), _deleted OR name = 'gone' AS _deleted FROM input")
    assert rows_of(tmp_path, "iceberg") == {3: None}


def test_a_deletion_is_no_row_of_a_table_without_a_key(spark, log, tmp_path: Path) -> None:
    """Beside a sink with a key, which takes it: it would look like a row that was added."""
    decode = {"schema": {"n": "long", "name": "string"}, "debezium": True}
    added = [
        {"format": "delta", "path": "delta"},
        {"format": "iceberg", "table": "u"},
        {"format": "parquet", "path": "p"},
    ]
    pipeline = described(log, tmp_path, sink("iceberg") | {"key": ["n"]}, *added, decode=decode)
    log.log.put("t", 0, event("c", 1, None, "a"), event("c", 2, None, "b"), event("d", 2, "b", None))
    batch = process(spark, log, pipeline)
    assert batch.records == 3 and rows_of(tmp_path, "iceberg") == {1: "a"}
    assert rows_of(tmp_path, "delta") == {1: "a", 2: "b"}
    assert sorted(spark.read.parquet(f"{tmp_path}/p").toPandas()["name"]) == ["a", "b"]
    assert {name: rows for name, rows in batch.rows.items() if "table t" not in name} == {
        name: 2 for name in batch.rows if "table t" not in name
    }


def test_a_batch_that_was_committed_adds_nothing(spark, log, tmp_path: Path) -> None:
    """What a kill between the tables' commits and Spark's own leaves: the batch runs again."""
    formats = ("iceberg", "delta")
    pipeline = described(log, tmp_path, sink("iceberg"), sink("delta") | {"key": ["n"]})
    put(log, 0, 10)
    run(spark, pipeline)
    before = [_version(tmp_path, format_) for format_ in formats]
    (tmp_path / "checkpoints" / "p" / "query" / "commits" / "0").unlink()
    (tmp_path / "checkpoints" / "p" / "query" / "commits" / ".0.crc").unlink(missing_ok=True)
    run(spark, pipeline)
    assert [sorted(rows_of(tmp_path, format_)) for format_ in formats] == [list(range(10))] * 2
    assert [_version(tmp_path, format_) for format_ in formats] == before


def test_a_checkpoint_that_is_older_than_the_table(spark, log, tmp_path: Path) -> None:
    """From a backup, or the disk had lost its last files: the batch was planned again with more records, and passed over."""
    pipeline = described(log, tmp_path, sink("iceberg"), sink("delta"), {"format": "topic", "topic": "out"})
    put(log, 0, 10)
    run(spark, pipeline)
    query = tmp_path / "checkpoints" / "p" / "query"
    shutil.copytree(query, tmp_path / "backup")
    put(log, 10, 14)
    run(spark, pipeline)
    shutil.rmtree(query)
    shutil.copytree(tmp_path / "backup", query)
    put(log, 14, 20)
    with pytest.raises(PipelineError, match="is older than Iceberg table t, where batch 1 ends at other offsets"):
        run(spark, pipeline)
    shutil.rmtree(query)
    run(spark, pipeline)
    for format_ in ("iceberg", "delta"):
        assert sorted(rows_of(tmp_path, format_)) == list(range(20))


def _version(directory: Path, format_: str) -> object:
    if format_ == "iceberg":
        return iceberg(directory).metadata_location
    from deltalake import DeltaTable

    return DeltaTable(str(directory / "delta")).version()


def test_new_and_wider_columns(spark, log, tmp_path: Path) -> None:
    table = sink("iceberg")
    put(log, 0, 2)
    process(
        spark, log, described(log, tmp_path, table, decode={"schema": {"n": "int", "name": "string", "f": "float"}})
    )
    put(log, 2, 4, price=2.5)
    wider = {"n": "long", "name": "string", "f": "double", "price": "double"}
    process(spark, log, described(log, tmp_path, table, decode={"schema": wider}))
    found = {row["n"]: row["price"] for row in iceberg(tmp_path).scan().to_arrow().to_pylist()}
    assert found == {0: None, 1: None, 2: 2.5, 3: 2.5} and str(iceberg(tmp_path).schema().find_type("n")) == "long"
    put(log, 4, 5)
    process(spark, log, described(log, tmp_path, table, decode={"schema": {"n": "int"}}))  # narrower rows go into it
    put(log, 5, 6)
    with pytest.raises(PipelineError, match=r"^Iceberg table t: the rows do not fit the table"):
        process(spark, log, described(log, tmp_path, table, decode={"schema": {"n": "string", "name": "string"}}))
    assert numbers(iceberg(tmp_path).scan().to_arrow()) == list(range(5))


def test_small_files_are_merged_and_old_snapshots_removed(spark, log, tmp_path: Path) -> None:
    from kafkalite_pipelines.sinks.iceberg_maintenance import compact, expire

    pipeline = described(log, tmp_path, sink("iceberg"))
    for first in (0, 4, 8):
        put(log, first, first + 4)
        process(spark, log, pipeline)
    table = iceberg(tmp_path)
    assert len(list(table.scan().plan_files())) == 6
    assert compact(table, Maintenance(compact_below=1 << 20)) == (6, 1)
    table = iceberg(tmp_path)
    assert numbers(table.scan().to_arrow()) == list(range(12)) and len(list(table.scan().plan_files())) == 1
    assert expire(table, datetime.now(UTC)) == (3, 6 + 3 * 2)
    table = iceberg(tmp_path)
    assert numbers(table.scan().to_arrow()) == list(range(12)) and len(table.snapshots()) == 1
    assert len(list((tmp_path / "tables").rglob("*.parquet"))) == 1
    # the number of the last batch outlives its snapshot
    assert process(spark, log, pipeline, again=True) is None
    assert numbers(iceberg(tmp_path).scan().to_arrow()) == list(range(12))


@pytest.mark.parametrize("format_", ["iceberg", "delta"])
@pytest.mark.parametrize("key", [[], ["n"]])
def test_an_object_gets_new_and_wider_fields(spark, log, format_: str, key: list[str], tmp_path: Path) -> None:
    """As a nested message of Protobuf or an inner object does: also in an array, and in a map's values."""
    place = sink(format_) | ({"key": key} if key else {})
    first = {"n": "long", "at": "struct<x:int>", "many": "array<struct<a:int>>", "named": "map<string,struct<a:int>>"}
    log.log.put("t", 0, (b"1", b'{"n": 1, "at": {"x": 1}, "many": [{"a": 1}], "named": {"k": {"a": 1}}}'))
    process(spark, log, described(log, tmp_path, place, decode={"schema": first}))
    second = {
        "n": "long", "at": "struct<x:long,y:struct<z:string>>", "many": "array<struct<a:int,b:string>>",
        "named": "map<string,struct<a:int,b:string>>",
    }  # fmt: skip
    value = b'{"n": 2, "at": {"x": 5000000000, "y": {"z": "z"}}, "many": [{"a": 2, "b": "b"}], "named": {"k": {"a": 2, "b": "b"}}}'
    log.log.put("t", 0, (b"2", value))
    process(spark, log, described(log, tmp_path, place, decode={"schema": second}))
    log.log.put("t", 0, (b"3", b'{"n": 3}'))
    process(spark, log, described(log, tmp_path, place, decode={"schema": first}))  # narrower rows go into it
    found = {row["n"]: row for row in all_rows(tmp_path, format_)}
    assert [found[1][name] for name in ("at", "many")] == [{"x": 1, "y": None}, [{"a": 1, "b": None}]]
    assert [found[2][name] for name in ("at", "many")] == [{"x": 5_000_000_000, "y": {"z": "z"}}, [{"a": 2, "b": "b"}]]
    assert [dict(found[n]["named"]) for n in (1, 2)] == [{"k": {"a": 1, "b": None}}, {"k": {"a": 2, "b": "b"}}]
    assert sorted(found) == [1, 2, 3] and found[3]["at"] is None


LAST = "9999-12-31T23:59:59.999999Z"
_KINDS = {"d": "date", "dec": "decimal(20,10)", "s": "string", "b": "boolean"}


@pytest.mark.parametrize("format_", ["iceberg", "delta", "parquet"])
def test_partitions_of_any_values(spark, log, tmp_path: Path, format_: str) -> None:
    """The last moment of the year 9999 stopped the pipeline for ever, or was in a partition in which nobody looks for it. Iceberg did not take
    a date or a time as it is. A time without a zone had the hour of the session's zone."""
    fields = ["hour(at)", "hour(local)", "same", *_KINDS]
    place = {"iceberg": {"table": "t"}, "delta": {"path": "delta"}, "parquet": {"path": "t"}}[format_]
    sink = {"format": format_, **place, "partition_by": fields}
    steps = [{"sql": "SELECT *, at AS same, CAST(local_text AS timestamp_ntz) AS local FROM input"}]
    decode = {"schema": {"n": "long", "at": "timestamp", "local_text": "string", **_KINDS}}
    values = [
        {"at": LAST, "local_text": "9999-12-31 23:59:59", "d": "1850-01-01", "dec": 0, "s": "a/b", "b": True},
        {
            "at": "1969-12-31T23:59:59.999999Z",
            "local_text": "2026-03-08 23:30:00",
            "dec": 1e-7,
            "s": "007x",
            "b": False,
        },
        {},
    ]
    for n, value in enumerate(values):
        log.log.put("t", 0, (b"k", json.dumps({"n": n, **value}).encode()))
    spark.conf.set("spark.sql.session.timeZone", "America/New_York")
    try:
        process(spark, log, described(log, tmp_path, sink, decode=decode, steps=steps))
    finally:
        spark.conf.set("spark.sql.session.timeZone", "UTC")
    rows = [row.asDict() for row in spark.read.parquet(str(tmp_path / "t")).collect()] if format_ == "parquet" else None
    rows = sorted(all_rows(tmp_path, format_) if rows is None else rows, key=lambda row: row["n"])
    if format_ == "iceberg":
        for wanted in (f"at = '{LAST}'", f"same = '{LAST}'", "local = '2026-03-08T23:30:00'", "d = '1850-01-01'"):
            found = iceberg(tmp_path).scan(row_filter=wanted.replace("Z'", "+00:00'")).to_arrow()
            assert found.num_rows == 1, wanted
    else:
        hours = [(row["at_hour"], row["local_hour"]) for row in rows]
        assert hours == [("9999-12-31-23", "9999-12-31-23"), ("1969-12-31-23", "2026-03-08-23"), (None, None)]
    if format_ == "parquet":  # Spark finds types in the names of directories
        assert [(row["s"], row["b"]) for row in rows] == [("a/b", "true"), ("007x", "false"), (None, None)]
        return
    same = [datetime(9999, 12, 31, 23, 59, 59, 999999, UTC), datetime(1969, 12, 31, 23, 59, 59, 999999, UTC), None]
    assert [row["same"] for row in rows] == [row["at"] for row in rows] == same
    assert {row["n"]: [row[name] for name in _KINDS] for row in rows} == {
        0: [date(1850, 1, 1), Decimal(0), "a/b", True],
        1: [None, Decimal("1e-7"), "007x", False],
        2: [None] * 4,
    }
