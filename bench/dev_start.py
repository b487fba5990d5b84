"""From nothing to the first accepted record, and the memory it takes: what a developer waits for.

    python -m bench.dev_start [--rounds 3] [--json FILE]

In one run, beside each other: `kafkalite dev` (three nodes, one process), the cluster of the pytest fixture (likewise, in a
process of its own), Apache Kafka from its jars (one node, KRaft, its storage formatted beforehand), and a NATS server with JetStream
(Debian package nats-server; one node, file storage). The clock starts with the process and stops when a client that runs already
has its acknowledgement (librdkafka for Kafka's protocol, a few lines of NATS's own); it tries again until then. Memory is
resident, of the process and all below it, after that. Peers that the machine does not have are left out, and named.
"""

from __future__ import annotations

import json
import shutil
import socket
import statistics
import subprocess
import sys
import tempfile
import time
from collections.abc import Callable, Mapping
from pathlib import Path

import click
from rich.console import Console
from rich.table import Table

from bench.kafka_peer import CACHE, Load, scratch_python, tree_bytes
from kafkalite.testing.apache_kafka import KafkaCluster, KafkaJarsMissing, class_path, free_ports
from kafkalite.testing.processes import DIE_WITH_PARENT

PATIENCE_S = 90.0
_PAUSE_S = 0.005
_SETTLE_S = 2.0
_FIXTURE = """
import json, sys
from kafkalite.telemetry import logs
from kafkalite.testing.cluster import ThreadedCluster
logs.configure(level="error")
with ThreadedCluster(3) as running:
    print(json.dumps(running.kafka_bootstrap), flush=True)
    sys.stdin.readline()
"""

#: (seconds to the first acknowledgement, bytes resident afterwards).
Outcome = tuple[float, int]


def _memory(pid: int) -> int:
    time.sleep(_SETTLE_S)  # what a start allocates and gives back is not what it takes
    return tree_bytes(pid)


def _stop(process: subprocess.Popen[bytes]) -> None:
    process.terminate()
    process.wait(30)


def kafkalite_dev(load: Load, directory: Path) -> Outcome:
    """`kafkalite dev` with its defaults, on other ports."""
    base = _free_base()
    command = [*DIE_WITH_PARENT, sys.executable, "-m", "kafkalite_cli", "dev", "--kafka-port", str(base)]
    load.send("first_ack", f"127.0.0.1:{base}", "first")
    began = time.monotonic()
    with subprocess.Popen(command, stdout=subprocess.DEVNULL) as process:
        try:
            return load.answer() - began, _memory(process.pid)
        finally:
            _stop(process)


def _free_base() -> int:
    """A port such that those which `dev` adds to it (two more, +100, +200) are free as well."""
    while True:
        base = free_ports(1)[0]
        try:
            for port in [base + hundred + node for hundred in (0, 100, 200) for node in range(3)]:
                socket.create_server(("127.0.0.1", port)).close()
        except (OSError, OverflowError):
            continue
        return base


def kafkalite_fixture(load: Load, directory: Path) -> Outcome:
    """What the fixture `kafkalite_cluster` gives a test session."""
    command = [*DIE_WITH_PARENT, sys.executable, "-c", _FIXTURE]
    began = time.monotonic()
    with subprocess.Popen(command, stdin=subprocess.PIPE, stdout=subprocess.PIPE) as process:
        try:
            assert process.stdout is not None
            bootstrap = json.loads(process.stdout.readline())
            return load.ask("first_ack", ",".join(bootstrap), "first") - began, _memory(process.pid)
        finally:
            _stop(process)


def apache_kafka(load: Load, directory: Path) -> Outcome:
    """One broker. Raises KafkaJarsMissing."""
    cluster = KafkaCluster(directory / "kafka", class_path(CACHE), nodes=1)
    try:
        load.send("first_ack", cluster.bootstrap, "first")
        began = time.monotonic()
        cluster.nodes[1].launch()
        return load.answer() - began, _memory(cluster.nodes[1].pid)
    finally:
        cluster.close()


def jetstream(load: Load, directory: Path) -> Outcome:
    """One server, a stream on files with one replica. Raises FileNotFoundError."""
    server = shutil.which("nats-server")
    if server is None:
        raise FileNotFoundError("nats-server")
    [port] = free_ports(1)
    command = [*DIE_WITH_PARENT, server, "-a", "127.0.0.1", "-p", str(port), "-js", "-sd", str(directory / "nats")]
    began = time.monotonic()
    with subprocess.Popen(command, stdout=subprocess.DEVNULL, stderr=subprocess.DEVNULL) as process:
        try:
            _nats_first_ack(port)
            return time.monotonic() - began, _memory(process.pid)
        finally:
            _stop(process)


def _nats_first_ack(port: int) -> None:
    until = time.monotonic() + PATIENCE_S
    while True:
        try:
            peer = socket.create_connection(("127.0.0.1", port), timeout=PATIENCE_S)
            break
        except ConnectionRefusedError:
            assert time.monotonic() < until, "nats-server does not listen"
            time.sleep(_PAUSE_S)
    with peer, peer.makefile("rb") as answers:
        peer.sendall(b'CONNECT {"verbose":false}\r\nSUB inbox.* 1\r\n')

        def ask(subject: str, body: bytes, inbox: str) -> dict[str, object]:
            peer.sendall(b"PUB %b inbox.%b %d\r\n%b\r\n" % (subject.encode(), inbox.encode(), len(body), body))
            while not (line := answers.readline()).startswith(b"MSG"):
                assert line, "nats-server closed the connection"
                if line.startswith(b"PING"):
                    peer.sendall(b"PONG\r\n")
            told: dict[str, object] = json.loads(answers.read(int(line.split()[-1]) + 2))
            return told

        stream = {"name": "first", "subjects": ["first"], "storage": "file", "num_replicas": 1}
        while "error" in (made := ask("$JS.API.STREAM.CREATE.first", json.dumps(stream).encode(), "create")):
            assert time.monotonic() < until, made
            time.sleep(_PAUSE_S)
        assert ask("first", b"first", "ack").get("seq") == 1


PEERS: Mapping[str, Callable[[Load, Path], Outcome]] = {
    "kafkalite dev (3 nodes)": kafkalite_dev,
    "pytest fixture (3 nodes)": kafkalite_fixture,
    "Apache Kafka (1 node)": apache_kafka,
    "NATS JetStream (1 node)": jetstream,
}


@click.command()
@click.option("--rounds", type=click.IntRange(1), default=3, show_default=True, help="Of each; the median is shown.")
@click.option("--json", "target", type=click.Path(dir_okay=False), help="Write every measurement there.")
def main(rounds: int, target: str | None) -> None:
    """See the module."""
    found: dict[str, list[Outcome]] = {}
    missing: dict[str, str] = {}
    for _ in range(rounds):  # one of each a round, so that a busy moment meets all of them
        for name, measure in PEERS.items():
            load = Load(scratch_python())
            try:
                with tempfile.TemporaryDirectory(prefix="kafkalite-start-") as directory:
                    found.setdefault(name, []).append(measure(load, Path(directory)))
            except (KafkaJarsMissing, FileNotFoundError) as error:
                missing[name] = str(error)
                found.pop(name, None)
            finally:
                load.close()
    table = Table(title=f"from the start of the process to the first acknowledged record, median of {rounds}")
    for column in ("", "s", "MB"):
        table.add_column(column, justify="right" if column else "left")
    rows = {
        name: {
            "seconds": round(statistics.median(seconds for seconds, _ in outcomes), 3),
            "megabytes": round(statistics.median(size for _, size in outcomes) / 2**20, 1),
            "all_seconds": [round(seconds, 3) for seconds, _ in outcomes],
        }
        for name, outcomes in found.items()
    }
    for name, row in rows.items():
        table.add_row(name, str(row["seconds"]), str(row["megabytes"]))
    Console().print(table)
    for name, why in missing.items():
        click.echo(f"not here: {name}: {why}")
    if target:
        Path(target).write_text(json.dumps({"rows": rows, "missing": missing}, indent=1) + "\n")


if __name__ == "__main__":
    main()
