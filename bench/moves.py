"""What a producer feels while partitions move: the same disjoint 3 -> 3 move in small batches, and all at once.

    python -m bench.moves [--megabytes 240] [--rate 500] [--json FILE]

Six processes, a real ZooKeeper, each way on a cluster of its own. 24 partitions hold the given MB on nodes 1 to 3; an acks=all load
goes through the whole of it; all partitions are ordered to nodes 4 to 6. `batches`: one replica per partition at once,
four partitions, two leaders (KIP-435); `all at once`: no limits, the classic algorithm. What is under way is what the topic's
znode says, in every version that a watch has seen. Exit code 1 if anything was lost, is there twice, or a limit was exceeded.
"""

from __future__ import annotations

import asyncio
import contextlib
import math
import sys
import tempfile
import threading
import time
from collections.abc import Callable
from functools import partial
from pathlib import Path
from typing import Any

import click
from kazoo.client import KazooClient
from kazoo.exceptions import NoNodeError
from rich.console import Console
from rich.table import Table

from bench.figures import json_option, write_json
from kafkalite.client.async_client import AsyncClient
from kafkalite.client.producer import Producer, RecordMetadata
from kafkalite.coordination import paths, topic_znodes
from kafkalite.errors import KafkaliteError
from kafkalite.extension.messages.reassignment import (
    AlterReassignmentsRequest,
    AlterReassignmentsResponse,
    WantedReassignment,
)
from kafkalite.extension.messages.topics import NewTopic
from kafkalite.model import BrokerId
from kafkalite.testing.cluster_state import wait_in_sync
from kafkalite.testing.numbered_records import TOPIC, Tally, census
from kafkalite.testing.processes import ProcessCluster

PARTITIONS = 24
OLD, NEW = (1, 2, 3), (4, 5, 6)
#: R, P, L; 0 none.
WAYS = {"batches": (1, 4, 2), "all at once": (0, 0, 0)}
SETTINGS = {
    "zookeeper.session.timeout.ms": 18_000,
    "replica.lag.time.max.ms": 30_000,
    "http.port": -1,
}
RECORD_BYTES = 1000
#: Of the load alone, before the move.
QUIET_S = 5.0
console = Console()


class Trace:
    """The topic's znode as another ZooKeeper client sees it: the most that was under way in any version it has seen."""

    def __init__(self, connect: str) -> None:
        self.versions = 0
        #: Partitions with a step, those of them whose leader moves, replicas beyond three of one partition and of all.
        self.most = {"partitions": 0, "leaders": 0, "replicas_of_one": 0, "replicas": 0}
        self.is_over = threading.Event()
        self._client = KazooClient(hosts=connect, timeout=10)
        self._client.start(timeout=30)

    def begin(self) -> None:
        """After the order."""
        self._topic()
        self._order()

    def _topic(self, event: object = None) -> None:
        data, _ = self._client.get(paths.topic(TOPIC), watch=self._topic)
        topic = topic_znodes.decode_topic(data)
        steps = [move for move in topic.moves.values() if move.step]
        extra = [len(topic.partitions[number]) - len(OLD) for number in topic.moves]
        seen = {
            "partitions": len(steps),
            "leaders": sum(move.moves_leader for move in steps),
            "replicas_of_one": max(extra, default=0),
            "replicas": sum(extra),
        }
        self.versions += 1
        self.most = {name: max(count, seen[name]) for name, count in self.most.items()}

    def _order(self, event: object = None) -> None:
        with contextlib.suppress(NoNodeError):
            self._client.get(paths.REASSIGN_PARTITIONS, watch=self._order)
            return
        self.is_over.set()

    def close(self) -> None:
        self._client.stop()
        self._client.close()


class MovesLoad:
    """Numbered records to all partitions in turn; when each was sent, and how long its acknowledgement took."""

    def __init__(self, client: AsyncClient, tally: Tally) -> None:
        self._client = client
        self._tally = tally
        self._number = 0
        #: (monotonic seconds of sending, milliseconds until acknowledged)
        self.acks: list[tuple[float, float]] = []

    async def _send(self, producer: Producer) -> None:
        value = (b"%d" % self._number).ljust(RECORD_BYTES)
        future = await producer.send(TOPIC, None, value, partition=self._number % PARTITIONS)
        future.add_done_callback(partial(self._note, self._number, time.monotonic()))
        self._number += 1

    def _note(self, number: int, sent: float, future: asyncio.Future[RecordMetadata]) -> None:
        if future.cancelled() or future.exception() is not None:
            self._tally.failed.add(number)
            return
        metadata = future.result()
        self._tally.acked[number] = (metadata.partition, metadata.offset)
        self.acks.append((sent, (time.monotonic() - sent) * 1000))

    async def fill(self, records: int) -> None:
        """As fast as it goes."""
        async with Producer(self._client, acks="all", idempotent=True, batch_bytes=1 << 20) as producer:
            while self._number < records:
                await self._send(producer)
            await producer.flush()
        await asyncio.sleep(0)
        self.acks.clear()

    async def run(self, rate: float, stop: asyncio.Event) -> None:
        """`rate` records a second until `stop`; returns when each has its answer."""
        first, began = self._number, time.monotonic()
        async with Producer(self._client, acks="all", idempotent=True, linger_ms=0) as producer:
            while not stop.is_set():
                while self._number - first < (time.monotonic() - began) * rate:
                    await self._send(producer)
                await asyncio.sleep(0.002)
            await producer.flush()
        await asyncio.sleep(0)


def latency(acks: list[tuple[float, float]], since: float, until: float) -> dict[str, float]:
    """Milliseconds, of the records sent in between."""
    taken = sorted(ms for sent, ms in acks if since <= sent < until)
    if not taken:
        return {"records": 0}
    at = {"p50": 0.5, "p99": 0.99, "max": 1.0}
    return {"records": len(taken)} | {
        name: round(taken[math.ceil(share * len(taken)) - 1], 2) for name, share in at.items()
    }


async def size_on(client: AsyncClient, brokers: tuple[int, ...]) -> int:
    """Bytes of the replicas there."""
    await client.metadata(())
    answers = await client.describe_replicas([TOPIC])
    answered = [answer for node, answer in answers.items() if node in brokers]
    return sum(each.size_bytes for a in answered if not isinstance(a, KafkaliteError) for each in a.replicas)


async def run(directory: Path, limits: tuple[int, int, int], *, megabytes: int, rate: float) -> dict[str, Any]:
    """One way, from an empty cluster to the census."""
    tally = Tally()
    with ProcessCluster(directory, nodes=6, settings=SETTINGS) as cluster:
        before = {p: tuple(BrokerId(OLD[(p + j) % 3]) for j in range(3)) for p in range(PARTITIONS)}
        async with AsyncClient.connect(cluster.bootstrap) as client:
            topic = NewTopic(TOPIC, assignment=before, configs={"min.insync.replicas": "2"})
            (created,) = await client.create_topics([topic])
            assert created.error == 0, created
            await wait_in_sync(cluster, TOPIC, 3)
            load = MovesLoad(client, tally)
            await load.fill(megabytes * 1_000_000 // RECORD_BYTES)
            trace = await asyncio.to_thread(Trace, cluster.zookeeper_connect)
            stop = asyncio.Event()
            try:
                async with asyncio.TaskGroup() as tasks:
                    tasks.create_task(load.run(rate, stop))
                    quiet_from = time.monotonic()
                    await asyncio.sleep(QUIET_S)
                    cpu = sum(node.cpu_seconds() for node in cluster.nodes.values())
                    ordered = time.monotonic()
                    await order(client, limits)
                    await asyncio.to_thread(trace.begin)
                    assert await asyncio.to_thread(trace.is_over.wait, 600), "the move did not end"
                    over = time.monotonic()
                    copied = await size_on(client, NEW)
                    cpu = sum(node.cpu_seconds() for node in cluster.nodes.values()) - cpu
                    stop.set()
            finally:
                await asyncio.to_thread(trace.close)
        await wait_in_sync(cluster, TOPIC, 3)
        found = await census(cluster, tally)
    return {
        "limits": limits,
        "seconds": round(over - ordered, 2),
        "bytes_moved": copied,
        "cpu_s": round(cpu, 2),
        "quiet_ms": latency(load.acks, quiet_from, ordered),
        "moving_ms": latency(load.acks, ordered, over),
        "most_under_way": trace.most,
        "versions_seen": trace.versions,
        "acked": len(tally.acked),
        "failed": len(tally.failed),
        "lost": len(found.lost),
        "twice": len(found.duplicates),
        "moved_offset": len(found.moved),
    }


async def order(client: AsyncClient, limits: tuple[int, int, int]) -> None:
    """Every partition to the new nodes."""
    wanted = [tuple(BrokerId(NEW[(number + j) % 3]) for j in range(3)) for number in range(PARTITIONS)]
    request = AlterReassignmentsRequest(
        tuple(WantedReassignment(TOPIC, number, target) for number, target in enumerate(wanted)),
        is_atomic=True,
        limits=limits,
    )
    answer = await client.request(request, AlterReassignmentsResponse)
    assert not answer.error and not any(each.error for each in answer.partitions), answer


def is_clean(found: dict[str, Any]) -> bool:
    """Nothing lost, twice, failed; no limit exceeded."""
    replicas, partitions, leaders = (limit or PARTITIONS * len(NEW) for limit in found["limits"])
    most = found["most_under_way"]
    kept = most["replicas_of_one"] <= replicas and most["partitions"] <= partitions and most["leaders"] <= leaders
    return kept and not (found["lost"] or found["twice"] or found["moved_offset"] or found["failed"])


def show(results: dict[str, dict[str, Any]], title: str) -> None:
    """The ways side by side."""

    def ms(found: dict[str, Any]) -> str:
        return ", ".join(f"{found[name]:.1f}" if name in found else "-" for name in ("p50", "p99", "max"))

    rows: dict[str, Callable[[dict[str, Any]], str]] = {
        "acks before: p50, p99, max ms": lambda r: ms(r["quiet_ms"]),
        "acks meanwhile: p50, p99, max ms": lambda r: ms(r["moving_ms"]),
        "records meanwhile": lambda r: f"{r['moving_ms']['records']:,}",
        "seconds": lambda r: f"{r['seconds']:.1f}",
        "bytes moved": lambda r: f"{r['bytes_moved'] / 1e6:,.0f} MB",
        "CPU of the six nodes": lambda r: f"{r['cpu_s']:.1f} s",
        "most partitions under way": lambda r: str(r["most_under_way"]["partitions"]),
        "most leaders that move": lambda r: str(r["most_under_way"]["leaders"]),
        "most replicas added to one": lambda r: str(r["most_under_way"]["replicas_of_one"]),
        "most replicas added in all": lambda r: str(r["most_under_way"]["replicas"]),
        "znode versions seen": lambda r: str(r["versions_seen"]),
        "acked, lost, twice, failed": lambda r: f"{r['acked']:,}, {r['lost']}, {r['twice']}, {r['failed']}",
    }
    table = Table("figure", *results, title=title, title_justify="left")
    for name, text in rows.items():
        table.add_row(name, *(text(found) for found in results.values()))
    console.print(table)


@click.command()
@click.option("--megabytes", type=click.IntRange(1), default=240, show_default=True, help="Records there are before.")
@click.option("--rate", type=click.FloatRange(1), default=500.0, show_default=True, help="Records per second.")
@json_option
def main(megabytes: int, rate: float, json_file: Path | None) -> None:
    """See the module."""
    results: dict[str, dict[str, Any]] = {}
    for name, limits in WAYS.items():
        with tempfile.TemporaryDirectory(prefix="kafkalite-moves-") as directory:
            results[name] = asyncio.run(run(Path(directory), limits, megabytes=megabytes, rate=rate))
    show(
        results, f"{PARTITIONS} partitions, {megabytes} MB, 1,2,3 -> 4,5,6 of 6 nodes, acks=all at {rate:.0f} records/s"
    )
    write_json({"megabytes": megabytes, "rate": rate, "ways": results}, json_file)
    sys.exit(0 if all(map(is_clean, results.values())) else 1)


if __name__ == "__main__":
    main()
