"""One Spark session for the whole suite: starting one takes longer than all tests together."""

from __future__ import annotations

import logging
import os
import sys
from collections.abc import Iterable, Iterator, Mapping
from pathlib import Path
from typing import Any

import pytest
import structlog

from tests.spark.fake_log import FakeLog
from tests.spark.log_server import LogServer

_ROOT = Path(__file__).resolve().parents[2]

#: Settings of every session of these tests: how long Spark and its Python processes wait for each other (15 s otherwise). What
#: no setting changes, the 10 s that a stream's planning process has, is why `make` unzips PySpark (.ci/unzipped).
PATIENCE = {"spark.python.authenticate.socketTimeout": "120s"}


class OneSession:
    """The session that the tests share, and a new JVM where a test leaves the old one unusable.

    py4j sends a command and reads its answer. An exception in between (the guard of pytest-timeout) leaves the answer unread, and every later
    command gets the answer of the one before: one test that hangs would fail all that follow, with errors that say nothing.
    """

    def __init__(self, scratch: Path) -> None:
        self._scratch = scratch
        self._session: Any = None
        self._asked = 0

    def get(self) -> Any:
        if self._session is not None and not self._answers():
            self._end_jvm()
        if self._session is None:
            try:
                self._session = _start(self._scratch)
            except BaseException:
                self._end_jvm()
                raise
        return self._session

    def _answers(self) -> bool:
        """Whether the JVM answers this question, not an earlier one."""
        self._asked += 1
        try:
            return bool(self._session._jvm.Integer.parseInt(str(self._asked)) == self._asked)
        except Exception:  # noqa: BLE001 - an answer to another question can be taken for anything
            return False

    def _end_jvm(self) -> None:
        from pyspark import SparkContext
        from pyspark.sql import SparkSession

        if SparkContext._gateway is not None:
            SparkContext._gateway.proc.kill()
            SparkContext._gateway.proc.wait()
        SparkContext._gateway = SparkContext._jvm = SparkContext._active_spark_context = None
        SparkSession._instantiatedSession = self._session = None

    def stop(self) -> None:
        if self._session is not None and self._answers():
            self._session.stop()


@pytest.fixture(scope="session")
def one_session(tmp_path_factory: pytest.TempPathFactory) -> Iterator[OneSession]:
    shared = OneSession(tmp_path_factory.mktemp("spark"))
    yield shared
    shared.stop()


@pytest.fixture
def spark(one_session: OneSession) -> Any:
    return one_session.get()


def start_session(
    scratch: Path, *, jars: Iterable[Path] = (), master: str = "local[2]", settings: Mapping[str, str] | None = None
) -> Any:
    """A small session. Jars are those of Spark's own connector, or of Kafka's client."""
    from pyspark.sql import SparkSession

    from pyspark_kafkalite.java import java_home

    os.environ["PYSPARK_PYTHON"] = os.environ["PYSPARK_DRIVER_PYTHON"] = sys.executable
    os.environ["SPARK_LOCAL_IP"] = "127.0.0.1"
    os.environ["JAVA_HOME"] = java_home()
    session = (
        SparkSession.builder.master(master)
        .config("spark.jars", ",".join(map(str, jars)))
        .config("spark.ui.enabled", "false")
        .config("spark.ui.showConsoleProgress", "false")
        .config("spark.driver.host", "127.0.0.1")
        .config("spark.driver.bindAddress", "127.0.0.1")
        .config("spark.sql.shuffle.partitions", "2")
        .config("spark.local.dir", str(scratch / "local"))
        .config("spark.sql.warehouse.dir", str(scratch / "warehouse"))
        .config("spark.sql.session.timeZone", "UTC")
        .config("spark.driver.extraJavaOptions", "-XX:TieredStopAtLevel=1 -XX:+UseSerialGC -Xss4m")
        .config(map=PATIENCE | dict(settings or {}))
        .getOrCreate()
    )
    session.sparkContext.setLogLevel("OFF")
    return session


def _start(scratch: Path) -> Any:
    from pyspark import __version__

    streaming = "org.apache.spark.sql.execution.streaming" + ("" if __version__.startswith("4.0") else ".checkpointing")
    # workers are processes of their own: they find the source, and the packages under test, as an installation would
    paths = [str(_ROOT), str(_ROOT / "spark"), os.environ.get("PYTHONPATH", "")]
    os.environ["PYTHONPATH"] = os.pathsep.join(filter(None, paths))
    settings = {
        "spark.app.name": "kafkalite-tests",
        "spark.default.parallelism": "2",
        "spark.driver.memory": "1g",
        "spark.python.unix.domain.socket.enabled": "true",
        "spark.sql.streaming.checkpointFileManagerClass": f"{streaming}.FileSystemBasedCheckpointFileManager",
    }
    return start_session(scratch, master="local[2,2]", settings=settings)


@pytest.fixture
def served() -> Iterator[LogServer]:
    """An empty log and its listener."""
    structlog.configure(wrapper_class=structlog.make_filtering_bound_logger(logging.WARNING))
    server = LogServer(FakeLog())
    server.start()
    yield server
    server.stop()
    structlog.reset_defaults()


@pytest.fixture
def log(served: Any) -> Any:
    """The topics of the tests of pipelines."""
    served.log.add_topic("t", 2)
    served.log.add_topic("dead", 1)
    served.log.add_topic("out", 1)
    return served
