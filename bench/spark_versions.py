"""Which Spark runs what: `make spark-versions`, which fills an environment for each version with the wheel and nothing else.

    python -m bench.spark_versions DIRECTORY [4.0 4.1 …]      DIRECTORY/VERSION is a virtual environment

Reader, writer, streams (exactly once, named, started again) and a pipeline into an Iceberg and a Delta table, each in three
places: in the driver's process, by spark-submit on a standalone cluster of two workers (127.0.0.1 and 127.0.0.2), and through
Spark Connect. Where Maven has Iceberg's and Delta's jars for the version, Spark then reads both tables with them ("jars").
One kafkalite node. Prints a table; exit code 1 if a cell has failed.
"""

from __future__ import annotations

import argparse
import contextlib
import json
import os
import signal
import socket
import subprocess
import sys
import tempfile
import time
from collections.abc import Iterator, Mapping, Sequence
from pathlib import Path

from bench.spark_hosts import spark_hosts
from kafkalite.client.blocking import BlockingClient
from kafkalite.extension.messages.topics import NewTopic
from kafkalite.testing.processes import DIE_WITH_PARENT, ProcessCluster

MAVEN = Path.home() / ".m2" / "repository"
JOB = Path(__file__).with_name("spark_versions_job.py")
PLACES = ("local", "cluster", "connect")
CHECKS = ("writer", "reader", "stream", "pipeline", "jars")
#: Iceberg's and Delta's newest artefacts that Maven has, by Spark's version. Iceberg has none for 4.2, and neither has one for 4.3.
JARS = {
    "4.0": (
        "org.apache.iceberg:iceberg-spark-runtime-4.0_2.13:1.11.0",
        "io.delta:delta-spark_4.0_2.13:4.4.0",
        "io.delta:delta-storage:4.4.0",
    ),
    "4.1": (
        "org.apache.iceberg:iceberg-spark-runtime-4.1_2.13:1.12.0",
        "io.delta:delta-spark_4.1_2.13:4.4.0",
        "io.delta:delta-storage:4.4.0",
    ),
    "4.2": ("io.delta:delta-spark_4.2_2.13:4.4.0", "io.delta:delta-storage:4.4.0"),
}
NO_JARS = "no artefact"
#: What was found -> what the table says; everything else is an error.
CELLS = {None: "yes", NO_JARS: NO_JARS}
_JOB_S, _START_S = 900, 600
#: Spark's own settings of every job here: small, and patient on a busy machine.
SETTINGS = {
    "spark.ui.enabled": "false",
    "spark.driver.host": "127.0.0.1",
    "spark.driver.bindAddress": "127.0.0.1",
    "spark.sql.shuffle.partitions": "2",
    "spark.python.authenticate.socketTimeout": "120s",
    "spark.executor.memory": "512m",
}
PIPELINE = """
name = "{name}"
trigger = "available-now"
[kafka]
"bootstrap.servers" = "{bootstrap}"
[source]
topics = ["{topic}"]
[decode]
format = "raw"
[[steps]]
sql = "SELECT CAST(CAST(value AS string) AS bigint) AS n FROM input"
[[sinks]]
format = "iceberg"
table = "{table}"
[[sinks]]
format = "delta"
path = "{table}.delta"
[spark]
{settings}
"""
#: In the version's own Python: how many rows the table has, and their sum.
TABLE = """
import sys
from pyiceberg.catalog import load_catalog
rows = load_catalog("default", type="sql", uri=f"sqlite:///{sys.argv[1]}/tables/catalog.db").load_table(f"default.{sys.argv[2]}")
n = rows.scan().to_arrow().column("n").to_pylist()
print(len(n), sum(n))
"""
EXPECTED = "1000 499500"
#: The same by the version's own Spark, with the jars of Iceberg and Delta: metadata file, Delta's directory, jars.
BY_JARS = """
import sys
from pyspark.sql import SparkSession
spark = (
    SparkSession.builder.master("local[2]").config("spark.jars", sys.argv[3]).config("spark.ui.enabled", "false")
    .config("spark.driver.host", "127.0.0.1").config("spark.driver.bindAddress", "127.0.0.1")
    .config("spark.sql.extensions", "io.delta.sql.DeltaSparkSessionExtension")
    .config("spark.sql.catalog.spark_catalog", "org.apache.spark.sql.delta.catalog.DeltaCatalog").getOrCreate()
)
for name, path in (("iceberg", sys.argv[1]), ("delta", sys.argv[2])):
    if f"{name}-spark" not in sys.argv[3]:
        continue
    print(*spark.read.format(name).load(path).selectExpr("count(*)", "sum(n)").collect()[0])
"""


class Spark:
    """The environment of one version."""

    def __init__(self, venv: Path, scratch: Path) -> None:
        from pyspark_kafkalite.java import java_home

        self.python = venv / "bin" / "python"
        self.home = Path(self.run("import pyspark; print(pyspark.__path__[0])").strip())
        self.version = self.run("import pyspark; print(pyspark.__version__)").strip()
        self.name = self.version.replace(".", "-")
        self.scratch = scratch
        self.environment = {
            "PATH": f"{venv}/bin:{os.environ['PATH']}",
            "HOME": str(scratch),
            "JAVA_HOME": java_home(),
            "SPARK_HOME": str(self.home),
            "SPARK_LOCAL_IP": "127.0.0.1",
            "PYSPARK_PYTHON": str(self.python),
            "PYSPARK_DRIVER_PYTHON": str(self.python),
        }

    def run(self, program: str, *arguments: str) -> str:
        done = subprocess.run(
            [str(self.python), "-c", program, *arguments], cwd="/", capture_output=True, text=True, check=True
        )
        return done.stdout

    def settings(self) -> dict[str, str]:
        return SETTINGS | {"spark.local.dir": str(self.scratch), "spark.sql.warehouse.dir": str(self.scratch)}

    def submit(self, master: str, bootstrap: str, prefix: str) -> dict[str, str | None]:
        """Run the job; what each check reports."""
        command = [str(self.python), str(JOB)]
        if not master.startswith("sc://"):
            given = [f"--conf={name}={value}" for name, value in self.settings().items()]
            command = [str(self.home / "bin" / "spark-submit"), "--master", master, *given, str(JOB)]
        code, out, err = self.called([*command, master, bootstrap, prefix, str(self.scratch)])
        found: dict[str, str | None] = {}
        for line in out.splitlines():
            if line.startswith('{"check"'):
                report = json.loads(line)
                found[report["check"]] = report["error"]
        missing = f"the job has ended with {code}: {_last(err)}"
        return {check: found.get(check, missing) for check in CHECKS[:3]}

    def pipeline(self, place: str, master: str, bootstrap: str, prefix: str) -> str | None:
        file = self.scratch / f"{prefix}.toml"
        table = prefix.replace("-", "_")
        settings = "\n".join(f'"{name}" = "{value}"' for name, value in self.settings().items())
        given = {"name": prefix, "bootstrap": bootstrap, "topic": f"{prefix}-in", "table": f"t{table}"}
        file.write_text(PIPELINE.format(settings=settings, **given))
        how = {"local": [], "cluster": ["--master", master], "connect": ["--remote", master]}[place]
        for _ in range(2):  # the second run finds nothing new
            command = [str(self.python), "-m", "kafkalite_cli", "pipeline", "run", str(file), "--json", *how]
            code, out, err = self.called(command)
            if code:
                return f"ended with {code}: {_last(err or out)}"
        found = self.run(TABLE, str(self.scratch), f"t{table}").strip()
        return None if found == EXPECTED else f"the table has {found}, not {EXPECTED}"

    def by_jars(self, prefix: str) -> str | None:
        """What is wrong with the pipeline's tables for Iceberg's and Delta's own code; None: nothing."""
        wanted = JARS.get(self.version.rpartition(".")[0])
        if wanted is None:
            return NO_JARS
        name = f"t{prefix.replace('-', '_')}"
        metadata = (self.scratch / "tables" / "default" / name / "metadata").glob("*.metadata.json")
        jars = ",".join(map(str, jar_files(wanted)))
        given = [str(max(metadata)), str(self.scratch / f"{name}.delta"), jars]
        code, out, err = self.called([str(self.python), "-c", BY_JARS, *given])
        expected = [EXPECTED] * sum(any(f":{name}-spark" in each for each in wanted) for name in ("iceberg", "delta"))
        found = out.split("\n")[-1 - len(expected) : -1]
        return None if found == expected else f"ended with {code}, {found}: {_last(err)}"

    def called(self, command: list[str]) -> tuple[int, str, str]:
        try:
            done = subprocess.run(
                command, env=self.environment, cwd=self.scratch, capture_output=True, text=True, timeout=_JOB_S, check=False
            )  # fmt: skip
        except subprocess.TimeoutExpired:
            return -1, "", f"has not ended in {_JOB_S} s"
        return done.returncode, done.stdout, done.stderr

    @contextlib.contextmanager
    def at(self, place: str) -> Iterator[str]:
        """The master's address, while it runs."""
        if place == "local":
            yield "local[2]"
        elif place == "cluster":
            directory = self.scratch / "hosts"
            directory.mkdir()
            with spark_hosts(directory, 2, "", home=self.home, python=self.python) as address:
                yield address
        else:
            with self.connect_server() as address:
                yield address

    @contextlib.contextmanager
    def connect_server(self) -> Iterator[str]:
        with socket.socket() as free:
            free.bind(("127.0.0.1", 0))
            port = free.getsockname()[1]
        server = "org.apache.spark.sql.connect.service.SparkConnectServer"
        settings = self.settings() | {
            "spark.connect.grpc.binding.address": "127.0.0.1",
            "spark.connect.grpc.binding.port": str(port),
        }
        given = [f"--conf={name}={value}" for name, value in settings.items()]
        command = [str(self.home / "bin" / "spark-submit"), "--master", "local[2]", *given, "--class", server]
        with (self.scratch / "connect.log").open("wb") as log:
            process = subprocess.Popen(
                [*DIE_WITH_PARENT, *command, "spark-internal"], env=self.environment, cwd=self.scratch, stdout=log, stderr=log
            )  # fmt: skip
        try:
            _wait_for(port, process)
            yield f"sc://127.0.0.1:{port}"
        finally:
            process.terminate()
            process.wait()


def jar_files(artefacts: Sequence[str]) -> list[Path]:
    """In Maven's local repository, fetched if they are not there. Raises CalledProcessError."""
    files = []
    for artefact in artefacts:
        group, name, version = artefact.split(":")
        file = MAVEN / group.replace(".", "/") / name / version / f"{name}-{version}.jar"
        if not file.exists():
            fetch = ["mvn", "-q", "-B", "dependency:get", f"-Dartifact={artefact}", "-Dtransitive=false"]
            subprocess.run(fetch, cwd=tempfile.gettempdir(), check=True, capture_output=True)
        files.append(file)
    return files


def _wait_for(port: int, process: subprocess.Popen[bytes]) -> None:
    until = time.monotonic() + _START_S
    while time.monotonic() < until and process.poll() is None:
        with contextlib.suppress(OSError), socket.create_connection(("127.0.0.1", port), 1):
            return
        time.sleep(0.2)
    raise TimeoutError("Spark Connect's server did not start")


def _last(text: str) -> str:
    lines = [line.strip() for line in text.splitlines() if line.strip()]
    said = [line for line in lines if "Error" in line or "Exception" in line or line.startswith("kafkalite:")]
    return (said or lines or ["(nothing)"])[-1][:300]


def checked(spark: Spark, place: str, bootstrap: list[str]) -> dict[str, str | None]:
    """Check -> what went wrong, None if nothing did."""
    prefix = f"v{spark.name}-{place}"
    with BlockingClient(",".join(bootstrap)) as client:
        topics = [NewTopic(f"{prefix}-{each}", 2, 1) for each in ("in", "out")]
        assert not any(result.error for result in client.create_topics(topics))
    try:
        with spark.at(place) as master:
            found = spark.submit(master, ",".join(bootstrap), prefix)
            found["pipeline"] = spark.pipeline(place, master, ",".join(bootstrap), prefix)
        found["jars"] = spark.by_jars(prefix)
    except TimeoutError as error:
        found = dict.fromkeys(CHECKS, str(error)[:300])
    return found


def table(found: Mapping[str, Mapping[str, Mapping[str, str | None]]]) -> str:
    """Markdown."""
    lines = ["| Spark | where | " + " | ".join(CHECKS) + " |", "|---" * (len(CHECKS) + 2) + "|"]
    for version, places in found.items():
        for place, checks in places.items():
            cells = [CELLS.get(checks[check], "**no**") for check in CHECKS]
            lines.append(f"| {version} | {place} | {' | '.join(cells)} |")
    return "\n".join(lines)


def main() -> int:
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    parser.add_argument("directory", type=Path)
    parser.add_argument("versions", nargs="*", default=["4.0", "4.1", "4.2", "4.3"])
    parser.add_argument("--places", nargs="*", default=list(PLACES), choices=PLACES)
    arguments = parser.parse_args()
    signal.signal(signal.SIGTERM, lambda *_: sys.exit(1))  # what was started ends with this
    found: dict[str, dict[str, dict[str, str | None]]] = {}
    failures = 0
    with tempfile.TemporaryDirectory() as scratch, ProcessCluster(Path(scratch) / "kafkalite", nodes=1) as cluster:
        for version in arguments.versions:
            for place in arguments.places:
                directory = Path(scratch) / f"{version}-{place}"
                directory.mkdir()
                spark = Spark(arguments.directory / version, directory)
                checks = checked(spark, place, cluster.bootstrap)
                found.setdefault(spark.version, {})[place] = checks
                for check, error in checks.items():
                    failures += error not in CELLS
                    print(f"{spark.version} {place} {check}: {error or 'ok'}", file=sys.stderr, flush=True)
    print(table(found))
    return 1 if failures else 0


if __name__ == "__main__":
    sys.exit(main())
