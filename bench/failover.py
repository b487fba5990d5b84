"""10,000 partitions on three nodes: how long until every leader is elected and announced after one node has died.

    python -m bench.failover [--partitions 10000] [--json FILE]

The session timeout is taken out: the clock starts when the dead node's registration is gone (what the controller sees).
"""

from __future__ import annotations

import asyncio
import json
import tempfile
import time
import urllib.request
from pathlib import Path
from typing import Any

import click
from kazoo.client import KazooClient
from rich.console import Console
from rich.table import Table

from kafkalite.client.async_client import AsyncClient
from kafkalite.rpc.messages import NewTopic
from kafkalite.testing.chaos import controller_of, wait_in_sync
from kafkalite.testing.processes import ProcessCluster

TOPIC = "wide"
#: A few partitions of their own, asked for while waiting: to ask for all 10,000 again and again would be the load.
CANARY = "canary"
SETTINGS = {
    "zookeeper.session.timeout.ms": 6_000,
    "replica.lag.time.max.ms": 20_000,
    "kafka.port": -1,
}
console = Console()


def phases(cluster: ProcessCluster, broker_id: int, which: str) -> dict[str, float]:
    """The controller's own account of its last failover, from its metrics."""
    with urllib.request.urlopen(f"http://{cluster.http(broker_id)}/metrics", timeout=10) as response:
        lines = response.read().decode().splitlines()
    found: dict[str, float] = {}
    for line in lines:
        if line.startswith("kafkalite_controller_failover_milliseconds{") and f'kind="{which}"' in line:
            phase = line.split('phase="')[1].split('"')[0]
            found[phase] = float(line.rsplit(" ", 1)[1])
    return found


async def run(directory: Path, partitions: int) -> dict[str, Any]:
    result: dict[str, Any] = {"partitions": partitions}
    with ProcessCluster(directory, nodes=3, settings=SETTINGS) as cluster:
        async with AsyncClient.connect(cluster.bootstrap) as client:
            began = time.monotonic()
            await client.create_topics([NewTopic(TOPIC, partitions, 3)], timeout_s=240)
            result["create_s"] = time.monotonic() - began
            await client.create_topics([NewTopic(CANARY, 6, 3)])
            await wait_in_sync(cluster, TOPIC, 3, deadline_s=240)
            result["in_sync_s"] = time.monotonic() - began
            result["memory_mb"] = {n: p.memory_bytes() // 2**20 for n, p in cluster.nodes.items()}
            result["cpu_s_so_far"] = [round(p.cpu_seconds(), 2) for p in cluster.nodes.values()]
            before = [p.cpu_seconds() for p in cluster.nodes.values()]
            await asyncio.sleep(10)
            after = [p.cpu_seconds() for p in cluster.nodes.values()]
            result["idle_cpu_percent"] = [round((b - a) * 10, 1) for a, b in zip(before, after, strict=True)]

            controller = controller_of(cluster)
            victim = next(n for n in sorted(cluster.nodes) if n != controller)
            result |= {f"broker_{k}": v for k, v in (await fail(cluster, client, victim)).items()}
            result["broker_phases_ms"] = phases(cluster, controller, "broker")
            await asyncio.to_thread(cluster.restart, victim)
            began = time.monotonic()
            await wait_in_sync(cluster, TOPIC, 3, deadline_s=240)
            result["rejoin_s"] = time.monotonic() - began

            result |= {f"controller_{k}": v for k, v in (await fail(cluster, client, controller)).items()}
            new_controller = controller_of(cluster)
            result["controller_phases_ms"] = phases(cluster, new_controller, "controller")
    return result


async def fail(cluster: ProcessCluster, client: AsyncClient, victim: int) -> dict[str, float]:
    """Kill a node; seconds from the end of its session until no partition names it, or nobody, as its leader."""
    topic = (await client.metadata([TOPIC])).topics[0]
    led = sum(1 for p in topic.partitions if p.leader == victim)
    before = {n: p.cpu_seconds() for n, p in cluster.nodes.items() if n != victim}
    gone = asyncio.Event()
    loop = asyncio.get_running_loop()
    zookeeper = KazooClient(hosts=cluster.zookeeper_connect, timeout=10)
    zookeeper.start()
    try:
        zookeeper.exists(f"/brokers/ids/{victim}", watch=lambda _: loop.call_soon_threadsafe(gone.set))
        killed = time.monotonic()
        cluster.nodes[victim].kill()
        await gone.wait()
        session_gone = time.monotonic()
    finally:
        zookeeper.stop()
        zookeeper.close()
    survivors = [ready for n, ready in zip(cluster.nodes, cluster.bootstrap, strict=True) if n != victim]
    done: list[float] = []
    for address in survivors:  # announced on every node that is left
        async with AsyncClient.connect([address]) as one:
            for name in (CANARY, TOPIC):
                while True:
                    topic = (await one.metadata([name])).topics[0]
                    if all(p.leader not in (victim, -1) for p in topic.partitions):
                        break
                    await asyncio.sleep(0.01)
            done.append(time.monotonic())
    return {
        "led": led,
        "session_s": session_gone - killed,
        "elected_and_announced_s": max(done) - session_gone,
        "cpu_s": round(sum(cluster.nodes[n].cpu_seconds() - spent for n, spent in before.items()), 2),
    }


@click.command()
@click.option("--partitions", default=10_000, show_default=True)
@click.option("--json", "json_file", type=click.Path(), help="Write the figures there.")
def main(partitions: int, json_file: str | None) -> None:
    """Failover of a broker, and of the controller, with many partitions."""
    with tempfile.TemporaryDirectory(prefix="kafkalite-failover-") as directory:
        result = asyncio.run(run(Path(directory), partitions))
    table = Table("figure", "value", title=f"{partitions:,} partitions, 3 nodes, RF 3", title_justify="left")
    for key, value in result.items():
        table.add_row(key, f"{value:.3f}" if isinstance(value, float) else str(value))
    console.print(table)
    if json_file:
        Path(json_file).write_text(json.dumps(result, indent=1))


if __name__ == "__main__":
    main()
