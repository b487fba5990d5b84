"""Everything at once: `make pipeline-run` (RECORDS=10000000), or python -m bench.pipeline_run --records 500000.

Real flights, repeated with a number and a year of their own, go through two pipelines on a Spark cluster of two hosts:

- `rows`: topic to Iceberg and Delta. Half way the records and the file get a new column and a wider type.
- `days`: records that were sent twice are removed, the rest is joined with the weather (a topic, with a watermark), and counted
  in windows of a day, into Iceberg and Delta.

Meanwhile drivers, executors and brokers are killed with -9, at random moments between and in batches. At the end each table is
compared with the topic, which is read without Spark: row by row, column by column, by partition and offset; windows with what
Python computes from the flights. Exit code 1 if a row is missing, different, or there twice.

Memory: 2 GiB for each of two executors, 1 GiB for the driver.
"""

from __future__ import annotations

import argparse
import asyncio
import contextlib
import os
import random
import shutil
import signal
import subprocess
import sys
import tempfile
import time
from collections.abc import Callable, Sequence
from pathlib import Path

from bench import pipeline_run_checks as checks
from bench.pipeline_run_data import PARTITIONS, Data
from bench.spark_exactly_once import PATHS, ROOT, SETTINGS
from bench.spark_hosts import spark_hosts
from kafkalite.client.blocking import BlockingClient
from kafkalite.extension.messages.topics import NewTopic
from kafkalite.testing.cluster_state import wait_in_sync
from kafkalite.testing.processes import ProcessCluster

#: One after the other, each after a batch since the last one.
ACCIDENTS = ("driver", "executor", "broker", "driver", "broker", "executor", "driver")
#: Nothing has been committed for this time (seconds): the run has failed.
_STUCK_S = 900.0

_FILE = """
name = "{name}"
trigger = "available-now"
[kafka]
"bootstrap.servers" = "{bootstrap}"
[source]
topics = [{topics}]
max_records = {batch}
[decode]
schema = {{ {schema} }}
on_error = "{on_error}"
{more}
[[sinks]]
format = "iceberg"
table = "{name}"
{partition}
[[sinks]]
format = "delta"
path = "{name}"
[spark]
"spark.executor.memory" = "1900m"
"spark.driver.memory" = "1g"
"spark.driver.host" = "127.0.0.1"
"spark.driver.bindAddress" = "127.0.0.1"
"spark.sql.shuffle.partitions" = "4"
"spark.ui.enabled" = "false"
"spark.ui.showConsoleProgress" = "false"
"spark.task.maxFailures" = "20"
"spark.deploy.maxExecutorRetries" = "-1"
"spark.python.authenticate.socketTimeout" = "120s"
"spark.local.dir" = "{directory}/spark"
"""
_FLIGHT = (
    'n = "long", serial = "{serial}", at = "timestamp", carrier = "string", flight = "int", tailnum = "string", '
    'origin = "string", dest = "string", distance = "int"'
)
_GROWN = ', delay = "int"'


class PipelineRun:
    """The pipelines of one run, their directory, and what is killed under them."""

    def __init__(
        self, cluster: ProcessCluster, directory: Path, master: str, data: Data, given: argparse.Namespace
    ) -> None:
        self.cluster, self.directory, self.master, self.data = cluster, directory, master, data
        self.random = random.Random(given.seed)
        self.batch = max(data.records // (given.batches or max(20, data.records // 250_000)), 1_000)
        self.accidents: tuple[str, ...] = () if given.calm else ACCIDENTS
        if given.local:
            self.accidents = tuple(each for each in self.accidents if each != "executor")
        self.happened: list[str] = []
        self.starts = 0

    def file(self, name: str, schema: str, **given: str) -> Path:
        text = _FILE.format(
            name=name, bootstrap=",".join(self.cluster.bootstrap), schema=schema, directory=self.directory,
            batch=self.batch,
            **({"on_error": "stop", "more": "", "partition": ""} | given),
        )  # fmt: skip
        path = self.directory / f"{name}.toml"
        path.write_text(text)
        return path

    def to_the_end(self, file: Path, accidents: Sequence[str]) -> None:
        """Run the pipeline until it has read everything, through these accidents. Raises RuntimeError: it fails without one."""
        left = list(accidents)
        in_vain = 0
        while True:
            self.starts += 1
            before = len(left)
            code, log = self._one_life(file, left)
            if code == 0:
                break
            in_vain = 0 if len(left) < before else in_vain + 1
            if in_vain == 2:
                raise RuntimeError(f"{file.stem} fails without an accident:\n{log[-3000:]}")
        if left:
            print(f"{file.stem}: it ended before {', '.join(left)}", flush=True)

    def _one_life(self, file: Path, left: list[str]) -> tuple[int, str]:
        log = self.directory / f"{file.stem}-{self.starts}.log"
        command = [sys.executable, "-m", "kafkalite_cli", "pipeline", "run", str(file), "--master", self.master]
        with log.open("wb") as out:
            driver = subprocess.Popen(
                command, cwd=ROOT, env=self._environment(), stdin=subprocess.DEVNULL, stdout=out, stderr=out,
                start_new_session=True,
            )  # fmt: skip
        began = time.monotonic()
        batch, moved = self._last_batch(file), time.monotonic()
        at_start = batch
        try:
            while driver.poll() is None:
                time.sleep(0.2)
                now = self._last_batch(file)
                if now != batch:
                    batch, moved = now, time.monotonic()
                    print(
                        f"{file.stem}: batch {batch}, {time.monotonic() - began:.0f} s after start {self.starts}",
                        flush=True,
                    )
                if time.monotonic() - moved > _STUCK_S:
                    return -1, f"no batch for {_STUCK_S:.0f} s\n{log.read_text(errors='replace')}"
                if left and batch != at_start:
                    at_start = batch
                    time.sleep(self.random.uniform(0, 3))
                    self._accident(left.pop(0), driver)
        finally:
            if driver.poll() is None:
                os.killpg(driver.pid, signal.SIGKILL)
            driver.wait()
        return driver.returncode, log.read_text(errors="replace")

    def _environment(self) -> dict[str, str]:
        import pyspark

        from pyspark_kafkalite.java import java_home

        home = Path(pyspark.__file__).parent
        own = {"JAVA_HOME": java_home(), "SPARK_HOME": str(home), "SPARK_LOCAL_IP": "127.0.0.1", "PYTHONPATH": PATHS}
        python = {"PYSPARK_PYTHON": sys.executable, "PYSPARK_DRIVER_PYTHON": sys.executable}
        return {**os.environ, **own, **python, "PATH": f"{home}/bin:{os.environ['PATH']}"}

    def _last_batch(self, file: Path) -> int:
        """Spark's own record of what is complete; -1: nothing."""
        commits = self.directory / "checkpoints" / file.stem / "query" / "commits"
        return max((int(each.name) for each in commits.glob("[0-9]*") if each.name.isdigit()), default=-1)

    def _accident(self, what: str, driver: subprocess.Popen[bytes]) -> None:
        kill: Callable[[], str | None] = {"driver": lambda: self._driver(driver), "executor": _executor}.get(
            what, self._broker
        )
        done = kill()
        if done is None:
            print(f"there was no {what} to kill", flush=True)
            return
        self.happened.append(what)
        print(f"killed: {what} {done}", flush=True)

    def _driver(self, driver: subprocess.Popen[bytes]) -> str | None:
        if driver.poll() is not None:
            return None
        os.killpg(driver.pid, signal.SIGKILL)
        driver.wait()
        return str(driver.pid)

    def _broker(self) -> str:
        node = self.random.choice(list(self.cluster.nodes))
        self.cluster.nodes[node].kill()
        time.sleep(self.random.uniform(1, 5))
        self.cluster.restart(node)
        return str(node)


def _executor() -> str | None:
    """Kill one of the Spark workers' executors: they are below this process."""
    waiting, found = [os.getpid()], []
    while waiting:
        pid = waiting.pop()
        try:
            children = "".join(path.read_text() for path in Path(f"/proc/{pid}/task").glob("*/children"))
            command = Path(f"/proc/{pid}/cmdline").read_bytes()
        except OSError:  # it has ended meanwhile
            continue
        waiting += map(int, children.split())
        if b"CoarseGrainedExecutorBackend" in command and b"java" in command.split(b"\0")[0]:
            found.append(pid)
    if not found:
        return None
    os.kill(found[0], signal.SIGKILL)
    return str(found[0])


def rows(run: PipelineRun) -> None:
    """The topic as it is, and a schema that grows half way."""
    data, bootstrap = run.data, run.cluster.bootstrap
    given = {"topics": '"flights"', "partition": 'partition_by = ["year(at)"]'}
    data.produce(bootstrap, 0, data.half)
    run.to_the_end(run.file("rows", _FLIGHT.format(serial="int"), **given), run.accidents[:3])
    file = run.file("rows", _FLIGHT.format(serial="long") + _GROWN, **given)
    data.produce(bootstrap, data.half, data.records)
    data.produce_end(bootstrap)
    run.to_the_end(file, run.accidents[3:])


def days(run: PipelineRun) -> None:
    """Deduplication, join, windows."""
    shutil.copy(Path(__file__).with_name("pipeline_run_steps.py"), run.directory / "steps.py")
    more = '[watermark]\ncolumn = "at"\ndelay = "30d"\n[[steps]]\npython = "steps:days"'
    schema = _FLIGHT.format(serial="long") + _GROWN + ', temp = "int"'
    file = run.file("days", schema, topics='"flights", "weather"', more=more, on_error="skip")
    run.to_the_end(file, run.accidents)


def compare(run: PipelineRun, only: str | None) -> bool:
    """Print what each table has; whether all of them are right."""
    data, directory = run.data, run.directory
    topic, expected = checks.CheckedTopic(run.cluster.bootstrap, data), checks.Expected(data)
    print(f"topic: {topic.records:,} records, {data.records:,} flights", flush=True)
    right = True
    for name, batches in (("iceberg", checks.iceberg_batches), ("delta", checks.delta_batches)):
        if only != "days":
            found = checks.compared(batches(directory, "rows", checks.COLUMNS), topic, expected)
            right &= found == {"rows": topic.records, "different": 0, "missing": 0, "twice": 0}
            print(f"{name} rows: {found}", flush=True)
        if only != "rows":
            columns = ("day", "origin", "flights", "delay", "temp")
            counted = checks.windows_compared(batches(directory, "days", columns), data)
            right &= counted == {"rows": len(data.windows), "different": 0, "missing": 0, "twice": 0}
            print(f"{name} days: {counted}", flush=True)
    return right


def main() -> int:
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    parser.add_argument("--records", type=int, default=500_000, help="flights (default %(default)s)")
    parser.add_argument("--seed", type=int, default=1, help="of the moments of the accidents")
    parser.add_argument("--batches", type=int, help="of each pipeline, about (default: 20, or of 250,000 records)")
    parser.add_argument("--only", choices=("rows", "days"), help="one of the two pipelines")
    parser.add_argument(
        "--local", action="store_true", help="Spark in the driver's process: there is no executor to kill"
    )
    parser.add_argument("--calm", action="store_true", help="kill nothing")
    parser.add_argument("--keep", type=Path, help="this directory, and keep it")
    given = parser.parse_args()
    signal.signal(signal.SIGTERM, lambda *_: sys.exit(1))  # what was started ends with this
    data = Data(given.records)
    began = time.monotonic()
    with tempfile.TemporaryDirectory(prefix="kafkalite-run-") as scratch:
        directory = given.keep or Path(scratch)
        directory.mkdir(parents=True, exist_ok=True)
        (directory / "hosts").mkdir()
        with (
            ProcessCluster(directory / "cluster", nodes=3, settings=SETTINGS) as cluster,
            contextlib.nullcontext("local[2]")
            if given.local
            else spark_hosts(directory / "hosts", 2, PATHS, memory="2g") as master,
        ):
            with BlockingClient(",".join(cluster.bootstrap)) as client:
                topics = [
                    NewTopic(topic, count, 3, configs={"min.insync.replicas": "2"})
                    for topic, count in PARTITIONS.items()
                ]
                assert not any(result.error for result in client.create_topics(topics))
            data.produce_weather(cluster.bootstrap)
            run = PipelineRun(cluster, directory, master, data, given)
            if given.only != "days":
                rows(run)
            else:
                data.produce(cluster.bootstrap, 0, data.records)
                data.produce_end(cluster.bootstrap)
            if given.only != "rows":
                days(run)
            for topic in PARTITIONS:
                asyncio.run(wait_in_sync(cluster, topic, 3))
            right = compare(run, given.only)
    killed = {what: run.happened.count(what) for what in dict.fromkeys(ACCIDENTS)}
    print(f"killed: {killed}; drivers started: {run.starts}; {time.monotonic() - began:.0f} s")
    print("as it should be" if right else "FAILED")
    return 0 if right else 1


if __name__ == "__main__":
    sys.exit(main())
