"""Five nodes under acks=all load of confluent-kafka: one is added, one is decommissioned, one is killed for good. No move is requested.

    python -m bench.balancing [--rate 1000] [--size 500] [--partitions 20]

Prints what was lost, how even the cluster is at the end, and the latency of the producer in each phase. Needs pip (confluent-kafka).
"""

from __future__ import annotations

import asyncio
import json
import os
import subprocess
import sys
import tempfile
import time
from pathlib import Path

import click

from bench.peers import ROOT, PeerLoad, scratch_python
from kafkalite.client.async_client import AsyncClient
from kafkalite.errors import KafkaliteError
from kafkalite.extension.messages.balancing import DescribeBalanceRequest, DescribeBalanceResponse
from kafkalite.extension.messages.topics import NewTopic
from kafkalite.testing.cluster_state import wait_in_sync
from kafkalite.testing.processes import ProcessCluster

TOPIC = "load"
SETTINGS = {
    "zookeeper.session.timeout.ms": 6_000,
    "replica.lag.time.max.ms": 10_000,
    "http.port": -1,
    "balancer.mode": "on",
    "balancer.interval.ms": 2_000,
    "balancer.max.moves": 4,
    "balancer.max.disk.percent": 100,  # the machine's disk may be nearly full
    "balancer.broker.timeout.ms": 10_000,
    "leader.imbalance.check.interval.seconds": 2,
}
#: A guard against hanging.
PATIENCE_S = 300.0
#: The longest quiet part of a phase, so that its percentiles mean something.
REST_S = 5.0


async def until_even(client: AsyncClient, members: set[int]) -> tuple[float, DescribeBalanceResponse]:
    """Seconds until exactly `members` share everything within the tolerance and nothing moves."""
    began = time.monotonic()
    async with asyncio.timeout(PATIENCE_S):
        while True:
            try:
                found = await client.request(DescribeBalanceRequest(), DescribeBalanceResponse, timeout_s=10)
            except KafkaliteError:
                await asyncio.sleep(0.5)
                continue
            having = {each.broker_id for each in found.brokers if each.replicas}
            leads = all(each.leads == each.preferred for each in found.brokers)
            if found.is_even and not found.under_way and having == members and leads:
                return time.monotonic() - began, found
            await asyncio.sleep(0.5)


def table(found: DescribeBalanceResponse) -> str:
    rows = [each for each in found.brokers if each.replicas]
    return ", ".join(
        f"{each.broker_id}: {each.replicas} replicas, leads {each.leads}, {each.size_bytes / 1e6:.1f} MB"
        for each in rows
    )


def spread_percent(found: DescribeBalanceResponse) -> float:
    """How far the broker that differs most is from the mean, in replicas, leaders or bytes."""
    rows = [each for each in found.brokers if each.replicas]
    worst = 0.0
    for values in ([e.replicas for e in rows], [e.leads for e in rows], [e.size_bytes for e in rows]):
        mean = sum(values) / len(values)
        worst = max(worst, *(abs(value - mean) / mean for value in values)) if mean else worst
    return round(100 * worst, 1)


async def story(rate: float, size: int, partitions: int, directory: Path) -> dict[str, object]:
    with ProcessCluster(directory, nodes=5, settings=SETTINGS) as cluster:
        async with AsyncClient.connect(cluster.bootstrap) as client:
            await client.create_topics([NewTopic(TOPIC, partitions, 3, configs={"min.insync.replicas": "2"})])
            await wait_in_sync(cluster, TOPIC, 3)
            load = PeerLoad(scratch_python(), "balancing_load.py", ",".join(cluster.bootstrap), TOPIC, rate, size)
            await asyncio.sleep(REST_S)
            load.send("before")
            await asyncio.sleep(2 * REST_S)
            load.send("a node joins")
            await asyncio.to_thread(cluster.add_node, 6)
            took, found = await until_even(client, {1, 2, 3, 4, 5, 6})
            click.echo(f"6 joined: even after {took:.1f} s: {table(found)}")
            await asyncio.sleep(REST_S)
            load.send("one is drained")
            environ = {**os.environ, "PYTHONPATH": f"{ROOT}:{ROOT / 'cli'}"}
            drain = [sys.executable, "-m", "kafkalite_cli", "admin", "--bootstrap", ",".join(cluster.bootstrap)]
            began = time.monotonic()
            done = await asyncio.to_thread(
                subprocess.run, [*drain, "broker", "decommission", "2"], env=environ, capture_output=True, text=True
            )
            assert done.returncode == 0, done.stderr
            click.echo(f"2 drained after {time.monotonic() - began:.1f} s: {done.stdout.splitlines()[-1]}")
            await asyncio.to_thread(cluster.nodes[2].terminate)
            _, found = await until_even(client, {1, 3, 4, 5, 6})
            await asyncio.sleep(REST_S)
            load.send("one dies for good")
            cluster.nodes[3].kill()
            took, found = await until_even(client, {1, 4, 5, 6})
            click.echo(f"3 killed: even after {took:.1f} s: {table(found)}")
            await asyncio.sleep(REST_S)
            counted = await asyncio.to_thread(load.ask, "end")
            load.close()
            return {**counted, "even": found.is_even, "spread_percent": spread_percent(found)}


@click.command()
@click.option("--rate", default=1_000.0, show_default=True, help="Records a second.")
@click.option("--size", default=500, show_default=True, help="Bytes of a record.")
@click.option("--partitions", default=20, show_default=True)
def main(rate: float, size: int, partitions: int) -> None:
    """Add one, decommission one, kill one, under load; then count."""
    with tempfile.TemporaryDirectory(prefix="kafkalite-balancing-") as directory:
        result = asyncio.run(story(rate, size, partitions, Path(directory)))
    phases = result.pop("phases")
    assert isinstance(phases, dict)
    for name, each in phases.items():
        click.echo(
            f"{name:18} {each['records']:7} acked  p50 {each['p50']} ms  p99 {each['p99']} ms  max {each['max']} ms"
        )
    before = phases["before"]["p99"]
    moves = [(name, each["p99"]) for name, each in phases.items() if name not in ("the client begins", "before")]
    name, worst = max(moves, key=lambda item: item[1])
    click.echo(
        f"largest effect of moves on p99: {worst} ms ({name}), {worst / before:.1f} times that before ({before} ms)"
    )
    click.echo(json.dumps(result))
    if result["lost"] or result["failed"] or result["duplicates"] or not result["even"]:
        raise SystemExit(1)


if __name__ == "__main__":
    main()
