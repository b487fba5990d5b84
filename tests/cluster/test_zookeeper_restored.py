"""ZooKeeper is restored from a copy that is older than a reassignment, while no node runs: the records are on brokers that are no replicas then."""

from __future__ import annotations

import asyncio
import shutil
from collections.abc import Callable
from pathlib import Path

import pytest

from kafkalite.client.async_client import AsyncClient
from kafkalite.extension.messages.topics import NewTopic
from kafkalite.model import BrokerId
from kafkalite.testing.processes import ProcessCluster
from tests.support.commands import admin, kafkalite
from tests.support.numbers import read_numbers, write_numbers

pytestmark = [pytest.mark.cluster, pytest.mark.zookeeper]

SETTINGS = {
    "zookeeper.session.timeout.ms": 6_000,
    "min.insync.replicas": 2,
    # Nothing is to be kept by the delay.
    "stray.delete.delay.ms": 0,
    "file.delete.delay.ms": 0,
    "http.port": -1,
}


async def found(cluster: ProcessCluster, holds: Callable[[dict[str, str]], bool]) -> dict[str, str]:
    """Problems that `admin health` names (what -> detail), once `holds` is true of them."""
    async with asyncio.timeout(150):
        while True:
            done = await asyncio.to_thread(kafkalite_health, cluster)
            if holds(done):
                return done
            await asyncio.sleep(0.2)


def kafkalite_health(cluster: ProcessCluster) -> dict[str, str]:
    done = kafkalite("admin", "health", "--json", bootstrap=cluster.bootstrap)
    assert done.code in (0, 1), done
    return {problem["what"]: problem["detail"] for problem in done.json["problems"]}


def directories(root: Path, pattern: str) -> int:
    return len(list(root.glob(pattern)))


def move(cluster: ProcessCluster, directory: Path, brokers: str) -> None:
    plan = directory / f"plan-{brokers}.json"
    admin(cluster.bootstrap, "reassign", "plan", "--brokers", brokers, "-o", str(plan))
    admin(cluster.bootstrap, "reassign", "execute", str(plan))


async def replicas_are(client: AsyncClient, brokers: set[int]) -> None:
    async with asyncio.timeout(150):
        while True:
            (partition,) = (await client.metadata(["t"])).topics[0].partitions
            if set(partition.replicas) == set(partition.isr) == brokers and partition.leader in brokers:
                return
            await asyncio.sleep(0.1)


@pytest.mark.checklist("F19")
@pytest.mark.parametrize(("after_move", "is_set_aside"), [(50, True), (0, False)])
async def test_what_only_later_replicas_have_is_neither_hidden_nor_removed(
    tmp_path: Path, *, after_move: int, is_set_aside: bool
) -> None:
    """The earlier replicas led with empty logs, and the later ones' logs were to be removed as "in sync elsewhere"."""
    count = 100 + after_move
    settings: dict[str, object] = {**SETTINGS, "stray.max.fraction.percent": 100 if is_set_aside else 50}
    with ProcessCluster(tmp_path, nodes=4, settings=settings) as cluster:
        async with AsyncClient.connect(cluster.bootstrap) as client:
            assignment: dict[int, tuple[BrokerId, ...]] = {0: (BrokerId(1), BrokerId(2))}
            (result,) = await client.create_topics([NewTopic("t", assignment=assignment)])
            assert result.error == 0, result
            await write_numbers(client, 0, 100)
            assert cluster.zookeeper is not None
            cluster.zookeeper.kill()
            shutil.copytree(tmp_path / "zookeeper", tmp_path / "copy")
            cluster.start_zookeeper()
            await asyncio.to_thread(move, cluster, tmp_path, "3,4")
            await replicas_are(client, {3, 4})
            async with asyncio.timeout(60):
                while directories(tmp_path, "node-[12]/disk-0/t-0*"):
                    await asyncio.sleep(0.1)
            await write_numbers(client, 100, after_move)
        for process in (*cluster.nodes.values(), cluster.zookeeper):
            process.kill()
        shutil.rmtree(tmp_path / "zookeeper")
        (tmp_path / "copy").rename(tmp_path / "zookeeper")
        cluster.start_zookeeper()
        for node in (1, 2):
            cluster.restart(node)
        waiting = await found(cluster, lambda problems: "partition.records_missing" in problems)
        assert "brokers [3, 4] have not said what they have" in waiting["partition.records_missing"]
        for node in (3, 4):
            cluster.restart(node)
        named = await found(cluster, lambda problems: "[3, 4]" in problems.get("partition.records_elsewhere", ""))
        assert "partition.records_missing" not in named
        async with asyncio.timeout(60):
            while directories(tmp_path, "node-[34]/disk-0/t-0*-stray") != (2 if is_set_aside else 0):
                await asyncio.sleep(0.1)
        await asyncio.to_thread(move, cluster, tmp_path, "3,4")
        async with AsyncClient.connect(cluster.bootstrap) as client:
            assert await read_numbers(client, count) == list(range(count))
            await replicas_are(client, {3, 4})
            await write_numbers(client, count, 10)
            assert await read_numbers(client, count + 10) == list(range(count + 10))
        await found(cluster, lambda problems: not problems)
