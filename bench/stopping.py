"""All nodes of a cluster are stopped at once: how long each of them takes, and in which part of its stop.

    python -m bench.stopping [--partitions 1000] [--nodes 3] [--json FILE]

Real processes and a real ZooKeeper; every partition has three replicas and some records. Prints seconds and seconds of CPU from SIGTERM to
the end of each process, and when the parts of its stop were logged. The last node to end is what a person waits for.
"""

from __future__ import annotations

import asyncio
import json
import os
import signal
import tempfile
import time
from datetime import datetime
from pathlib import Path
from typing import Any

import click

from bench.figures import json_option, write_json
from kafkalite.client.async_client import AsyncClient
from kafkalite.client.producer import Producer
from kafkalite.extension.messages.topics import NewTopic
from kafkalite.testing.cluster_state import wait_in_sync
from kafkalite.testing.processes import ProcessCluster

TOPIC = "many"
#: Lines of a node's log that end a part of its stop.
_PARTS = ("node.leaders_moved", "node.stopped")
_PATIENCE_S = 600.0


async def fill(cluster: ProcessCluster, partitions: int) -> None:
    """A record on each partition, on all replicas."""
    async with AsyncClient.connect(cluster.bootstrap) as client:
        (made,) = await client.create_topics([NewTopic(TOPIC, partitions, 3)], timeout_s=120)
        assert made.error == 0, made
        await wait_in_sync(cluster, TOPIC, 3, deadline_s=_PATIENCE_S)
        async with Producer(client) as producer:
            for number in range(partitions):
                await producer.send(TOPIC, None, b"x" * 100, partition=number)
            await producer.flush()


def stop(cluster: ProcessCluster) -> dict[int, dict[str, Any]]:
    """SIGTERM to all of them; by node: seconds to its end, and seconds of CPU."""
    pids = {broker_id: node.pid for broker_id, node in cluster.nodes.items()}
    cpu = {broker_id: node.cpu_seconds() for broker_id, node in cluster.nodes.items()}
    began, wall = time.monotonic(), time.time()
    for pid in pids.values():
        os.kill(pid, signal.SIGTERM)
    found: dict[int, dict[str, Any]] = {}
    left = set(pids)
    while left:
        assert time.monotonic() < began + _PATIENCE_S, left
        # Any child of this process; ZooKeeper stays.
        ended, code, usage = os.wait4(-1, 0)
        for broker_id, pid in pids.items():
            if pid == ended:
                used = usage.ru_utime + usage.ru_stime - cpu[broker_id]
                found[broker_id] = {
                    "code": code,
                    "seconds": round(time.monotonic() - began, 2),
                    "cpu_s": round(used, 2),
                }
                left.discard(broker_id)
    for broker_id, each in found.items():
        each["parts"] = parts(cluster.nodes[broker_id].log_path, wall)
    return dict(sorted(found.items()))


def parts(log: Path, wall: float) -> dict[str, Any]:
    """Event -> seconds after the signal; and the node's own account of its slow steps."""
    found: dict[str, Any] = {}
    for line in log.read_text().splitlines():
        if line.startswith("{") and (entry := json.loads(line)).get("event") in _PARTS:
            found[entry["event"]] = round(datetime.fromisoformat(entry["at"]).timestamp() - wall, 2)
            found |= entry.get("slow_steps", {})
    return found


@click.command()
@click.option("--partitions", default=1000, show_default=True)
@click.option("--nodes", default=3, show_default=True)
@json_option
def main(partitions: int, nodes: int, json_file: Path | None) -> None:
    """See the module."""
    with (
        tempfile.TemporaryDirectory(prefix="kafkalite-stopping-") as name,
        ProcessCluster(Path(name), nodes=nodes) as cluster,
    ):
        asyncio.run(fill(cluster, partitions))
        found = stop(cluster)
    figures = {"partitions": partitions, "load": os.getloadavg()[0], "nodes": found}
    click.echo(json.dumps(figures))
    write_json(figures, json_file)


if __name__ == "__main__":
    main()
