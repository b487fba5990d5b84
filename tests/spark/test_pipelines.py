"""Pipelines through Spark: decoding, steps, tables and topics, each batch once. Every run takes what is there and ends."""

from __future__ import annotations

import io
import json
import threading
from datetime import UTC, datetime
from decimal import Decimal
from http.server import BaseHTTPRequestHandler, ThreadingHTTPServer
from pathlib import Path
from typing import Any, ClassVar

import pytest

from kafkalite.model import TopicPartition as Tp
from kafkalite_pipelines import PipelineError, parse
from kafkalite_pipelines.backfill import _records
from kafkalite_pipelines.batches import Batches
from kafkalite_pipelines.checking import problems_in_spark
from kafkalite_pipelines.control import supervise
from kafkalite_pipelines.sinks.opening import open_sink
from kafkalite_pipelines.sinks.sink import Batch
from tests.spark.one_batch import process

pytestmark = [pytest.mark.spark]

SCHEMA = {"n": "long", "name": "string"}


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

    sinks: list[dict[str, Any]] = [
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
    process(spark, log, pipeline)
    put(log, 5, 8, price=1.5, tags=["a"])
    process(spark, log, pipeline)
    # the columns are kept: the table and the pipeline agree after a restart
    put(log, 8, 9, price="cheap")
    put(log, 9, 10)
    process(spark, log, pipeline)
    table = iceberg(tmp_path)
    rows = {row["n"]: row for row in table.scan().to_arrow().to_pylist()}
    assert (
        sorted(rows) == [*range(8), 9]
        and rows[6]["price"] == 1.5
        and rows[6]["tags"] == ["a"]
        and rows[0]["price"] is None
    )
    assert [json.loads(record.value)["n"] for record in log.log.records("dead", 0)] == [8]


def test_objects_that_get_fields_later(spark, log, tmp_path: Path) -> None:
    """They were left out without a word: columns that are found had the fields of the first batch for ever."""
    from deltalake import DeltaTable

    sinks = [{"format": "iceberg", "table": "t"}, {"format": "delta", "path": "delta"}]
    pipeline = described(log, tmp_path, *sinks, decode={}, dead_letters={"topic": "dead"})
    put(log, 0, 2, place={"x": 1}, many=[{"a": 1}], **{"odd.name": {"k": "v"}})
    process(spark, log, pipeline)
    put(
        log,
        2,
        3,
        place={"x": 2, "y": {"z": "deep"}},
        many=[{"a": 2}, {"b": "more"}],
        **{"odd.name": {"k": "v", "l": 1}},
    )
    put(log, 3, 4, place={"x": 3, "y": {"z": "deep", "w": 1.5}}, many=[])
    process(spark, log, pipeline)
    put(log, 4, 5, place={"x": "no number"})
    process(spark, log, pipeline)
    wanted = {
        0: ({"x": 1, "y": None}, [{"a": 1, "b": None}], {"k": "v", "l": None}),
        2: (
            {"x": 2, "y": {"w": None, "z": "deep"}},
            [{"a": 2, "b": None}, {"a": None, "b": "more"}],
            {"k": "v", "l": 1},
        ),
        3: ({"x": 3, "y": {"w": 1.5, "z": "deep"}}, [], None),
    }
    for found in (iceberg(tmp_path).scan().to_arrow(), DeltaTable(f"{tmp_path}/delta").to_pyarrow_table()):
        rows = {row["n"]: (row["place"], row["many"], row["odd.name"]) for row in found.to_pylist()}
        assert sorted(rows) == [0, 1, 2, 3] and {n: rows[n] for n in wanted} == wanted
    assert [json.loads(record.value)["n"] for record in log.log.records("dead", 0)] == [4]


def test_times_in_a_topic_s_json_are_whole(spark, log, tmp_path: Path) -> None:
    """Spark's to_json cuts them to milliseconds."""
    schema = {"at": "timestamp", "o": "struct<at:timestamp>"}
    steps = [{"sql": "SELECT at, o, CAST('2026-03-08 23:30:00.000001' AS timestamp_ntz) AS local FROM input"}]
    pipeline = described(log, tmp_path, {"format": "topic", "topic": "out"}, decode={"schema": schema}, steps=steps)
    at = "1850-01-01T00:00:00.123456Z"
    log.log.put("t", 0, (b"k", json.dumps({"at": at, "o": {"at": at}}).encode()))
    process(spark, log, pipeline)
    [record] = log.log.records("out", 0)
    assert json.loads(record.value) == {"at": at, "o": {"at": at}, "local": "2026-03-08T23:30:00.000001"}


def test_a_field_called_value_is_a_field(spark, log, tmp_path: Path) -> None:
    """When it was found, it became the whole record, and all records without it became tombstones."""
    pipeline = described(log, tmp_path, {"format": "topic", "topic": "out"}, decode={})
    log.log.put("t", 0, (b"1", b'{"n": 1}'))
    process(spark, log, pipeline)
    log.log.put("t", 0, (b"2", b'{"n": 2, "value": "hot"}'), (b"3", b'{"n": 3}'))
    process(spark, log, pipeline)
    found = [json.loads(record.value) for record in log.log.records("out", 0)]
    assert found == [{"n": 1}, {"n": 2, "value": "hot"}, {"n": 3, "value": None}]


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
    with pytest.raises(
        PipelineError, match="1 record cannot be decoded, the first: t-0 at offset 2 is not a JSON object"
    ):
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
            process(spark, log, described(log, tmp_path, table, steps=[{"sql": sql}]))
    (tmp_path / "mine.py").write_text("def triple(rows):\n    return rows.selectExpr('n * 3 AS n')\n")
    process(spark, log, described(log, tmp_path, table, steps=[{"python": "mine:triple"}]))
    assert numbers(iceberg(tmp_path).scan().to_arrow()) == [0, 3, 6, 9]


@pytest.mark.parametrize(
    ("sql", "decode", "lines"),
    [
        ("SELECT n + 1 AS n FROM input", {"schema": {"n": "long"}}, []),
        ("SELECT nmber FROM input", {"schema": {"n": "long"}}, ["`nmber` cannot be resolved"]),
        ("SELECT count(*) AS n FROM input", {"schema": {"n": "long"}}, ["the query groups rows"]),
        ("SELECT n FROM input WHERE n >", {}, ["Syntax error at or near"]),
        ("SELECT whatever FROM input", {}, []),
    ],
)
def test_steps_are_checked_without_records(spark, tmp_path: Path, sql: str, decode: Any, lines: list[str]) -> None:
    values = {
        "name": "checked",
        "kafka": {"bootstrap.servers": "localhost:9092"},
        "source": {"topics": ["t"]},
        "decode": decode,
        "steps": [{"sql": sql}],
        "sinks": [{"format": "iceberg", "table": "t"}],
    }
    found = problems_in_spark(parse(values, tmp_path), spark)
    assert len(found) == len(lines) and all(line in problem for line, problem in zip(lines, found, strict=True))


def test_an_aggregation_over_the_whole_stream(spark, log, tmp_path: Path) -> None:
    for n in range(6):
        value = {"n": n, "at": f"2026-11-22T10:{n * 10:02d}:00Z"}
        log.log.put("t", 0, (b"", json.dumps(value).encode()))
    pipeline = described(
        log, tmp_path, {"format": "iceberg", "table": "hourly"},
        decode={"schema": {"n": "long", "at": "timestamp"}, "on_error": "skip"}, watermark={"column": "at", "delay": "1m"},
        steps=[{"sql": "SELECT window.start AS at, count(*) AS n FROM input GROUP BY window(at, '20 minutes')"}],
    )  # fmt: skip
    run(spark, pipeline)
    rows = iceberg(tmp_path, "hourly").scan().to_arrow().to_pylist()
    assert [row["n"] for row in rows] == [2, 2]


class _Registry(BaseHTTPRequestHandler):
    """The two requests of a schema registry that decoding makes."""

    schemas: ClassVar[list[dict[str, Any]]] = []

    def do_GET(self) -> None:
        parts = self.path.strip("/").split("/")
        number = len(self.schemas) if parts[-1] == "latest" else int(parts[-1])
        found = {"id": number, "schema": json.dumps(self.schemas[number - 1])}
        body = json.dumps(found).encode()
        self.send_response(200)
        self.send_header("Content-Length", str(len(body)))
        self.end_headers()
        self.wfile.write(body)

    def log_message(self, *_: Any) -> None:
        """Quiet."""


def test_avro_with_a_schema_registry(spark, log, tmp_path: Path) -> None:
    from fastavro import schemaless_writer

    def field(name: str, kind: Any, **more: Any) -> dict[str, Any]:
        return {"name": name, "type": kind} | more

    at = {"type": "long", "logicalType": "timestamp-millis"}
    price = {"type": "bytes", "logicalType": "decimal", "precision": 9, "scale": 2}
    fields = [
        field("n", "int"),
        field("at", at),
        field("price", ["null", price]),
        field("tags", {"type": "map", "values": "long"}),
    ]
    first = {"type": "record", "name": "R", "fields": fields}
    second = first | {"fields": [*fields, field("more", {"type": "array", "items": "string"}, default=[])]}
    moment = datetime(2026, 11, 22, 8, tzinfo=UTC)

    def value(schema: dict[str, Any], number: int, **fields: Any) -> bytes:
        out = io.BytesIO()
        schemaless_writer(out, schema, {"at": moment, "price": Decimal("1.25"), "tags": {"a": 1}} | fields)
        return b"\0" + number.to_bytes(4) + out.getvalue()

    _Registry.schemas = [first]
    server = ThreadingHTTPServer(("127.0.0.1", 0), _Registry)
    threading.Thread(target=server.serve_forever, daemon=True).start()
    try:
        decode = {"format": "avro", "registry": f"http://127.0.0.1:{server.server_port}"}
        pipeline = described(
            log, tmp_path, {"format": "iceberg", "table": "t"}, decode=decode, dead_letters={"topic": "dead"}
        )
        log.log.put("t", 0, (b"", value(first, 1, n=1)), (b"", value(first, 1, n=2, price=None)), (b"", b"{}"))
        process(spark, log, pipeline)
        _Registry.schemas = [first, second]
        log.log.put(
            "t",
            0,
            (b"", value(second, 2, n=3, more=["x"])),
            (b"", value(first, 1, n=4)),
            (b"", value(first, 1, n=5)[:-3]),
        )
        process(spark, log, pipeline)
    finally:
        server.shutdown()
        server.server_close()
    rows = {row["n"]: row for row in iceberg(tmp_path).scan().to_arrow().to_pylist()}
    assert sorted(rows) == [1, 2, 3, 4] and rows[1]["at"] == moment and rows[1]["tags"] == [("a", 1)]
    assert (rows[1]["price"], rows[2]["price"], rows[3]["more"], rows[4]["more"]) == (Decimal("1.25"), None, ["x"], [])
    errors = [dict(record.headers)["kafkalite.error"] for record in log.log.records("dead", 0)]
    assert errors[0].startswith(b"has no schema id in front") and errors[1].startswith(b"is not Avro of schema 1")


def test_a_new_schema_stops_steps_over_the_whole_stream(spark, log, tmp_path: Path) -> None:
    """They keep the columns with which they began. Records of a wider version did not fit these and were left out, without a word: the
    table lacked them, and `status` showed none that was not decoded."""
    from fastavro import schemaless_writer

    def version(kind: str) -> dict[str, Any]:
        return {"type": "record", "name": "R", "fields": [{"name": "n", "type": kind}]}

    def put(number: int, n: int) -> None:
        out = io.BytesIO()
        schemaless_writer(out, version("long"), {"n": n})
        log.log.put("t", 0, (b"", b"\0" + number.to_bytes(4) + out.getvalue()))

    _Registry.schemas = [version("int")]
    server = ThreadingHTTPServer(("127.0.0.1", 0), _Registry)
    threading.Thread(target=server.serve_forever, daemon=True).start()
    try:
        decode = {"format": "avro", "registry": f"http://127.0.0.1:{server.server_port}", "on_error": "skip"}
        pipeline = described(
            log,
            tmp_path,
            {"format": "iceberg", "table": "t"},
            decode=decode,
            watermark={"column": "_timestamp", "delay": "1m"},
        )
        put(1, 1)

        def began() -> tuple[Batches, Any]:
            batches = Batches(pipeline, spark, [open_sink(pipeline, sink) for sink in pipeline.sinks])
            here = {Tp("t", 0): 0}
            return batches, batches.prepared(_records(pipeline, spark, here, {Tp("t", 0): 2}))

        put(2, 2**40)
        batches, rows = began()
        _Registry.schemas = [version("int"), version("long")]
        batch = Batch("p", "query-of-a-test", 0, {"t": {"0": 2}})
        remote = Batches(pipeline, spark, [open_sink(pipeline, sink) for sink in pipeline.sinks])
        remote.began_with = batches.began_with  # as on Spark Connect, where batches run in another process
        for each in (batches, remote):
            with pytest.raises(
                PipelineError, match=r"^the registry has a new schema of t: .* Start the pipeline again"
            ):
                each.process(rows, batch)
        assert not (tmp_path / "tables" / "default").exists()
        again, rows = began()
        again.process(rows, batch)
    finally:
        server.shutdown()
        server.server_close()
    assert numbers(iceberg(tmp_path).scan().to_arrow()) == [1, 2**40]


def test_protobuf_with_a_file(spark, log, tmp_path: Path) -> None:
    text = 'syntax = "proto3"; message R { int32 n = 1; repeated string tags = 2; R.Place place = 3; message Place { double x = 1; } }'
    (tmp_path / "r.proto").write_text(text)
    decode = {"format": "protobuf", "schema_file": "r.proto", "message": "R"}
    table = {"format": "iceberg", "table": "t"}
    pipeline = described(log, tmp_path, table, decode=decode, dead_letters={"topic": "dead"})
    # 1: n = 7, 2: "a", 3: {x = 1.5}; nothing but n; a message that is cut off
    whole = bytes.fromhex("0807120161 1a0909000000000000f83f")
    log.log.put("t", 0, (b"", whole), (b"", b"\x08\x01"), (b"", whole[:-1]))
    batch = process(spark, log, pipeline)
    assert (batch.records, batch.bad) == (3, 1)
    rows = {row["n"]: row for row in iceberg(tmp_path).scan().to_arrow().to_pylist()}
    assert (rows[7]["tags"], rows[7]["place"], rows[1]["tags"], rows[1]["place"]) == (["a"], {"x": 1.5}, [], None)
    [record] = log.log.records("dead", 0)
    assert dict(record.headers)["kafkalite.error"].startswith(b"is not a R: DecodeError")


MADE = """
from pyspark.sql import functions as f


def through(rows):
    return rows.filter(f.col("n") >= 0)


def made(rows):
    return rows.withColumn("value", f.to_json(f.struct("n")))
"""


@pytest.mark.parametrize(
    ("step", "value"),
    [
        ({"sql": "SELECT * FROM input WHERE n >= 0 OR value = 'hot'"}, None),
        ({"sql": "SELECT * EXCEPT (value), upper(value) AS value FROM input"}, "HOT"),
        ({"python": "steps:through"}, None),
        ({"sql": "SELECT value, n FROM input"}, b"hot"),
        ({"sql": "SELECT upper(value) AS value FROM input"}, b"HOT"),
        ({"python": "steps:made"}, b'{"n":1}'),
    ],
)
def test_a_field_of_records_does_not_become_the_record(
    spark, log, tmp_path: Path, step: dict[str, str], value: bytes | str | None
) -> None:
    """On the day on which a producer sent a field `value`, `SELECT *` wrote that field instead of the row, and `key` as its key."""
    (tmp_path / "steps.py").write_text(MADE)
    pipeline = described(log, tmp_path, {"format": "topic", "topic": "out"}, decode={}, steps=[step])
    fields = {"n": 1, "name": "a", "value": "hot", "key": "k", "headers": "h"}
    log.log.put("t", 0, (b"k", json.dumps(fields).encode()))
    process(spark, log, pipeline)
    [record] = log.log.records("out", 0)
    if isinstance(value, bytes):
        assert (record.key, record.value, list(record.headers)) == (None, value, [])
    else:
        assert record.key is None and json.loads(record.value) == fields | ({"value": value} if value else {})


def test_a_field_of_records_through_steps_over_the_stream(spark, log, tmp_path: Path) -> None:
    schema = {"n": "long", "value": "string"}
    more = {"decode": {"schema": schema, "on_error": "skip"}, "watermark": {"column": "_timestamp", "delay": "1m"}}
    pipeline = described(
        log, tmp_path, {"format": "topic", "topic": "out"}, steps=[{"sql": "SELECT * FROM input"}], **more
    )
    log.log.put("t", 0, (b"k", b'{"n": 1, "value": "hot"}'))
    run(spark, pipeline)
    assert [json.loads(record.value) for record in log.log.records("out", 0)] == [{"n": 1, "value": "hot"}]
