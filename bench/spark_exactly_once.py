"""Exactly once, shown with real processes: `python -m bench.spark_exactly_once`.

A query on a Spark cluster of two hosts copies numbered records from topic to topic while tasks raise and die, slow ones get
speculative twins that write too, the driver is killed with -9 while its tasks write, before and after the commits of its
batches, and started again from its checkpoint, and the node that coordinates its transactions is killed with -9. Then
read_committed readers count. At-least-once goes through the same accidents: its duplicates show that they did happen.
"""

from __future__ import annotations

import argparse
import asyncio
import contextlib
import json
import os
import signal
import subprocess
import sys
import tempfile
import time
from collections import Counter
from collections.abc import Sequence
from dataclasses import dataclass
from pathlib import Path

from bench.spark_hosts import spark_hosts, speculative_attempts
from kafkalite.client.async_client import AsyncClient
from kafkalite.client.blocking import BlockingClient
from kafkalite.extension.messages.topics import NewTopic
from kafkalite.model import TopicPartition
from kafkalite.record.builder import RecordBatchBuilder
from kafkalite.testing.cluster_state import wait_in_sync
from kafkalite.testing.processes import ProcessCluster

ROOT = Path(__file__).resolve().parents[1]
#: Where Spark's processes find the packages.
PATHS = os.pathsep.join(str(ROOT / part) for part in (".", "cli", "spark"))
PARTITIONS = 3
SETTINGS = {
    "zookeeper.session.timeout.ms": 2_000,
    "replica.lag.time.max.ms": 5_000,
    "transaction.state.log.num.partitions": 3,
}
#: A driver that has not ended by then hangs, on a machine of any speed (seconds).
_DRIVER_S = 900
#: One batch each. "before" and "after" are the driver's commit; "during" is while its tasks write.
SHORT = ("raise-0", "kill-coordinator-before-1", "kill-driver-after-1")
LONG = (
    *("raise-0", "exit-1", "exit-at-the-end-2", "raise-3", "raise-after-4", "exit-5"),
    *(f"kill-driver-before-{batch}" for batch in (1, 3, 5, 7)),
    *(f"kill-driver-during-{batch}" for batch in (6, 8, 10)),
    *(f"kill-driver-after-{batch}" for batch in (3, 7, 9)),
    *(
        "kill-coordinator-before-3",
        "kill-coordinator-after-6",
        "kill-coordinator-before-8",
        "kill-coordinator-before-11",
    ),
    *(f"twins-{batch}" for batch in (1, 4, 7, 9, 11)),
)


@dataclass(frozen=True)
class KillOutcome:
    """What a reader counts at the end."""

    records: int
    duplicates: int
    lost: int
    #: With what read_committed readers do not see.
    uncommitted_too: int
    driver_starts: int
    seconds: float
    accidents: int
    #: Tasks of which two attempts at once had rows in the log; how many of these attempts came to the end of their rows.
    doubled: int
    came_to_the_end: int
    #: Attempts that Spark's event logs call speculative, what killed drivers had not written yet left out.
    speculative: int

    def __str__(self) -> str:
        return (
            f"{self.records} read, {self.duplicates} duplicates, {self.lost} lost; {self.uncommitted_too} in the log with "
            f"what was aborted; {self.accidents} accidents, {self.driver_starts} driver starts, {self.doubled} tasks doubled "
            f"({self.came_to_the_end} of their attempts came to the end), {self.speculative} speculative attempts; "
            f"{self.seconds:.0f} s"
        )


async def create(cluster: ProcessCluster, *topics: str) -> None:
    async with AsyncClient.connect(cluster.bootstrap) as client:
        orders = [NewTopic(topic, PARTITIONS, 3, configs={"min.insync.replicas": "2"}) for topic in topics]
        results = await client.create_topics(orders)
        assert not any(r.error for r in results), results
    for topic in topics:
        await wait_in_sync(cluster, topic, 3)


def fill(cluster: ProcessCluster, topic: str, records: int) -> None:
    """Numbers from 0, spread over the partitions."""
    append(cluster.bootstrap, topic, range(records))


def append(bootstrap: Sequence[str], topic: str, numbers: range) -> None:
    """These numbers, spread over the partitions."""
    now = time.time_ns() // 1_000_000
    with BlockingClient(",".join(bootstrap)) as client:
        for partition in range(PARTITIONS):
            builder = RecordBatchBuilder()
            for number in numbers[partition::PARTITIONS]:
                builder.append(b"%d" % number, b"%d" % number, (), now)  # older ones would be deleted meanwhile
            client.produce_raw(TopicPartition(topic, partition), builder.build())


def count(cluster: ProcessCluster, topic: str, isolation: str) -> Counter[int]:
    """How often each number is read, by the data source's own reader."""
    from pyspark_kafkalite.columns import columns_of, spark_schema
    from pyspark_kafkalite.option_parsing import read_options
    from pyspark_kafkalite.reader import KafkaliteReader

    options = {
        "kafka.bootstrap.servers": ",".join(cluster.bootstrap),
        "subscribe": topic,
        "kafka.isolation.level": isolation,
    }
    schema = spark_schema(include_headers=False)
    reader = KafkaliteReader(read_options(options, streaming=False), columns_of(schema))
    found: Counter[int] = Counter()
    for partition in reader.partitions():
        for batch in reader.read(partition):
            found.update(int(value) for value in batch.column("value").to_pylist())
    return found


def run(
    cluster: ProcessCluster,
    scratch: Path,
    source: str,
    sink: str,
    guarantee: str,
    records: int,
    batches: int,
    accidents: Sequence[str],
    master: str = "",
) -> KillOutcome:
    """Run the query until it ends, starting its driver again whenever it dies. Raises RuntimeError.

    Args:
        master: of `spark_hosts`; without one Spark runs in the driver, where there are no twins.
    """
    began = time.monotonic()
    flags, notes, events = (scratch / f"{sink}.{name}" for name in ("flags", "notes", "events"))
    for directory in (flags, notes, events):
        directory.mkdir()
    starts = 0
    in_vain = 0
    while True:
        starts += 1
        happened = len(list(flags.iterdir()))
        plan = {
            "bootstrap": ",".join(cluster.bootstrap),
            "source": source,
            "sink": sink,
            "guarantee": guarantee,
            "per_trigger": -(-records // batches),
            "checkpoint": str(scratch / f"{sink}.checkpoint"),
            "scratch": str(scratch / "spark"),
            "accidents": ",".join(accidents),
            "flags": str(flags),
            "notes": str(notes),
            "events": str(events),
            "life": str(starts),
            "master": master,
            "nodes": json.dumps({node: process.pid for node, process in cluster.nodes.items()}),
        }
        code, said = drive_apart("bench.spark_exactly_once", plan)
        for node, process in cluster.nodes.items():
            if not process.running:
                process.kill()  # takes its remains away
                cluster.restart(node)
        if code == 0:
            break
        in_vain = 0 if len(list(flags.iterdir())) > happened else in_vain + 1
        if in_vain == 2:
            raise RuntimeError(f"the query fails without an accident:\n{said[-3000:]}")
    asyncio.run(wait_in_sync(cluster, sink, 3))
    found = count(cluster, sink, "read_committed")
    everything = count(cluster, sink, "read_uncommitted")
    return KillOutcome(
        records=found.total(),
        duplicates=found.total() - len(found),
        lost=len(set(range(records)) - set(found)),
        uncommitted_too=everything.total(),
        driver_starts=starts,
        seconds=time.monotonic() - began,
        accidents=len(list(flags.iterdir())),
        doubled=len(list(notes.glob("*-twin-half"))),
        came_to_the_end=len(list(notes.glob("*-wrote"))),
        speculative=sum(1 for _ in speculative_attempts(events)),
    )


def drive_apart(module: str, plan: dict[str, object]) -> tuple[int, str]:
    """One life of the driver, `module --drive`: its exit code and what it said. Its processes are a group that ends with
    it."""
    with subprocess.Popen(
        [sys.executable, "-m", module, "--drive", json.dumps(plan)],
        cwd=ROOT,
        env=dict(os.environ, PYTHONPATH=PATHS),
        stdin=subprocess.DEVNULL,
        stdout=subprocess.PIPE,
        stderr=subprocess.STDOUT,
        text=True,
        start_new_session=True,
    ) as driver:
        try:
            said, _ = driver.communicate(timeout=_DRIVER_S)
            return driver.returncode, said
        except subprocess.TimeoutExpired:
            return -1, f"no end within {_DRIVER_S} s"
        finally:
            with contextlib.suppress(ProcessLookupError):
                os.killpg(driver.pid, signal.SIGKILL)


def drive(plan: dict[str, str]) -> int:
    """The driver: 0 when the query has come to the end of its source."""
    from pyspark.sql import SparkSession

    from bench.failing_sink import FailingDataSource
    from bench.spark_hosts import speculating
    from pyspark_kafkalite.java import java_home

    os.environ["PYSPARK_PYTHON"] = os.environ["PYSPARK_DRIVER_PYTHON"] = sys.executable
    os.environ["SPARK_LOCAL_IP"] = "127.0.0.1"
    os.environ["JAVA_HOME"] = java_home()
    settings = speculating(Path(plan["scratch"]), Path(plan["events"]))
    if not plan["master"]:
        settings |= {"spark.speculation": "false", "spark.eventLog.enabled": "false"}
    spark = SparkSession.builder.master(plan["master"] or "local[2,4]").config(map=settings).getOrCreate()
    spark.sparkContext.setLogLevel("OFF")
    spark.dataSource.register(FailingDataSource)
    jvm = spark.sparkContext._jvm.java.lang.ProcessHandle.current().pid()
    records = (
        spark.readStream.format("kafkalite")
        .option("kafka.bootstrap.servers", plan["bootstrap"])
        .option("subscribe", plan["source"])
        .option("startingOffsets", "earliest")
        .option("maxOffsetsPerTrigger", plan["per_trigger"])
        .load()
    )
    query = (
        records.select("key", "value")
        .writeStream.format("failing_kafkalite")
        .option("kafka.bootstrap.servers", plan["bootstrap"])
        .option("topic", plan["sink"])
        .option("deliveryGuarantee", plan["guarantee"])
        .option("kafka.buffer.memory", "1")  # what has been taken is sent: an accident finds rows in the log
        .option("checkpointLocation", plan["checkpoint"])
        .options(**{name: plan[name] for name in ("accidents", "flags", "notes", "life", "nodes")}, jvm=str(jvm))
        .trigger(availableNow=True)
        .start()
    )
    query.awaitTermination()
    return 0


def main(argv: Sequence[str] | None = None) -> int:
    parser = argparse.ArgumentParser(description=__doc__)
    parser.add_argument("--records", type=int, default=60_000)
    parser.add_argument("--batches", type=int, default=12)
    parser.add_argument("--short", action="store_true", help="the accidents of the test: no twins")
    parser.add_argument("--only", choices=("exactly-once", "at-least-once"))
    parser.add_argument("--drive", help=argparse.SUPPRESS)
    given = parser.parse_args(argv)
    if given.drive:
        return drive(json.loads(given.drive))
    failed = False
    accidents, batches = (SHORT, 3) if given.short else (LONG, given.batches)
    with (
        tempfile.TemporaryDirectory(prefix="kafkalite-bench-") as scratch,
        ProcessCluster(Path(scratch) / "cluster", nodes=3, settings=SETTINGS) as cluster,
        contextlib.nullcontext("") if given.short else spark_hosts(Path(scratch), 2, PATHS) as master,
    ):
        asyncio.run(create(cluster, "numbers", "exactly-once", "at-least-once"))
        fill(cluster, "numbers", given.records)
        for guarantee in [given.only] if given.only else ["exactly-once", "at-least-once"]:
            args = ("numbers", guarantee, guarantee, given.records, batches, accidents, master)
            outcome = run(cluster, Path(scratch), *args)
            print(f"{guarantee}: {outcome}", flush=True)
            failed |= outcome.lost > 0 or (outcome.duplicates == 0) != (guarantee == "exactly-once")
            twins = sum(1 for accident in accidents if accident.startswith("twins"))
            failed |= outcome.accidents < len(accidents) or outcome.doubled < twins or outcome.speculative < bool(twins)
    print("FAILED" if failed else "as it should be")
    return int(failed)


if __name__ == "__main__":
    sys.exit(main())
