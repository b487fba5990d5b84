"""What it costs a node that its consumers have many partitions of which few are busy: CPU by number of partitions.

    python -m bench.idle_partitions [--tree CHECKOUT ...] [--partitions 30 --partitions 1000] [--consumers 1]
                                    [--client librdkafka|franz-go] [--seconds 5] [--rounds 1]

Three nodes, one topic with a replica each; one partition gets 200 records a second. The figure is the CPU time of the node
that leads it, as a share of a core. librdkafka has no fetch sessions (KIP-227), franz-go has. Each --tree (this checkout if
none) is measured in turn in every round. Needs pip (confluent-kafka) and, for franz-go, Go.
"""

from __future__ import annotations

import contextlib
import subprocess
import tempfile
import time
from pathlib import Path
from typing import Any

import click
from rich.console import Console

from bench.kafka_peer import CACHE, ROOT, PeerLoad, scratch_python
from kafkalite.testing.processes import DIE_WITH_PARENT, ProcessCluster

RATE = 200
console = Console(width=120)
PRODUCER = """
import sys, time, confluent_kafka as c
k = c.Producer({'bootstrap.servers': sys.argv[1], 'linger.ms': 0})
began = time.monotonic()
for n in range(10**9):
    k.produce(sys.argv[2], b'x' * 100, partition=0)
    while (left := began + n / int(sys.argv[3]) - time.monotonic()) > 0:
        k.poll(left)
"""
CONSUMER = """
import sys, confluent_kafka as c
k = c.Consumer({'bootstrap.servers': sys.argv[1], 'group.id': 'g', 'enable.auto.commit': False})
k.assign([c.TopicPartition(sys.argv[2], p, c.OFFSET_END) for p in range(int(sys.argv[3]))])
while True: k.consume(500, 0.2)
"""


def watcher() -> Path:
    """The franz-go consumer, built once."""
    target = CACHE / "bench-go" / "watcher"
    source = ROOT / "tests" / "interop" / "clients" / "go"
    subprocess.run(["go", "build", "-C", str(source), "-o", str(target), "./watcher"], check=True)
    return target


def consumer(client: str, bootstrap: str, topic: str, partitions: int) -> subprocess.Popen[Any]:
    if client == "franz-go":
        command = [str(watcher()), bootstrap, topic]
    else:
        command = [str(scratch_python()), "-c", CONSUMER, bootstrap, topic, str(partitions)]
    return subprocess.Popen(
        [*DIE_WITH_PARENT, *command], stdin=subprocess.PIPE, stdout=subprocess.DEVNULL, stderr=subprocess.DEVNULL
    )


class Side:
    """Three nodes that run one checkout's code, with this interpreter or another one."""

    def __init__(self, tree: Path, directory: Path, python: Path | None = None) -> None:
        self.name = "this" if tree == ROOT else tree.name
        self.cluster = ProcessCluster(directory)
        self.cluster.trees.update(dict.fromkeys((1, 2, 3), tree))
        if python is not None:
            self.name = python.name
            self.cluster.pythons.update(dict.fromkeys((1, 2, 3), python))

    @property
    def bootstrap(self) -> str:
        return ",".join(self.cluster.bootstrap)

    def cpu_seconds(self) -> list[float]:
        return [node.cpu_seconds() for node in self.cluster.nodes.values()]

    def share(self, seconds: float) -> float:
        """CPU of the busiest node from now on, in % of a core."""
        before, began = self.cpu_seconds(), time.monotonic()
        time.sleep(seconds)
        took = time.monotonic() - began
        return max(after - was for was, after in zip(before, self.cpu_seconds())) / took * 100


def measure(side: Side, load: PeerLoad, client: str, partitions: int, consumers: int, seconds: float) -> list[float]:
    """The leader's share of a core without consumers, and with them, in %."""
    topic = f"idle-{client}-{partitions}-{time.monotonic_ns()}"
    load.ask("create", side.bootstrap, topic, partitions, 1)
    producer = subprocess.Popen(
        [*DIE_WITH_PARENT, str(scratch_python()), "-c", PRODUCER, side.bootstrap, topic, str(RATE)]
    )
    processes = [producer]
    try:
        time.sleep(1)
        shares = [side.share(seconds)]
        processes += [consumer(client, side.bootstrap, topic, partitions) for _ in range(consumers)]
        time.sleep(3 + consumers / 2)
        return [*shares, side.share(seconds)]
    finally:
        for process in processes:
            process.kill()
            process.wait()
        load.ask("delete", side.bootstrap, topic)


@click.command()
@click.option("--tree", "trees", type=click.Path(path_type=Path, exists=True), multiple=True)
@click.option("--partitions", type=int, multiple=True, default=(30, 1000))
@click.option("--consumers", type=int, multiple=True, default=(1,))
@click.option("--client", "clients", type=click.Choice(["librdkafka", "franz-go"]), multiple=True)
@click.option("--seconds", type=float, default=5.0)
@click.option("--rounds", type=int, default=1)
def main(
    trees: tuple[Path, ...],
    partitions: tuple[int, ...],
    consumers: tuple[int, ...],
    clients: tuple[str, ...],
    seconds: float,
    rounds: int,
) -> None:
    load = PeerLoad(scratch_python())
    with tempfile.TemporaryDirectory() as scratch, contextlib.ExitStack() as stack:
        sides = [Side(tree.resolve(), Path(scratch) / f"side-{n}") for n, tree in enumerate(trees or (ROOT,))]
        for side in sides:
            stack.enter_context(side.cluster)
        for number in range(rounds):
            for client in clients or ("librdkafka", "franz-go"):
                for several in consumers:
                    for many in partitions:
                        for side in sides[number % len(sides) :] + sides[: number % len(sides)]:
                            alone, share = measure(side, load, client, many, several, seconds)
                            console.print(
                                f"{side.name:8} {client:10} {several:3} x {many:5} partitions: {share:6.1f} % "
                                f"(without consumers {alone:.1f} %)"
                            )
    load.close()


if __name__ == "__main__":
    main()
