"""kafkalite and Apache Kafka side by side, in one run on one machine, under librdkafka.

    python -m bench.kafka_peer [--seconds 3] [--rows REGEX] [--json FILE]

Both have three nodes up all the time; each row is measured on one, then on the other, so that both see the same
machine. What counts is the ratio of a row, not its figures. Needs Java 17, Maven (Kafka's jars) and pip (librdkafka in
confluent-kafka's wheel); all go into .interop/, which git ignores.
"""

from __future__ import annotations

import json
import math
import os
import re
import subprocess
import sys
import tempfile
import time
from collections.abc import Iterable
from pathlib import Path
from typing import Any

import click
from rich.console import Console
from rich.table import Table

from kafkalite.testing.apache_kafka import KAFKA_VERSION, SERVER_FLAGS, KafkaCluster, class_path
from kafkalite.testing.processes import DIE_WITH_PARENT, Process, ProcessCluster

ROOT = Path(__file__).resolve().parents[1]
CACHE = ROOT / ".interop"
SIZES = (100, 1024)
PARTITIONS = (1, 6)
ACKS = ((1, "1"), (3, "1"), (1, "all"), (3, "all"))
MAX_BYTES = 1 << 30
console = Console(width=150)


class PeerLoad:
    """A process with librdkafka: a script of bench/ that answers each line in JSON with one. `niceness` is added to ours."""

    def __init__(self, python: Path, script: str = "librdkafka_load.py", *arguments: object, niceness: int = 0) -> None:
        self._asked = ""
        command = [*DIE_WITH_PARENT, "nice", f"-n{niceness}", str(python), str(ROOT / "bench" / script)]
        command += map(str, arguments)
        self._process = subprocess.Popen(command, stdin=subprocess.PIPE, stdout=subprocess.PIPE, text=True)

    def send(self, name: str, *arguments: Any) -> None:
        assert self._process.stdin is not None
        self._asked = f"{name} {arguments}"
        self._process.stdin.write(json.dumps([name, *arguments]) + "\n")
        self._process.stdin.flush()

    def answer(self) -> Any:
        assert self._process.stdout is not None
        line = self._process.stdout.readline()
        if not line:
            raise RuntimeError(f"the load generator failed; see its traceback above. It was asked {self._asked}")
        return json.loads(line)

    def ask(self, name: str, *arguments: Any) -> Any:
        self.send(name, *arguments)
        return self.answer()

    def close(self) -> None:
        self._process.kill()
        self._process.wait()


def scratch_python() -> Path:
    """An interpreter with confluent-kafka, made once."""
    requirements = (ROOT / "tests" / "interop" / "requirements.txt").read_text().splitlines()
    [wanted] = [line for line in requirements if line.startswith("confluent-kafka==")]
    directory = CACHE / f"bench-{wanted.replace('==', '-')}-py{sys.version_info[0]}{sys.version_info[1]}"
    python = directory / "bin" / "python"
    if not (directory / ".complete").exists():
        subprocess.run([sys.executable, "-m", "venv", str(directory)], check=True)
        subprocess.run([str(python), "-m", "pip", "install", "-q", wanted], check=True)
        (directory / ".complete").touch()
    return python


def tree_bytes(pid: int) -> int:
    """Resident memory of a process and all below it (`kafkalite zookeeper` holds a JVM)."""
    total = 0
    for line in Path(f"/proc/{pid}/status").read_text().splitlines():
        if line.startswith("VmRSS:"):
            total += int(line.split()[1]) * 1024
    for children in Path(f"/proc/{pid}/task").glob("*/children"):
        total += sum(tree_bytes(int(child)) for child in children.read_text().split())
    return total


class PeerBroker:
    """One of the two systems: its processes and where it listens."""

    def __init__(self, name: str, nodes: Iterable[Process], bootstrap: str) -> None:
        self.name = name
        self.nodes = list(nodes)
        self.bootstrap = bootstrap

    def cpu_seconds(self) -> float:
        return sum(node.cpu_seconds() for node in self.nodes)

    def peak_memory_mb(self) -> dict[str, float]:
        return {"largest node": max(node.peak_memory_bytes() for node in self.nodes) / 2**20}


def measure_load(
    load: PeerLoad, peer: PeerBroker, topic: str, size: int, partitions: int, factor: int, acks: str, seconds: float
) -> dict[str, dict[str, float]]:
    """Produce for `seconds`, then consume all of it."""
    load.ask("create", peer.bootstrap, topic, partitions, factor)
    rows = {}
    made: dict[str, float] = {}
    for what in ("produce", "consume"):
        before = peer.cpu_seconds()
        if what == "produce":
            made = done = load.ask(what, peer.bootstrap, topic, partitions, size, acks, seconds, MAX_BYTES)
        else:
            done = load.ask(what, peer.bootstrap, topic, partitions, size, made["records"])
        spent = peer.cpu_seconds() - before
        rows[what] = {
            "MB/s": done["bytes"] / done["seconds"] / 1e6,
            "records/s": done["records"] / done["seconds"],
            "CPU s/GB": spent / done["bytes"] * 1e9,
        }
    load.ask("delete", peer.bootstrap, topic)
    return rows


def start_up(load: PeerLoad, directory: Path, classes: str) -> dict[str, dict[str, float]]:
    """One node: from nothing, and again on its data, to the first acknowledged record; then its idle memory."""
    seconds: dict[str, dict[str, float]] = {"kafkalite": {}, "Apache Kafka": {}}
    kafka = KafkaCluster(directory / "kafka", classes, nodes=1)
    node: Process
    try:
        for label in ("first start", "restart"):
            began = time.monotonic()
            node = kafka.nodes[1]
            load.send("first_ack", kafka.bootstrap, "first")
            node.launch()
            seconds["Apache Kafka"][f"{label} to first ack, s"] = load.answer() - began
            if label == "first start":
                node.terminate()
        time.sleep(3)
        seconds["Apache Kafka"]["idle node, MB"] = node.memory_bytes() / 2**20
        seconds["Apache Kafka"]["idle with all it needs, MB"] = node.memory_bytes() / 2**20
    finally:
        kafka.close()
    with tempfile.TemporaryDirectory(dir=directory) as mine:
        cluster = ProcessCluster(Path(mine), nodes=1)
        try:
            began = time.monotonic()
            cluster.start()
            seconds["kafkalite"]["first start to first ack, s"] = (
                load.ask("first_ack", cluster.bootstrap[0], "first") - began
            )
            cluster.nodes[1].terminate()
            began = time.monotonic()
            load.send("first_ack", cluster.bootstrap[0], "first")
            cluster.restart(1)
            seconds["kafkalite"]["restart to first ack, s"] = load.answer() - began
            time.sleep(3)
            assert cluster.zookeeper is not None
            node = cluster.nodes[1]
            seconds["kafkalite"]["idle node, MB"] = node.memory_bytes() / 2**20
            seconds["kafkalite"]["idle with all it needs, MB"] = (
                sum(tree_bytes(each.pid) for each in (node, cluster.zookeeper)) / 2**20
            )
        finally:
            cluster.close()
    return seconds


#: Whether more is better.
RISING = {"MB/s": True, "records/s": True}


def ratio(column: str, ours: float, theirs: float) -> float:
    """How many times better we are; below 1 we are behind."""
    if not ours or not theirs:
        return math.nan
    return ours / theirs if RISING.get(column, False) else theirs / ours


class Results:
    def __init__(self) -> None:
        self.rows: dict[str, dict[str, Any]] = {}

    def add(self, name: str, ours: dict[str, float], theirs: dict[str, float]) -> None:
        ratios = {column: ratio(column, ours[column], theirs[column]) for column in ours}
        load = os.getloadavg()[0]
        self.rows[name] = {"kafkalite": ours, "Apache Kafka": theirs, "ratio": ratios, "load": load}
        cells = ", ".join(f"{c} {ours[c]:,.2f} | {theirs[c]:,.2f} ({ratios[c]:.2f}x)" for c in ours)
        console.print(f"{name}: {cells}; load {load:.1f}", highlight=False, soft_wrap=True)

    def table(self) -> Table:
        table = Table(title=f"kafkalite | Apache Kafka {KAFKA_VERSION} (times better)", title_justify="left")
        for column in ("", "what", "kafkalite", "Apache Kafka", "ratio", "load"):
            table.add_column(column, justify="left" if column in ("", "what") else "right")
        for name, row in self.rows.items():
            for number, column in enumerate(row["ratio"]):
                ours, theirs = row["kafkalite"][column], row["Apache Kafka"][column]
                load = "" if number else f"{row['load']:.1f}"
                figures = (f"{ours:,.2f}", f"{theirs:,.2f}", f"{row['ratio'][column]:.2f}")
                table.add_row("" if number else name, column, *figures, load)
        return table


def run(load: PeerLoad, directory: Path, seconds: float, wanted: re.Pattern[str]) -> Results:
    classes = class_path(CACHE)
    results = Results()
    if wanted.search("start"):
        both = start_up(load, directory / "one", classes)
        results.add("start of one node", both["kafkalite"], both["Apache Kafka"])
    settings = {"log.segment.bytes": 256 * 2**20}
    with (
        KafkaCluster(directory / "kafka", classes, settings=settings) as kafka,
        ProcessCluster(directory / "kafkalite", nodes=3, settings=settings) as cluster,
    ):
        peers = (
            PeerBroker("kafkalite", cluster.nodes.values(), ",".join(cluster.bootstrap)),
            PeerBroker("Apache Kafka", kafka.nodes.values(), kafka.bootstrap),
        )
        for peer in peers:  # the JVM compiles what is hot
            measure_load(load, peer, "warm", 100, 6, 3, "all", 2 * seconds)
            measure_load(load, peer, "warm-too", 1024, 6, 1, "1", 2 * seconds)
        number = 0
        for size in SIZES:
            for partitions in PARTITIONS:
                for factor, acks in ACKS:
                    name = f"{size} B, {partitions} p, RF {factor}, acks {acks}"
                    if not wanted.search(name):
                        continue
                    number += 1
                    topic = f"row-{number}"
                    order = peers if number % 2 else peers[::-1]  # neither always goes first
                    got = {
                        peer.name: measure_load(load, peer, topic, size, partitions, factor, acks, seconds)
                        for peer in order
                    }
                    for what in ("produce", "consume"):
                        results.add(f"{what} {name}", got["kafkalite"][what], got["Apache Kafka"][what])
        for factor, acks in ((1, "1"), (3, "all")):
            name = f"ack latency ms, 200/s, RF {factor}, acks {acks}"
            if wanted.search(name):
                got_ms = {}
                for peer in peers:
                    load.ask("create", peer.bootstrap, f"latency-{factor}", 1, factor)
                    got_ms[peer.name] = load.ask(
                        "latency", peer.bootstrap, f"latency-{factor}", 100, acks, 200, 2 * seconds
                    )
                results.add(name, got_ms["kafkalite"], got_ms["Apache Kafka"])
        results.add("peak memory, MB", *(peer.peak_memory_mb() for peer in peers))
    return results


@click.command()
@click.option("--seconds", default=3.0, show_default=True, help="Of producing, per row.")
@click.option("--rows", default=".", help="Only rows that match this regular expression; `start` is the start-up.")
@click.option("--json", "json_file", type=click.Path(), help="Write the figures there.")
def main(seconds: float, rows: str, json_file: str | None) -> None:
    """Throughput, CPU, latency, start-up and memory against Apache Kafka."""
    load = PeerLoad(scratch_python())
    try:
        with tempfile.TemporaryDirectory(prefix="kafkalite-peer-") as directory:
            results = run(load, Path(directory), seconds, re.compile(rows))
    finally:
        load.close()
    console.print(results.table())
    if json_file:
        machine = {"processors": os.cpu_count(), "kafka": KAFKA_VERSION, "kafka flags": " ".join(SERVER_FLAGS)}
        Path(json_file).write_text(json.dumps({"machine": machine, "rows": results.rows}, indent=1) + "\n")


if __name__ == "__main__":
    main()
