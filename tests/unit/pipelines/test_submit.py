"""The spark-submit command of a pipeline."""

from __future__ import annotations

import os
import re
import signal
import subprocess
import sys
from pathlib import Path
from types import SimpleNamespace
from typing import Any

import pytest

from kafkalite_pipelines import Pipeline, PipelineError, Source, control, parse, session
from kafkalite_pipelines.session import submit_command
from kafkalite_pipelines.submitted import job


def test_the_script_starts_as_spark_submit_starts_it(tmp_path: Path) -> None:
    """Its directory is the first in which Python searches: no module there may have the name of a standard one."""
    pipeline = parse(
        {
            "name": "p",
            "kafka": {"bootstrap.servers": "a:9092"},
            "source": {"topics": ["t"]},
            "sinks": [{"format": "iceberg", "table": "t"}],
        }
    )
    command = submit_command(pipeline, tmp_path / "nowhere.toml", "spark://host:7077")
    words = command.words
    assert words[:3] == ("spark-submit", "--master", "spark://host:7077") and "--properties-file" not in command.shown()
    done = subprocess.run([sys.executable, *words[-2:]], cwd=tmp_path, capture_output=True, text=True, check=False)
    assert done.stderr == f"kafkalite: {tmp_path}/nowhere.toml: No such file or directory\n" and done.returncode == 1


def test_an_error_of_a_submitted_pipeline_is_one_line_without_secrets(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch, capsys: pytest.CaptureFixture[str]
) -> None:
    """Spark's log is around it: a stack would hide it."""
    file = tmp_path / "p.toml"
    file.write_text(
        'name = "p"\n[kafka]\n"bootstrap.servers" = "a:9092"\n[source]\ntopics = ["t"]\n[[sinks]]\nformat = "iceberg"\n'
        'table = "t"\ncatalog = { type = "sql", uri = "postgresql://me:hush@h/db" }\n'
    )

    def fails(*_: Any) -> int:
        raise PipelineError("postgresql://me:hush@h/db refused hush")

    monkeypatch.setattr(control, "supervise", fails)
    monkeypatch.setattr("pyspark.sql.SparkSession.builder", SimpleNamespace(getOrCreate=lambda: None))
    assert job.main([str(file)]) == 1
    assert capsys.readouterr().err == "kafkalite: *********(redacted) refused *********(redacted)\n"


def test_secrets_are_in_a_file_and_not_in_the_command(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    """Every user of the host can read every process's command line."""
    secret = {"spark.hadoop.fs.s3a.secret.key": "wJalr XUt=nFEMI\\n", "spark.x": "jdbc:postgresql://me:pä55@h/db"}
    plain = {"spark.executor.memory": "2g", "spark.sql.catalog.c.uri": "http://host:8181"}
    pipeline = Pipeline("p", {}, Source(("t",)), (), spark=secret | plain)
    command = submit_command(pipeline, tmp_path / "p.toml", "yarn")
    shown = command.shown()
    assert "--conf spark.executor.memory=2g" in shown and "--load-spark-defaults --properties-file FILE" in shown
    assert command.secret == secret and not any(value in shown for value in secret.values())
    assert "--conf spark.scheduler.listenerbus.logSlowEvent=false" in shown, "Spark's log would have them"
    ran: list[tuple[list[str], str, int]] = []

    def spark_submit(words: list[str], **_: Any) -> subprocess.CompletedProcess[str]:
        file = Path(words[words.index("--properties-file") + 1])
        ran.append((words, file.read_text(), file.stat().st_mode & 0o777))
        return subprocess.CompletedProcess(words, 3)

    monkeypatch.setattr(subprocess, "run", spark_submit)
    assert command.run() == 3
    [(words, text, mode)] = ran
    assert mode == 0o600 and not Path(words[words.index("--properties-file") + 1]).exists()
    assert not any(value in " ".join(words) for value in secret.values())
    read = re.sub(r"\\u(....)", lambda found: chr(int(found[1], 16)), text)
    assert read == "".join(f"{name}={value}\n" for name, value in secret.items())


def test_no_secret_is_left_of_a_start_that_was_killed(tmp_path: Path) -> None:
    """Each kill -9 of `run --master` left a file with the secrets in the directory for temporary files."""
    code = """
import os, signal
from kafkalite_pipelines.session import settings_file
with settings_file({"spark.x.token": "abc"}) as file:
    assert "abc" in file.read_text()
    os.kill(os.getpid(), signal.SIGKILL)
"""
    done = subprocess.run([sys.executable, "-c", code], env={**os.environ, "TMPDIR": str(tmp_path)}, check=False)
    assert done.returncode == -signal.SIGKILL and not list(tmp_path.iterdir())


def test_a_spark_in_this_process_gets_them_in_a_file_too(monkeypatch: pytest.MonkeyPatch) -> None:
    """PySpark puts each setting of a session's builder on the command line of its Java process."""
    monkeypatch.delenv("PYSPARK_SUBMIT_ARGS", raising=False)
    with session._submit_arguments({"spark.x.token": "abc"}):
        words = os.environ["PYSPARK_SUBMIT_ARGS"].split()
        assert words[:2] == ["--load-spark-defaults", "--properties-file"] and words[3:] == ["pyspark-shell"]
        assert "abc" in Path(words[2]).read_text()
    assert "PYSPARK_SUBMIT_ARGS" not in os.environ and not Path(words[2]).exists()
    with session._submit_arguments({}):
        assert "PYSPARK_SUBMIT_ARGS" not in os.environ
    monkeypatch.setenv("PYSPARK_SUBMIT_ARGS", "--jars x.jar pyspark-shell")
    assert session._apart({"spark.x.token": "abc"}) == {}, "they come with the builder"
