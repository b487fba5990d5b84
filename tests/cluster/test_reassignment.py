"""Real processes: 24 partitions move from three nodes to three others under load, the controller is killed on the way."""

from __future__ import annotations

import asyncio
import contextlib
import json
import os
import subprocess
import sys
import time
from pathlib import Path
from typing import Any

import pytest
from kazoo.client import KazooClient
from kazoo.exceptions import NoNodeError

from kafkalite.client.async_client import AsyncClient
from kafkalite.coordination import paths, znodes
from kafkalite.model import BrokerId
from kafkalite.rpc.messages import NewTopic
from kafkalite.testing.chaos import TOPIC, Tally, census, controller_of, produce, wait_in_sync
from kafkalite.testing.processes import ProcessCluster

pytestmark = [pytest.mark.zookeeper, pytest.mark.cluster]

ROOT = Path(__file__).parents[2]
PARTITIONS = 24


def kafkalite(cluster: ProcessCluster, *arguments: str, expect: int = 0) -> subprocess.CompletedProcess[str]:
    environ = {**os.environ, "PYTHONPATH": f"{ROOT}:{ROOT / 'cli'}"}
    done = subprocess.run(
        [sys.executable, "-m", "kafkalite_cli", "admin", "--bootstrap", ",".join(cluster.bootstrap), *arguments],
        capture_output=True,
        text=True,
        env=environ,
        check=False,
    )
    assert done.returncode == expect, (arguments, done.stdout, done.stderr)
    return done


class Trace:
    """Every version of the topic's znode, as another ZooKeeper client sees it."""

    def __init__(self, cluster: ProcessCluster) -> None:
        self.client = KazooClient(hosts=cluster.zookeeper_connect, timeout=10)
        self.client.start(timeout=10)
        self.seen: list[znodes.TopicZnode] = []
        self._watch()

    def _watch(self, event: object = None) -> None:
        with contextlib.suppress(NoNodeError):
            data, _ = self.client.get(paths.topic(TOPIC), watch=self._watch)
            self.seen.append(znodes.decode_topic(data))

    def latest(self) -> znodes.TopicZnode:
        return znodes.decode_topic(self.client.get(paths.topic(TOPIC))[0])

    def is_ordered(self) -> bool:
        return self.client.exists(paths.REASSIGN_PARTITIONS) is not None

    def close(self) -> None:
        self.client.stop()
        self.client.close()


@pytest.mark.checklist(43)
@pytest.mark.checklist(67)
@pytest.mark.checklist(71)
@pytest.mark.checklist(75)
@pytest.mark.checklist(77)
@pytest.mark.checklist("F20")
async def test_disjoint_move_under_load_with_the_controller_killed_twice(tmp_path: Path) -> None:
    settings = {
        "zookeeper.session.timeout.ms": 3_000,
        "replica.lag.time.max.ms": 4_000,
        "kafka.port": -1,
        "http.port": -1,
    }
    tally = Tally()
    with ProcessCluster(tmp_path, nodes=6, settings=settings) as cluster:
        before = {p: tuple(BrokerId((p + j) % 3 + 1) for j in range(3)) for p in range(PARTITIONS)}
        async with AsyncClient.connect(cluster.bootstrap) as client:
            topic = NewTopic(TOPIC, assignment=before, configs={"min.insync.replicas": "2"})
            (result,) = await client.create_topics([topic])
            assert result.error == 0, result
        await wait_in_sync(cluster, TOPIC, 3)
        trace = await asyncio.to_thread(Trace, cluster)
        plan = tmp_path / "plan.json"
        planned = await asyncio.to_thread(
            kafkalite, cluster, "reassign", "plan", "--brokers", "4,5,6", "-o", str(plan), "--json"
        )
        assert json.loads(planned.stdout)["replicas_to_copy"] == 3 * PARTITIONS
        began = time.monotonic()
        running = True

        async def load() -> None:
            await produce(cluster, tally, time.monotonic() + 12, rate=500)

        async def move() -> float:
            nonlocal running
            await asyncio.sleep(1)
            await asyncio.to_thread(
                kafkalite, cluster, "reassign", "execute", str(plan),
                "--max-replicas", "1", "--max-partitions", "4", "--max-leader-movements", "2",
            )  # fmt: skip
            again = await asyncio.to_thread(kafkalite, cluster, "reassign", "execute", str(plan), expect=2)
            assert again.stderr.count("\n") == 1 and "REASSIGNMENT_IN_PROGRESS" in again.stderr
            for _ in range(2):
                async with asyncio.timeout(60):
                    while (number := await asyncio.to_thread(controller_of, cluster)) not in cluster.nodes:
                        await asyncio.sleep(0.2)
                mark = len(trace.seen)
                while len(trace.seen) < mark + 4 and trace.is_ordered():
                    await asyncio.sleep(0.01)
                cluster.nodes[number].kill()
                await asyncio.to_thread(cluster.restart, number)
            async with asyncio.timeout(120):
                while await asyncio.to_thread(trace.is_ordered):
                    await asyncio.sleep(0.1)
            running = False
            return time.monotonic() - began

        async with asyncio.TaskGroup() as tasks:
            tasks.create_task(load())
            moving = tasks.create_task(move())
        await wait_in_sync(cluster, TOPIC, 3)
        latest = await asyncio.to_thread(trace.latest)
        await asyncio.to_thread(trace.close)
        assert not latest.moves and {tuple(sorted(each)) for each in latest.partitions.values()} == {(4, 5, 6)}
        check_limits(trace.seen)
        found = await census(cluster, tally)
        assert found.clean, found
        assert len(tally.acked) > 1_000 and not tally.failed
        await wait_until_gone(tmp_path)
        print(
            f"\nmoved {PARTITIONS} partitions in {moving.result():.1f} s, {len(trace.seen)} znode versions, "
            f"{len(tally.acked)} acked, longest silence {tally.longest_silence_s:.2f} s"
        )


def check_limits(seen: list[znodes.TopicZnode]) -> None:
    assert any(each.moves for each in seen)
    for topic in seen:
        under_way = [move for move in topic.moves.values() if move.step or move.dropping]
        assert len(under_way) <= 4
        assert sum(move.moves_leader for move in topic.moves.values()) <= 2
        for number in topic.moves:
            replicas: Any = topic.partitions[number]
            assert len(replicas) >= 3
            assert len(replicas) <= 4 + 1


async def wait_until_gone(directory: Path) -> None:
    """No replica directory stays behind on the nodes that were left."""

    def left() -> list[str]:
        return [
            str(path)
            for node in (1, 2, 3)
            for path in directory.glob(f"node-{node}/disk-0/{TOPIC}-*")
            if not path.name.endswith(("-delete", "-stray"))
        ]

    async with asyncio.timeout(30):
        while await asyncio.to_thread(left):
            await asyncio.sleep(0.2)
