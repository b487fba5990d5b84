"""Real processes: 24 partitions move from three nodes to three others under load, the controller is killed on the way."""

from __future__ import annotations

import asyncio
import contextlib
import time
from functools import partial
from pathlib import Path
from typing import Any

import pytest
from kazoo.client import KazooClient
from kazoo.exceptions import NoNodeError

from kafkalite.client.async_client import AsyncClient
from kafkalite.coordination import paths, topic_znodes
from kafkalite.extension.messages.topics import NewTopic
from kafkalite.model import BrokerId
from kafkalite.testing.cluster_state import any_controller, wait_in_sync
from kafkalite.testing.numbered_records import TOPIC, Tally, census, produce
from kafkalite.testing.processes import ProcessCluster
from tests.support.commands import admin_meanwhile
from tests.support.waiting import until

pytestmark = [pytest.mark.zookeeper, pytest.mark.cluster]

PARTITIONS = 24


class Trace:
    """Every version of the topic's znode, as another ZooKeeper client sees it."""

    def __init__(self, cluster: ProcessCluster) -> None:
        self.client = KazooClient(hosts=cluster.zookeeper_connect, timeout=10)
        self.client.start(timeout=90)
        self.seen: list[topic_znodes.TopicZnode] = []
        self._watch()

    def _watch(self, event: object = None) -> None:
        with contextlib.suppress(NoNodeError):
            data, _ = self.client.get(paths.topic(TOPIC), watch=self._watch)
            self.seen.append(topic_znodes.decode_topic(data))

    def latest(self) -> topic_znodes.TopicZnode:
        return topic_znodes.decode_topic(self.client.get(paths.topic(TOPIC))[0])

    def is_ordered(self) -> bool:
        return self.client.exists(paths.REASSIGN_PARTITIONS) is not None

    def close(self) -> None:
        self.client.stop()
        self.client.close()


@pytest.mark.checklist(42)
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
        run = partial(admin_meanwhile, cluster.bootstrap)
        trace = await asyncio.to_thread(Trace, cluster)
        plan = tmp_path / "plan.json"
        planned = await run("reassign", "plan", "--brokers", "4,5,6", "-o", str(plan))
        assert planned["replicas_to_copy"] == 3 * PARTITIONS
        began = time.monotonic()
        enough = asyncio.Event()

        async def move() -> float:
            await acked(tally, 200)  # the load is on
            await run(
                "reassign", "execute", str(plan),
                "--max-replicas", "1", "--max-partitions", "4", "--max-leader-movements", "2",
            )  # fmt: skip
            again = await run("reassign", "execute", str(plan), "--throttle", "1000000", code=2)
            assert again["error"]["code"] == "REASSIGNMENT_IN_PROGRESS"
            for _ in range(2):
                number = await asyncio.to_thread(any_controller, cluster, 150)
                mark = len(trace.seen)
                while len(trace.seen) < mark + 4 and trace.is_ordered():
                    await asyncio.sleep(0.01)
                cluster.nodes[number].kill()
                await asyncio.to_thread(cluster.restart, number)
            async with asyncio.timeout(150):
                while await asyncio.to_thread(trace.is_ordered):
                    await asyncio.sleep(0.1)
            seconds = time.monotonic() - began
            await acked(tally, 1_001, enough)
            return seconds

        async with asyncio.TaskGroup() as tasks:
            tasks.create_task(produce(cluster, tally, enough, rate=500))
            moving = tasks.create_task(move())
        await wait_in_sync(cluster, TOPIC, 3)
        left = await run("config", "get", "--cluster")
        assert "reassignment" not in str(left), "the limits belonged to the order"
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


def check_limits(seen: list[topic_znodes.TopicZnode]) -> None:
    assert any(each.moves for each in seen)
    for topic in seen:
        under_way = [move for move in topic.moves.values() if move.step]
        assert len(under_way) <= 4
        assert sum(move.moves_leader for move in under_way) <= 2
        for number in topic.moves:
            replicas: Any = topic.partitions[number]
            assert len(replicas) >= 3
            assert len(replicas) <= 4 + 1


async def acked(tally: Tally, count: int, enough: asyncio.Event | None = None) -> None:
    """Return when that number of records is acknowledged, and end the load then."""
    await until(lambda: len(tally.acked) >= count)
    if enough is not None:
        enough.set()


async def wait_until_gone(directory: Path) -> None:
    """No replica directory stays behind on the nodes that were left."""

    def left() -> list[str]:
        return [
            str(path)
            for node in (1, 2, 3)
            for path in directory.glob(f"node-{node}/disk-0/{TOPIC}-*")
            if not path.name.endswith(("-delete", "-stray"))
        ]

    async with asyncio.timeout(150):
        while await asyncio.to_thread(left):
            await asyncio.sleep(0.2)
