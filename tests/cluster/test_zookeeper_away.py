"""ZooKeeper stands still, or is killed, for longer than every session: acks=all goes on, and nothing is lost or doubled."""

from __future__ import annotations

import asyncio
import signal
from collections.abc import Iterator
from pathlib import Path

import pytest

from kafkalite.client.async_client import AsyncClient
from kafkalite.coordination.embedded import EmbeddedZooKeeper, cache_directory
from kafkalite.extension.messages.watching import HealthResponse
from kafkalite.testing.processes import ProcessCluster
from tests.cluster.running import PATIENCE_S, QUICK, Load, create_topic, settled
from tests.support.commands import kafkalite

pytestmark = [pytest.mark.cluster, pytest.mark.zookeeper]

#: Verbs that show what the brokers know from ZooKeeper.
LISTS = ("describe", "describe-cluster", "list-topics", "quotas list", "balance status", "balance plan", "broker list")


@pytest.fixture
def zookeeper(tmp_path: Path) -> Iterator[EmbeddedZooKeeper]:
    server = EmbeddedZooKeeper(tmp_path / "zookeeper", class_cache=cache_directory(), max_heap_mb=64)
    server.start()
    yield server
    server.kill()


async def until_fenced(cluster: ProcessCluster) -> None:
    """Every node says that its lease has ended."""
    async with asyncio.timeout(PATIENCE_S), AsyncClient.connect(cluster.bootstrap) as client:
        while True:
            answers = (await client.health(timeout_s=10)).values()
            told = [
                problem.detail
                for answer in answers
                if isinstance(answer, HealthResponse)
                for problem in answer.problems
                if problem.what == "zookeeper.away"
            ]
            if len(told) == 3 and all("lease has ended" in detail for detail in told):
                return
            await asyncio.sleep(0.1)


@pytest.mark.checklist(63)
@pytest.mark.parametrize("how", ["stopped", "killed"])
async def test_writes_go_on_while_zookeeper_is_away(zookeeper: EmbeddedZooKeeper, tmp_path: Path, how: str) -> None:
    """They were refused as soon as the leases had run out, and `admin health` said that all was well."""
    with ProcessCluster(tmp_path / "cluster", nodes=3, settings=QUICK, zookeeper=zookeeper.connect) as cluster:
        await create_topic(cluster, "away", min_insync_replicas="2")
        async with Load(cluster, "away") as load:
            await load.more()
            if how == "stopped":
                zookeeper.signal(signal.SIGSTOP)
            else:
                zookeeper.kill()
            await until_fenced(cluster)
            for _ in range(5):
                await load.more()
            health = await asyncio.to_thread(kafkalite, "admin", "health", bootstrap=cluster.bootstrap)
            assert health.code == 1 and "zookeeper.away" in health.out, health
            why = await asyncio.to_thread(kafkalite, "admin", "why", "away-0", bootstrap=cluster.bootstrap)
            assert "ZooKeeper" in why.out and "has not answered for" in why.out, why
            for verb in LISTS:
                shown = await asyncio.to_thread(kafkalite, "admin", *verb.split(), bootstrap=cluster.bootstrap)
                assert shown.code == 0 and "this is the brokers' last known state: ZooKeeper" in shown.err, (
                    verb,
                    shown,
                )
            order = await asyncio.to_thread(
                kafkalite, "admin", "create-topic", "more", "--timeout", "4", bootstrap=cluster.bootstrap
            )
            assert order.code != 0 and "ZooKeeper" in order.err and "has not answered for" in order.err, order
            await load.more()
            if how == "stopped":
                zookeeper.signal(signal.SIGCONT)
            else:
                await asyncio.to_thread(zookeeper.start)
            await load.more()
            await settled(cluster)
            await load.more()
        await load.check_exactly_once()
