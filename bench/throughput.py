"""Produce and fetch through the Python client: MB/s, requests/s, latency, memory, CPU, start-up.

    python -m bench.throughput [--seconds 5] [--json FILE]

Batches are built once and sent again and again, so that the figures are the broker's; the row "records" goes through
the whole producer, record by record. The column "of floor" divides by what this machine does at the same time without
us (bench/floors.py): file write for produce (RF 3 writes three times), memcpy for fetch, a uvloop echo for one record a
request and for the latency.
"""

from __future__ import annotations

import asyncio
import os
import tempfile
import time
from collections import deque
from pathlib import Path
from typing import Any

import click
import uvloop
from rich.console import Console
from rich.table import Table

from bench import floors
from bench.figures import json_option, write_json
from kafkalite.client.async_client import AsyncClient
from kafkalite.client.messages import fetch_request, fetched, produce_request, produced
from kafkalite.client.producer import Producer
from kafkalite.extension.messages.topics import NewTopic
from kafkalite.model import BrokerId, TopicPartition
from kafkalite.record.builder import RecordBatchBuilder
from kafkalite.testing.cluster_state import wait_in_sync
from kafkalite.testing.processes import ProcessCluster

SETTINGS = {"log.segment.bytes": 256 * 2**20, "retention.bytes": 2 * 2**30}
console = Console()


def batch_of(records: int, size: int) -> bytes:
    """A batch of `records` values of `size` bytes each."""
    builder = RecordBatchBuilder()
    for number in range(records):
        builder.append(None, number.to_bytes(8, "big") * (size // 8), (), 1_700_000_000_000)
    return builder.build()


async def leader_of(client: AsyncClient, topic: str, partition: int) -> BrokerId:
    return (await client.metadata([topic])).topics[0].partitions[partition].leader


async def produce(
    client: AsyncClient,
    topic: str,
    batch: bytes,
    records: int,
    *,
    acks: int,
    depth: int,
    seconds: float,
    partitions: int,
) -> dict[str, float]:
    """`depth` requests under way per leader connection, for `seconds`."""
    counts = {"requests": 0}
    began = time.monotonic()
    until = began + seconds

    async def one(partition: int) -> None:
        connection = await client.connections.to(await leader_of(client, topic, partition))
        request = produce_request({TopicPartition(topic, partition): batch}, acks, 30_000)
        waiting: deque[asyncio.Future[Any]] = deque()
        while time.monotonic() < until or waiting:
            while len(waiting) < depth and time.monotonic() < until:
                waiting.append(connection.send_nowait(request))
            (answer,) = produced(await waiting.popleft())
            assert answer.error == 0, answer
            counts["requests"] += 1

    async with asyncio.TaskGroup() as tasks:
        for partition in range(partitions):
            tasks.create_task(one(partition))
    took = time.monotonic() - began
    return {
        "MB/s": counts["requests"] * len(batch) / took / 1e6,
        "requests/s": counts["requests"] / took,
        "records/s": counts["requests"] * records / took,
    }


async def fetch(client: AsyncClient, topic: str, *, seconds: float, size: int = 1 << 20) -> dict[str, float]:
    """From the beginning to the end, and again, until the time is over."""
    connection = await client.connections.to(await leader_of(client, topic, 0))
    began = time.monotonic()
    total = requests = 0
    key = TopicPartition(topic, 0)
    offset = 0
    while time.monotonic() - began < seconds:
        request = fetch_request({key: offset}, {}, max_wait_ms=0, max_bytes=size, partition_max_bytes=size, isolation=0)
        ((entry, body),) = fetched(await connection.call(request, timeout_s=30))
        assert entry.error == 0, entry
        requests += 1
        total += len(body)
        position, last = 0, None
        while position + 61 <= len(body):
            length = int.from_bytes(body[position + 8 : position + 12], "big")
            last = position
            position += 12 + length
        if last is None:
            offset = 0
        else:
            base = int.from_bytes(body[last : last + 8], "big")
            offset = base + int.from_bytes(body[last + 23 : last + 27], "big") + 1
    took = time.monotonic() - began
    return {"MB/s": total / took / 1e6, "requests/s": requests / took}


async def records(client: AsyncClient, topic: str, *, size: int, seconds: float) -> dict[str, float]:
    """Through the producer, a future per record, acks=all, idempotent."""
    value = b"x" * size
    began = time.monotonic()
    sent = 0
    async with Producer(client, acks="all", idempotent=True, linger_ms=5, batch_bytes=1 << 17) as producer:
        while time.monotonic() - began < seconds:
            for _ in range(500):
                await producer.send(topic, None, value)
            sent += 500
            await asyncio.sleep(0)
        await producer.flush()
    took = time.monotonic() - began
    return {"MB/s": sent * size / took / 1e6, "records/s": sent / took}


async def latency(client: AsyncClient, topic: str, *, rate: float, seconds: float) -> dict[str, float]:
    """acks=all, one record a request, `rate` a second: percentiles in ms."""
    connection = await client.connections.to(await leader_of(client, topic, 0))
    batch = batch_of(1, 1024)
    request = produce_request({TopicPartition(topic, 0): batch}, -1, 30_000)
    took: list[float] = []
    began = time.monotonic()
    for number in range(int(rate * seconds)):
        await asyncio.sleep(max(0.0, began + number / rate - time.monotonic()))
        sent = time.perf_counter()
        await connection.call(request, timeout_s=30)
        took.append((time.perf_counter() - sent) * 1e3)
    took.sort()
    return {f"p{p}": took[min(len(took) - 1, int(len(took) * p / 100))] for p in (50, 99, 99.9)}


def ratio(name: str, row: dict[str, float], floor: dict[str, float]) -> float:
    """A row's figure divided by its floor; latency: the floor's by ours, so that more is better everywhere."""
    if name.startswith("latency"):
        return floor["echo p50 ms"] / row["p50"]
    if "a request" in name:
        return row["requests/s"] / floor["echo requests/s"]
    if name.startswith("fetch"):
        return row["MB/s"] / floor["memcpy MB/s"]
    return row["MB/s"] * (3 if "RF 3" in name else 1) / floor["file write MB/s"]


class ThroughputRows:
    """Collects figures, and the CPU that the nodes spent on each."""

    def __init__(self, cluster: ProcessCluster) -> None:
        self._cluster = cluster
        self.rows: dict[str, dict[str, float]] = {}

    async def add(self, name: str, work: Any) -> None:
        before = sum(node.cpu_seconds() for node in self._cluster.nodes.values())
        began = time.monotonic()
        row = await work
        row["took s"] = time.monotonic() - began
        spent = sum(node.cpu_seconds() for node in self._cluster.nodes.values()) - before
        row["node CPU s"] = spent
        row["load"] = os.getloadavg()[0]
        self.rows[name] = row
        console.print(f"  {name}: " + ", ".join(f"{k} {v:,.2f}" for k, v in row.items()))


async def run(directory: Path, seconds: float) -> dict[str, Any]:
    began = time.monotonic()
    with ProcessCluster(directory, nodes=3, settings=SETTINGS) as cluster:
        ready = time.monotonic() - began
        rows = ThroughputRows(cluster)
        floor = await floors.measure(directory)
        console.print("  floors: " + ", ".join(f"{k} {v:,.2f}" for k, v in floor.items()))
        big, middle, small = batch_of(1000, 1024), batch_of(120, 1024), batch_of(1, 1024)
        async with AsyncClient.connect(cluster.bootstrap) as client:
            await client.create_topics([NewTopic("single", 1, 1), NewTopic("triple", 1, 3), NewTopic("six", 6, 3)])
            for topic, factor in (("single", 1), ("triple", 3), ("six", 3)):
                await wait_in_sync(cluster, topic, factor)
            idle = {n: node.memory_bytes() // 2**20 for n, node in cluster.nodes.items()}
            for topic, acks in (("single", 1), ("triple", -1)):
                rf = "RF 1 acks=1" if topic == "single" else "RF 3 acks=all"
                for label, batch, count in (("1 MiB", big, 1000), ("128 KiB", middle, 120)):
                    await rows.add(
                        f"produce {rf}, batches of {label}",
                        produce(client, topic, batch, count, acks=acks, depth=8, seconds=seconds, partitions=1),
                    )
                await rows.add(
                    f"produce {rf}, one 1 KiB record a request",
                    produce(client, topic, small, 1, acks=acks, depth=64, seconds=seconds, partitions=1),
                )
            await rows.add(
                "produce RF 3 acks=all, 6 partitions, 128 KiB",
                produce(client, "six", middle, 120, acks=-1, depth=4, seconds=seconds, partitions=6),
            )
            await rows.add("fetch 1 MiB", fetch(client, "single", seconds=seconds))
            await rows.add("records RF 3 acks=all, producer, 1 KiB", records(client, "six", size=1024, seconds=seconds))
            await rows.add("records RF 3 acks=all, producer, 100 B", records(client, "six", size=100, seconds=seconds))
            await rows.add("latency ms RF 3 acks=all, 200/s", latency(client, "triple", rate=200, seconds=seconds))
        peak = {n: node.peak_memory_bytes() // 2**20 for n, node in cluster.nodes.items()}
        node = cluster.nodes[1]
        node.terminate()
        began = time.monotonic()
        cluster.restart(1)
        restart = time.monotonic() - began
    for name, row in rows.rows.items():
        row["of floor"] = ratio(name, row, floor)
    return {
        "floors": floor,
        "rows": rows.rows,
        "start_up_s": {"ZooKeeper and three nodes": ready, "one node, logs in place": restart},
        "idle_memory_mb": idle,
        "peak_memory_mb": peak,
    }


@click.command()
@click.option("--seconds", default=5.0, show_default=True, help="Per row.")
@json_option
def main(seconds: float, json_file: Path | None) -> None:
    """Throughput, latency, memory, start-up of three nodes."""
    with tempfile.TemporaryDirectory(prefix="kafkalite-bench-") as directory:
        result = uvloop.run(run(Path(directory), seconds))
    table = Table(
        "", "MB/s", "requests/s", "records/s", "p50 p99 p99.9 ms", "node CPU s", "CPU s/GB", "of floor", "load"
    )
    for name, row in result["rows"].items():
        cells = [f"{row[key]:,.0f}" if key in row else "" for key in ("MB/s", "requests/s", "records/s")]
        percentiles = " ".join(f"{row[key]:.2f}" for key in ("p50", "p99", "p99.9") if key in row)
        gigabytes = row.get("MB/s", 0.0) * row["took s"] / 1e3
        table.add_row(
            name,
            *cells,
            percentiles,
            f"{row['node CPU s']:.1f}",
            f"{row['node CPU s'] / gigabytes:.1f}" if gigabytes else "",
            f"{row['of floor']:.3f}",
            f"{row['load']:.0f}",
        )
    console.print(table)
    console.print("floors: " + ", ".join(f"{key} {value:,.2f}" for key, value in result["floors"].items()))
    for key in ("start_up_s", "idle_memory_mb", "peak_memory_mb"):
        console.print(f"{key}: {result[key]}")
    write_json(result, json_file)


if __name__ == "__main__":
    main()
