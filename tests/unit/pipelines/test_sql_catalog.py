"""A catalog in SQL that two pipelines make at the same time: systemd and compose start all of a host's together."""

from __future__ import annotations

from pathlib import Path

import pytest

pytest.importorskip("pyiceberg")

from pyiceberg.catalog.sql import SqlCatalog, SqlCatalogBaseTable

from kafkalite_pipelines import IcebergSink, Pipeline, PipelineError, Source
from kafkalite_pipelines.sinks.iceberg import IcebergTable, open_catalog


def test_the_tables_of_a_catalog_are_made_by_two(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    """The second one failed, with a stack of SQL."""
    make, sink = SqlCatalog.create_tables, IcebergSink("t")

    def after_another(catalog: SqlCatalog) -> None:
        monkeypatch.undo()
        make(catalog)
        for table in SqlCatalogBaseTable.metadata.sorted_tables:
            table.create(catalog.engine)  # as the one whose look at the tables came before

    monkeypatch.setattr(SqlCatalog, "create_tables", after_another)
    assert open_catalog(Pipeline("p", {}, Source(("t",)), (sink,), directory=tmp_path), sink).list_namespaces() == []


def test_a_namespace_is_made_by_two(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    sink = IcebergSink("t")
    tables = [IcebergTable(Pipeline(name, {}, Source(("t",)), (sink,), directory=tmp_path), sink) for name in "pq"]
    tables[0].make_namespace()
    look = SqlCatalog.namespace_exists

    def before_another(*_: object) -> bool:
        monkeypatch.setattr(SqlCatalog, "namespace_exists", look)
        return False

    monkeypatch.setattr(SqlCatalog, "namespace_exists", before_another)
    tables[1].make_namespace()
    assert tables[1]._catalog.list_namespaces() == [("default",)]


def test_a_catalog_that_cannot_be_opened_is_one_line(tmp_path: Path) -> None:
    (tmp_path / "tables").mkdir()
    (tmp_path / "tables" / "catalog.db").mkdir()
    sink = IcebergSink("t")
    with pytest.raises(PipelineError, match="the Iceberg catalog cannot be opened: ") as failed:
        open_catalog(Pipeline("p", {}, Source(("t",)), (sink,), directory=tmp_path), sink)
    assert "\n" not in str(failed.value)
