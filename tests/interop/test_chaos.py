"""Foreign clients while nodes are killed and stopped: nothing acknowledged is lost, nothing is there twice."""

from __future__ import annotations

import asyncio
import json
import os
import random
import signal
from pathlib import Path

import pytest

from kafkalite.testing.processes import ProcessCluster

pytestmark = [pytest.mark.timeout(400), pytest.mark.cluster]

_SETTINGS = {
    "group.initial.rebalance.delay.ms": 300,
    "min.insync.replicas": 2,
    "offsets.topic.num.partitions": 5,
    "transaction.state.log.num.partitions": 5,
    "zookeeper.session.timeout.ms": 3000,
}
_CHAOS_S = float(os.environ.get("KAFKALITE_CHAOS_SECONDS", "20"))


async def _disturb(cluster: ProcessCluster, source: random.Random) -> None:
    """Kill or stop one node at a time; each is back before the next one goes."""
    loop = asyncio.get_running_loop()
    while True:
        await asyncio.sleep(source.uniform(3, 6))
        broker_id = source.randint(1, 3)
        if source.random() < 0.7:
            await loop.run_in_executor(None, cluster.nodes[broker_id].kill)
            await asyncio.sleep(source.uniform(1, 4))
            # In the main thread: a process dies with what started it.
            cluster.restart(broker_id)
        else:
            cluster.nodes[broker_id].signal(signal.SIGSTOP)
            await asyncio.sleep(source.uniform(1, 5))
            cluster.nodes[broker_id].signal(signal.SIGCONT)


@pytest.mark.checklist(63, "F25")
async def test_librdkafka_under_kill_9_and_stop(python_clients: Path, tmp_path: Path) -> None:
    script = Path(__file__).parent / "clients" / "confluent_chaos.py"
    with ProcessCluster(tmp_path, nodes=3, settings=_SETTINGS) as cluster:
        client = await asyncio.create_subprocess_exec(
            str(python_clients),
            str(script),
            ",".join(cluster.kafka_bootstrap),
            str(_CHAOS_S),
            stdout=asyncio.subprocess.PIPE,
        )
        assert client.stdout is not None
        try:
            assert await client.stdout.readline() == b"producing\n"
            try:
                async with asyncio.timeout(_CHAOS_S):
                    await _disturb(cluster, random.Random(5))
            except TimeoutError:
                for broker_id, node in cluster.nodes.items():
                    node.signal(signal.SIGCONT)
                    if not node.running:
                        cluster.restart(broker_id)
            seen = json.loads((await client.stdout.read()).splitlines()[-1])
        finally:
            if client.returncode is None:
                client.kill()
            await client.wait()
    clean = {"lost": 0, "duplicated": 0}
    assert seen["acked"] > 100 * _CHAOS_S / 10
    assert seen["transactions"] > 5
    assert seen["failed"] == []
    assert (seen["in"], seen["plain"], seen["out"]) == (clean, clean, clean)
    assert seen["not consumed by the group"] == 0
