"""No secret of a pipeline file is printed, logged or kept in a file of the pipeline's own."""

from __future__ import annotations

import json
from pathlib import Path

import pytest
from click.testing import CliRunner

from kafkalite_cli.pipeline.command import pipeline
from kafkalite_pipelines import PipelineError, load
from kafkalite_pipelines.control import own, supervise
from kafkalite_pipelines.redaction import REDACTED, is_secret, secrets_of, without


@pytest.mark.parametrize(
    ("name", "value"),
    [
        ("spark.hadoop.fs.s3a.secret.key", "x"),
        ("spark.hadoop.fs.s3a.access.key", "x"),
        ("spark.hadoop.fs.azure.account.key.me.dfs.core.windows.net", "x"),
        ("spark.sql.catalog.rest.credential", "client:x"),
        ("spark.sql.catalog.rest.token", "x"),
        ("spark.ssl.keyPassword", "x"),
        ("spark.jars.repositories", "https://me:x@host/maven"),
        ("spark.driver.extraJavaOptions", "-Djavax.net.ssl.trustStorePassword=x"),
        ("spark.sql.catalog.rest.header.Authorization", "x"),
        ("spark.my.dsn", "host=h user=me password=x"),
        ("sasl.password", "x"),
        ("sasl.jaas.config", "x"),
        ("ssl.key.password", "x"),
        ("AWS_SECRET_ACCESS_KEY", "x"),
        ("adls.connection-string", "x"),
        ("s3.session-token", "x"),
        ("azure_storage_sas_key", "x"),
        ("header.X", "Bearer x"),
        ("spark.own", "what the company says"),
    ],
)
def test_settings_that_are_secret(name: str, value: str) -> None:
    assert is_secret(name, value, "(?i)company")


@pytest.mark.parametrize(
    ("name", "value"),
    [
        ("bootstrap.servers", "a:9092,b:9092"),
        ("spark.sql.shuffle.partitions", "4"),
        ("spark.sql.catalog.c.uri", "http://host:8181/a"),
        ("sasl.mechanism", "SCRAM-SHA-256"),
        ("ssl.keystore.location", "/etc/keys/me.pem"),
        ("spark.hadoop.fs.s3a.endpoint", "http://127.0.0.1:9000"),
        ("sasl.username", "me"),
    ],
)
def test_settings_that_are_not(name: str, value: str) -> None:
    assert not is_secret(name, value)


FILE = """
name = "p"
[kafka]
"bootstrap.servers" = "127.0.0.1:1"
"security.protocol" = "SASL_PLAINTEXT"
"sasl.mechanism" = "PLAIN"
"sasl.jaas.config" = "PlainLoginModule required username=\\"me\\" password=\\"jaas-pass\\";"
[source]
topics = ["t"]
[[sinks]]
format = "iceberg"
table = "t"
catalog = { type = "sql", uri = "postgresql+nothing://me:sql-pass@127.0.0.1:1/db", "s3.secret-access-key" = "s3-pass" }
[[sinks]]
format = "delta"
path = "s3://bucket/t"
storage = { AWS_SECRET_ACCESS_KEY = "aws-pass", AWS_ALLOW_HTTP = "true" }
[spark]
"spark.hadoop.fs.s3a.secret.key" = "spark-pass"
"spark.sql.catalog.c.token-refresh-enabled" = true
"""
SECRETS = ("jaas-pass", "sql-pass", "s3-pass", "aws-pass", "spark-pass")


@pytest.fixture
def file(tmp_path: Path) -> Path:
    path = tmp_path / "p.toml"
    path.write_text(FILE)
    return path


def test_every_secret_of_a_file_is_found(file: Path) -> None:
    text = without(secrets_of(load(file)), f"{' '.join(SECRETS)} true me 127.0.0.1:1")
    assert text == " ".join([REDACTED] * 5) + " true me 127.0.0.1:1"


@pytest.mark.parametrize("words", [["plan"], ["run", "--print-command"], ["status"]])
def test_commands_that_show_none(words: list[str], file: Path) -> None:
    """The catalog cannot be opened: the error would name its address."""
    result = CliRunner().invoke(pipeline, [*words[:1], str(file), *words[1:]])
    said = f"{result.output} {result.exception}"
    assert not [secret for secret in SECRETS if secret in said], said
    if "--print-command" in words:
        assert "--load-spark-defaults --properties-file FILE" in said
        assert "FILE: a file of properties, mode 600, with spark.hadoop.fs.s3a.secret.key" in said


def test_the_error_of_a_run_is_kept_without_them(file: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    def start(*_: object) -> None:
        raise PipelineError("cannot connect as me with jaas-pass to postgresql+nothing://me:sql-pass@127.0.0.1:1/db")

    monkeypatch.setattr("kafkalite_pipelines.run.start", start)
    with pytest.raises(PipelineError):
        supervise(load(file), object())
    kept = own(load(file)).read("run.json")
    assert kept is not None and "cannot connect as me with" in json.loads(kept)["error"]
    assert not [secret for secret in SECRETS if secret in kept]


def test_mistakes_in_a_file_are_said_without_them(file: Path) -> None:
    file.write_text(FILE.replace('127.0.0.1:1"\n"sec', 'me:jaas-pass"\n"sec', 1))
    with pytest.raises(PipelineError, match="is not host:port") as raised:
        load(file)
    assert "jaas-pass" not in str(raised.value)
