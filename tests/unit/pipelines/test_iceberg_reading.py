"""Rows of Iceberg files that are written again (by compaction, by an upsert beside them) stay as they were."""

from __future__ import annotations

from pathlib import Path
from typing import Any

import pyarrow as pa
import pyarrow.parquet as pq
import pytest

pytest.importorskip("pyiceberg")

from pyiceberg.catalog import load_catalog
from pyiceberg.table import Table

from kafkalite_pipelines.definition import Maintenance
from kafkalite_pipelines.sinks import writing
from kafkalite_pipelines.sinks.iceberg_files import data_file, target_of
from kafkalite_pipelines.sinks.iceberg_maintenance import compact

INNER = pa.struct([("a", pa.int32()), ("b", pa.string())])
SCHEMA = pa.schema(
    [
        ("n", pa.int64()),
        ("object", INNER),
        ("objects", pa.list_(pa.field("element", INNER))),
        ("lists", pa.list_(pa.field("element", pa.list_(pa.field("element", INNER))))),
        ("named", pa.map_(pa.string(), INNER)),
        ("many", pa.map_(pa.string(), pa.list_(pa.field("element", INNER)))),
        ("texts", pa.list_(pa.field("element", pa.string()))),
    ]
)
X: dict[str, Any] = {"a": 1, "b": None}
ROWS: list[dict[str, Any]] = [
    {"n": 0, "object": X, "objects": [X, None], "lists": [[X], None, []], "named": [("k", X), ("l", None)],
     "many": [("k", [X]), ("l", None), ("m", [])], "texts": ["t", None]},
    {"n": 1, "object": None, "objects": [], "lists": [], "named": [], "many": [], "texts": []},
    {"n": 2, "object": {"a": None, "b": None}, "objects": None, "lists": None, "named": None, "many": None, "texts": None},
]  # fmt: skip


def made(directory: Path) -> Table:
    catalog = load_catalog(
        "default", type="sql", uri=f"sqlite:///{directory}/catalog.db", warehouse=f"file://{directory}"
    )
    catalog.create_namespace("default")
    table = catalog.create_table("default.t", SCHEMA)
    for row in ROWS:  # as a pipeline does: pyiceberg's own writer makes the same mistake
        files = writing.files_of(pa.Table.from_pylist([row], SCHEMA), target_of(table), "p", ())
        with table.transaction() as transaction, transaction.update_snapshot().fast_append() as append:
            append.append_data_file(data_file(table, files[0]))
    return table


def in_files(table: Table) -> list[dict[str, Any]]:
    """By pyarrow: pyiceberg's reader is what is checked."""
    paths = [task.file.file_path.removeprefix("file://") for task in table.refresh().scan().plan_files()]
    return sorted((row for path in paths for row in pq.ParquetFile(path).read().to_pylist()), key=lambda row: row["n"])


def test_compaction_leaves_every_value_as_it_was(tmp_path: Path) -> None:
    """Null arrays of objects became empty ones."""
    table = made(tmp_path)
    assert in_files(table) == ROWS
    assert compact(table, Maintenance()) == (3, 1)
    assert in_files(table) == ROWS


def test_fields_are_found_by_their_ids(tmp_path: Path) -> None:
    """A field that is renamed, one that is wider, new ones, and one that is gone."""
    table = made(tmp_path)
    with table.update_schema(allow_incompatible_changes=True) as update:
        update.rename_column("objects.element.a", "first")
        update.delete_column("objects.element.b")
        update.delete_column("texts")
    more = pa.struct([("a", pa.int64()), ("b", pa.string()), ("c", pa.struct([("d", pa.string())]))])
    with table.update_schema() as update:
        update.union_by_name(pa.schema([("n", pa.int64()), ("object", more), ("new", pa.int32())]))
    assert compact(table.refresh(), Maintenance()) == (3, 1)
    found = in_files(table)
    assert [row["object"] for row in found] == [X | {"c": None}, None, {"a": None, "b": None, "c": None}]
    assert [row["objects"] for row in found] == [[{"first": 1}, None], [], None]
    for name in ("lists", "named", "many"):
        assert [row[name] for row in found] == [row[name] for row in ROWS]
    assert all(row["new"] is None and "texts" not in row for row in found)
    assert table.refresh().schema().find_field("object.a").field_type == pa_long()


def pa_long() -> Any:
    from pyiceberg.types import LongType

    return LongType()
