"""What it costs a node that its consumers have many partitions of which few are busy: CPU by number of partitions.

Rows of bench.beside_kafka. One topic with a replica on each node; one partition gets 200 records a second. The figure is the CPU time of the
node that leads it, as a share of a core. librdkafka has no fetch sessions (KIP-227), franz-go has. Needs pip (confluent-kafka) and, for franz-go, Go.
"""

from __future__ import annotations

import subprocess
import time
from pathlib import Path
from typing import Any

from bench.peers import CACHE, ROOT, PeerLoad, Side, scratch_python
from kafkalite.testing.processes import DIE_WITH_PARENT

RATE = 200
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


def share(side: Side, seconds: float) -> float:
    """CPU of the busiest node from now on, in % of a core."""
    before, began = side.cpu_seconds(), time.monotonic()
    time.sleep(seconds)
    took = time.monotonic() - began
    return max(after - was for was, after in zip(before, side.cpu_seconds())) / took * 100


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
        shares = [share(side, seconds)]
        processes += [consumer(client, side.bootstrap, topic, partitions) for _ in range(consumers)]
        time.sleep(3 + consumers / 2)
        return [*shares, share(side, seconds)]
    finally:
        for process in processes:
            process.kill()
            process.wait()
        load.ask("delete", side.bootstrap, topic)
