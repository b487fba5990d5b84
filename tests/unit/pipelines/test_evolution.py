"""Columns of a table that another writer changes at the same time, and columns that no reader could tell apart. Without Spark."""

from __future__ import annotations

from decimal import Decimal
from pathlib import Path
from types import SimpleNamespace
from typing import Any

import pyarrow as pa
import pytest

pytest.importorskip("pyiceberg")
pytest.importorskip("deltalake")

from pyiceberg import types as iceberg_types
from pyiceberg.exceptions import CommitFailedException
from pyiceberg.schema import Schema
from pyiceberg.types import NestedField
from pyspark.sql.types import (
    ArrayType,
    DataType,
    DecimalType,
    IntegerType,
    LongType,
    MapType,
    NullType,
    StringType,
    StructField,
    StructType,
    TimestampType,
)

from kafkalite_pipelines import PipelineError, parse
from kafkalite_pipelines.sinks import tables, writing
from kafkalite_pipelines.sinks.iceberg import IcebergTable, made_again
from kafkalite_pipelines.sinks.opening import open_sink
from kafkalite_pipelines.sinks.sink import Batch

SINKS = {
    "iceberg": {"format": "iceberg", "table": "t", "partition_by": ["n"]},
    "delta": {"format": "delta", "path": "t", "partition_by": ["n"]},
}
N = ("n", LongType())


def rows(*columns: tuple[str, DataType]) -> Any:
    """What `prepared` asks of a DataFrame."""
    return SimpleNamespace(schema=StructType([StructField(*column) for column in columns]))


def struct(*fields: tuple[str, DataType]) -> StructType:
    return StructType([StructField(*field) for field in fields])


def opened(directory: Path, format_: str, name: str = "p", *, sink: dict[str, Any] | None = None) -> Any:
    values = {"name": name, "kafka": {"bootstrap.servers": "a:1"}, "source": {"topics": ["t"]}}
    pipeline = parse(values | {"sinks": [sink or SINKS[format_]]}, directory)
    return open_sink(pipeline, pipeline.sinks[0])


X = {"format": "iceberg", "table": "t"}
LEFT = rows(N, ("x", LongType()))
FIXED = rows(N, ("x", StringType()), ("at", TimestampType()))
BATCH = Batch("p", "query", 0, {})


def nothing(*_: Any) -> int:
    return 0


def with_a_batch(sink: Any, columns: Any) -> None:
    """The table with these columns, and a batch: from then on its columns count."""
    table = sink.prepared(columns)
    if isinstance(sink, IcebergTable):
        sink.commit(BATCH, table, nothing)


def names(sink: Any) -> list[str]:
    return [field.name for field in sink.table().schema().fields]


@pytest.mark.parametrize("format_", SINKS)
@pytest.mark.parametrize("column", ["mine", "theirs"])
def test_two_pipelines_give_a_table_columns_at_the_same_time(tmp_path: Path, format_: str, column: str) -> None:
    """The second one ended with the table format's error."""
    ours, others = (opened(tmp_path, format_, name) for name in "pq")
    ours.prepared(rows(N))
    look = ours.table

    def before_another() -> Any:
        table, ours.table = look(), look
        others.prepared(rows(N, ("theirs", StringType())))
        return table

    ours.table = before_another
    ours.prepared(rows(N, (column, StringType())))
    assert names(ours) == list(dict.fromkeys(["n", "theirs", column]))


@pytest.mark.parametrize("format_", SINKS)
def test_a_table_that_is_changed_all_the_time(tmp_path: Path, format_: str, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(tables, "time", SimpleNamespace(sleep=lambda _: None))
    ours, others = (opened(tmp_path, format_, name) for name in "pq")
    ours.prepared(rows(N))
    look, count = ours.table, iter(range(100))

    def before_another() -> Any:
        table = look()
        others.prepared(rows(N, (f"c{next(count)}", StringType())))
        return table

    ours.table = before_another
    with pytest.raises(PipelineError, match=r"table t was changed by others 10 times while its columns are changed"):
        ours.prepared(rows(N, ("mine", StringType())))


@pytest.mark.parametrize("format_", SINKS)
@pytest.mark.parametrize(
    ("new", "says"),
    [
        ([("Name", StringType())], "Name differs from name"),
        ([("name", StringType()), ("o", struct(("A", LongType())))], r"o\.A differs from o\.a"),
        ([("l", ArrayType(struct(("A", LongType()))))], r"l\.A differs from l\.a"),
        ([("m", MapType(StringType(), struct(("A", LongType()))))], r"m\.A differs from m\.a"),
        ([("x", StringType()), ("X", StringType())], "X differs from x"),
    ],
)
def test_names_that_differ_in_case_only(tmp_path: Path, format_: str, new: list[Any], says: str) -> None:
    """An Iceberg table had both, and Spark could read it no more; Delta's error was a stack of its own."""
    inner = struct(("a", LongType()))
    sink = opened(tmp_path, format_)
    present = [("name", StringType()), ("o", inner), ("l", ArrayType(inner)), ("m", MapType(StringType(), inner))]
    with_a_batch(sink, rows(N, *present))
    with pytest.raises(PipelineError, match=rf"table t: {says} in upper and lower case only") as failed:
        sink.prepared(rows(N, *new))
    assert "\n" not in str(failed.value) and names(sink) == ["n", "name", "o", "l", "m"]


@pytest.mark.parametrize("kind", [NullType(), ArrayType(NullType()), struct(("x", NullType()))])
@pytest.mark.parametrize("format_", SINKS)
def test_a_column_of_nulls_alone(tmp_path: Path, format_: str, kind: DataType) -> None:
    """`SELECT *, NULL AS note`: Delta tables had a column of a type that Delta does not have."""
    sink = opened(tmp_path, format_)
    for _ in range(2):
        with pytest.raises(PipelineError, match=r"^column note(\.x)? has no type, only NULL"):
            sink.prepared(rows(N, ("note", kind)))
        sink.prepared(rows(N))
    assert names(sink) == ["n"]


def test_a_name_with_a_dot_that_is_a_field_of_an_object(tmp_path: Path) -> None:
    """pyiceberg finds fields by such names, and refuses them with an error that names no table."""
    both = rows(N, ("a", struct(("b", LongType()))), ("a.b", LongType()))
    sink = opened(tmp_path, "iceberg")
    for _ in range(2):
        with pytest.raises(PipelineError, match=r"^Iceberg table t: .*a\.b"):
            sink.prepared(both)
        sink.prepared(rows(N))


def _around(kind: DataType) -> list[DataType]:
    return [
        kind,
        struct(("d", kind)),
        ArrayType(kind),
        ArrayType(ArrayType(struct(("d", kind)))),
        MapType(StringType(), kind),
    ]


@pytest.mark.parametrize("where", range(5))
@pytest.mark.parametrize(
    ("table", "new", "then"),
    [
        ((10, 2), (14, 4), None),
        ((14, 2), (14, 4), None),
        ((14, 4), (14, 2), None),
        ((14, 4), (12, 2), (14, 4)),
        ((10, 2), (12, 2), (12, 2)),
        ((12, 2), (10, 2), (12, 2)),
    ],
)
def test_an_iceberg_table_s_decimals_keep_the_digits_behind_their_point(
    tmp_path: Path, where: int, table: tuple[int, int], new: tuple[int, int], then: tuple[int, int] | None
) -> None:
    """pyiceberg gave the table another scale: that is no change that Iceberg has, and the files that were there have the old one."""
    present, wanted = (_around(DecimalType(*each))[where] for each in (table, new))
    sink = opened(tmp_path, "iceberg")
    with_a_batch(sink, rows(N, ("c", present)))
    if then is None:
        says = rf"table t: the rows do not fit the table: column c.* is decimal\({table[0]},{table[1]}\), and the rows have decimal\({new[0]},"
        with pytest.raises(PipelineError, match=says):
            sink.prepared(rows(N, ("c", wanted)))
    else:
        sink.prepared(rows(N, ("c", wanted)))
    kept = then or table
    assert f"decimal({kept[0]}, {kept[1]})" in str(sink.table().schema().find_type("c"))


def test_a_value_that_does_not_fit_is_named_with_its_column() -> None:
    wanted = pa.schema([pa.field("d", pa.decimal128(14, 4))])
    batch = pa.record_batch({"d": pa.array([Decimal("123456789012.34")], pa.decimal128(14, 2))})
    with pytest.raises(
        PipelineError, match=r"^column d has a value that does not fit the table's type decimal128\(14, 4\): "
    ):
        writing.conform(batch, wanted)


@pytest.mark.parametrize("format_", ["iceberg", "delta", "parquet"])
@pytest.mark.parametrize("name", ["at_day", "At_Day"])
def test_a_column_with_the_name_of_a_partition(tmp_path: Path, format_: str, name: str) -> None:
    """A Delta table had the day in the place of the records' own field, plain files both; pyiceberg's error named no table."""
    place = {"table": "t"} if format_ == "iceberg" else {"path": "t"}
    both = rows(N, ("at", TimestampType()), (name, StringType()))
    sink = opened(tmp_path, format_, sink={"format": format_, "partition_by": ["day(at)"], **place})
    if format_ == "iceberg" and name == "at_day":
        with pytest.raises(PipelineError, match=r"^Iceberg table t: partition_by: .*at_day"):
            sink.prepared(both)
    elif format_ == "iceberg":
        assert [field.name for field in sink.prepared(both).spec().fields] == ["at_day"]
    else:
        with pytest.raises(
            PipelineError, match=rf"^partition_by: day\(at\) makes a column at_day, and the rows have a column {name}:"
        ):
            sink.stage(both, None)
    if format_ != "iceberg":
        values = {"name": "p", "kafka": {"bootstrap.servers": "a:1"}, "source": {"topics": ["t"]}}
        decode = {"decode": {"schema": {"at": "timestamp", name: "string"}}}
        with pytest.raises(
            PipelineError, match=r"sinks\[1\].partition_by: day\(at\) makes a column at_day, and there is one"
        ):
            parse(values | decode | {"sinks": [{"format": format_, "partition_by": ["day(at)"], **place}]}, tmp_path)


@pytest.mark.parametrize(
    ("left", "sink"),
    [
        (LEFT, X),
        (rows(N, ("X", LongType())), X),
        (LEFT, X | {"evolve": False}),
        (FIXED, X | {"partition_by": ["day(at)"]}),
    ],
    ids=["type", "case", "new column", "partition"],
)
def test_a_batch_that_failed_decides_nothing_about_an_iceberg_table(
    tmp_path: Path, left: Any, sink: dict[str, Any]
) -> None:
    """It had made the table before a row of it was wrong; the corrected steps then did not fit a table without a row."""
    opened(tmp_path, "iceberg").prepared(left)
    again = opened(tmp_path, "iceberg", sink=sink)
    table = again.prepared(FIXED)
    assert [(field.name, str(field.field_type)) for field in again.table().schema().fields] == [
        ("n", "long"),
        ("x", "string"),
        ("at", "timestamptz"),
    ]
    assert [field.name for field in again.table().spec().fields] == [field.name for field in again.fields]
    assert again.commit(BATCH, table, nothing) == 0
    assert again.recorded().has(BATCH)


@pytest.mark.parametrize("used", ["by a batch without rows", "by another pipeline", "by nobody, made by hand"])
def test_an_iceberg_table_that_counts_keeps_its_columns(tmp_path: Path, used: str) -> None:
    first = opened(tmp_path, "iceberg", "q" if used == "by another pipeline" else "p")
    table = first.prepared(LEFT)
    if used == "by a batch without rows":
        first.commit(BATCH, table, nothing)
    if used == "by nobody, made by hand":
        with table.transaction() as change:
            change.remove_properties("kafkalite.made.by")
    with pytest.raises(
        PipelineError, match="Iceberg table t: the rows do not fit the table: Cannot change column type: x"
    ):
        opened(tmp_path, "iceberg").prepared(FIXED)
    assert names(first) == ["n", "x"]


def test_files_for_columns_that_were_made_again_are_not_committed(tmp_path: Path) -> None:
    """A reader finds columns by their ids, and would see null."""
    other = opened(tmp_path, "iceberg", "q", sink=X)
    opened(tmp_path, "iceberg", sink=X).prepared(LEFT)
    written_for = other.prepared(LEFT)
    opened(tmp_path, "iceberg", sink=X).prepared(FIXED)
    with pytest.raises(PipelineError, match="Iceberg table t: x became another column while batch 0 was written"):
        other.commit(Batch("q", "query", 0, {}), written_for, nothing)


def test_a_commit_while_a_table_is_made_again(tmp_path: Path) -> None:
    """The table is looked at once more: it has rows now."""
    p, q = (opened(tmp_path, "iceberg", name, sink=X) for name in "pq")
    p.prepared(LEFT)
    written_for = q.prepared(LEFT)
    seen = p.table()

    def append(transaction: Any, summary: dict[str, str]) -> int:
        with transaction.update_snapshot(snapshot_properties=summary).fast_append():
            return 0

    q.commit(Batch("q", "query", 0, {}), written_for, append)
    with pytest.raises(CommitFailedException):
        made_again(seen, pa.schema([("n", pa.int64())]))
    assert names(p) == ["n", "x"]


def test_what_an_iceberg_table_requires_stays_required(tmp_path: Path) -> None:
    """Columns became optional when one got a wider type, and fields in objects with the first batch: the table's rule was gone without a word."""
    sink = opened(tmp_path, "iceberg", sink={"format": "iceberg", "table": "t"})
    sink.make_namespace()
    inner = iceberg_types.StructType(NestedField(4, "a", iceberg_types.IntegerType(), required=True))
    fields = [
        NestedField(1, "n", iceberg_types.IntegerType(), required=True),
        NestedField(2, "x", iceberg_types.IntegerType(), required=True),
        NestedField(3, "o", inner, required=False),
        NestedField(
            5, "l", iceberg_types.ListType(6, iceberg_types.StringType(), element_required=True), required=False
        ),
        NestedField(
            7,
            "m",
            iceberg_types.MapType(8, iceberg_types.StringType(), 9, iceberg_types.IntegerType(), value_required=True),
            required=False,
        ),
    ]
    sink._catalog.create_table("default.t", Schema(*fields))
    before = sink.table().schema()
    present = [("n", IntegerType()), ("l", ArrayType(StringType())), ("m", MapType(StringType(), IntegerType()))]
    assert sink.prepared(rows(*present, ("x", IntegerType()), ("o", struct(("a", IntegerType()))))).schema() == before
    wider = [("n", LongType()), ("l", ArrayType(StringType())), ("m", MapType(StringType(), LongType()))]
    found = sink.prepared(
        rows(*wider, ("o", struct(("a", LongType()), ("new", StringType()))), ("more", LongType()))
    ).schema()
    ids = [found.find_field(name).field_id for name in ("o.a", "o.new")]
    assert [(field.name, str(field.field_type), field.required) for field in found.fields] == [
        ("n", "long", True),
        ("x", "int", True),
        ("o", f"struct<{ids[0]}: a: required long, {ids[1]}: new: optional string>", False),
        ("l", "list<string>", False),
        ("m", "map<string, long>", False),
        ("more", "long", False),
    ]
    assert found.find_field("l.element").required and found.find_field("m.value").required


@pytest.mark.parametrize(
    ("present", "wanted"),
    [
        ({"a": None}, pa.struct([pa.field("a", pa.int32(), nullable=False)])),
        ([{"a": None}], pa.list_(pa.struct([pa.field("a", pa.int32(), nullable=False)]))),
    ],
)
def test_a_null_where_a_table_requires_a_value(present: Any, wanted: pa.DataType) -> None:
    batch = pa.record_batch({"c": pa.array([present])})
    with pytest.raises(PipelineError, match=r"^column c has a value that does not fit the table's type .*not null"):
        writing.conform(batch, pa.schema([pa.field("c", wanted)]))
