"""The Spark that a pipeline runs on: in this process (the default), a cluster by spark-submit, or Spark Connect."""

from __future__ import annotations

import contextlib
import logging
import os
import shlex
import subprocess
import sys
import tempfile
from collections.abc import Iterator, Mapping
from pathlib import Path
from typing import TYPE_CHECKING

from kafkalite.lazy_dataclass import dataclass
from kafkalite_pipelines.definition import Pipeline, PipelineError
from kafkalite_pipelines.redaction import secret_settings

if TYPE_CHECKING:
    from pyspark.sql import SparkSession

#: Whatever runs it. Both of these are for Spark 4.1 and later, and have no effect before: Unix sockets between Spark and Python (a third
#: faster), and batches of 1 MiB from Spark to Python, which stay in the processor's cache: a write of large rows takes a fifth less of it.
EVERYWHERE = {
    "spark.sql.session.timeZone": "UTC",
    "spark.python.unix.domain.socket.enabled": "true",
    "spark.sql.execution.arrow.maxBytesPerBatch": "1m",
    "spark.sql.streaming.stopTimeout": "60s",
    # Spark logs an event that a listener is slow with, and the event of a job has all settings in it, secret ones too
    "spark.scheduler.listenerbus.logSlowEvent": "false",
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
        PipelineError: Spark or Java is missing, or Java did not start.
    """
    try:
        from pyspark.errors import PySparkRuntimeError
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
    secret = _apart(secret_settings(pipeline, chosen))
    for key in chosen.keys() - secret.keys():
        builder = builder.config(key, chosen[key])
    before = log_file.stat().st_size if log_file is not None and log_file.exists() else 0
    try:
        with _elsewhere(log_file), _submit_arguments(secret):
            return builder.getOrCreate()
    except PySparkRuntimeError as error:
        if "JAVA_GATEWAY_EXITED" not in str(error):
            raise
        raise PipelineError(f"Spark's process did not start: {_why(log_file, before)}") from None


def _why(log_file: Path | None, before: int) -> str:
    """What Spark's launcher and Java have logged since then: the first lines that do not just warn."""
    if log_file is None:
        return "the reason is above, on stderr"
    with log_file.open("rb") as file:
        file.seek(before)
        lines = [line.strip() for line in file.read(1 << 16).decode(errors="replace").splitlines()]
    said = [line for line in lines if line and not line.startswith(("WARNING:", "NOTE:", "Picked up "))]
    return "; ".join(said[:3])[:500] or f"nothing is in {log_file}"


def _apart(secret: dict[str, str]) -> dict[str, str]:
    """Settings that must not be on the command line of Spark's process, where everybody on the host may read them. None if the
    process runs already, or gets arguments from somebody else."""
    from pyspark import SparkContext

    return {} if SparkContext._gateway is not None or "PYSPARK_SUBMIT_ARGS" in os.environ else secret


@contextlib.contextmanager
def _submit_arguments(secret: dict[str, str]) -> Iterator[None]:
    """How PySpark starts Spark's process."""
    if not secret:
        yield
        return
    with settings_file(secret) as file:
        os.environ["PYSPARK_SUBMIT_ARGS"] = shlex.join([*_with_file(str(file)), "pyspark-shell"])
        try:
            yield
        finally:
            del os.environ["PYSPARK_SUBMIT_ARGS"]


@contextlib.contextmanager
def settings_file(settings: Mapping[str, str]) -> Iterator[Path]:
    """A file of Java's properties that only we can read, for as long as it is needed. On Linux it is in memory: nothing is left of
    it if this process is killed."""
    in_memory = sys.platform == "linux"
    if in_memory:
        handle = os.memfd_create("kafkalite")
        os.fchmod(handle, 0o600)
        name = f"/proc/{os.getpid()}/fd/{handle}"
    else:
        handle, name = tempfile.mkstemp(prefix="kafkalite-", suffix=".properties")  # with mode 600
    try:
        with open(handle, "w", encoding="utf-8", closefd=False) as file:
            file.writelines(f"{_escaped(key)}={_escaped(value)}\n" for key, value in settings.items())
        yield Path(name)
    finally:
        os.close(handle)
        if not in_memory:
            Path(name).unlink()


def _escaped(text: str) -> str:
    """As Java's properties have it: of any text, in a name or a value."""
    units = text.encode("utf-16-be")
    characters = (int.from_bytes(units[at : at + 2]) for at in range(0, len(units), 2))
    return "".join(chr(each) if chr(each).isalnum() and each < 128 else f"\\u{each:04x}" for each in characters)


def _with_file(file: str) -> list[str]:
    """Arguments of spark-submit: the host's own defaults count, too."""
    return ["--load-spark-defaults", "--properties-file", file]


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
    options = os.environ.get("SPARK_SUBMIT_OPTS")
    # Java says on stdout why it does not start, where our own lines are
    os.environ["SPARK_SUBMIT_OPTS"] = f"{options or ''} -XX:+DisplayVMOutputToStderr".strip()
    kept = os.dup(2)
    opened = os.open(log_file, os.O_WRONLY | os.O_CREAT | os.O_APPEND, 0o644)
    try:
        os.dup2(opened, 2)
        yield
    finally:
        os.dup2(kept, 2)
        os.close(kept)
        os.close(opened)
        if options is None:
            del os.environ["SPARK_SUBMIT_OPTS"]
        else:
            os.environ["SPARK_SUBMIT_OPTS"] = options


@dataclass(frozen=True, slots=True)
class SubmitCommand:
    """The spark-submit line that runs a file on a cluster, driver on this host."""

    words: tuple[str, ...]
    #: Settings that are not in it, because they are secret.
    secret: Mapping[str, str]

    def shown(self) -> str:
        """As a line of a shell. FILE stands for a file that has the secret settings."""
        return shlex.join(self.with_file("FILE") if self.secret else self.words)

    def with_file(self, file: str) -> list[str]:
        """The words, with a file that has the secret settings."""
        return [self.words[0], *_with_file(file), *self.words[1:]]

    def run(self) -> int:
        """Run it; returns its exit code."""
        if not self.secret:
            return subprocess.run(self.words, check=False).returncode
        with settings_file(self.secret) as file:
            return subprocess.run(self.with_file(str(file)), check=False).returncode


def submit_command(pipeline: Pipeline, file: Path, master: str) -> SubmitCommand:
    """The command that runs the file on a cluster."""
    from kafkalite_pipelines.submitted import job

    chosen = settings(pipeline, local=False)
    secret = secret_settings(pipeline, chosen)
    words = ["spark-submit", "--master", master, "--name", pipeline.name, "--deploy-mode", "client"]
    for key, value in chosen.items():
        words += [] if key in secret else ["--conf", f"{key}={value}"]
    return SubmitCommand((*words, str(Path(job.__file__)), str(file)), secret)
