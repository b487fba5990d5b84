"""How long producers hear nothing when the node that leads their partitions is killed, or stopped.

    python -m bench.silence [--partitions 1 --partitions 200 --partitions 3300] [--busy 0] [--json FILE]
    python -m bench.silence --librdkafka [--socket-timeout-ms 60000] [--stop-for 0] [--python INTERPRETER] [--json FILE]

The first form is kafkalite's own client. `--librdkafka` is librdkafka (confluent-kafka), idempotent, with its defaults otherwise, one
partition: the figure of users. `--stop-for 5` lets the stopped node go on after 5 s.

An idempotent producer sends 500 records a second to partitions that the victim leads. `first`: from the last
acknowledgement before the fault to the first one after it. `all`: until every partition has acknowledged a record
that was sent after the fault. `--busy 10`: ten processes that do nothing but compute, as on a crowded host. Sessions last 18 s, so that nothing waits for their end and seems quick.
"""

from __future__ import annotations

import asyncio
import itertools
import signal
import subprocess
import sys
import tempfile
import time
from collections.abc import Callable, Iterator
from contextlib import closing, contextmanager
from functools import partial
from pathlib import Path
from typing import Any

import click
from rich.console import Console
from rich.table import Table

from bench.beside import helper
from bench.failover import phases
from bench.figures import json_option, write_json
from bench.peers import scratch_python
from kafkalite.client.async_client import AsyncClient
from kafkalite.client.producer import Producer, RecordMetadata
from kafkalite.extension.messages.topics import NewTopic
from kafkalite.model import BrokerId
from kafkalite.testing.cluster_state import any_controller, wait_in_sync
from kafkalite.testing.processes import DIE_WITH_PARENT, ProcessCluster

SETTINGS = {"zookeeper.session.timeout.ms": 18_000, "replica.lag.time.max.ms": 30_000}
RATE_PER_S = 500
console = Console()


class SilenceLoad:
    """Records at a steady rate, over all partitions in turn; notes when acknowledgements come."""

    def __init__(self, producer: Producer, topic: str, partitions: int) -> None:
        self._producer = producer
        self._topic = topic
        self._partitions = partitions
        self.acks: list[float] = []
        #: Two seconds' worth of records are acknowledged, and every partition has one: files that hold nothing are not
        #: there yet, and making 3,300 of them is no part of a failover.
        self.is_warm = asyncio.Event()
        self.failed = 0
        self.stopping = False

    async def run(self) -> None:
        """Until `stopping`."""
        began = time.monotonic()
        sent = 0
        while not self.stopping:
            for _ in range(int((time.monotonic() - began) * RATE_PER_S) - sent):
                future = await self._producer.send(
                    self._topic, None, b"%012d" % sent, partition=sent % self._partitions
                )
                future.add_done_callback(self.note)
                sent += 1
            await asyncio.sleep(0.002)

    def note(self, future: asyncio.Future[RecordMetadata]) -> None:
        if future.cancelled() or future.exception() is not None:
            self.failed += 1
        else:
            self.acks.append(time.monotonic())
            if len(self.acks) >= max(2 * RATE_PER_S, self._partitions):
                self.is_warm.set()


async def measure(
    client: AsyncClient, topic: str, partitions: int, fault: Callable[[], None]
) -> dict[str, float | int]:
    """Seconds of silence around one fault."""
    async with Producer(client, acks="all", idempotent=True, linger_ms=0) as producer:
        load = SilenceLoad(producer, topic, partitions)
        async with asyncio.TaskGroup() as tasks:
            tasks.create_task(load.run())
            await load.is_warm.wait()
            fault()
            struck = time.monotonic()
            every = [await producer.send(topic, None, b"after", partition=number) for number in range(partitions)]
            for future in every:
                future.add_done_callback(load.note)
            for future in every:
                await future
            all_back = time.monotonic()
            load.stopping = True
    before = max(at for at in load.acks if at <= struck)
    # What was on its way when the fault came may be acknowledged a moment after it: the silence is the longest gap.
    around = [before, *(at for at in load.acks if at > struck)]
    gap = max((late - early for early, late in itertools.pairwise(around)), default=0.0)
    return {"first_s": round(gap, 3), "all_s": round(all_back - before, 3), "failed": load.failed}


@contextmanager
def crowd(size: int) -> Iterator[None]:
    """Processes that want a processor for themselves."""
    command = [*DIE_WITH_PARENT, sys.executable, "-c", "while True: pass"]
    processes = [subprocess.Popen(command) for _ in range(size)]
    try:
        yield
    finally:
        for process in processes:
            process.kill()
            process.wait()


async def run(directory: Path, count: int, kind: str, busy: int) -> dict[str, Any]:
    """One fault, on a cluster of its own."""
    with crowd(busy), ProcessCluster(directory, nodes=4, settings=SETTINGS) as cluster:
        async with AsyncClient.connect(cluster.bootstrap) as client:
            controller = await asyncio.to_thread(any_controller, cluster)
            followers = [BrokerId(n) for n in sorted(cluster.nodes) if n != controller]
            assignment = {number: tuple(followers) for number in range(count)}
            new = NewTopic("led", assignment=assignment, configs={"min.insync.replicas": "2"})
            await client.create_topics([new], timeout_s=240)
            await wait_in_sync(cluster, "led", 3, deadline_s=240)
            process = cluster.nodes[followers[0]]
            signal_ = signal.SIGKILL if kind == "kill -9" else signal.SIGSTOP
            figures = await measure(client, "led", count, partial(process.signal, signal_))
            figures["controller_ms"] = round(phases(cluster, controller, "broker").get("acked", -1.0))
            console.print(f"{kind}, leads {count:,}: {figures}")
            return {"fault": kind, "led": count, **figures}


def run_librdkafka(directory: Path, kind: str, python: Path, socket_timeout_ms: int, stop_for: float) -> dict[str, Any]:
    """One fault under librdkafka, on a cluster of its own."""
    with ProcessCluster(directory, nodes=4, settings=SETTINGS) as cluster, closing(helper(python)) as load:

        async def prepare() -> int:
            async with AsyncClient.connect(cluster.bootstrap) as client:
                controller = await asyncio.to_thread(any_controller, cluster)
                followers = [BrokerId(n) for n in sorted(cluster.nodes) if n != controller]
                new = NewTopic("led", assignment={0: tuple(followers)}, configs={"min.insync.replicas": "2"})
                await client.create_topics([new], timeout_s=60)
                await wait_in_sync(cluster, "led", 3, deadline_s=60)
                return followers[0]

        leader = cluster.nodes[asyncio.run(prepare())]
        settings = {"enable.idempotence": True, "socket.timeout.ms": socket_timeout_ms}
        load.ask("victim", ",".join(cluster.bootstrap), "led", RATE_PER_S, settings)
        time.sleep(3)
        load.ask("take")
        leader.signal(signal.SIGKILL if kind == "kill -9" else signal.SIGSTOP)
        struck = time.monotonic()
        is_stopped = stop_for > 0 and kind != "kill -9"
        silence = 0.0
        while time.monotonic() - struck < 150:
            if is_stopped and time.monotonic() - struck > stop_for:
                leader.signal(signal.SIGCONT)
                is_stopped = False
            time.sleep(0.5)
            silence = max(silence, load.ask("take")["silence_s"])
            if silence > 0.1 and not is_stopped and time.monotonic() - struck > silence + 3:
                break
        return {
            "fault": kind, "client": "librdkafka", "socket.timeout.ms": socket_timeout_ms, "stop_for_s": stop_for,
            "silence_s": round(silence, 2),
        }  # fmt: skip


@click.command()
@click.option("--librdkafka", is_flag=True, help="Measure librdkafka, not our own client.")
@click.option("--socket-timeout-ms", multiple=True, type=int, default=(60_000,), show_default=True)
@click.option("--stop-for", type=float, default=0.0, help="Seconds after which the stopped node goes on; 0: never.")
@click.option(
    "--python", type=click.Path(path_type=Path), help="An interpreter with confluent-kafka; otherwise one is made."
)
@click.option("--partitions", multiple=True, type=click.IntRange(1), default=(1, 200, 3_300), show_default=True)
@click.option(
    "--busy", type=click.IntRange(0, 100), default=0, show_default=True, help="Processes that compute meanwhile."
)
@json_option
def main(
    *,
    librdkafka: bool,
    socket_timeout_ms: tuple[int, ...],
    stop_for: float,
    python: Path | None,
    partitions: tuple[int, ...],
    busy: int,
    json_file: Path | None,
) -> None:
    """Silence of producers when a leader is killed or stopped."""
    rows: list[dict[str, Any]] = []
    if librdkafka:
        for timeout_ms in socket_timeout_ms:
            for kind in ("kill -9", "SIGSTOP"):
                with tempfile.TemporaryDirectory(prefix="kafkalite-silence-") as directory:
                    interpreter = python or scratch_python()
                    rows.append(run_librdkafka(Path(directory), kind, interpreter, timeout_ms, stop_for))
                    console.print(rows[-1])
        write_json(rows, json_file)
        return
    for count in partitions:
        for kind in ("kill -9", "SIGSTOP"):
            with tempfile.TemporaryDirectory(prefix="kafkalite-silence-") as directory:
                rows.append(asyncio.run(run(Path(directory), count, kind, busy)))
    table = Table(
        "fault",
        "partitions led",
        "first ack",
        "all back",
        "of it controller",
        title="seconds of silence",
        title_justify="left",
    )
    for row in rows:
        table.add_row(
            row["fault"],
            f"{row['led']:,}",
            f"{row['first_s']:.2f}",
            f"{row['all_s']:.2f}",
            f"{row['controller_ms'] / 1000:.2f}",
        )
    console.print(table)
    write_json(rows, json_file)


if __name__ == "__main__":
    main()
