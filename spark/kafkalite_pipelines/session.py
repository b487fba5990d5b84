"""The Spark that a pipeline runs on: in this process (the default), a cluster by spark-submit, or Spark Connect."""

from __future__ import annotations

import contextlib
import logging
import os
import shlex
import sys
from collections.abc import Iterator
from pathlib import Path
from typing import TYPE_CHECKING

from kafkalite_pipelines.definition import Pipeline, PipelineError

if TYPE_CHECKING:
    from pyspark.sql import SparkSession

#: Whatever runs it. Unix sockets between Spark and Python: a third faster (Spark 4.1 and later; before, it has no effect).
EVERYWHERE = {
    "spark.sql.session.timeZone": "UTC",
    "spark.python.unix.domain.socket.enabled": "true",
    "spark.sql.streaming.stopTimeout": "60s",
}


def local_settings(cores: int) -> dict[str, str]:
    """Of Spark in this process."""
    return {
        "spark.ui.enabled": "false",
        "spark.ui.showConsoleProgress": "false",
        "spark.driver.host": "127.0.0.1",
        "spark.driver.bindAddress": "127.0.0.1",
        # one task per core; Spark's default of 200 is for clusters
        "spark.sql.shuffle.partitions": str(cores),
        # a stream starts several Python processes at once; on a busy host they take their time
        "spark.python.authenticate.socketTimeout": "120s",
    }


def settings(pipeline: Pipeline, *, local: bool) -> dict[str, str]:
    """All settings; the file's own count more than ours."""
    ours = local_settings(os.cpu_count() or 2) if local else {}
    return EVERYWHERE | ours | dict(pipeline.spark)


def session(pipeline: Pipeline, *, remote: str | None = None, log_file: Path | None = None) -> SparkSession:
    """The session: with `remote` (sc://host) Spark Connect, else the master of the pipeline, or this process.

    `log_file`: where the processes of a Spark on this host log.

    Raises:
        PipelineError: Spark or Java is missing.
    """
    try:
        from pyspark.sql import SparkSession
    except ImportError as error:
        raise PipelineError(f"Spark is missing: pip install 'kafkalite[pipelines]' ({error})") from None
    if remote is not None:
        return SparkSession.builder.remote(remote).getOrCreate()
    local = pipeline.master is None or pipeline.master.startswith("local")
    builder = SparkSession.builder.appName(pipeline.name).master(pipeline.master or "local[*]")
    chosen = settings(pipeline, local=local)
    _silence_loggers()
    if local:
        _prepare_host()
    for key, value in chosen.items():
        builder = builder.config(key, value)
    with _elsewhere(log_file):
        return builder.getOrCreate()


def _silence_loggers() -> None:
    """PySpark prints a refused query with its whole stack, as JSON on stderr; we say it in one line."""
    from pyspark.logger import PySparkLogger

    for name in ("SQLQueryContextLogger", "DataFrameQueryContextLogger"):
        PySparkLogger.getLogger(name).setLevel(logging.CRITICAL + 1)


def _prepare_host() -> None:
    """Java, and this Python for Spark's workers."""
    from pyspark_kafkalite.java import java_home

    os.environ["JAVA_HOME"] = java_home()
    os.environ.setdefault("SPARK_LOCAL_IP", "127.0.0.1")
    os.environ.setdefault("PYSPARK_PYTHON", sys.executable)
    os.environ.setdefault("PYSPARK_DRIVER_PYTHON", sys.executable)


@contextlib.contextmanager
def _elsewhere(log_file: Path | None) -> Iterator[None]:
    """Spark's processes write what they log to this file: on a terminal it would hide the progress. They inherit stderr."""
    if log_file is None:
        yield
        return
    sys.stderr.flush()
    kept = os.dup(2)
    opened = os.open(log_file, os.O_WRONLY | os.O_CREAT | os.O_APPEND, 0o644)
    try:
        os.dup2(opened, 2)
        yield
    finally:
        os.dup2(kept, 2)
        os.close(kept)
        os.close(opened)


def submit_command(pipeline: Pipeline, file: Path, master: str) -> list[str]:
    """The spark-submit line that runs the file on a cluster, driver on this host."""
    from kafkalite_pipelines.submitted import job

    command = ["spark-submit", "--master", master, "--name", pipeline.name, "--deploy-mode", "client"]
    for key, value in settings(pipeline, local=False).items():
        command += ["--conf", f"{key}={value}"]
    return [*command, str(Path(job.__file__)), str(file)]


def as_text(command: list[str]) -> str:
    return shlex.join(command)
