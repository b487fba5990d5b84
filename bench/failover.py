"""10,000 partitions on three nodes: creation, a dead broker, a preferred election of 3,000, a dead controller.

    python -m bench.failover [--partitions 10000] [--elections 3000] [--json FILE]

How long until every leader is elected and announced. The session timeout is taken out: the clock starts when the dead node's
registration is gone (what the controller sees). Each wave with its operations on ZooKeeper and its commands to brokers:
`rpcs_per_broker_most` is what the busiest broker has received of a kind, and is to be 1.
"""

from __future__ import annotations

import asyncio
import tempfile
import time
from collections.abc import Callable
from pathlib import Path
from typing import Any

import click
from kazoo.client import KazooClient
from rich.console import Console
from rich.table import Table

from bench.figures import json_option, write_json
from bench.waves import Counts, scrape
from kafkalite.client.async_client import AsyncClient
from kafkalite.coordination import paths
from kafkalite.extension.messages.topics import NewTopic
from kafkalite.partition_values import PartitionMetadata
from kafkalite.protocol import wire
from kafkalite.testing.cluster_state import controller_of, wait_in_sync
from kafkalite.testing.processes import ProcessCluster, kazoo_client

TOPIC = "wide"
#: A few partitions of their own, asked for while waiting: to ask for all 10,000 again and again would be the load.
CANARY = "canary"
SETTINGS = {
    "zookeeper.session.timeout.ms": 6_000,
    "replica.lag.time.max.ms": 20_000,
}
#: ElectionType of ElectLeaders (KIP-460).
_PREFERRED = 0
console = Console()


def phases(cluster: ProcessCluster, broker_id: int, which: str) -> dict[str, float]:
    """The controller's own account of its last failover, from its metrics."""
    return {
        labels["phase"]: value
        for name, labels, value in scrape(cluster, broker_id)
        if name == "kafkalite_controller_failover_milliseconds" and labels["kind"] == which
    }


async def run(directory: Path, partitions: int, elections: int) -> dict[str, Any]:
    result: dict[str, Any] = {"partitions": partitions}
    with ProcessCluster(directory, nodes=3, settings=SETTINGS) as cluster:
        async with AsyncClient.connect(cluster.bootstrap) as client:
            await client.create_topics([NewTopic(CANARY, 6, 3)])
            await wait_in_sync(cluster, CANARY, 3)
            result |= {f"create_{k}": v for k, v in (await create(cluster, client, partitions)).items()}
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
            result |= {f"elect_{k}": v for k, v in (await elect(cluster, client, elections)).items()}

            result |= {f"controller_{k}": v for k, v in (await fail(cluster, client, controller)).items()}
            new_controller = controller_of(cluster)
            result["controller_phases_ms"] = phases(cluster, new_controller, "controller")
    return result


class Znode:
    """When another ZooKeeper client saw it come and go, monotonic seconds."""

    def __init__(self, cluster: ProcessCluster, path: str) -> None:
        self.came = self.went = 0.0
        self._path = path
        self._client = KazooClient(hosts=cluster.zookeeper_connect, timeout=10)
        self._client.start()
        self._look()

    def _look(self, event: object = None) -> None:
        if self._client.exists(self._path, watch=self._look) is not None:
            self.came = self.came or time.monotonic()
        elif self.came:
            self.went = self.went or time.monotonic()

    def close(self) -> None:
        self._client.stop()
        self._client.close()


async def announced(
    addresses: list[str], names: tuple[str, ...], is_right: Callable[[PartitionMetadata], bool]
) -> float:
    """Wait until each of these nodes says so of every partition; monotonic seconds."""
    for address in addresses:
        async with AsyncClient.connect([address]) as one:
            for name in names:
                while True:
                    topics = (await one.metadata([name])).topics
                    if topics and topics[0].partitions and all(map(is_right, topics[0].partitions)):
                        break
                    await asyncio.sleep(0.01)
    return time.monotonic()


async def create(cluster: ProcessCluster, client: AsyncClient, partitions: int) -> dict[str, Any]:
    """A topic: phases from the order on, in seconds."""
    nodes = sorted(cluster.nodes)
    before = Counts.of(cluster, nodes)
    topic = Znode(cluster, paths.topic(TOPIC))
    try:
        began = time.monotonic()
        await client.create_topics([NewTopic(TOPIC, partitions, 3)], timeout_s=240)
        answered = time.monotonic()
        seen = await announced(cluster.bootstrap, (TOPIC,), lambda p: p.leader >= 0)
        await wait_in_sync(cluster, TOPIC, 3, deadline_s=240)
        in_sync = time.monotonic()
    finally:
        topic.close()
    return {
        "topic_written_s": topic.came - began,
        "answered_s": answered - began,
        "announced_s": seen - began,
        "in_sync_s": in_sync - began,
        **Counts.of(cluster, nodes).since(before),
    }


async def elect(cluster: ProcessCluster, client: AsyncClient, wanted: int) -> dict[str, Any]:
    """Give leaderships back to their first replicas, which have just returned: phases from the order on, in seconds."""
    topic = (await client.metadata([TOPIC])).topics[0]
    due = {p.partition: p.replicas[0] for p in topic.partitions if p.leader != p.replicas[0]}
    due = dict(sorted(due.items())[:wanted])
    nodes = sorted(cluster.nodes)
    before = Counts.of(cluster, nodes)
    order = Znode(cluster, paths.PREFERRED_REPLICA_ELECTION)
    try:
        began = time.monotonic()
        message = wire.ElectLeadersRequest
        request = message(_PREFERRED, [message.TopicPartitions(TOPIC, list(due))], 120_000)
        answer = await client.call_controller(request, timeout_s=125)
        answered = time.monotonic()
        assert not answer.error_code, answer
        seen = await announced(
            cluster.bootstrap, (TOPIC,), lambda p: p.partition not in due or p.leader == due[p.partition]
        )
    finally:
        order.close()
    return {
        "held": sum(not each.error_code for each in answer.replica_election_results[0].partition_result),
        "ordered_s": order.came - began,
        "written_s": order.went - began,
        "answered_s": answered - began,
        "announced_s": seen - began,
        **Counts.of(cluster, nodes).since(before),
    }


async def fail(cluster: ProcessCluster, client: AsyncClient, victim: int) -> dict[str, Any]:
    """Kill a node; seconds from the end of its session until no partition names it, or nobody, as its leader."""
    topic = (await client.metadata([TOPIC])).topics[0]
    led = sum(1 for p in topic.partitions if p.leader == victim)
    before = {n: p.cpu_seconds() for n, p in cluster.nodes.items() if n != victim}
    counted = Counts.of(cluster, sorted(before))
    gone = asyncio.Event()
    loop = asyncio.get_running_loop()
    with kazoo_client(cluster.zookeeper_connect) as zookeeper:
        zookeeper.exists(f"/brokers/ids/{victim}", watch=lambda _: loop.call_soon_threadsafe(gone.set))
        killed = time.monotonic()
        cluster.nodes[victim].kill()
        await gone.wait()
        session_gone = time.monotonic()
    survivors = [ready for n, ready in zip(cluster.nodes, cluster.bootstrap, strict=True) if n != victim]
    seen = await announced(survivors, (CANARY, TOPIC), lambda p: p.leader not in (victim, -1))
    cpu_s = sum(cluster.nodes[n].cpu_seconds() - spent for n, spent in before.items())
    return {
        "led": led,
        "session_s": session_gone - killed,
        "elected_and_announced_s": seen - session_gone,
        "cpu_s": round(cpu_s, 2),
        **Counts.of(cluster, sorted(before)).since(counted),
    }


@click.command()
@click.option("--partitions", default=10_000, show_default=True)
@click.option("--elections", default=3_000, show_default=True, help="Of the preferred election, at most.")
@json_option
def main(partitions: int, elections: int, json_file: Path | None) -> None:
    """Creation, failovers and a preferred election with many partitions."""
    with tempfile.TemporaryDirectory(prefix="kafkalite-failover-") as directory:
        result = asyncio.run(run(Path(directory), partitions, elections))
    table = Table("figure", "value", title=f"{partitions:,} partitions, 3 nodes, RF 3", title_justify="left")
    for key, value in result.items():
        table.add_row(key, f"{value:.3f}" if isinstance(value, float) else str(value))
    console.print(table)
    write_json(result, json_file)


if __name__ == "__main__":
    main()
