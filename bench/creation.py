"""Topics created in batches through confluent-kafka's AdminClient: how fast, and what it costs every process.

    python -m bench.creation [--tree CHECKOUT ...] [--kafka VERSION] [--topics 600] [--batch 100] [--rounds 3] [--factor 3]
                             [--partitions 1] [--json FILE]

Three nodes; a batch is one CreateTopics request of the given number of topics, and the next one is sent when it is answered. A first batch,
which is not measured, warms the caches (and the JVM's compiler). All sides run all the time, and take turns in each round.
CPU is that of all nodes; ZooKeeper's is in a column of its own. Needs pip (confluent-kafka); --kafka needs Java and Maven.
"""

from __future__ import annotations

import contextlib
import json
import statistics
import subprocess
import tempfile
import time
from pathlib import Path
from typing import Any

import click
from rich.console import Console

from bench.idle_partitions import Side
from bench.kafka_peer import CACHE, ROOT, scratch_python
from bench.waves import Counts
from kafkalite.testing.apache_kafka import KafkaCluster, server_class_path

console = Console(width=150)
CREATOR = """
import sys, time
from confluent_kafka.admin import AdminClient, NewTopic
bootstrap, prefix, topics, batch, partitions, factor = sys.argv[1], sys.argv[2], *map(int, sys.argv[3:])
admin = AdminClient({'bootstrap.servers': bootstrap})
admin.list_topics(timeout=30)
began = time.monotonic()
for first in range(0, topics, batch):
    new = [NewTopic(f'{prefix}-{n}', partitions, factor) for n in range(first, min(topics, first + batch))]
    for future in admin.create_topics(new, operation_timeout=60, request_timeout=60).values():
        future.result()
print(time.monotonic() - began)
"""


def tree_cpu_seconds(pid: int) -> float:
    """CPU time of a process and of those below it."""
    fields = Path(f"/proc/{pid}/stat").read_text().rpartition(")")[2].split()
    total = (int(fields[11]) + int(fields[12])) / 100
    for children in Path(f"/proc/{pid}/task").glob("*/children"):
        total += sum(tree_cpu_seconds(int(child)) for child in children.read_text().split())
    return total


class Ours(Side):
    """Three nodes of one checkout and their ZooKeeper."""

    def figures(self) -> dict[str, float]:
        assert self.cluster.zookeeper is not None
        return {"cpu": sum(self.cpu_seconds()), "zookeeper": tree_cpu_seconds(self.cluster.zookeeper.pid)}

    def counts(self) -> Counts | None:
        return Counts.of(self.cluster, [1, 2, 3])


class Theirs:
    """Three nodes of Apache Kafka, KRaft."""

    def __init__(self, cluster: KafkaCluster, version: str) -> None:
        self.name = f"Apache Kafka {version}"
        self.cluster = cluster

    @property
    def bootstrap(self) -> str:
        return self.cluster.bootstrap

    def figures(self) -> dict[str, float]:
        return {"cpu": sum(node.cpu_seconds() for node in self.cluster.nodes.values()), "zookeeper": 0.0}

    def counts(self) -> Counts | None:
        return None


def create(bootstrap: str, topics: int, batch: int, partitions: int, factor: int) -> float:
    """Seconds."""
    prefix = f"made-{time.monotonic_ns()}"
    arguments = [bootstrap, prefix, *map(str, (topics, batch, partitions, factor))]
    done = subprocess.run(
        [str(scratch_python()), "-c", CREATOR, *arguments], check=True, stdout=subprocess.PIPE, text=True
    )
    return float(done.stdout)


def run(
    sides: list[Ours | Theirs], topics: int, batch: int, partitions: int, factor: int, rounds: int
) -> dict[str, list[dict[str, Any]]]:
    found: dict[str, list[dict[str, Any]]] = {side.name: [] for side in sides}
    for side in sides:
        create(side.bootstrap, batch, batch, partitions, factor)
        time.sleep(1)
    for number in range(rounds):
        for side in sides[number % len(sides) :] + sides[: number % len(sides)]:
            before, counted = side.figures(), side.counts()
            took = create(side.bootstrap, topics, batch, partitions, factor)
            time.sleep(1)  # what goes on after the answer (followers, metadata) belongs to it
            after, now = side.figures(), side.counts()
            row: dict[str, Any] = {
                "topics/s": topics / took,
                "ms of CPU": (after["cpu"] - before["cpu"]) / topics * 1e3,
                "ms of ZooKeeper": (after["zookeeper"] - before["zookeeper"]) / topics * 1e3,
            }
            if counted is not None and now is not None:
                row["counts"] = now.since(counted)
            found[side.name].append(row)
            console.print(f"{side.name}: {row}", highlight=False)
    return found


def show(found: dict[str, list[dict[str, Any]]]) -> None:
    for name, rows in found.items():
        medians = {
            column: statistics.median(row[column] for row in rows)
            for column in ("topics/s", "ms of CPU", "ms of ZooKeeper")
        }
        console.print(f"{name:20}", ", ".join(f"{column} {value:7.2f}" for column, value in medians.items()))


@click.command(help=__doc__)
@click.option("--tree", "trees", type=click.Path(path_type=Path, exists=True), multiple=True)
@click.option("--kafka", "version", help="also Apache Kafka of this version")
@click.option("--topics", default=600, show_default=True)
@click.option("--batch", default=100, show_default=True)
@click.option("--partitions", default=1, show_default=True)
@click.option("--factor", default=3, show_default=True)
@click.option("--rounds", default=3, show_default=True)
@click.option("--json", "json_file", type=click.Path(path_type=Path))
def main(
    trees: tuple[Path, ...],
    version: str | None,
    topics: int,
    batch: int,
    partitions: int,
    factor: int,
    rounds: int,
    json_file: Path | None,
) -> None:
    with tempfile.TemporaryDirectory(prefix="creation-") as scratch, contextlib.ExitStack() as stack:
        sides: list[Ours | Theirs] = []
        for number, tree in enumerate(trees or (ROOT,)):
            ours = Ours(tree.resolve(), Path(scratch) / f"side-{number}")
            stack.enter_context(ours.cluster)
            sides.append(ours)
        if version is not None:
            classes = server_class_path(CACHE, version)
            theirs = KafkaCluster(Path(scratch) / "kafka", classes)
            sides.append(Theirs(stack.enter_context(theirs), version))
        found = run(sides, topics, batch, partitions, factor, rounds)
    show(found)
    if json_file is not None:
        json_file.write_text(json.dumps(found, indent=1) + "\n")


if __name__ == "__main__":
    main()
