"""What goes wrong between two steps of a batch: a sink that fails after another has committed, a task that runs twice, maintenance
that meets another writer, records with names that no column can have as they are."""

from __future__ import annotations

import json
from datetime import UTC, datetime
from pathlib import Path
from typing import Any

import pytest

from kafkalite_pipelines import PipelineError
from tests.spark.one_batch import process
from tests.spark.test_pipelines import described, iceberg, numbers, put

pytestmark = [pytest.mark.spark]


def test_a_table_keeps_its_batch_when_another_sink_fails(
    spark,
    log,
    tmp_path: Path,
    monkeypatch: pytest.MonkeyPatch,
) -> None:
    from kafkalite_pipelines.sinks.delta import DeltaSinkTable

    def failing(sink: DeltaSinkTable, batch: Any, change: Any) -> int:
        raise PipelineError("the second table was changed by others 10 times")

    pipeline = described(log, tmp_path, {"format": "iceberg", "table": "t"}, {"format": "delta", "path": "delta"})
    put(log, 0, 10)
    with monkeypatch.context() as patched, pytest.raises(PipelineError, match="10 times"):
        patched.setattr(DeltaSinkTable, "commit", failing)
        process(spark, log, pipeline)
    assert numbers(iceberg(tmp_path).scan().to_arrow()) == list(range(10))
    process(spark, log, pipeline)
    assert numbers(iceberg(tmp_path).scan().to_arrow()) == list(range(10))
    assert spark_free_delta(tmp_path / "delta") == list(range(10))


def test_files_of_a_batch_that_is_not_committed_are_removed(
    spark,
    log,
    tmp_path: Path,
    monkeypatch: pytest.MonkeyPatch,
) -> None:
    """A pipeline that is started again and again, and always fails, must not fill the disk."""
    from kafkalite_pipelines.sinks import topics

    def failing(*_: Any) -> None:
        raise OSError("the topic of the dead letters cannot be written to")

    pipeline = described(log, tmp_path, {"format": "iceberg", "table": "t"}, dead_letters={"topic": "dead"})
    put(log, 0, 4)
    log.log.put("t", 0, (b"bad", b"{nope"))
    monkeypatch.setattr(topics, "write", failing)
    with pytest.raises(PipelineError):
        process(spark, log, pipeline)
    assert list((tmp_path / "tables").rglob("*.parquet")) == []


def test_plain_files_have_no_rows_of_a_task_that_failed(spark, log, tmp_path: Path) -> None:
    (tmp_path / "failing.py").write_text(STEP)
    steps = [{"python": "failing:once"}]
    pipeline = described(log, tmp_path, {"format": "parquet", "path": "files"}, steps=steps)
    put(log, 0, 10)
    process(spark, log, pipeline)
    found = numbers(spark.read.parquet(str(tmp_path / "files")).toArrow())
    assert len(found) == 10 * TIMES and sorted(set(found)) == list(range(10))
    assert list((tmp_path / "files" / "_staging").rglob("*.parquet")) == []


TIMES = 8_000
#: More rows than Spark hands over at once: the files of the first attempt are open when it fails.
STEP = f"""
def once(rows):
    def twice(batches):
        import pyarrow as pa
        from pyspark import TaskContext

        for batch in batches:
            yield pa.Table.from_batches([batch] * {TIMES}).combine_chunks().to_batches()[0]
        if TaskContext.get().attemptNumber() == 0:
            raise RuntimeError("the first attempt fails, after its rows")

    return rows.mapInArrow(twice, rows.schema)
"""


def test_names_that_spark_writes_in_backticks(spark, log, tmp_path: Path) -> None:
    pipeline = described(log, tmp_path, {"format": "iceberg", "table": "t"}, decode={}, dead_letters={"topic": "dead"})
    for n in range(3):
        value = {"n": n, "first name": "a", "a.b": 1, "x`y": 2, "": 3, "m": {"content-type": "x", "a b": [{"c-d": n}]}}
        log.log.put("t", 0, (b"%d" % n, json.dumps(value).encode()))
    process(spark, log, pipeline)
    put(log, 3, 5)
    process(spark, log, pipeline)
    found = sorted(iceberg(tmp_path).scan().to_arrow().to_pylist(), key=lambda row: row["n"])
    assert [row["n"] for row in found] == [0, 1, 2, 3, 4]
    assert found[2]["m"] == {"a b": [{"c-d": 2}], "content-type": "x"}
    assert (found[0]["first name"], found[0]["a.b"], found[0]["x`y"], found[3]["m"]) == ("a", 1, 2, None)


def test_names_that_differ_in_case_only(spark, log, tmp_path: Path) -> None:
    pipeline = described(log, tmp_path, {"format": "iceberg", "table": "t"}, decode={}, dead_letters={"topic": "dead"})
    put(log, 0, 2)
    process(spark, log, pipeline)
    log.log.put("t", 0, (b"2", b'{"n": 2, "Name": "second"}'), (b"3", b'{"n": 3, "new": 1, "New": 2}'))
    put(log, 4, 6)
    process(spark, log, pipeline)
    put(log, 6, 8)
    process(spark, log, pipeline)
    assert numbers(iceberg(tmp_path).scan().to_arrow()) == [0, 1, 4, 5, 6, 7]
    dead = log.log.records("dead", 0)
    assert [json.loads(record.value)["n"] for record in dead] == [2, 3]
    assert dict(dead[0].headers)["kafkalite.error"].startswith(b"has the field Name")


def test_names_within_objects_that_differ_in_case_only(spark, log, tmp_path: Path) -> None:
    """Their values were lost without a word."""
    sink = {"format": "delta", "path": "d"}
    pipeline = described(log, tmp_path, sink, decode={}, dead_letters={"topic": "dead"})
    first = ['{"n": 0, "o": {"x": 1, "in": [{"y": 1}]}}', '{"n": 1, "q": {"Z": 1}}', '{"n": 2, "q": {"z": 1}}']
    second = ['{"n": 3, "o": {"X": 5}}', '{"n": 4, "o": {"in": [{}, {"Y": 2}]}}', '{"n": 5, "o": {"x": 3, "X": null}}']
    for batch in (first, second, ['{"n": 6, "o": {"new": {"a": 1}}}', '{"n": 7, "o": {"new": {"A": 1}}}']):
        put_texts(log, *batch)
        process(spark, log, pipeline)
    assert spark_free_delta(tmp_path / "d") == [0, 1, 6]
    dead = log.log.records("dead", 0)
    assert [json.loads(record.value)["n"] for record in dead] == [2, 3, 4, 5, 7]
    errors = [dict(record.headers)["kafkalite.error"].decode() for record in dead]
    assert errors[1] == "has the field o.X, whose name differs from a column's in upper and lower case only"


def test_new_fields_beside_records_that_hide_them(spark, log, tmp_path: Path) -> None:
    """New fields within objects were lost without a word if another record of the batch had a number in place of the object, or if the
    record had a name twice or a NaN; with a NaN also a new column was."""
    sink = {"format": "delta", "path": "d"}
    pipeline = described(log, tmp_path, sink, decode={}, dead_letters={"topic": "dead"})
    put_texts(log, '{"n": 0, "o": {"a": {"x": 1}}, "p": {"x": 1}, "q": {"x": 1.5}, "it\'s?": {"x": 1}}')
    process(spark, log, pipeline)
    put_texts(log, '{"n": 1, "o": {"a": 5}}', '{"n": 2, "o": {"a": {"x": 1, "new": 2}}}', '{"n": 3, "p": 5}')
    put_texts(log, '{"n": 4, "p": {"x": 1, "x": 2, "new": 2}}', '{"n": 5, "q": {"x": NaN, "new": 2}, "late": 2}')
    put_texts(log, '{"n": 6, "it\'s?": {"x": 1, "new": 2}}', '{"n": "bad", "o": {"bad": 1}, "worse": 1}')
    process(spark, log, pipeline)
    rows = {row["n"]: row for row in delta_rows(tmp_path / "d")}
    assert sorted(rows) == [0, 2, 4, 5, 6] and "worse" not in rows[0] and set(rows[0]["o"]) == {"a"}
    assert rows[2]["o"]["a"] == {"x": 1, "new": 2} and rows[4]["p"] == {"x": 2, "new": 2}
    assert rows[5]["q"]["new"] == rows[5]["late"] == rows[6]["it's?"]["new"] == 2
    assert [json.loads(record.value)["n"] for record in log.log.records("dead", 0)] == [1, 3, "bad"]


def test_objects_that_are_deep(spark, log, tmp_path: Path) -> None:
    """One record made a column of 400 levels, which is more than some plans of Spark can have."""
    pipeline = described(log, tmp_path, {"format": "iceberg", "table": "t"}, decode={}, dead_letters={"topic": "dead"})
    put_texts(log, '{"n": 0, "o": {"x": 1}}')
    process(spark, log, pipeline)
    for levels in (30, 400):
        put_texts(log, f'{{"n": {levels}, "o": ' + '{"a": ' * levels + "1" + "}" * levels + "}")
    process(spark, log, pipeline)
    rows = {row["n"]: row["o"] for row in iceberg(tmp_path).scan().to_arrow().to_pylist()}
    assert set(rows) == {0, 30}
    inner = rows[30]
    while isinstance(inner, dict):
        inner = inner["a"]
    assert inner == '{"a":' * 15 + "1" + "}" * 15
    [dead] = log.log.records("dead", 0)
    assert json.loads(dead.value)["n"] == 400


def test_objects_whose_names_are_data(spark, log, tmp_path: Path) -> None:
    """Each batch added columns, without an end."""
    sink = {"format": "delta", "path": "d"}
    put_texts(log, json.dumps({"n": 0, "by_user": {f"u{each}": {"a": 1, "b": 2} for each in range(1_000)}}))
    with pytest.raises(PipelineError, match=r"2001 fields, 2000 of them in by_user, .*map<string,"):
        process(spark, log, described(log, tmp_path, sink, decode={}))
    assert not (tmp_path / "d").exists()
    schema = {"n": "long", "by_user": "map<string,struct<a:bigint,b:bigint>>"}
    process(spark, log, described(log, tmp_path, sink, decode={"schema": schema}))
    [row] = delta_rows(tmp_path / "d")
    assert row["n"] == 0 and len(row["by_user"]) == 1_000


def test_a_key_that_is_not_of_its_columns_type(spark, log, tmp_path: Path) -> None:
    """It became null without a word."""
    decode = {"schema": {"k": "long", "n": "long"}, "key_column": "k"}
    pipeline = described(log, tmp_path, {"format": "delta", "path": "d"}, decode=decode, dead_letters={"topic": "dead"})
    log.log.put("t", 0, (b"1", b'{"n": 0}'), (None, b'{"n": 1}'), (b"one", b'{"n": 2}'), (b"1.5", b'{"n": 3}'))
    process(spark, log, pipeline)
    assert {row["n"]: row["k"] for row in delta_rows(tmp_path / "d")} == {0: 1, 1: None}
    errors = [dict(record.headers)["kafkalite.error"] for record in log.log.records("dead", 0)]
    assert errors == [b"has a key that is no bigint"] * 2


@pytest.mark.parametrize("kind", ["long", "decimal(10,0)", "string", "timestamp"])
def test_a_key_of_a_serializer_that_is_no_text(spark, log, tmp_path: Path, kind: str) -> None:
    """Spark passes over zeros in front of a number: 53 as Kafka's LongSerializer writes it was 5, and a key with a schema's id in front the
    digit at its end."""
    sink = {"format": "iceberg", "table": "t", "key": ["id"]}
    decode = {"schema": {"id": kind, "name": "string"}, "key_column": "id"}
    pipeline = described(log, tmp_path, sink, decode=decode, dead_letters={"topic": "dead"})
    value = b'{"name": "x"}'
    log.log.put(
        "t", 0, ((53).to_bytes(8), value), (b"\0\0\0\0\x050", value), ((2025).to_bytes(4), value), (b"2025", value)
    )
    process(spark, log, pipeline)
    assert iceberg(tmp_path).scan().to_arrow().num_rows == 1
    errors = [dict(record.headers)["kafkalite.error"] for record in log.log.records("dead", 0)]
    assert (
        errors
        == [b"has a key with a zero byte in front, as numbers or a schema's id of a serializer: it must be text"] * 3
    )


def test_escapes_for_half_of_a_character(spark, log, tmp_path: Path) -> None:
    """Spark reads a question mark for each, without a word."""
    decode = {"schema": {"n": "long", "s": "string"}}
    sink = {"format": "delta", "path": "d"}
    pipeline = described(log, tmp_path, sink, decode=decode, dead_letters={"topic": "dead"})
    good = ["\\ud83d\\ude00", "\\uD83D\\uDE00x\\ud83d\\ude00", "\\\\ud83d", "\\u00e4", "\\\\\\\\udc00", "ud83d"]
    bad = ["\\ud83d", "a\\ude00", "\\ud83dx\\ude00", "\\\\\\ud83d", "\\ud83d\\ud83d\\ude00", "\\uDE00\\uD83D"]
    put_texts(log, *[f'{{"n": {n}, "s": "{text}"}}' for n, text in enumerate((*good, *bad))])
    process(spark, log, pipeline)
    rows = {row["n"]: row["s"] for row in delta_rows(tmp_path / "d")}
    assert rows == {n: json.loads(f'"{text}"') for n, text in enumerate(good)}
    errors = [dict(record.headers)["kafkalite.error"] for record in log.log.records("dead", 0)]
    assert errors == [b"has an escape for half of a character (\\ud800 to \\udfff)"] * len(bad)


def test_text_behind_a_json_object(spark, log, tmp_path: Path) -> None:
    """Spark reads the first value of a text and passes over the rest: the second object of a record was lost."""
    decode = {"schema": {"n": "long", "x": "double"}}
    sink = {"format": "delta", "path": "d"}
    pipeline = described(log, tmp_path, sink, decode=decode, dead_letters={"topic": "dead"})
    good = [b'{"n": 0}', b' {"n": 1, "x": 1.5}\n', b'{"n": 2, "x": NaN}', b"{'n': 3}", b'{"n": 4, "y": "} {"}']
    bad = [b'{"n": 5} {"n": 6}', b'{"n": 5}{"n": 6}', b'{"n": 5},{"n": 6}', b'{"n": 5} x', b'{"n": 5}]', b'{"n": 5}}']
    log.log.put("t", 0, *[(b"k", value) for value in (*good, *bad)])
    process(spark, log, pipeline)
    assert spark_free_delta(tmp_path / "d") == [0, 1, 2, 3, 4]
    assert [record.value for record in log.log.records("dead", 0)] == bad


@pytest.mark.parametrize("format_", ["iceberg", "delta"])
def test_times_that_no_table_can_have(spark, log, tmp_path: Path, format_: str) -> None:
    """A time in milliseconds is one of the year 57,871 to Spark: one such record stopped a pipeline at each start, with an
    OverflowError of Python's."""
    schema = {"n": "long", "at": "timestamp", "d": "date", "o": "struct<at:timestamp>", "l": "array<date>"}
    sink: dict[str, Any] = {"format": format_, "partition_by": ["month(at)"]}
    sink["table" if format_ == "iceberg" else "path"] = "t"
    pipeline = described(log, tmp_path, sink, decode={"schema": schema}, dead_letters={"topic": "dead"})
    good = ['"at": 1764115200', '"at": "0001-01-01T00:00:00Z"', '"at": "9999-12-31T23:59:59.999999Z"', '"l": [null]']
    good += ['"d": "0001-01-01", "o": {"at": null}', '"d": "9999-12-31", "o": {"at": 0}, "l": ["2026-11-28"]']
    bad = {'"at": 1764115200000': "at", '"at": "+10000-01-01T00:00:00Z"': "at", '"at": "0000-12-31T23:59:59Z"': "at"}
    bad |= {'"d": "-0001-01-01"': "d", '"o": {"at": 1764115200000}': "o", '"l": ["2026-11-28", "0000-01-01"]': "l"}
    values = [b'{"n": %d, %s}' % (n, text.encode()) for n, text in enumerate([*good, *bad])]
    log.log.put("t", 0, *[(b"k", value) for value in values])
    process(spark, log, pipeline)
    rows = iceberg(tmp_path).scan().to_arrow() if format_ == "iceberg" else None
    found = numbers(rows) if rows is not None else spark_free_delta(tmp_path / "t")
    assert found == list(range(len(good)))
    dead = log.log.records("dead", 0)
    assert [record.value for record in dead] == values[len(good) :]
    errors = [dict(record.headers)["kafkalite.error"].decode() for record in dead]
    assert errors == [f"has a time that is not in the years 1 to 9999: {name}" for name in bad.values()]


def test_a_record_s_own_time_that_no_table_can_have(spark, log, tmp_path: Path) -> None:
    """Of a producer that counts microseconds: the year is 50,000, and one such record stopped a pipeline at each start."""
    import pyarrow.dataset as ds

    by_day = {"partition_by": ["day(_timestamp)"]}
    sinks: list[dict[str, Any]] = [
        {"format": "iceberg", "table": "t", **by_day},
        {"format": "delta", "path": "delta", **by_day},
        {"format": "parquet", "path": "files", **by_day},
    ]
    pipeline = described(log, tmp_path, *sinks, decode={"schema": {"n": "long"}})
    for n, at in enumerate([1_764_115_200_000, 1_764_115_200_000_000, 2**63 - 1, -(10**14)]):
        log.log.put("t", 0, (b"k", b'{"n": %d}' % n), ts=at)
    process(spark, log, pipeline)
    # as docs/pipelines.md says it: pyarrow passes over names that begin with an underscore
    own = ["_kafkalite", "_staging", "."]
    files = ds.dataset(tmp_path / "files", partitioning="hive", ignore_prefixes=own).to_table()
    assert sorted(row["n"] for row in spark.read.parquet(str(tmp_path / "files")).collect()) == [0, 1, 2, 3]
    for rows in (iceberg(tmp_path).scan().to_arrow(), files):
        times = dict(zip(rows.column("n").to_pylist(), rows.column("_timestamp").to_pylist(), strict=True))
        assert times == {0: datetime(2025, 11, 26, tzinfo=UTC), 1: None, 2: None, 3: None}
    assert spark_free_delta(tmp_path / "delta") == [0, 1, 2, 3]


def test_values_that_spark_takes_for_others(spark, log, tmp_path: Path) -> None:
    """200 as a tinyint was -56, "1,5" as a decimal was 15, a time of the day was one of today, numbers in microseconds were any time."""
    kinds = {"tinyint": ["127", "200"], "float": ["1.5", "1e300"], "date": ['"2026"', '"12"']}
    kinds |= {"decimal(9,2)": ['"1.505"', '"1,5"'], "timestamp": ["1764115200", '"10:30"']}
    columns = {f"c{number}": kind for number, kind in enumerate(kinds)}
    fields = {f"f{number}": kind for number, kind in enumerate(kinds)}
    inner = f"struct<{','.join(f'{name}:{kind}' for name, kind in fields.items())}>"
    schema = {"n": "long", **columns, "o": inner, "l": f"array<{inner}>", "m": "map<string,timestamp>"}
    sink = {"format": "delta", "path": "d"}
    pipeline = described(log, tmp_path, sink, decode={"schema": schema}, dead_letters={"topic": "dead"})
    good, bad = ([values[at] for values in kinds.values()] for at in (0, 1))
    texts = [f'"c{number}": {value}' for number, value in enumerate(bad)]
    texts += [f'"o": {{"f{number}": {value}}}' for number, value in enumerate(bad)]
    texts += [f'"l": [{{}}, {{"f{number}": {value}}}]' for number, value in enumerate(bad)]
    texts += ['"c4": 18446744075473667', '"m": {"k": "T1:00"}']
    right = ", ".join(f'"c{number}": {value}' for number, value in enumerate(good))
    put_texts(log, *(f'{{"n": {n}, {text}}}' for n, text in enumerate([right, *texts])))
    process(spark, log, pipeline)
    [row] = delta_rows(tmp_path / "d")
    assert (row["c0"], str(row["c2"]), str(row["c3"])) == (127, "2026-01-01", "1.51")
    errors = [dict(record.headers)["kafkalite.error"].decode() for record in log.log.records("dead", 0)]
    names = [text.split('"')[1] for text in texts]
    assert errors == [f"has a value that does not fit the type of its column: {name}" for name in names]


def test_what_spark_does_not_take(spark, log, tmp_path: Path) -> None:
    """The column was not named: with forty of them somebody had to guess."""
    schema = {"n": "long", "at": "timestamp", "o": "struct<i:int>", "l": "array<int>", "a b`": "int"}
    wrong = {
        '{"n": "x", "at": "y"}': ": n",
        '{"n": 1, "at": "soon", "more": 2}': ": at",
        '{"n": null, "o": 5}': ": o",
        '{"n": 1, "l": {"k": 1}}': ": l",
        '{"n": 1, "a b`": 1.5}': ": a b`",
    }
    reasons = {text: f"has a value that does not fit the type of its column{name}" for text, name in wrong.items()}
    reasons |= dict.fromkeys(("soon", '{"n": 1', "[1]", "5", '"n"', '{"n": }', "{n: 1}"), "is not a JSON object")
    sink = {"format": "delta", "path": "d"}
    pipeline = described(log, tmp_path, sink, decode={"schema": schema}, dead_letters={"topic": "dead"})
    put_texts(log, *reasons, '{"n": 0, "at": null, "o": null, "l": []}')
    process(spark, log, pipeline)
    assert [row["n"] for row in delta_rows(tmp_path / "d")] == [0]
    errors = [dict(record.headers)["kafkalite.error"].decode() for record in log.log.records("dead", 0)]
    assert errors == list(reasons.values())


def test_a_fraction_where_whole_numbers_were_found(spark, log, tmp_path: Path) -> None:
    """With more than 19 digits they are decimals, and 1.5 became 2."""
    pipeline = described(log, tmp_path, {"format": "delta", "path": "d"}, decode={}, dead_letters={"topic": "dead"})
    put_texts(log, '{"n": 0, "big": 18446744073709551615, "o": {"big": 18446744073709551615}}')
    process(spark, log, pipeline)
    put_texts(log, '{"n": 1, "big": 1.5}', '{"n": 2, "o": {"big": 1e-3}}', '{"n": 3, "big": 1.0, "o": {"big": 5}}')
    process(spark, log, pipeline)
    assert spark_free_delta(tmp_path / "d") == [0, 3]


def test_bytes_that_are_no_text(spark, log, tmp_path: Path) -> None:
    """A key that was none stopped the pipeline at each start, and in a value the bytes became other characters."""
    decode = {"schema": {"k": "string", "n": "long", "name": "string"}, "key_column": "k"}
    sink = {"format": "iceberg", "table": "t"}
    pipeline = described(log, tmp_path, sink, decode=decode, dead_letters={"topic": "dead"})
    good = [(b"k", b'{"n": 0}'), ("ü😀".encode(), '{"n": 1, "name": "ü😀"}'.encode()), (None, b'{"n": 2}')]
    bad = [(b"\xff", b'{"n": 3}'), (b"k", b'{"n": 4, "name": "\xfc"}')]
    log.log.put("t", 0, *good, *bad)
    process(spark, log, pipeline)
    rows = iceberg(tmp_path).scan().to_arrow()
    assert sorted(rows.column("n").to_pylist()) == [0, 1, 2] and set(rows.column("k").to_pylist()) == {"k", "ü😀", None}
    dead = log.log.records("dead", 0)
    assert [(record.key, record.value) for record in dead] == bad
    errors = [dict(record.headers)["kafkalite.error"] for record in dead]
    assert errors == [b"has a key that is not UTF-8 text", b"is not UTF-8 text"]


def test_rows_of_a_step_that_no_table_can_have(spark, log, tmp_path: Path) -> None:
    sink = {"format": "iceberg", "table": "t"}
    steps = [{"sql": "SELECT CAST(value AS string) AS text FROM input"}]
    pipeline = described(log, tmp_path, sink, decode={"format": "raw"}, steps=steps)
    log.log.put("t", 0, (b"k", b"text"), (b"k", b"\xff"))
    with pytest.raises(PipelineError, match=r"^column text has bytes that are not UTF-8 text: .*make_valid_utf8"):
        process(spark, log, pipeline)


@pytest.mark.parametrize(
    "sink",
    [{"format": "iceberg", "table": "t"}, {"format": "delta", "path": "d"}],
    ids=["iceberg", "delta"],
)
@pytest.mark.parametrize("kind", ["named_struct('n', n)", "array(n)"])
def test_a_key_of_a_step_that_is_an_object(spark, log, tmp_path: Path, sink: dict[str, Any], kind: str) -> None:
    """The first batch was committed, and every later one ended with "Function 'is_in' has no kernel matching input types"."""
    put(log, 0, 4)
    pipeline = described(log, tmp_path, sink | {"key": ["k"]}, steps=[{"sql": f"SELECT *, {kind} AS k FROM input"}])
    with pytest.raises(PipelineError, match=r"^key: k is (struct|array)<.*>, which has no single value: .* in a step"):
        process(spark, log, pipeline)
    assert not (tmp_path / "d").exists() and not (tmp_path / "tables" / "default").exists()


def test_maintenance_that_fails_does_not_stop_a_pipeline(
    spark,
    log,
    tmp_path: Path,
    monkeypatch: pytest.MonkeyPatch,
) -> None:
    from pyiceberg.exceptions import CommitFailedException

    from kafkalite_pipelines.sinks import iceberg_maintenance, tables

    def failing(*_: Any) -> Any:
        raise CommitFailedException("the table was changed at the same time")

    monkeypatch.setattr(iceberg_maintenance, "expire", failing)
    monkeypatch.setattr(tables.Interval, "is_over", lambda *_: True)
    pipeline = described(log, tmp_path, {"format": "iceberg", "table": "t"})
    put(log, 0, 10)
    process(spark, log, pipeline)
    put(log, 10, 12)
    process(spark, log, pipeline)
    assert numbers(iceberg(tmp_path).scan().to_arrow()) == list(range(12))


def test_a_first_batch_without_a_row(spark, log, tmp_path: Path) -> None:
    """Its table got a column `value` for ever; with a step the pipeline could not be started again."""
    sink = {"format": "delta", "path": "d"}
    steps = [{"sql": "SELECT n, n + 1 AS next FROM input"}]
    pipeline = described(log, tmp_path, sink, decode={}, steps=steps, dead_letters={"topic": "dead"})
    put_texts(log, "{nope", "[]")
    first = process(spark, log, pipeline)
    assert (first.records, first.bad) == (2, 2) and not (tmp_path / "d").exists()
    put_texts(log, '{"n": 1}')
    process(spark, log, pipeline)
    assert delta_rows(tmp_path / "d") == [{"n": 1, "next": 2}]
    assert [record.value for record in log.log.records("dead", 0)] == [b"{nope", b"[]"]


def test_required_columns_that_are_not_found_yet(spark, log, tmp_path: Path) -> None:
    """The pipeline stopped at each start, with FIELD_NOT_FOUND, until a first batch had the column; as it did where the registry's newest
    schema had left one out."""
    table = {"format": "iceberg", "table": "t"}
    pipeline = described(log, tmp_path, table, decode={"required": ["n"]}, dead_letters={"topic": "dead"})
    put_texts(log, '{"m": 0}', "{nope")
    assert process(spark, log, pipeline).bad == 2
    put_texts(log, '{"m": 1, "n": 1}', '{"m": 2}')
    assert process(spark, log, pipeline).bad == 1
    assert numbers(iceberg(tmp_path).scan().to_arrow()) == [1]
    assert [record.value for record in log.log.records("dead", 0)] == [b'{"m": 0}', b"{nope", b'{"m": 2}']
    assert dict(log.log.records("dead", 0)[2].headers)["kafkalite.error"] == b"column n is missing"


@pytest.mark.parametrize("key", [[], ["_id"]])
def test_names_with_an_underscore_or_a_quotation_mark(spark, log, tmp_path: Path, key: list[str]) -> None:
    """The first were lost without a word, a MongoDB's _id for one; the others stopped a Delta table with a key."""
    pipeline = described(log, tmp_path, {"format": "delta", "path": "d", "key": key}, decode={})
    put_texts(log, '{"_id": 1, "__op": "c", "x\\"y": 1, "_Offset": "ours", "__partition_0": "ours"}')
    process(spark, log, pipeline)
    put_texts(log, '{"_id": 1, "__op": "u", "x\\"y": 2}', '{"_id": 2, "_class": "late"}')
    process(spark, log, pipeline)
    rows = [(row["_id"], row["__op"], row['x"y'], row["_class"]) for row in delta_rows(tmp_path / "d")]
    first = [] if key else [(1, "c", 1, None)]
    assert sorted(rows, key=str) == sorted([*first, (1, "u", 2, None), (2, None, None, "late")], key=str)
    assert [row["_offset"] for row in delta_rows(tmp_path / "d") if row["_class"]] == [2]


def put_texts(log: Any, *values: str) -> None:
    log.log.put("t", 0, *[(b"k", value.encode()) for value in values])


def delta_rows(path: Path) -> list[dict[str, Any]]:
    from deltalake import DeltaTable

    rows: list[dict[str, Any]] = DeltaTable(str(path)).to_pyarrow_table().to_pylist()
    return rows


def spark_free_delta(path: Path) -> list[int]:
    return sorted(row["n"] for row in delta_rows(path))
