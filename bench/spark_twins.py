"""Exactly once under speculation, with real processes: `python -m bench.spark_twins`.

A Spark cluster of two hosts copies numbered records, as a stream and as batch writes; one task of each batch is slow until
Spark has started its twin on the other host. Both attempts have rows in the log then, and both may go on to their end.
Spark's event log shows which attempts were speculative. At-least-once beside it: its duplicates are what the twins wrote.
"""

from __future__ import annotations

import argparse
import asyncio
import json
import os
import sys
import tempfile
import time
from dataclasses import dataclass
from pathlib import Path
from typing import Any

from bench.spark_exactly_once import PATHS, SETTINGS, append, count, create, drive_apart
from bench.spark_hosts import spark_hosts, speculating, speculative_attempts
from kafkalite.testing.processes import ProcessCluster

#: Of each sink; its twin ends first in the first, the attempt that it doubles in the second.
BATCHES = 2
SINKS = ("stream-once", "write-once", "stream-at-least-once")


@dataclass(frozen=True)
class Twins:
    """What a reader counts in one sink, and what Spark did for it."""

    records: int
    duplicates: int
    lost: int
    #: With what read_committed readers do not see.
    uncommitted_too: int
    #: Attempts that Spark's event log calls speculative.
    speculative: int
    #: Attempts of doubled tasks that came to the end of their rows, two per batch if Spark stopped none.
    came_to_the_end: int

    def __str__(self) -> str:
        return (
            f"{self.records} read, {self.duplicates} duplicates, {self.lost} lost; {self.uncommitted_too} in the log with "
            f"what was aborted; {self.speculative} speculative attempts, {self.came_to_the_end} of "
            f"{2 * BATCHES} attempts of doubled tasks came to their end"
        )


def run(cluster: ProcessCluster, scratch: Path, records: int) -> dict[str, Twins]:
    """By sink. Raises RuntimeError when a query fails."""
    asyncio.run(create(cluster, *SINKS, *(f"numbers-{sink}" for sink in SINKS)))
    found = {}
    with spark_hosts(scratch, 2, PATHS) as master:
        for sink in SINKS:
            directory = scratch / sink
            for name in ("notes", "events"):
                (directory / name).mkdir(parents=True)
            plan = {
                "master": master,
                "bootstrap": ",".join(cluster.bootstrap),
                "sink": sink,
                "records": records,
                "directory": str(directory),
            }
            code, said = drive_apart("bench.spark_twins", plan)
            if code:
                raise RuntimeError(f"{sink} failed:\n{said[-3000:]}")
            committed = count(cluster, sink, "read_committed")
            found[sink] = Twins(
                records=committed.total(),
                duplicates=committed.total() - len(committed),
                lost=len(set(range(records)) - set(committed)),
                uncommitted_too=count(cluster, sink, "read_uncommitted").total(),
                speculative=sum(1 for _ in speculative_attempts(directory / "events")),
                came_to_the_end=len(list((directory / "notes").glob("*-wrote"))),
            )
    return found


def drive(plan: dict[str, Any]) -> int:
    """The driver: copies the numbers in two batches."""
    from pyspark.sql import SparkSession

    from bench.twin_sink import TwinDataSource
    from pyspark_kafkalite.java import java_home

    directory = Path(plan["directory"])
    os.environ["PYSPARK_PYTHON"] = os.environ["PYSPARK_DRIVER_PYTHON"] = sys.executable
    os.environ["SPARK_LOCAL_IP"] = "127.0.0.1"
    os.environ["JAVA_HOME"] = java_home()
    settings = speculating(directory, directory / "events")
    spark = SparkSession.builder.master(plan["master"]).config(map=settings).getOrCreate()
    spark.sparkContext.setLogLevel("ERROR")
    spark.dataSource.register(TwinDataSource)
    bootstrap, sink, records = plan["bootstrap"].split(","), plan["sink"], plan["records"]
    given = {
        "kafka.bootstrap.servers": plan["bootstrap"],
        "topic": sink,
        "deliveryGuarantee": "at-least-once" if sink.endswith("at-least-once") else "exactly-once",
        "kafka.buffer.memory": "1",  # what has been taken is sent: both attempts have rows in the log
        "notes": str(directory / "notes"),
    }
    for batch in range(BATCHES):
        numbers = range(batch * records // BATCHES, (batch + 1) * records // BATCHES)
        source = f"numbers-{sink}"
        append(bootstrap, source, numbers)
        if sink.startswith("stream"):
            frame = _source(spark.readStream, plan["bootstrap"], source)
            checkpoint = str(directory / "checkpoint")
            writer = frame.writeStream.format("twin_kafkalite").options(**given, checkpointLocation=checkpoint)
            writer.trigger(availableNow=True).start().awaitTermination()
        else:
            frame = _source(spark.read, plan["bootstrap"], source).where(f"int(string(value)) >= {numbers.start}")
            frame.write.format("twin_kafkalite").options(**given, batch=str(batch)).mode("append").save()
    spark.stop()  # the event log is whole then
    return 0


def _source(reader: Any, bootstrap: str, topic: str) -> Any:
    chosen = reader.format("kafkalite").option("kafka.bootstrap.servers", bootstrap).option("subscribe", topic)
    return chosen.option("startingOffsets", "earliest").load().select("key", "value")


def failures(found: dict[str, Twins]) -> list[str]:
    """What is not as it should be, a sentence each."""
    wrong = []
    for sink, twins in found.items():
        once = sink != "stream-at-least-once"
        if twins.speculative < BATCHES:
            wrong.append(f"{sink}: only {twins.speculative} speculative attempts")
        if twins.lost or (once and twins.duplicates):
            wrong.append(f"{sink}: {twins.duplicates} duplicates, {twins.lost} lost")
        if twins.uncommitted_too == twins.records and once:
            wrong.append(f"{sink}: no twin has written anything")
        if not once and not twins.duplicates:
            wrong.append(f"{sink}: no duplicates, so nothing has been tried")
    return wrong


def main() -> int:
    parser = argparse.ArgumentParser(description=__doc__)
    parser.add_argument("--records", type=int, default=60_000)
    parser.add_argument("--drive", help=argparse.SUPPRESS)
    given = parser.parse_args()
    if given.drive:
        return drive(json.loads(given.drive))
    began = time.monotonic()
    with (
        tempfile.TemporaryDirectory(prefix="kafkalite-bench-") as scratch,
        ProcessCluster(Path(scratch) / "cluster", nodes=3, settings=SETTINGS) as cluster,
    ):
        found = run(cluster, Path(scratch), given.records)
    for sink, twins in found.items():
        print(f"{sink}: {twins}")
    print(f"{time.monotonic() - began:.0f} s")
    for wrong in failures(found):
        print("FAILED", wrong)
    return int(bool(failures(found)))


if __name__ == "__main__":
    sys.exit(main())
