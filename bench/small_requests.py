"""One 1 KiB record per request, from librdkafka with five requests in flight: CPU of all brokers per request.

    python -m bench.small_requests [--tree CHECKOUT ...] [--python INTERPRETER ...] [--records 8000] [--rounds 3] [--in-flight 5]

Each --tree (this checkout if none), or this checkout with each --python (an interpreter that has the packages), is measured in turn in every round, on three nodes with replication factor 3 (acks=all)
and 1. CPU time counts, not the rate: it is nearly the same on a busy machine. Needs pip (confluent-kafka).
"""

from __future__ import annotations

import contextlib
import statistics
import subprocess
import tempfile
import time
from pathlib import Path

import click
from rich.console import Console

from bench.idle_partitions import Side
from bench.kafka_peer import ROOT, PeerLoad, scratch_python

console = Console(width=120)
PRODUCER = """
import sys, time, confluent_kafka as c
k = c.Producer({
    'bootstrap.servers': sys.argv[1], 'linger.ms': 0, 'batch.num.messages': 1, 'acks': 'all',
    'max.in.flight.requests.per.connection': int(sys.argv[4]), 'queue.buffering.max.messages': 1000000,
})
value = b'x' * 1024
began = time.monotonic()
for n in range(int(sys.argv[3])):
    k.produce(sys.argv[2], value, partition=0)
    if not n % 1000:
        k.poll(0)
assert k.flush(300) == 0
print(time.monotonic() - began)
"""


def measure(side: Side, load: PeerLoad, factor: int, records: int, in_flight: int) -> tuple[float, float]:
    """(us of all nodes' CPU per request, requests per second)."""
    topic = f"small-{factor}-{time.monotonic_ns()}"
    load.ask("create", side.bootstrap, topic, 1, factor)
    command = [str(scratch_python()), "-c", PRODUCER, side.bootstrap, topic]
    subprocess.run([*command, "500", "5"], check=True, capture_output=True)
    before = sum(side.cpu_seconds())
    took = float(
        subprocess.run([*command, str(records), str(in_flight)], check=True, capture_output=True, text=True).stdout
    )
    used = sum(side.cpu_seconds()) - before
    load.ask("delete", side.bootstrap, topic)
    return used / records * 1e6, records / took


@click.command()
@click.option("--tree", "trees", type=click.Path(path_type=Path, exists=True), multiple=True)
@click.option("--python", "pythons", type=click.Path(path_type=Path, exists=True), multiple=True)
@click.option("--records", type=int, default=8000)
@click.option("--rounds", type=int, default=3)
@click.option("--in-flight", type=int, default=5)
@click.option("--factor", "factors", type=int, multiple=True, default=(3, 1))
def main(
    trees: tuple[Path, ...],
    pythons: tuple[Path, ...],
    records: int,
    rounds: int,
    in_flight: int,
    factors: tuple[int, ...],
) -> None:
    load = PeerLoad(scratch_python())
    with tempfile.TemporaryDirectory() as scratch, contextlib.ExitStack() as stack:
        what = [(tree.resolve(), None) for tree in trees] + [(ROOT, python) for python in pythons] or [(ROOT, None)]
        sides = [Side(tree, Path(scratch) / f"side-{n}", python) for n, (tree, python) in enumerate(what)]
        for side in sides:
            stack.enter_context(side.cluster)
        for factor in factors:
            found: dict[str, list[tuple[float, float]]] = {side.name: [] for side in sides}
            for number in range(rounds):
                for side in sides[number % len(sides) :] + sides[: number % len(sides)]:
                    found[side.name].append(measure(side, load, factor, records, in_flight))
            for name, figures in found.items():
                cost, rate = (statistics.median(column) for column in zip(*figures))
                best = min(each for each, _ in figures)
                console.print(
                    f"{name:8} RF {factor}: {cost:6.0f} us of CPU per request (least {best:.0f}), {rate:7.0f}/s"
                )
    load.close()


if __name__ == "__main__":
    main()
