"""Topics created in batches through confluent-kafka's AdminClient: how fast, and what it costs every process.

A row of bench.beside_kafka. A batch is one CreateTopics request of the given number of topics, and the next one is sent when it is answered.
Needs pip (confluent-kafka).
"""

from __future__ import annotations

import subprocess
import time
from pathlib import Path

from bench.peers import scratch_python

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


def create(bootstrap: str, topics: int, batch: int, partitions: int, factor: int) -> float:
    """Seconds."""
    prefix = f"made-{time.monotonic_ns()}"
    arguments = [bootstrap, prefix, *map(str, (topics, batch, partitions, factor))]
    done = subprocess.run(
        [str(scratch_python()), "-c", CREATOR, *arguments], check=True, stdout=subprocess.PIPE, text=True
    )
    return float(done.stdout)
