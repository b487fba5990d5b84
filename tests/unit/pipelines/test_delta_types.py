"""A Delta table gets the wider types of a pipeline's file; what does not fit is refused."""

from __future__ import annotations

import json
from decimal import Decimal
from pathlib import Path

import pyarrow as pa
import pytest

pytest.importorskip("deltalake")

from deltalake import CommitProperties, DeltaTable, Field, Schema, Transaction, write_deltalake
from deltalake.schema import PrimitiveType

from kafkalite_pipelines import DeltaSink, Pipeline, PipelineError, Source
from kafkalite_pipelines.sinks.delta import DeltaSinkTable
from kafkalite_pipelines.sinks.delta_types import merged


def _table(directory: Path, *, evolve: bool = True) -> DeltaSinkTable:
    rows = pa.table(
        {
            "kind": pa.array(["a", "b", None]),
            "n": pa.array([1, None, 3], pa.int32()),
            "part": pa.array([1.5, None, 2], pa.float32()),
            "price": pa.array([Decimal("1.23"), None, None], pa.decimal128(5, 2)),
            "list": pa.array([[1], None, []], pa.list_(pa.int32())),
        }
    )
    done = CommitProperties(app_transactions=[Transaction("query", 7)])
    settings = {"delta.logRetentionDuration": "interval 9 days"}
    write_deltalake(directory / "t", rows, partition_by=["kind"], configuration=settings, commit_properties=done)
    sink = DeltaSink("t", partition_by=("kind",), evolve=evolve)
    pipeline = Pipeline("p", {}, Source(("t",)), (sink,), directory=directory)
    return DeltaSinkTable(pipeline, sink)


WIDER = pa.schema([("n", pa.int64()), ("part", pa.float64()), ("price", pa.decimal128(10, 2)), ("new", pa.int32())])


def test_wider_types_and_a_new_column(tmp_path: Path) -> None:
    sink = _table(tmp_path)
    present = sink.table()
    assert present is not None
    table = sink._evolved(present, WIDER)
    types = {field.name: str(getattr(field.type, "type", "")) for field in table.schema().fields}
    assert types == {
        "kind": "string", "n": "long", "part": "double", "price": "decimal(10,2)", "list": "array", "new": "integer",
    }  # fmt: skip
    rows = sorted(table.to_pyarrow_table().to_pylist(), key=lambda row: str(row["n"]))
    assert [(row["kind"], row["n"], row["part"], row["price"], row["list"], row["new"]) for row in rows] == [
        ("a", 1, 1.5, Decimal("1.23"), [1], None),
        (None, 3, 2.0, None, [], None),
        ("b", None, None, None, None, None),
    ]
    metadata = table.metadata()
    assert (
        metadata.partition_columns == ["kind"]
        and metadata.configuration["delta.logRetentionDuration"] == "interval 9 days"
    )
    assert table.transaction_version("query") == 7, "what was committed before stays known"
    assert sink._evolved(table, WIDER) is table, "nothing is left to do"


def test_what_a_table_says_of_its_columns_stays(tmp_path: Path) -> None:
    """Readers and other writers rely on it. NOT NULL, invariants, generated columns and comments were gone after a wider type."""
    rule = {"delta.invariants": json.dumps({"expression": {"expression": "n > 0"}})}
    fields = [
        Field("n", PrimitiveType("integer"), nullable=False, metadata=rule),
        Field("x", PrimitiveType("integer"), metadata={"comment": "how many"}),
        Field("y", PrimitiveType("integer"), nullable=False),
    ]
    present = DeltaTable.create(tmp_path / "t", schema=Schema(fields))
    kinds = pa.schema([pa.field(name, pa.int32(), name == "x") for name in "nxy"])
    write_deltalake(present, pa.table({"n": [1, 2], "x": [3, None], "y": [4, 5]}, kinds), mode="append")
    sink = DeltaSink("t")
    table = DeltaSinkTable(Pipeline("p", {}, Source(("t",)), (sink,), directory=tmp_path), sink)
    found = table._evolved(present, pa.schema([("x", pa.int64()), ("y", pa.int64())]))
    assert [(f.name, f.type, f.nullable, f.metadata) for f in found.schema().fields] == [
        ("n", PrimitiveType("integer"), False, rule),
        ("x", PrimitiveType("long"), True, {"comment": "how many"}),
        ("y", PrimitiveType("long"), False, {}),
    ]
    assert found.to_pyarrow_table().sort_by("n").to_pydict() == {"n": [1, 2], "x": [3, None], "y": [4, 5]}


@pytest.mark.parametrize(
    ("column", "kind", "text"),
    [
        ("n", pa.string(), "column n is integer, and the rows have string"),
        ("price", pa.decimal128(5, 3), r"column price is decimal\(5,2\), and the rows have decimal\(5,3\)"),
        ("kind", pa.int64(), "column kind is string, and the rows have long"),
    ],
)
def test_other_types_are_refused(tmp_path: Path, column: str, kind: pa.DataType, text: str) -> None:
    sink = _table(tmp_path)
    present = sink.table()
    assert present is not None
    with pytest.raises(PipelineError, match=text):
        sink._evolved(present, pa.schema([(column, kind)]))


def test_evolve_false(tmp_path: Path) -> None:
    sink = _table(tmp_path, evolve=False)
    present = sink.table()
    assert present is not None
    with pytest.raises(PipelineError, match="n becomes long"):
        sink._evolved(present, pa.schema([("n", pa.int64())]))


INNER = pa.struct([("a", pa.int32()), ("b", pa.string())])


@pytest.mark.parametrize(
    ("present", "rows", "wanted"),
    [
        (pa.int64(), pa.int32(), pa.int64()),
        (pa.int32(), pa.int64(), pa.int64()),
        (pa.int32(), pa.float64(), pa.float64()),
        (pa.int64(), pa.float64(), None),
        (pa.large_string(), pa.string(), pa.string()),
        (INNER, pa.struct([("b", pa.string())]), INNER),
        (INNER, pa.struct([("c", pa.bool_()), ("a", pa.int64())]),
         pa.struct([("a", pa.int64()), ("b", pa.string()), ("c", pa.bool_())])),
        (INNER, pa.struct([("a", pa.string())]), None),
        (pa.list_(pa.struct([("b", pa.string())])), pa.list_(INNER),
         pa.list_(pa.field("element", pa.struct([("b", pa.string()), ("a", pa.int32())])))),
        (pa.map_(pa.string(), pa.int32()), pa.map_(pa.string(), pa.int64()), pa.map_(pa.string(), pa.int64())),
        (INNER, pa.list_(INNER), None),
    ],
)  # fmt: skip
def test_a_type_for_the_values_of_both(present: pa.DataType, rows: pa.DataType, wanted: pa.DataType | None) -> None:
    assert merged(present, rows) == wanted
