"""Our Spark source and sink beside Spark's own Kafka connector, each on its own broker: `python -m bench.spark_connector`.
With `--on-kafka` both use Apache Kafka's broker.

Needs a Spark whose connector can be had (kafkalite.testing.spark_kafka): `make spark-versions` leaves 4.2. One node
of each system, two partitions, no replication, two tasks: what is measured is Spark's side. Batch reads go into `noop`,
all seven columns. `rows/s per core` counts the processor time of the JVM and its Python workers.
"""

from __future__ import annotations

import argparse
import json
import os
import signal
import statistics
import sys
import tempfile
import time
from collections.abc import Callable, Iterator
from contextlib import contextmanager
from dataclasses import dataclass, field
from functools import partial
from pathlib import Path
from typing import Any

import pyspark

from kafkalite.client.blocking import BlockingClient
from kafkalite.extension.messages.topics import NewTopic
from kafkalite.testing.apache_kafka import KAFKA_VERSION, KafkaCluster, class_path
from kafkalite.testing.processes import ProcessCluster
from kafkalite.testing.spark_kafka import CONNECTORS, connector_jars

CACHE = Path(__file__).resolve().parents[1] / ".interop"
SIZES = (100, 1024)
PARTITIONS = 2
KEY_BYTES = 8
#: Batches of the stream that are counted, after those that warm it up.
STREAM_BATCHES, STREAM_WARM = 5, 2
#: Batch reads of next to nothing.
_JOBS = 10
_TICKS = os.sysconf("SC_CLK_TCK")


@dataclass
class SparkPeer:
    """One of the two: the format's name, its bootstrap option, and what was measured, by row of the table."""

    name: str
    bootstrap: tuple[str, str]
    figures: dict[str, dict[str, float]] = field(default_factory=dict)

    def source(self, reader: Any, topic: str) -> Any:
        chosen = reader.format(self.name).option(*self.bootstrap).option("subscribe", topic)
        return chosen.option("startingOffsets", "earliest")

    def write(self, frame: Any, topic: str) -> None:
        frame.write.format(self.name).option(*self.bootstrap).option("topic", topic).mode("append").save()


@dataclass(frozen=True)
class Clocks:
    """What a process and those below it have computed, in seconds: by pid, with their ended children."""

    seconds: dict[int, float]
    #: Processes whose time nobody keeps when they end: PySpark's daemons ignore the end of their workers.
    unkept: frozenset[int]

    @classmethod
    def of(cls, pid: int) -> Clocks:
        seconds: dict[int, float] = {}
        unkept: set[int] = set()
        waiting = [(pid, False)]
        while waiting:
            pid, is_unkept = waiting.pop()
            try:
                stat = Path(f"/proc/{pid}/stat").read_text()
                status = Path(f"/proc/{pid}/status").read_text()
                children = "".join(path.read_text() for path in Path(f"/proc/{pid}/task").glob("*/children"))
            except OSError:  # it has ended meanwhile
                continue
            seconds[pid] = sum(int(ticks) for ticks in stat.rpartition(")")[2].split()[11:15]) / _TICKS
            if is_unkept:
                unkept.add(pid)
            ignored = int(status.partition("SigIgn:")[2].split()[0], 16)
            leaves = bool(ignored >> (signal.SIGCHLD - 1) & 1)
            waiting += [(int(child), leaves) for child in children.split()]
        return cls(seconds, frozenset(unkept))

    def __sub__(self, before: Clocks) -> float:
        gone = before.unkept - self.seconds.keys()
        return sum(self.seconds.values()) - sum(s for pid, s in before.seconds.items() if pid not in gone)


@contextmanager
def session(scratch: Path, jars: list[Path]) -> Iterator[Any]:
    from pyspark.sql import SparkSession

    from pyspark_kafkalite.java import java_home

    os.environ["PYSPARK_PYTHON"] = os.environ["PYSPARK_DRIVER_PYTHON"] = sys.executable
    os.environ["SPARK_LOCAL_IP"] = "127.0.0.1"
    os.environ["JAVA_HOME"] = java_home()
    builder = (
        SparkSession.builder.master(f"local[{PARTITIONS}]")
        .config("spark.jars", ",".join(map(str, jars)))
        .config("spark.ui.enabled", "false")
        .config("spark.ui.showConsoleProgress", "false")
        .config("spark.driver.host", "127.0.0.1")
        .config("spark.driver.bindAddress", "127.0.0.1")
        .config("spark.driver.memory", "2g")
        .config("spark.sql.shuffle.partitions", str(PARTITIONS))
        # as `kafkalite pipeline run` sets them
        .config("spark.python.unix.domain.socket.enabled", "true")
        .config("spark.sql.execution.arrow.maxBytesPerBatch", "1m")
        .config("spark.local.dir", str(scratch))
        .config("spark.sql.warehouse.dir", str(scratch))
    )
    spark = builder.getOrCreate()
    spark.sparkContext.setLogLevel("OFF")
    try:
        yield spark
    finally:
        spark.stop()


def timed(spark: Any, rows: int, size: int, work: Callable[[], None]) -> dict[str, float]:
    """rows/s, MB/s of keys and values, and rows/s per core."""
    jvm = int(spark.sparkContext._jvm.java.lang.ProcessHandle.current().pid())
    before, began = Clocks.of(jvm), time.perf_counter()
    work()
    seconds, spent = time.perf_counter() - began, Clocks.of(jvm) - before
    return {
        "rows/s": rows / seconds,
        "MB/s": rows * (size + KEY_BYTES) / seconds / 1e6,
        "rows/s per core": rows / max(spent, 1 / _TICKS),
    }


def json_of(frame: Any) -> Any:
    """What most queries do with a value first."""
    from pyspark.sql import functions as f

    return frame.select(
        f.from_json(f.col("value").cast("string"), "n bigint, name string, x double").alias("v")
    ).select("v.*")


def available_now(
    spark: Any, peer: SparkPeer, topic: str, checkpoint: Path, rows: int, batches: int
) -> dict[str, float]:
    """A query that takes what is there in several small batches and ends: start, planning, commits."""
    jvm = int(spark.sparkContext._jvm.java.lang.ProcessHandle.current().pid())
    before, began = Clocks.of(jvm), time.perf_counter()
    frame = peer.source(spark.readStream, topic).option("maxOffsetsPerTrigger", str(rows // batches)).load()
    writer = frame.writeStream.format("noop").option("checkpointLocation", str(checkpoint)).trigger(availableNow=True)
    query = writer.start()
    assert query.awaitTermination(300)
    seconds, spent = time.perf_counter() - began, Clocks.of(jvm) - before
    assert sum(p["numInputRows"] for p in query.recentProgress) == rows
    return {"ms": seconds * 1e3, "ms of processor": spent * 1e3}


def per_job(spark: Any, peer: SparkPeer, topic: str) -> dict[str, float]:
    """What a batch read of next to nothing takes: planning, workers, connections."""
    jvm = int(spark.sparkContext._jvm.java.lang.ProcessHandle.current().pid())
    before, taken = Clocks.of(jvm), []
    for _ in range(_JOBS):
        began = time.perf_counter()
        noop(peer.source(spark.read, topic).load())
        taken.append(time.perf_counter() - began)
    return {"ms per job": statistics.median(taken) * 1e3, "ms of processor": (Clocks.of(jvm) - before) / _JOBS * 1e3}


def best(runs: list[dict[str, float]]) -> dict[str, float]:
    return {name: max(run[name] for run in runs) for name in runs[0]}


def rows_of(spark: Any, rows: int, size: int) -> Any:
    key = f"cast(lpad(cast(id % 1000 as string), {KEY_BYTES}, '0') as binary) key"
    return spark.range(0, rows, 1, PARTITIONS).selectExpr(key, f"cast(repeat('x', {size}) as binary) value")


def noop(frame: Any) -> None:
    frame.write.format("noop").mode("overwrite").save()


def stream(spark: Any, peer: SparkPeer, topic: str, size: int, rows: int, checkpoint: Path) -> dict[str, float]:
    """A query that runs while chunks are written one after the other: what its batches took, those without rows left out."""
    frame = peer.source(spark.readStream, topic).load()
    writer = frame.writeStream.format("noop").option("checkpointLocation", str(checkpoint))
    query = writer.trigger(processingTime="0 seconds").start()
    seen: dict[int, dict[str, Any]] = {}
    total = first = 0
    try:
        for chunk in range(STREAM_WARM + STREAM_BATCHES):
            peer.write(rows_of(spark, rows, size), topic)
            total += rows
            deadline = time.monotonic() + 120
            while sum(p["numInputRows"] for p in seen.values()) < total:
                assert query.isActive and time.monotonic() < deadline, query.exception()
                seen |= {p["batchId"]: p for p in query.recentProgress if p["numInputRows"]}
                time.sleep(0.02)
            if chunk == STREAM_WARM - 1:
                first = max(seen) + 1
    finally:
        query.stop()
    counted = [p for batch, p in sorted(seen.items()) if batch >= first]
    taken = [p["durationMs"]["triggerExecution"] for p in counted]
    count = sum(p["numInputRows"] for p in counted)
    return {
        "rows/s": count / sum(taken) * 1e3,
        "MB/s": count * (size + KEY_BYTES) / sum(taken) / 1e3,
        "ms per batch": statistics.median(taken),
    }


def measure(
    spark: Any, peers: list[SparkPeer], create: Callable[[SparkPeer, str], None], scratch: Path, given: Any
) -> None:
    for size in SIZES:
        rows = int(given.megabytes * 1e6) // (size + KEY_BYTES)
        for number, peer in enumerate(peers + peers[::-1]):  # neither always goes first
            topic = f"rows-{size}-{number}"
            create(peer, topic)
            writes = [timed(spark, rows, size, partial(peer.write, rows_of(spark, rows, size), topic))]
            frame = peer.source(spark.read, topic).load()
            reads = [timed(spark, rows, size, partial(noop, frame)) for _ in range(given.repeat)]
            for what, runs in (("write", writes), ("read", reads)):
                row = f"batch {what}, {size} B"
                peer.figures[row] = best([*([peer.figures[row]] if row in peer.figures else []), *runs])
        for what in ("write", "read"):
            show(f"batch {what}, {size} B", *peers)
    measure_json(spark, peers, create, given)
    if spark.version >= "4.2":  # before, a Python source gets no limits
        measure_queries(spark, peers, create, scratch, given.queries)
    for size, rows in ((100, 100), (100, given.chunk), (1024, given.chunk // 8)):
        row = "stream, 100 rows at a time" if rows == 100 else f"stream, {size} B, {rows} rows at a time"
        for peer in peers:
            topic = f"{peer.name}-stream-{size}-{rows}"
            create(peer, topic)
            peer.figures[row] = stream(spark, peer, topic, size, rows, scratch / topic)
        show(row, *peers)


def measure_queries(
    spark: Any, peers: list[SparkPeer], create: Callable[[SparkPeer, str], None], scratch: Path, queries: int
) -> None:
    """Queries of both in turn; the first ones warm up, of the others the medians count."""
    runs: dict[str, list[dict[str, float]]] = {peer.name: [] for peer in peers}
    for peer in peers:
        create(peer, f"{peer.name}-now")
        peer.write(rows_of(spark, 1000, 100), f"{peer.name}-now")
    for number in range(queries + 2):
        for peer in peers if number % 2 else peers[::-1]:
            run = available_now(spark, peer, f"{peer.name}-now", scratch / f"{peer.name}-now-{number}", 1000, 4)
            if number >= 2:
                runs[peer.name].append(run)
    row = "AvailableNow, 1,000 rows in 4 batches"
    for peer in peers:
        found = runs[peer.name]
        peer.figures[row] = {name: statistics.median(run[name] for run in found) for name in found[0]}
    show(row, *peers)


def measure_json(spark: Any, peers: list[SparkPeer], create: Callable[[SparkPeer, str], None], given: Any) -> None:
    """JSON of about 100 B, parsed."""
    text = "concat('{\"n\": ', id, ', \"name\": \"', repeat('y', 60), '\", \"x\": 1.5}')"
    size = 100
    rows = int(given.megabytes * 1e6) // (size + KEY_BYTES)
    made = spark.range(0, rows, 1, PARTITIONS).selectExpr(f"CAST({text} AS binary) AS value")
    for number, peer in enumerate(peers + peers[::-1]):
        topic = f"json-{number}"
        create(peer, topic)
        peer.write(made, topic)
        frame = json_of(peer.source(spark.read, topic).load())
        runs = [timed(spark, rows, size, partial(noop, frame)) for _ in range(given.repeat)]
        peer.figures["JSON read"] = best([*([peer.figures["JSON read"]] if "JSON read" in peer.figures else []), *runs])
    show("JSON read", *peers)


def show(row: str, ours: SparkPeer, theirs: SparkPeer) -> None:
    cells = []
    for name, value in ours.figures[row].items():
        other = theirs.figures[row][name]
        better = other / value if name.startswith("ms") else value / other
        cells.append(f"{name} {value:,.0f} | {other:,.0f} ({better:.2f}x)")
    print(f"{row}: {'; '.join(cells)}; load {os.getloadavg()[0]:.1f}", flush=True)


def main() -> int:
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    parser.add_argument("--megabytes", type=float, default=200, help="per batch job (default %(default)s)")
    parser.add_argument("--chunk", type=int, default=200_000, help="rows of a stream's batch (default %(default)s)")
    parser.add_argument("--repeat", type=int, default=3, help="reads; the best counts (default %(default)s)")
    parser.add_argument("--queries", type=int, default=4, help="AvailableNow queries of each (default %(default)s)")
    parser.add_argument("--only-queries", action="store_true", help="nothing but these")
    parser.add_argument("--on-kafka", action="store_true", help="ours, too, on Apache Kafka's broker")
    parser.add_argument("--json", help="write the figures there")
    given = parser.parse_args()
    connector = CONNECTORS.get(pyspark.__version__.rpartition(".")[0])
    if connector is None:
        parser.error(f"there is no connector for Spark {pyspark.__version__}, but for {', '.join(CONNECTORS)}")
    jars, classes = connector_jars(CACHE, connector), class_path(CACHE)
    settings = {"log.segment.bytes": 256 << 20}
    with (
        tempfile.TemporaryDirectory(prefix="kafkalite-bench-") as directory,
        KafkaCluster(Path(directory) / "kafka", classes, nodes=1, settings=settings) as kafka,
        ProcessCluster(Path(directory) / "kafkalite", nodes=1, settings=settings) as cluster,
        session(Path(directory) / "spark", jars) as spark,
    ):
        own = ",".join(cluster.bootstrap)
        ours = SparkPeer("kafkalite", ("kafka.bootstrap.servers", kafka.bootstrap if given.on_kafka else own))
        theirs = SparkPeer("kafka", ("kafka.bootstrap.servers", kafka.bootstrap))
        # Kafka's own client, over the JVM that runs anyway, creates topics on Kafka
        jvm = spark.sparkContext._jvm
        admin = jvm.org.apache.kafka.clients.admin.AdminClient.create({"bootstrap.servers": kafka.bootstrap})

        def create(peer: SparkPeer, topic: str) -> None:
            if peer is theirs or given.on_kafka:
                order = jvm.org.apache.kafka.clients.admin.NewTopic(topic, PARTITIONS, 1)
                admin.createTopics([order]).all().get()
                return
            with BlockingClient(own) as client:
                [created] = client.create_topics([NewTopic(topic, PARTITIONS, 1)])
            assert not created.error, created

        for peer in (ours, theirs):  # workers start, the JVM compiles
            warm, small = f"{peer.name}-warm", f"{peer.name}-small"
            create(peer, warm)
            peer.write(rows_of(spark, 20_000, 100), warm)
            for _ in range(3):
                noop(peer.source(spark.read, warm).load())
            create(peer, small)
            peer.write(rows_of(spark, 100, 100), small)
            peer.figures["batch read, 100 rows"] = per_job(spark, peer, small)
        version = spark.version
        where = f" on Kafka {KAFKA_VERSION}" if given.on_kafka else ""
        print(f"Spark {version}: kafkalite{where} | connector {connector} on Kafka {KAFKA_VERSION} (times better)")
        show("batch read, 100 rows", ours, theirs)
        if given.only_queries:
            measure_queries(spark, [ours, theirs], create, Path(directory) / "checkpoints", given.queries)
        else:
            measure(spark, [ours, theirs], create, Path(directory) / "checkpoints", given)
        admin.close()
    if given.json:
        figures = {peer.name: peer.figures for peer in (ours, theirs)}
        Path(given.json).write_text(
            json.dumps({"spark": version, "processors": os.cpu_count(), **figures}, indent=1) + "\n"
        )
    return 0


if __name__ == "__main__":
    sys.exit(main())
