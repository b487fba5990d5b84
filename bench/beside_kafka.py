"""kafkalite beside Apache Kafka where one event loop could show: many partitions, cold readers, huge requests, small records, topics.

    python -m bench.beside_kafka [--kafka 4.4.0] [--tree CHECKOUT ...] [--rounds 3] [--rows REGEX] [--json FILE]

Three nodes of each system (of each --tree, too; this checkout if none is given) run all the time; in each round every row is measured on
each of them in turn. The table shows medians, once for the screen and once in Markdown. All clients are librdkafka and franz-go, and raw sockets for the requests that no client
sends. About 10 minutes with three rounds on an idle machine with two cores. Needs Java, Maven, pip (confluent-kafka) and Go.
"""

from __future__ import annotations

import contextlib
import json
import os
import re
import statistics
import tempfile
import time
from collections.abc import Callable
from pathlib import Path
from typing import Any

import click
from rich.console import Console
from rich.table import Table

from bench import idle_partitions, small_requests
from bench.beside import BOMB_BYTES, BesideClient, Helper, bomb, chill, huge
from bench.creation import create
from bench.idle_partitions import Side
from bench.kafka_peer import CACHE, ROOT, PeerLoad, scratch_python
from kafkalite.protocol import wire
from kafkalite.testing.apache_kafka import NEWEST_VERSION, KafkaCluster, server_class_path

#: The cold records: 300 MB.
OLD_RECORDS, OLD_BYTES, OLD_PARTITIONS = 4_800, 64 * 1024, 6
#: Records per second, and their bytes, that the producer beside the cold reader sends.
RATE, STEADY_BYTES = 20_000, 100
console = Console(width=160)
Row = dict[str, float]


class System:
    """Three nodes of one system, with what the rows need on them."""

    def __init__(self, side: Side, directory: Path, load: PeerLoad) -> None:
        self.name = side.name
        self.side = side
        self.directory = directory
        self.load = load
        self.bootstrap = side.bootstrap

    def prepare(self) -> None:
        """Topics, cold records, and enough requests for a JVM to compile what is hot."""
        self.load.ask("create", self.bootstrap, "victim", 1, 3)
        self.load.ask("create", self.bootstrap, "old", OLD_PARTITIONS, 1)
        helper = Helper(scratch_python())
        helper.call("fill", self.bootstrap, "old", OLD_RECORDS, OLD_BYTES, OLD_PARTITIONS)
        helper.close()
        for factor in (3, 1):
            small_requests.measure(self.side, self.load, factor, 3_000, 5)
        create(self.bootstrap, 100, 100, 1, 3)

    def address_of_leader(self, topic: str) -> str:
        client = BesideClient(self.bootstrap.split(",", maxsplit=1)[0])
        answer = client.ask(wire.MetadataRequest([wire.MetadataRequest.MetadataRequestTopic(name=topic)], False), 12)
        client.close()
        addresses = {broker.node_id: f"{broker.host}:{broker.port}" for broker in answer.brokers}
        return addresses[answer.topics[0].partitions[0].leader_id]

    def cpu_seconds(self) -> float:
        return sum(self.side.cpu_seconds())


class Kafka(Side):
    """Three nodes of Apache Kafka, KRaft."""

    def __init__(self, directory: Path, version: str) -> None:
        self.name = f"Kafka {version}"
        self.cluster = KafkaCluster(directory, server_class_path(CACHE, version))  # type: ignore[assignment]

    @property
    def bootstrap(self) -> str:
        return str(self.cluster.bootstrap)


# --- rows ---------------------------------------------------------------------------------------------------


def many_partitions(system: System, client: str) -> Row:
    """One consumer of many partitions, one of them with 200 records/s: CPU of its leader without the producer's part."""
    found: Row = {}
    for partitions in (30, 1000):
        alone, share = idle_partitions.measure(system.side, system.load, client, partitions, 1, 3.0)
        found[f"{partitions} partitions: % of a core"] = share
        found[f"{partitions} partitions: without the producer's"] = share - alone
    return found


def waited_for_disk_ms(pid: int) -> float:
    """How long the process's first thread (a node's loop) has waited for reads from the disk; 0 without sysctl kernel.task_delayacct=1."""
    fields = Path(f"/proc/{pid}/task/{pid}/stat").read_text().rpartition(")")[2].split()
    return int(fields[39]) * 1000 / os.sysconf("SC_CLK_TCK")


def cold_reader(system: System) -> Row:
    """A reader of 300 MB that the page cache does not have, beside a producer of 20,000 records/s: acknowledgements of the producer."""
    pids = [node.pid for node in system.side.cluster.nodes.values()]
    topic = f"steady-{time.monotonic_ns()}"
    system.load.ask("create", system.bootstrap, topic, 1, 3)
    python = scratch_python()
    producer, reader = Helper(python), Helper(python)
    found: Row = {}
    try:
        settings = {"linger.ms": 5, "queue.buffering.max.messages": 1_000_000}
        producer.call("victim", system.bootstrap, topic, RATE, settings, STEADY_BYTES)
        time.sleep(2)
        for name, reads in (("alone", False), ("cold reader", True), ("the same reader, hot", True)):
            if name == "cold reader":
                chill(system.directory)
            producer.call("take")
            began = time.monotonic()
            waited = sum(map(waited_for_disk_ms, pids))
            if reads:
                took = reader.call("read_all", system.bootstrap, "old", OLD_PARTITIONS, OLD_RECORDS)
                found[f"{name}: MB/s"] = OLD_RECORDS * OLD_BYTES / took / 1e6
            time.sleep(max(0.2, 3 - (time.monotonic() - began)))
            taken = producer.call("take")
            for column in ("p50", "p99", "max"):
                found[f"{name}: {column} ms"] = taken[column]
            found[f"{name}: ms that loops waited for the disk"] = sum(map(waited_for_disk_ms, pids)) - waited
    finally:
        producer.close()
        reader.close()
    system.load.ask("delete", system.bootstrap, topic)
    return found


def beside(system: System, act: Callable[[], object]) -> Row:
    """A producer of 100 single records a second while `act` runs: its slowest acknowledgement."""
    helper = Helper(scratch_python())
    try:
        helper.call("victim", system.bootstrap, "victim", 100.0)
        time.sleep(2)
        before = helper.call("take")
        used, began = system.cpu_seconds(), time.monotonic()
        with contextlib.suppress(OSError):  # a broker may close the connection instead of an answer
            act()
        took = time.monotonic() - began
        time.sleep(0.5)
        taken = helper.call("take")
    finally:
        helper.close()
    return {
        "before: max ms": before["max"],
        "p99 ms": taken["p99"],
        "max ms": taken["max"],
        "s until the answer": took,
        "CPU s": system.cpu_seconds() - used,
    }


def huge_request(system: System, name: str) -> Row:
    """One legal request with 190,000 elements."""
    message, version = huge()[name]

    def act() -> None:
        client = BesideClient(system.address_of_leader("victim"))
        client.send(message, version)
        client.receive()
        client.close()

    return beside(system, act)


def bombs(system: System) -> Row:
    """Ten zstd batches of some kB that expand to 250 MB each, on a compacted topic."""
    topic, data, produce = f"compacted-{time.monotonic_ns()}", bomb(), wire.ProduceRequest
    creatable = wire.CreateTopicsRequest.CreatableTopic
    configs = [wire.CreateTopicsRequest.CreatableTopicConfig("cleanup.policy", "compact")]
    maker = BesideClient(system.address_of_leader("victim"))
    maker.ask(wire.CreateTopicsRequest([creatable(topic, 1, 3, configs=configs)], 30_000), 7)
    maker.close()
    time.sleep(1)
    batch = [produce.TopicProduceData(topic, partition_data=[produce.PartitionProduceData(0, data)])]

    def act() -> None:
        address = system.address_of_leader(topic)
        clients = [BesideClient(address) for _ in range(10)]
        for client in clients:
            client.send(produce(None, -1, 30_000, batch), 9)
        for client in clients:
            client.receive()
            client.close()

    peak = max(node.peak_memory_bytes() for node in system.side.cluster.nodes.values())
    found = beside(system, act)
    grown = max(node.peak_memory_bytes() for node in system.side.cluster.nodes.values()) - peak
    return {**found, f"MB more at the peak (a batch has {BOMB_BYTES >> 20})": grown / 2**20}


def small_records(system: System, factor: int) -> Row:
    """One 1 KiB record per request, five in flight."""
    cost, rate = small_requests.measure(system.side, system.load, factor, 4_000 if factor > 1 else 10_000, 5)
    return {"us of CPU per request": cost, "requests/s": rate}


def topics(system: System) -> Row:
    """Topics with one partition and three replicas, 100 per request."""
    used = system.cpu_seconds()
    took = create(system.bootstrap, 500, 100, 1, 3)
    time.sleep(1)  # what goes on after the answer belongs to it
    return {"topics/s": 500 / took, "ms of CPU per topic": (system.cpu_seconds() - used) / 500 * 1e3}


ROWS: dict[str, Callable[[System], Row]] = {
    "one 1 KiB record per request, RF 3": lambda system: small_records(system, 3),
    "one 1 KiB record per request, RF 1": lambda system: small_records(system, 1),
    "topics in batches of 100, RF 3": topics,
    "a consumer of 30 and 1,000 partitions, franz-go": lambda system: many_partitions(system, "franz-go"),
    "a cold reader beside 20,000 records/s": cold_reader,
    "CreateTopics with 190,000 names": lambda system: huge_request(system, "CreateTopics"),
    "Metadata with 190,000 names": lambda system: huge_request(system, "Metadata"),
    "ten batches that expand to 250 MB": bombs,
}


def medians(rounds: list[Row]) -> Row:
    return {column: statistics.median(each[column] for each in rounds) for column in rounds[0]}


def table(found: dict[str, dict[str, list[Row]]], names: list[str]) -> Table:
    shown = Table("row", "figure", *names)
    for row, by_name in found.items():
        middle = {name: medians(rounds) for name, rounds in by_name.items() if rounds}
        for number, column in enumerate(next(iter(middle.values()), {})):
            cells = [f"{middle[name][column]:,.1f}" if name in middle else "" for name in names]
            shown.add_row("" if number else row, column, *cells)
    return shown


def markdown(found: dict[str, dict[str, list[Row]]], names: list[str]) -> str:
    """The same for docs/performance.md: a line per row, its figures with their names in the first column."""
    lines = ["| | " + " | ".join(names) + " |", "|---" * (len(names) + 1) + "|"]
    for row, by_name in found.items():
        middle = {name: medians(rounds) for name, rounds in by_name.items() if rounds}
        columns = list(next(iter(middle.values()), {}))
        cells = (
            "; ".join(f"{middle[name][column]:,.1f}" for column in columns) if name in middle else "" for name in names
        )
        lines.append(f"| {row}: {'; '.join(columns)} | " + " | ".join(cells) + " |")
    return "\n".join(lines)


def run(systems: list[System], wanted: re.Pattern[str], rounds: int) -> dict[str, dict[str, list[Row]]]:
    found: dict[str, dict[str, list[Row]]] = {}
    for number in range(rounds):
        for name, measure in ROWS.items():
            if not wanted.search(name):
                continue
            by_name = found.setdefault(name, {system.name: [] for system in systems})
            for system in systems[number % len(systems) :] + systems[: number % len(systems)]:
                row = measure(system)
                by_name[system.name].append(row)
                cells = ", ".join(f"{column} {value:,.1f}" for column, value in row.items())
                console.print(f"{name}: {system.name}: {cells}; load {os.getloadavg()[0]:.1f}", highlight=False)
    return found


@click.command(help=__doc__)
@click.option("--kafka", "version", default=NEWEST_VERSION, show_default=True, help="empty: only the checkouts")
@click.option("--tree", "trees", type=click.Path(path_type=Path, exists=True), multiple=True)
@click.option("--rounds", default=3, show_default=True)
@click.option("--rows", default="", help="only rows that match this regular expression")
@click.option("--json", "json_file", type=click.Path(path_type=Path))
def main(version: str, trees: tuple[Path, ...], rounds: int, rows: str, json_file: Path | None) -> None:
    load = PeerLoad(scratch_python())
    with tempfile.TemporaryDirectory(prefix="beside-kafka-") as scratch, contextlib.ExitStack() as stack:
        systems: list[System] = []
        for number, tree in enumerate(trees or (ROOT,)):
            directory = Path(scratch) / f"side-{number}"
            side = Side(tree.resolve(), directory)
            stack.enter_context(side.cluster)
            systems.append(System(side, directory, load))
        if version:
            kafka = Kafka(Path(scratch) / "kafka", version)
            stack.enter_context(kafka.cluster)
            systems.append(System(kafka, Path(scratch) / "kafka", load))
        for system in systems:
            system.prepare()
        found: dict[str, Any] = run(systems, re.compile(rows), rounds)
        names = [system.name for system in systems]
    load.close()
    console.print(table(found, names))
    print(markdown(found, names))
    if json_file is not None:
        json_file.write_text(json.dumps(found, indent=1) + "\n")


if __name__ == "__main__":
    main()
