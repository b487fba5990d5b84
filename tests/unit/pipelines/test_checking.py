"""What `pipeline check` says of places and catalogs, which are not in the file alone."""

from __future__ import annotations

from pathlib import Path
from typing import Any

import pytest

from kafkalite_pipelines import parse
from kafkalite_pipelines.checking import problems_around

_ARROW = "(file, s3, gs, gcs, hdfs, viewfs, abfs, abfss)"


#: Files of TLS are those of the system.
TLS = {"bootstrap.servers": "h:9092", "security.protocol": "SSL"}


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
        (table(type="rest", uri="localhost:8181"), 'sinks[1].catalog.uri: is not the address of a rest catalog, such as "http://host:8181"'),
        (table(type="hive", uri="http://h:9083"), 'sinks[1].catalog.uri: is not the address of a hive catalog, such as "thrift://host:9083"'),
        (table(type="sql", uri="a.db"), 'sinks[1].catalog.uri: is not the address of a sql catalog, such as "postgresql+psycopg2://host/db"'),
        ({"format": "iceberg", "table": "t", "warehouse": "s3://b/w"}, "sinks[1].catalog: is missing: without it the catalog is SQLite in a local warehouse, not in s3://b/w"),
        ({"format": "delta", "path": "s3:/b/a"}, "sinks[1].path: 's3:/b/a' is neither a path nor a URI: s3://…"),
        ({"format": "delta", "path": "s3://"}, "sinks[1].path: s3:// names no bucket: s3://bucket/path"),
        ({"format": "parquet", "path": "~/a"}, "sinks[1].path: '~/a' would be a directory of that name, because ~ and $ are not expanded: write the whole path"),
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


def iceberg(value: object, name: str = "format-version") -> dict[str, Any]:
    return {"format": "iceberg", "table": "t", "properties": {name: value}}


def delta(value: object, name: str, **more: Any) -> dict[str, Any]:
    return {"format": "delta", "path": "t", "properties": {name: value}, **more}


@pytest.mark.parametrize(
    ("sink", "line"),
    [
        (iceberg(9), "format-version: must be 1 or 2, not '9'"),
        (iceberg("orc", "write.format.default"), "write.format.default: must be parquet, not 'orc'"),
        (iceberg("many", "write.parquet.row-group-limit"), "write.parquet.row-group-limit: must be a whole number, not 'many'"),
        (iceberg("x", "kafkalite.pipeline.p"), "kafkalite.pipeline.p: this name is the pipeline's own"),
        (iceberg("x", "owner"), None),
        (iceberg(536870912, "write.target-file-size-bytes"), None),
        (delta("true", "delta.apendOnly"), "delta.apendOnly: deltalake knows no such property of a table"),
        (delta("maybe", "delta.appendOnly"), "delta.appendOnly: must be true or false, not 'maybe'"),
        (delta("true", "delta.appendOnly"), None),
        (delta("true", "delta.appendOnly", key=["id"]), "delta.appendOnly: rows of a table with a key are replaced"),
        (delta("soon", "delta.logRetentionDuration"), "delta.logRetentionDuration: must be \"interval 7 days\", not 'soon'"),
        (delta("interval 30 days", "delta.logRetentionDuration"), None),
        (delta(9, "delta.minWriterVersion"), "delta.minWriterVersion: delta.minWriterVersion = '9' is invalid, valid values are ['2','3','4','5','6','7']"),
        (delta("name", "delta.columnMapping.mode"), "delta.columnMapping.mode: must be none: files are written with the columns' names, not 'name'"),
    ],
)  # fmt: skip
def test_properties_of_tables(sink: dict[str, Any], line: str | None) -> None:
    """What the libraries refuse, they refused at the first batch; some wrong values they wrote into the table."""
    more = {"decode": {"schema": {"id": "long"}}}
    found = problems_around(parse(described(sink, **more)))
    assert found == ([] if line is None else [f"sinks[1].properties.{line}"])


@pytest.mark.parametrize(
    ("more", "line"),
    [
        ({"spark": {"spark.sql.shuffle.partitions": "many"}}, "spark.spark.sql.shuffle.partitions: must be a whole number, not 'many'"),
        ({"spark": {"spark.driver.memory": "lots"}}, "spark.spark.driver.memory: must be a size such as \"2g\", not 'lots'"),
        ({"spark": {"spark.sql.adaptive.enabled": "maybe"}}, "spark.spark.sql.adaptive.enabled: must be true or false, not 'maybe'"),
        ({"spark": {"spark.driver.memory": "2g", "spark.executor.cores": 2, "spark.sql.ansi.enabled": False}}, None),
        ({"decode": {"registry": "http://h:8081", "registry_user": "u", "registry_password_env": "NOT_SET"}},
         "decode.registry_password_env: the environment has no NOT_SET"),
        ({"decode": {"registry": "http://h:8081", "registry_user": "u", "registry_password_env": "HOME"}}, None),
        ({"kafka": TLS | {"ssl.truststore.location": "/nowhere/ca.pem"}}, "kafka: TLS: /nowhere/ca.pem: No such file or directory"),
        ({"kafka": TLS | {"ssl.key.password": "file:/nowhere/password"}},
         "kafka: ssl.key.password: [Errno 2] No such file or directory: '/nowhere/password'"),
        ({"kafka": TLS}, None),
    ],
)  # fmt: skip
def test_what_the_first_batch_would_find(more: dict[str, Any], line: str | None) -> None:
    """A value of Spark's settings, a file of TLS or a password that is not there: Spark was started first, and some gave a stack."""
    found = problems_around(parse(described({"format": "iceberg", "table": "t"}) | more))
    assert found == ([] if line is None else [line])


@pytest.mark.parametrize(
    ("key", "meant"),
    [
        ("AWS_SECRET_ACESS_KEY", "aws_secret_access_key"),
        ("aws_enpoint_url", "aws_endpoint_url"),
        ("azure_storage_acount_key", "azure_storage_account_key"),
        ("google_service_acount", "google_service_account"),
        ("AWS_SECRET_ACCESS_KEY", None),
        ("access_key_id", None),
        ("AWS_S3_ALLOW_UNSAFE_RENAME", None),
        ("azure_storage_account_name", None),
        ("account_key", None),
        ("allow_http", None),
        ("something.of.its.own", None),
    ],
)
def test_a_slip_in_a_storage_setting(key: str, meant: str | None) -> None:
    """deltalake passes over names that it does not know: the table was looked for without credentials."""
    found = problems_around(parse(described({"format": "delta", "path": "s3://b/t", "storage": {key: "x"}})))
    line = f"sinks[1].storage.{key}: deltalake knows no such setting; did you mean {meant}?"
    assert found == ([] if meant is None else [line])
