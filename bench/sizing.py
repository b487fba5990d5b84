"""What a node needs: memory per partition and per connection, CPU per MB written and read. The table of docs/sizing.md.

    python -m bench.sizing [--partitions 3000] [--connections 1000] [--seconds 4] [--json FILE]

Three nodes. Memory is resident memory of a node, CPU is the processor time of all three nodes: both can be compared between
machines under other load, unlike MB/s.
"""

from __future__ import annotations

import asyncio
import contextlib
import os
import platform
import socket
import statistics
import tempfile
import time
from collections.abc import Iterator
from pathlib import Path

import click
import uvloop
from rich.console import Console
from rich.table import Table

from bench.figures import json_option, write_json
from bench.throughput import batch_of, fetch, produce
from kafkalite.client.async_client import AsyncClient
from kafkalite.extension.messages.topics import NewTopic
from kafkalite.testing.cluster_state import wait_in_sync
from kafkalite.testing.processes import ProcessCluster

MIB = 1 << 20
SETTINGS = {"log.segment.bytes": 256 * MIB, "retention.bytes": 1024 * MIB, "max.connections.per.ip": 20_000}
#: Rows: (what, value, unit).
Row = tuple[str, float, str]
#: ApiVersions 0 with correlation id 1 and no client id: the cheapest request, after which a connection is one of a client.
_API_VERSIONS = bytes.fromhex("0000000a0012000000000001ffff")


class Meter:
    """Memory and CPU of all nodes."""

    def __init__(self, cluster: ProcessCluster) -> None:
        self._nodes = cluster.nodes

    def memory(self) -> float:
        """Bytes, of the middle node."""
        return statistics.median(node.memory_bytes() for node in self._nodes.values())

    def cpu(self) -> float:
        """Seconds, of all nodes."""
        return sum(node.cpu_seconds() for node in self._nodes.values())


@contextlib.contextmanager
def connections(address: str, count: int) -> Iterator[None]:
    """Clients that have sent one request and are idle."""
    host, port = address.rsplit(":", 1)
    with contextlib.ExitStack() as stack:
        for _ in range(count):
            connection = stack.enter_context(socket.create_connection((host, int(port))))
            connection.sendall(_API_VERSIONS)
            connection.recv(4096)
        yield


async def cpu_per_mb(cluster: ProcessCluster, client: AsyncClient, meter: Meter, seconds: float) -> list[Row]:
    """CPU of all nodes per MB that clients write and read, in batches of three sizes."""
    rows: list[Row] = []
    for replicas, acks in ((1, 1), (3, -1)):
        for size in (16, 128, 1000):
            topic = f"written-{replicas}-{size}"
            await client.create_topics([NewTopic(topic, 1, replicas)])
            await wait_in_sync(cluster, topic, replicas)
            before = meter.cpu()
            began = time.monotonic()
            row = await produce(
                client, topic, batch_of(size, 1024), size, acks=acks, depth=4, seconds=seconds, partitions=1
            )
            mb = row["MB/s"] * (time.monotonic() - began)
            what = f"written, {replicas} replica{'s, acks=all' if replicas > 1 else ', acks=1'}, batches of {size} KiB"
            rows.append((f"CPU of all nodes per MB {what}", (meter.cpu() - before) / mb * 1000, "ms"))
    for size in (128, 1000):
        before, began = meter.cpu(), time.monotonic()
        row = await fetch(client, f"written-1-{size}", seconds=seconds)
        mb = row["MB/s"] * (time.monotonic() - began)
        rows.append((f"CPU of all nodes per MB read, batches of {size} KiB", (meter.cpu() - before) / mb * 1000, "ms"))
    return rows


async def run(directory: Path, partitions: int, count: int, seconds: float) -> list[Row]:
    """Every row."""
    with ProcessCluster(directory, settings=SETTINGS) as cluster:
        meter = Meter(cluster)
        async with AsyncClient.connect(cluster.bootstrap) as client:
            rows: list[Row] = [("memory of an idle node", meter.memory() / MIB, "MiB")]
            before = meter.memory()
            with connections(cluster.bootstrap[0], count):
                node = cluster.nodes[1]
                rows.append(("memory per idle connection", (node.memory_bytes() - before) / count / 1024, "KiB"))

            before = meter.memory()
            await client.create_topics([NewTopic("many", partitions, 3)], timeout_s=120)
            await wait_in_sync(cluster, "many", 3)
            rows.append(("memory per replica, empty", (meter.memory() - before) / partitions / 1024, "KiB"))
            used, began = meter.cpu(), time.monotonic()
            await asyncio.sleep(seconds)
            share = (meter.cpu() - used) / (time.monotonic() - began) / 3
            rows.append((f"CPU of a node with {partitions:,} idle replicas", share * 100, "% of a core"))
            rows += await cpu_per_mb(cluster, client, meter, seconds)
            rows.append(("memory of a node after that", meter.memory() / MIB, "MiB"))
        return rows


@click.command()
@click.option("--partitions", type=int, default=3000)
@click.option("--connections", "count", type=int, default=1000)
@click.option("--seconds", type=float, default=4.0)
@json_option
def main(partitions: int, count: int, seconds: float, json_file: Path | None) -> None:
    """Memory and CPU of three nodes."""
    with tempfile.TemporaryDirectory(prefix="kafkalite-sizing-") as directory:
        rows = uvloop.run(run(Path(directory), partitions, count, seconds))
    table = Table(
        "what", "measured", title=f"{platform.machine()}, {os.cpu_count()} cores, Python {platform.python_version()}"
    )
    for what, value, unit in rows:
        table.add_row(what, f"{value:.3g} {unit}")
    Console(width=110).print(table)
    write_json(rows, json_file)


if __name__ == "__main__":
    main()
