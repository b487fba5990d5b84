"""From nothing to the first accepted record, and the processor time and memory it takes: what a developer waits for.

    python -m bench.dev_start [--rounds 3] [--rows REGEX] [--beside TREE] [--json FILE]

In one run, beside each other: `kafkalite serve` (one node, its ZooKeeper runs already; for the first time, and again on its
data), `kafkalite dev` (three nodes, one process), the cluster of the pytest fixture (likewise, in a process of its own), Apache Kafka from its jars (one node, KRaft, its storage formatted beforehand), and a NATS server with JetStream
(Debian package nats-server; one node, file storage). The clock starts with the process and stops when a client that runs already
has its acknowledgement (librdkafka for Kafka's protocol, a few lines of NATS's own); it tries again until then. CPU
seconds are the process's own until then; on a machine that others use they say more than the wall clock. Memory is
resident, of the process and all below it, after that. `--beside` measures `serve` of another checkout too, in turns. Peers that the machine does not have are left out, and named.
"""

from __future__ import annotations

import json
import re
import shutil
import socket
import statistics
import subprocess
import sys
import tempfile
import time
from collections.abc import Callable, Mapping
from functools import partial
from pathlib import Path
from typing import NamedTuple

import click
from rich.console import Console
from rich.table import Table

from bench.figures import json_option, write_json
from bench.peers import CACHE, PeerLoad, scratch_python, tree_bytes
from kafkalite.testing.apache_kafka import KafkaCluster, class_path, free_ports
from kafkalite.testing.maven import JarsMissing
from kafkalite.testing.processes import DIE_WITH_PARENT, Process, ProcessCluster

PATIENCE_S = 90.0
_PAUSE_S = 0.005
_SETTLE_S = 2.0
_FIXTURE = """
import json, sys
from kafkalite.telemetry import logs
from kafkalite.testing.cluster import ThreadedCluster
logs.configure(level="error")
with ThreadedCluster(3) as running:
    print(json.dumps(running.bootstrap), flush=True)
    sys.stdin.readline()
"""


class StartOutcome(NamedTuple):
    """Of one start, to the first acknowledgement."""

    wall_s: float
    cpu_s: float
    #: Resident afterwards.
    memory_bytes: int


def _outcome(wall_s: float, pid: int) -> StartOutcome:
    threads = [each.read_text().split() for each in Path(f"/proc/{pid}/task").glob("*/schedstat")]
    cpu_s = sum(int(run_ns) for run_ns, *_ in threads) / 1e9  # the ticks of `stat` are too coarse
    time.sleep(_SETTLE_S)  # what a start allocates and gives back is not what it takes
    return StartOutcome(wall_s, cpu_s, tree_bytes(pid))


def _stop(process: subprocess.Popen[bytes]) -> None:
    process.terminate()
    process.wait(30)


def kafkalite_serve(load: PeerLoad, directory: Path, *, tree: Path | None = None, again: bool = False) -> StartOutcome:
    """One node. `tree`: another checkout's. `again`: it ran before, and was stopped."""
    zookeeper = ProcessCluster(directory, nodes=0).start()
    [port] = free_ports(1)
    bootstrap = f"127.0.0.1:{port}"
    arguments = ["serve", "--id", "1", "--zookeeper", zookeeper.zookeeper_connect, "--log-dir", str(directory / "log")]
    arguments += ["--kafka", bootstrap, "--rpc", "127.0.0.1:0", "--http", "127.0.0.1:0"]
    node = Process("node", arguments, directory / "node.log", tree=tree)
    try:
        for _ in range(again):
            node.launch()
            load.ask("first_ack", bootstrap, "first")
            node.terminate()
        load.send("first_ack", bootstrap, "first")
        began = time.monotonic()
        node.launch()
        return _outcome(load.answer() - began, node.pid)
    finally:
        node.kill()
        zookeeper.close()


def kafkalite_dev(load: PeerLoad, directory: Path) -> StartOutcome:
    """`kafkalite dev` with its defaults, on other ports."""
    base = _free_base()
    command = [*DIE_WITH_PARENT, sys.executable, "-m", "kafkalite_cli", "dev", "--kafka-port", str(base)]
    load.send("first_ack", f"127.0.0.1:{base}", "first")
    began = time.monotonic()
    with subprocess.Popen(command, stdout=subprocess.DEVNULL) as process:
        try:
            return _outcome(load.answer() - began, process.pid)
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


def kafkalite_fixture(load: PeerLoad, directory: Path) -> StartOutcome:
    """What the fixture `kafkalite_cluster` gives a test session."""
    command = [*DIE_WITH_PARENT, sys.executable, "-c", _FIXTURE]
    began = time.monotonic()
    with subprocess.Popen(command, stdin=subprocess.PIPE, stdout=subprocess.PIPE) as process:
        try:
            assert process.stdout is not None
            bootstrap = json.loads(process.stdout.readline())
            return _outcome(load.ask("first_ack", ",".join(bootstrap), "first") - began, process.pid)
        finally:
            _stop(process)


def apache_kafka(load: PeerLoad, directory: Path) -> StartOutcome:
    """One broker. Raises JarsMissing."""
    cluster = KafkaCluster(directory / "kafka", class_path(CACHE), nodes=1)
    try:
        load.send("first_ack", cluster.bootstrap, "first")
        began = time.monotonic()
        cluster.nodes[1].launch()
        return _outcome(load.answer() - began, cluster.nodes[1].pid)
    finally:
        cluster.close()


def jetstream(load: PeerLoad, directory: Path) -> StartOutcome:
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
            return _outcome(time.monotonic() - began, process.pid)
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
            reply: dict[str, object] = json.loads(answers.read(int(line.split()[-1]) + 2))
            return reply

        stream = {"name": "first", "subjects": ["first"], "storage": "file", "num_replicas": 1}
        while "error" in (made := ask("$JS.API.STREAM.CREATE.first", json.dumps(stream).encode(), "create")):
            assert time.monotonic() < until, made
            time.sleep(_PAUSE_S)
        assert ask("first", b"first", "ack").get("seq") == 1


PEERS: Mapping[str, Callable[..., StartOutcome]] = {
    "kafkalite serve (1 node)": kafkalite_serve,
    "kafkalite serve, again": partial(kafkalite_serve, again=True),
    "kafkalite dev (3 nodes)": kafkalite_dev,
    "pytest fixture (3 nodes)": kafkalite_fixture,
    "Apache Kafka (1 node)": apache_kafka,
    "NATS JetStream (1 node)": jetstream,
}


@click.command()
@click.option("--rounds", type=click.IntRange(1), default=3, show_default=True, help="Of each; the median is shown.")
@click.option("--rows", default=".", help="Only rows that match this regular expression.")
@click.option("--beside", type=click.Path(exists=True, file_okay=False, path_type=Path), help="Another checkout.")
@json_option
def main(rounds: int, rows: str, beside: Path | None, json_file: Path | None) -> None:
    """See the module."""
    peers = {name: measure for name, measure in PEERS.items() if re.search(rows, name)}
    if beside is not None:
        for name in [name for name in peers if "serve" in name]:
            peers[f"{name}, {beside}"] = partial(peers[name], tree=beside.resolve())
    found: dict[str, list[StartOutcome]] = {}
    missing: dict[str, str] = {}
    for _ in range(rounds):  # one of each a round, so that a busy moment meets all of them
        for name, measure in peers.items():
            load = PeerLoad(scratch_python())
            try:
                with tempfile.TemporaryDirectory(prefix="kafkalite-start-") as directory:
                    found.setdefault(name, []).append(measure(load, Path(directory)))
            except (JarsMissing, FileNotFoundError) as error:
                missing[name] = str(error)
                found.pop(name, None)
            finally:
                load.close()
    table = Table(title=f"from the start of the process to the first acknowledged record, median of {rounds} (best)")
    for column in ("", "s", "CPU s", "MB"):
        table.add_column(column, justify="right" if column else "left")
    measured = {
        name: {
            "seconds": round(statistics.median(each.wall_s for each in outcomes), 3),
            "cpu_seconds": round(statistics.median(each.cpu_s for each in outcomes), 3),
            "megabytes": round(statistics.median(each.memory_bytes for each in outcomes) / 2**20, 1),
            "all": [each._asdict() for each in outcomes],
        }
        for name, outcomes in found.items()
    }
    for name, row in measured.items():
        wall_s, cpu_s = (min(each[of] for each in found[name]) for of in range(2))
        cells = (f"{row['seconds']} ({wall_s:.3f})", f"{row['cpu_seconds']} ({cpu_s:.3f})", str(row["megabytes"]))
        table.add_row(name, *cells)
    Console().print(table)
    for name, why in missing.items():
        click.echo(f"not here: {name}: {why}")
    write_json({"rows": measured, "missing": missing}, json_file)


if __name__ == "__main__":
    main()
