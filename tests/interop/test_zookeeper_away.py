"""librdkafka while ZooKeeper is away for longer than every session: idempotent producer, groups and transactions go on."""

from __future__ import annotations

import asyncio
import signal
from pathlib import Path

import pytest

from kafkalite.client.async_client import AsyncClient
from kafkalite.coordination.embedded import EmbeddedZooKeeper, cache_directory
from kafkalite.model import TopicPartition
from kafkalite.testing.processes import ProcessCluster

from .conftest import chaos_client

pytestmark = [pytest.mark.cluster]

_SETTINGS = {
    "group.initial.rebalance.delay.ms": 300,
    "min.insync.replicas": 2,
    "offsets.topic.num.partitions": 5,
    "transaction.state.log.num.partitions": 5,
    "zookeeper.session.timeout.ms": 3000,
}
_SESSION_S = 3.0
_PARTITIONS = 4


async def _end(client: AsyncClient, topic: str) -> int:
    keys = [TopicPartition(topic, number) for number in range(_PARTITIONS)]
    return sum((await client.end_offsets(keys)).values())


async def _grows(client: AsyncClient, *topics: str) -> None:
    """More is committed to each of them, after a session's time and again."""
    for _ in range(2):
        before = {topic: await _end(client, topic) for topic in topics}
        await asyncio.sleep(_SESSION_S)
        async with asyncio.timeout(60):
            for topic in topics:
                while await _end(client, topic) <= before[topic]:
                    await asyncio.sleep(0.1)


@pytest.mark.checklist(63, "F25")
async def test_librdkafka_while_zookeeper_is_away(python_clients: Path, tmp_path: Path) -> None:
    zookeeper = EmbeddedZooKeeper(tmp_path / "zookeeper", class_cache=cache_directory(), max_heap_mb=64)
    zookeeper.start()
    try:
        with ProcessCluster(tmp_path / "cluster", nodes=3, settings=_SETTINGS, zookeeper=zookeeper.connect) as cluster:
            async with (
                chaos_client(python_clients, cluster) as seen,
                AsyncClient.connect(cluster.bootstrap) as eye,
            ):
                await _grows(eye, "in", "out")
                zookeeper.signal(signal.SIGSTOP)
                await _grows(eye, "in", "out")
                zookeeper.signal(signal.SIGCONT)
                await _grows(eye, "in", "out")
                zookeeper.kill()
                await _grows(eye, "in", "out")
                await asyncio.to_thread(zookeeper.start)
    finally:
        zookeeper.kill()
    clean = {"lost": 0, "duplicated": 0}
    assert seen["acked"] > 0 and seen["transactions"] > 0
    assert seen["failed"] == []
    assert (seen["in"], seen["plain"], seen["out"]) == (clean, clean, clean)
    assert seen["not consumed by the group"] == 0
