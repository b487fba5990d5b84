"""A Spark standalone cluster of one machine, each worker with an address of its own (127.0.0.1, 127.0.0.2, …; Linux).

Spark runs no speculative twin on the host of the attempt it doubles, so neither local mode nor local-cluster ever does:
workers of theirs are all of one host.
"""

from __future__ import annotations

import contextlib
import json
import os
import re
import signal
import subprocess
import sys
import time
from collections.abc import Iterator, Sequence
from pathlib import Path
from typing import Any

#: For the master to be up and each worker to be known to it.
START_S = 300
_FLAGS = "-XX:TieredStopAtLevel=1 -XX:+UseSerialGC -Xss4m"


@contextlib.contextmanager
def spark_hosts(
    directory: Path,
    workers: int,
    paths: str,
    *,
    home: Path | None = None,
    python: Path = Path(sys.executable),
    memory: str = "1g",
) -> Iterator[str]:
    """The master's address, for `SparkSession.builder.master`, while the cluster runs. Workers have one core.

    Args:
        paths: the PYTHONPATH of executors.
        home: Spark's installation; None: the one of this environment.
        python: of executors.
        memory: of each worker, as Spark writes it.
    """
    from pyspark_kafkalite.java import java_home

    if home is None:
        import pyspark

        home = Path(pyspark.__file__).parent
    own = {
        **os.environ,
        "JAVA_HOME": java_home(),
        "SPARK_HOME": str(home),
        "PYTHONPATH": paths,
        "PYSPARK_PYTHON": str(python),
        "SPARK_DAEMON_JAVA_OPTS": _FLAGS,
        "SPARK_DAEMON_MEMORY": "256m",
    }
    running: list[subprocess.Popen[bytes]] = []

    def start(name: str, host: str, *arguments: str) -> Path:
        log = directory / f"{name}.log"
        with log.open("wb") as out:
            process = subprocess.Popen(
                [f"{home}/bin/spark-class", *arguments, "--host", host, "--webui-port", "0"],
                env={**own, "SPARK_LOCAL_IP": host},
                stdin=subprocess.DEVNULL,
                stdout=out,
                stderr=subprocess.STDOUT,
                start_new_session=True,  # its executors are of its group
            )
        running.append(process)
        return log

    try:
        log = start("master", "127.0.0.1", "org.apache.spark.deploy.master.Master", "--port", "0")
        port = _said(log, r"service 'sparkMaster' on port (\d+)")
        address = f"spark://127.0.0.1:{port}"
        logs = []
        for number in range(1, workers + 1):
            size = ("--cores", "1", "--memory", memory, "--work-dir", str(directory / f"work-{number}"))
            worker = "org.apache.spark.deploy.worker.Worker"
            logs.append(start(f"worker-{number}", f"127.0.0.{number}", worker, address, *size))
        for log in logs:
            _said(log, "(Successfully registered) with master")
        yield address
    finally:
        _stop(running)


def speculating(scratch: Path, events: Path) -> dict[str, str]:
    """Settings of a session that fills a cluster of two hosts and starts a twin for every task that is slow.

    Args:
        events: where Spark's event log goes, see `speculative_attempts`.
    """
    return {
        "spark.speculation": "true",
        "spark.speculation.interval": "100ms",
        "spark.speculation.multiplier": "1.1",
        "spark.speculation.quantile": "0.5",
        "spark.speculation.efficiency.enabled": "false",  # how much a task has read says nothing here
        "spark.eventLog.enabled": "true",
        "spark.eventLog.compress": "false",
        "spark.eventLog.rolling.enabled": "false",
        "spark.eventLog.dir": events.as_uri(),
        "spark.executorEnv.PYTHONPATH": os.environ["PYTHONPATH"],
        "spark.executor.memory": "512m",
        "spark.executor.extraJavaOptions": _FLAGS,
        "spark.driver.extraJavaOptions": _FLAGS,
        "spark.driver.memory": "1g",
        "spark.driver.host": "127.0.0.1",
        "spark.driver.bindAddress": "127.0.0.1",
        "spark.python.authenticate.socketTimeout": "120s",
        "spark.ui.enabled": "false",
        "spark.ui.showConsoleProgress": "false",
        "spark.local.dir": str(scratch),
        "spark.sql.warehouse.dir": str(scratch),
        # the first stage must find both hosts: a twin has no other place
        "spark.scheduler.minRegisteredResourcesRatio": "1.0",
        "spark.scheduler.maxRegisteredResourcesWaitingTime": "120s",
        "spark.cores.max": "2",
        "spark.locality.wait": "0s",
    }


def speculative_attempts(events: Path) -> Iterator[dict[str, Any]]:
    """The starts of those in Spark's event logs. A driver that was killed takes the last ones with it."""
    for log in sorted(events.rglob("*")):
        if not log.is_file() or log.suffix == ".crc":
            continue
        for line in log.read_text().splitlines():
            try:
                event = json.loads(line)
            except json.JSONDecodeError:  # what was being written when its driver was killed
                break
            if event.get("Event") == "SparkListenerTaskStart" and event["Task Info"]["Speculative"]:
                yield event


def _said(log: Path, pattern: str) -> str:
    """What the first group of the pattern matched in the log, as soon as it does. Raises TimeoutError."""
    until = time.monotonic() + START_S
    while time.monotonic() < until:
        if found := re.search(pattern, log.read_text(errors="replace")):
            return found.group(1)
        time.sleep(0.1)
    raise TimeoutError(f"{log.stem} did not start:\n{log.read_text(errors='replace')[-2000:]}")


def _stop(running: Sequence[subprocess.Popen[bytes]]) -> None:
    """Workers take their executors with them when they are asked to end; who does not listen is killed."""
    for process in running:
        process.terminate()
    for process in running:
        with contextlib.suppress(subprocess.TimeoutExpired):
            process.wait(10)
        with contextlib.suppress(ProcessLookupError):
            os.killpg(process.pid, signal.SIGKILL)
        process.wait()
