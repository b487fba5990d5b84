"""What `pipeline check` says of places and catalogs, which are not in the file alone."""

from __future__ import annotations

from pathlib import Path
from typing import Any

import pytest

from kafkalite_pipelines import parse
from kafkalite_pipelines.checking import problems_around

_ARROW = "(file, s3, gs, gcs, hdfs, viewfs, abfs, abfss)"


def described(sink: dict[str, Any], **more: Any) -> dict[str, Any]:
    kafka = {"bootstrap.servers": "localhost:9092"}
    return {"name": "p", "kafka": kafka, "source": {"topics": ["t"]}, "sinks": [sink], **more}


def table(**catalog: str) -> dict[str, Any]:
    return {"format": "iceberg", "table": "t", "catalog": catalog}


@pytest.mark.parametrize(
    ("sink", "line"),
    [
        ({"format": "parquet", "path": "ftp://h/a"}, f"sinks[1].path: ftp:// is not a file system that can be written to {_ARROW}"),
        ({"format": "parquet", "path": "s3a://b/a"}, f"sinks[1].path: s3a:// is not a file system that can be written to {_ARROW}"),
        ({"format": "parquet", "path": "s3://b/a"}, None),
        ({"format": "delta", "path": "s3a://b/a"}, None),
        ({"format": "delta", "path": "here/t"}, None),
        ({"format": "iceberg", "table": "t"}, None),
        (table(type="rest"), 'sinks[1].catalog.uri: is missing: "http://host:8181", or pyiceberg\'s configuration of catalog default'),
        (table(type="hive", name="h"), 'sinks[1].catalog.uri: is missing: "thrift://host:9083", or pyiceberg\'s configuration of catalog h'),
        (table(name="h"), 'sinks[1].catalog.uri: is missing: "http://host:8181", or pyiceberg\'s configuration of catalog h'),
        (table(type="rest", name="configured"), None),
        (table(type="glue"), None),
        (table(uri="http://localhost:8181"), None),
    ],
)  # fmt: skip
def test_places_and_catalogs(sink: dict[str, Any], line: str | None, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setenv("PYICEBERG_CATALOG__CONFIGURED__URI", "http://localhost:8181")
    assert problems_around(parse(described(sink))) == ([] if line is None else [line])


def test_the_place_of_the_checkpoint(tmp_path: Path) -> None:
    pipeline = parse(described({"format": "parquet", "path": "t"}, checkpoint="nfs://h/c"), tmp_path)
    assert problems_around(pipeline) == [f"checkpoint: nfs:// is not a file system that can be written to {_ARROW}"]


@pytest.mark.parametrize(
    ("sink", "more", "key"),
    [
        ({"format": "parquet", "path": "taken"}, {}, "sinks[1].path"),
        ({"format": "delta", "path": "taken/below"}, {}, "sinks[1].path"),
        ({"format": "iceberg", "table": "t", "warehouse": "taken"}, {}, "sinks[1].warehouse"),
        ({"format": "topic", "topic": "out"}, {"checkpoint": "taken/p"}, "checkpoint"),
    ],
)
def test_a_file_where_a_directory_is_needed(
    sink: dict[str, Any], more: dict[str, Any], key: str, tmp_path: Path
) -> None:
    (tmp_path / "taken").touch()
    line = f"{key}: {tmp_path / 'taken'} is a file, and a directory is needed there"
    assert problems_around(parse(described(sink, **more), tmp_path)) == [line]
