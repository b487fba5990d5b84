"""Several nodes on one host: rates, processor time and memory of the same load, by number of nodes.

    python -m bench.nodes_per_host [--nodes 1 --nodes 2 --nodes 4] [--rounds 3] [--batched 2000000] [--single 100000] [--json FILE]

Each measurement starts a ZooKeeper and N nodes that all name the same rack, this host. One librdkafka client writes a fixed number of records
of 1 KiB to a topic without replicas whose partitions are spread over all nodes: in batches, then reads them, then one record per request.
In each round every N is measured in turn, and each round begins with another one. The tables show medians, once for the screen
and once in Markdown; --json has every figure, and is written after each measurement.

Nodes, client and ZooKeeper share the cores of this machine, so with few cores more nodes give no higher rate. What they would take with a core for each is computed:
records divided by the processor time of the busiest node. 25 seconds for each N and round with two cores. Needs Java and pip (confluent-kafka).
"""

from __future__ import annotations

import contextlib
import os
import platform
import tempfile
import time
from dataclasses import dataclass
from pathlib import Path
from typing import Any

import click
from rich.console import Console

from bench.beside_kafka import Found, markdown, table
from bench.beside_kafka_rows import Row
from bench.figures import json_option, write_json
from bench.peers import PeerLoad, Side, scratch_python, tree_bytes
from kafkalite.testing.processes import Process
from kafkalite.wording import number_of

#: A multiple of 2, 3, 4, 6 and 12 nodes.
PARTITIONS = 12
RECORD_BYTES = 1024
SETTINGS = {"broker.rack": "this-host", "log.segment.bytes": 256 * 2**20}
BATCHES, CONSUME, SINGLE = "produce in batches, acks=all", "consume", "one record per request, acks=all"
ROWS = (BATCHES, CONSUME, SINGLE)
#: librdkafka keeps to a partition for 10 ms by default: one node after the other would be busy instead of all.
EVENLY = {"sticky.partitioning.linger.ms": 0}
ONE_PER_REQUEST = {**EVENLY, "linger.ms": 0, "batch.num.messages": 1, "max.in.flight.requests.per.connection": 5}
#: Processor time below the clock's tick (see proc(5)) counts as one tick.
TICK_S = 1 / os.sysconf("SC_CLK_TCK")
MIB = 2**20
console = Console(width=160)


@dataclass(frozen=True)
class NodesLoad:
    """What one load has moved, and what it has cost."""

    records: int
    #: On the wall; the others are processor time.
    seconds: float
    node_cpu_seconds: tuple[float, ...]
    client_cpu_seconds: float


def load_figures(moved: NodesLoad, *, in_batches: bool) -> Row:
    """The figures of a row. With a core for each node, the busiest node ends last: its processor time is the load's duration."""
    busiest = max(TICK_S, *moved.node_cpu_seconds)
    total = sum(moved.node_cpu_seconds)
    if in_batches:
        cost = {"ms of all nodes' CPU per GB": total / (moved.records * RECORD_BYTES) * 1e12}
    else:
        cost = {"us of all nodes' CPU per request": total / moved.records * 1e6}
    return {
        "records/s": moved.records / moved.seconds,
        **cost,
        "CPU of the least busy node, % of all nodes'": min(moved.node_cpu_seconds) / max(TICK_S, total) * 100,
        "CPU of the busiest node, %": max(moved.node_cpu_seconds) / max(TICK_S, total) * 100,
        "cores busy with the nodes": total / moved.seconds,
        "cores busy with the client": moved.client_cpu_seconds / moved.seconds,
        "records/s with a core for each node": moved.records / busiest,
    }


@dataclass(frozen=True)
class NodeMemory:
    """Bytes of each node. `shared_out` (PSS): a page of several processes is divided among them."""

    resident: tuple[int, ...]
    shared_out: tuple[int, ...]


def memory_figures(idle: NodeMemory, after: NodeMemory, zookeeper: int) -> Row:
    """The row of memory, in MiB."""
    return {
        "idle node, resident MiB, least": min(idle.resident) / MIB,
        "most": max(idle.resident) / MIB,
        "all idle nodes, PSS MiB": sum(idle.shared_out) / MIB,
        "node after the load, resident MiB, least": min(after.resident) / MIB,
        "most, after the load": max(after.resident) / MIB,
        "all nodes after the load, PSS MiB": sum(after.shared_out) / MIB,
        "ZooKeeper after the load, resident MiB": zookeeper / MIB,
    }


def _pss_bytes(pid: int) -> int:
    lines = Path(f"/proc/{pid}/smaps_rollup").read_text().splitlines()
    [found] = (int(line.split()[1]) * 1024 for line in lines if line.startswith("Pss:"))
    return found


def _memory(nodes: dict[int, Process]) -> NodeMemory:
    return NodeMemory(
        tuple(node.memory_bytes() for node in nodes.values()), tuple(_pss_bytes(node.pid) for node in nodes.values())
    )


class HostOfNodes:
    """The nodes of one measurement under load."""

    def __init__(self, side: Side, load: PeerLoad) -> None:
        self._side = side
        self._load = load

    def produce(self, topic: str, records: int, settings: dict[str, Any]) -> NodesLoad:
        self._load.ask("create", self._side.bootstrap, topic, PARTITIONS, 1)
        # The number of records is fixed, not the time.
        return self._spent("produce", topic, "all", 3600.0, records * RECORD_BYTES, settings)

    def consume(self, topic: str, records: int) -> NodesLoad:
        return self._spent("consume", topic, records)

    def _spent(self, name: str, topic: str, *arguments: Any) -> NodesLoad:
        os.sync()  # nobody waits for what the one before has left to the disk
        before = self._side.cpu_seconds()
        done = self._load.ask(name, self._side.bootstrap, topic, PARTITIONS, RECORD_BYTES, *arguments)
        used = tuple(after - was for was, after in zip(before, self._side.cpu_seconds(), strict=True))
        return NodesLoad(done["records"], done["seconds"], used, done["cpu_seconds"])


def measure(directory: Path, nodes: int, batched: int, single: int) -> tuple[dict[str, Row], dict[str, list[float]]]:
    """The rows of one measurement on new nodes; and, by row, the processor seconds of each node."""
    side = Side(directory, nodes=nodes, settings=SETTINGS)
    with side.cluster as cluster, contextlib.closing(PeerLoad(scratch_python())) as load:
        host = HostOfNodes(side, load)
        time.sleep(2)  # a node that has just started is not idle yet
        idle = _memory(cluster.nodes)
        host.produce("first", 1, ONE_PER_REQUEST)  # what is imported at the first request is there then
        moved = {
            BATCHES: host.produce("batches", batched, EVENLY),
            CONSUME: host.consume("batches", batched),
            SINGLE: host.produce("single", single, ONE_PER_REQUEST),
        }
        assert cluster.zookeeper is not None
        memory = memory_figures(idle, _memory(cluster.nodes), tree_bytes(cluster.zookeeper.pid))
    rows = {name: load_figures(each, in_batches=name != SINGLE) for name, each in moved.items()}
    return {**rows, "memory": memory}, {name: list(each.node_cpu_seconds) for name, each in moved.items()}


@click.command(help=__doc__)
@click.option(
    "--nodes", "counts", type=click.IntRange(1, PARTITIONS), multiple=True, default=(1, 2, 4), show_default=True
)
@click.option("--rounds", default=3, show_default=True)
@click.option("--batched", default=2_000_000, show_default=True, help="records in batches, a multiple of 10,000")
@click.option("--single", default=100_000, show_default=True, help="records with a request each, a multiple of 10,000")
@json_option
def main(counts: tuple[int, ...], rounds: int, batched: int, single: int, json_file: Path | None) -> None:
    names = {count: number_of(count, "node") for count in counts}
    found: Found = {row: {name: [] for name in names.values()} for row in (*ROWS, "memory")}
    of_each_node: list[dict[str, Any]] = []
    machine = f"{platform.machine()}, {number_of(os.cpu_count() or 1, 'core')}, Python {platform.python_version()}"
    for number in range(rounds):
        first = number % len(counts)
        for count in counts[first:] + counts[:first]:
            with tempfile.TemporaryDirectory(prefix="nodes-per-host-", ignore_cleanup_errors=True) as scratch:
                rows, cpu_seconds = measure(Path(scratch) / "nodes", count, batched, single)
            for row, figures in rows.items():
                found[row][names[count]].append(figures)
                cells = ", ".join(f"{column} {value:,.1f}" for column, value in figures.items())
                console.print(f"{row}: {names[count]}: {cells}", highlight=False)
            console.print(f"load {os.getloadavg()[0]:.1f}", highlight=False)
            of_each_node.append({"nodes": count, "cpu_seconds": cpu_seconds})
            write_json({"machine": machine, "rows": found, "of_each_node": of_each_node}, json_file)
    console.print(table(found, list(names.values())))
    print(markdown(found, list(names.values())))
    print(machine)


if __name__ == "__main__":
    main()
