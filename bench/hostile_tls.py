"""Thousands of unauthenticated peers on the TLS ports of one node: what they cost it, and what an honest producer feels.

    python -m bench.hostile_tls [--peers 3000] [--seconds 20] [--json FILE]

Three nodes with SASL_SSL everywhere. A producer (acks=all, RF 3, 100 records a second) works through every wave: first nobody else;
then half of a first message of TLS on each of that many connections, opened again whenever the node ends one; then whole handshakes
after which nothing comes, likewise (both on the Kafka listener of node 1); then as many clients of its RPC listener that have logged in
and are idle. `honest logins` are whole new connections with TLS and SCRAM meanwhile, one after the other.
"""

from __future__ import annotations

import asyncio
import contextlib
import multiprocessing
import resource
import ssl
import statistics
import tempfile
import time
from collections.abc import AsyncIterator
from concurrent.futures import ProcessPoolExecutor
from dataclasses import dataclass
from pathlib import Path
from typing import Any

import click
from rich.console import Console
from rich.table import Table

from bench.figures import json_option, write_json
from kafkalite.client.async_client import AsyncClient
from kafkalite.client.connection import Connection
from kafkalite.client.producer import Producer
from kafkalite.env.real_network import RealNetwork
from kafkalite.env.supervisor import Supervisor
from kafkalite.extension.messages.topics import NewTopic
from kafkalite.model import Endpoint
from kafkalite.security.dialling import ClientSecurity
from kafkalite.testing.certificates import Authority
from kafkalite.testing.processes import Process, ProcessCluster

TOPIC = "t"
USER, PASSWORD = "node", "of the cluster"
RATE = 100
#: The beginning of a ClientHello that says 512 bytes more will come.
HALF_HELLO = b"\x16\x03\x01\x02\x00\x01\x00\x01\xfc\x03\x03"
#: Opened at a time: more would only fill the kernel's queue.
_AT_ONCE = 50
#: Patience until all peers have been there.
_UP_S = 180.0
console = Console()


class Secured(ProcessCluster):
    """Three nodes; every user is of PLAIN, so that nothing has to be in ZooKeeper first."""

    def __init__(self, directory: Path) -> None:
        self.authority = Authority(directory / "authority")
        users = directory / "users"
        users.write_text(f"{USER}={PASSWORD}\n")
        settings = {
            "listener.security.protocol": "SASL_SSL",
            "rpc.security.protocol": "SASL_SSL",
            "ssl.keystore.location": self.authority.issue("node"),
            "ssl.truststore.location": self.authority.truststore,
            "sasl.enabled.mechanisms": "PLAIN",
            "sasl.mechanism.inter.broker.protocol": "PLAIN",
            "sasl.plain.users.location": str(users),
            "inter.broker.username": USER,
            "inter.broker.password": PASSWORD,
            "min.insync.replicas": 2,
        }
        super().__init__(directory / "cluster", nodes=3, settings=settings)

    @property
    def security(self) -> ClientSecurity:
        return ClientSecurity(
            "SASL_SSL",
            self.authority.truststore,
            "",
            "",
            check_hostname=True,
            mechanism="PLAIN",
            username=USER,
            password=PASSWORD,
        )


class Wave:
    """What happened while it lasted."""

    def __init__(self, name: str, node: Process) -> None:
        self.name = name
        self.opened = 0
        self.most = 0
        self.acks_ms: list[float] = []
        self.logins_ms: list[float] = []
        self.failed = 0
        self._node = node
        self._memory = node.memory_bytes()
        self._cpu = node.cpu_seconds()
        self._began = time.monotonic()
        Path(f"/proc/{node.pid}/clear_refs").write_text("5")  # the peak counts from here

    def row(self) -> dict[str, Any]:
        seconds = time.monotonic() - self._began
        cuts = statistics.quantiles(self.acks_ms, n=100)
        return {
            "wave": self.name,
            "opened": self.opened,
            "at once": self.most,
            "MB before": self._memory // 2**20,
            "MB peak": self._node.peak_memory_bytes() // 2**20,
            "MB after": self._node.memory_bytes() // 2**20,
            "cpu %": round(100 * (self._node.cpu_seconds() - self._cpu) / seconds),
            "acks": len(self.acks_ms),
            "failed": self.failed,
            "ack p50 ms": round(cuts[49], 1),
            "ack p99 ms": round(cuts[98], 1),
            "ack max ms": round(max(self.acks_ms), 1),
            "honest logins": len(self.logins_ms),
            "login p50 ms": round(statistics.median(self.logins_ms), 1),
            "login max ms": round(max(self.logins_ms), 1),
        }


async def produce(client: AsyncClient, wave: Wave, stop: asyncio.Event) -> None:
    """RATE records a second, whatever else goes on."""

    def acked(sent: float, future: asyncio.Future[Any]) -> None:
        if future.cancelled() or future.exception() is not None:
            wave.failed += 1
        else:
            wave.acks_ms.append((time.monotonic() - sent) * 1000)

    began, number = time.monotonic(), 0
    async with Producer(client, acks="all", idempotent=True, linger_ms=0) as producer:
        while not stop.is_set():
            while number < (time.monotonic() - began) * RATE:
                sent = time.monotonic()
                future = await producer.send(TOPIC, None, b"x" * 100, partition=number % 6)
                future.add_done_callback(lambda done, sent=sent: acked(sent, done))  # type: ignore[misc]
                number += 1
            await asyncio.sleep(0.005)
        await producer.flush()


async def log_in(endpoint: Endpoint, security: ClientSecurity) -> Connection:
    supervisor = Supervisor(lambda error: None)
    return await Connection.open(
        RealNetwork(), endpoint, "honest", supervisor=supervisor, dialling=security.open(), timeout_s=60
    )


async def logins(endpoint: Endpoint, security: ClientSecurity, wave: Wave, stop: asyncio.Event) -> None:
    """One honest connection after the other, to the same node's listener."""
    while not stop.is_set():
        began = time.monotonic()
        connection = await log_in(endpoint, security)
        wave.logins_ms.append((time.monotonic() - began) * 1000)
        connection.abort("seen")
        await asyncio.sleep(0.2)


@dataclass(frozen=True)
class Attack:
    """What a process of unauthenticated peers does. `kind`: half, silent or idle. `seconds`: after all have been there once."""

    kind: str
    endpoint: Endpoint
    count: int
    seconds: float
    security: ClientSecurity


async def peers(attack: Attack) -> tuple[int, int]:
    """Connections that are kept up for that time: (opened, most at once)."""
    host, port = attack.endpoint.host, attack.endpoint.port
    context = ssl.create_default_context(cafile=attack.security.truststore)
    gate = asyncio.Semaphore(_AT_ONCE)
    stop, all_were_there = asyncio.Event(), asyncio.Event()
    opened = open_now = most = 0

    async def dial() -> tuple[asyncio.StreamReader, asyncio.StreamWriter]:
        if attack.kind == "silent":
            return await asyncio.open_connection(host, port, ssl=context, ssl_handshake_timeout=60)
        reader, writer = await asyncio.open_connection(host, port)
        writer.write(HALF_HELLO)
        return reader, writer

    async def one() -> None:
        nonlocal opened, open_now, most
        while not stop.is_set():
            async with gate:
                if attack.kind == "idle":
                    connection = await log_in(attack.endpoint, attack.security)
                else:
                    try:
                        reader, writer = await dial()
                    except OSError:
                        continue
            opened, open_now = opened + 1, open_now + 1
            most = max(most, open_now)
            if opened >= attack.count:
                all_were_there.set()
            if attack.kind == "idle":
                await stop.wait()
                connection.abort("seen")
            else:
                with contextlib.suppress(OSError):
                    await reader.read(1)
                writer.transport.abort()
            open_now -= 1

    tasks = [asyncio.create_task(one()) for _ in range(attack.count)]
    with contextlib.suppress(TimeoutError):  # each of them once, however slow this machine is
        async with asyncio.timeout(_UP_S):
            await all_were_there.wait()
    await asyncio.sleep(attack.seconds)
    stop.set()
    for task in tasks:
        task.cancel()
    await asyncio.wait(tasks)
    return opened, most


def _attack(attack: Attack) -> tuple[int, int]:
    """In a process of its own: what the attack costs the attacker is not to be measured."""
    return asyncio.run(peers(attack))


@contextlib.asynccontextmanager
async def observed(cluster: Secured, name: str, rows: list[dict[str, Any]]) -> AsyncIterator[Wave]:
    """A wave with its producer and its honest logins; its row when it is over."""
    wave, stop = Wave(name, cluster.nodes[1]), asyncio.Event()
    async with (
        AsyncClient.connect(cluster.bootstrap, security=cluster.security) as client,
        asyncio.TaskGroup() as group,
    ):
        group.create_task(produce(client, wave, stop))
        group.create_task(logins(endpoint(cluster, "kafka"), cluster.security, wave, stop))
        yield wave
        stop.set()
    rows.append(wave.row())


def endpoint(cluster: Secured, listener: str) -> Endpoint:
    host, _, port = str(cluster.nodes[1].ready[listener]).rpartition(":")
    return Endpoint(host, int(port))


async def run(directory: Path, count: int, seconds: float) -> list[dict[str, Any]]:
    rows: list[dict[str, Any]] = []
    waves = (
        ("half handshakes", "half", "kafka"),
        ("handshakes, then silence", "silent", "kafka"),
        ("idle clients", "idle", "kafka"),
        ("half handshakes again", "half", "kafka"),
    )
    with Secured(directory) as cluster, ProcessPoolExecutor(1, multiprocessing.get_context("spawn")) as pool:
        async with AsyncClient.connect(cluster.bootstrap, security=cluster.security) as client:
            await client.create_topics([NewTopic(TOPIC, 6, 3)])
        async with observed(cluster, "nobody else", rows):
            await asyncio.sleep(seconds)
        for name, kind, listener in waves:
            async with observed(cluster, name, rows) as wave:
                attack = Attack(kind, endpoint(cluster, listener), count, seconds, cluster.security)
                wave.opened, wave.most = await asyncio.get_running_loop().run_in_executor(pool, _attack, attack)
            console.print(rows[-1])
        async with observed(cluster, "afterwards", rows):
            await asyncio.sleep(seconds)
        log_text = cluster.nodes[1].log_path.read_text()
        lines = sum(log_text.count(text) for text in ("tls.refused", "authentication.failed"))
        console.print(f"lines about them in the log of node 1: {lines}; tracebacks: {log_text.count('Traceback')}")
    return rows


@click.command(help=__doc__)
@click.option("--peers", "count", default=3000, show_default=True, help="Connections at once in each wave.")
@click.option("--seconds", default=20.0, show_default=True, help="How long each wave lasts.")
@json_option
def main(count: int, seconds: float, json_file: Path | None) -> None:
    soft, hard = resource.getrlimit(resource.RLIMIT_NOFILE)
    wanted = 2 * count + 1000
    if wanted > hard:
        raise click.ClickException(f"needs {wanted} open files; the limit is {hard}")
    resource.setrlimit(resource.RLIMIT_NOFILE, (max(soft, wanted), hard))  # and of the nodes that it starts
    with tempfile.TemporaryDirectory(prefix="kafkalite-hostile-") as directory:
        rows = asyncio.run(run(Path(directory), count, seconds))
    table = Table(*rows[0])
    for row in rows:
        table.add_row(*map(str, row.values()))
    Console(width=220).print(table)
    write_json(rows, json_file)


if __name__ == "__main__":
    main()
