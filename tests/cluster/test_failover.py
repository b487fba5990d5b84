"""Real processes: a producer hears again before ZooKeeper notices that a leader, or the controller, is killed or stopped."""

from __future__ import annotations

import asyncio
import signal
import time
from pathlib import Path

import pytest

from kafkalite.client.async_client import AsyncClient
from kafkalite.client.producer import Producer
from kafkalite.extension.messages.topics import NewTopic
from kafkalite.model import BrokerId
from kafkalite.testing.cluster_state import controller_of, wait_in_sync
from kafkalite.testing.numbered_records import TOPIC
from kafkalite.testing.processes import ProcessCluster

from .running import eye

pytestmark = [pytest.mark.zookeeper, pytest.mark.cluster]

SESSION_S = 12.0


async def silence(client: AsyncClient, producer: Producer, fault: object) -> float:
    """Seconds from the last acknowledgement before to the first one after the fault."""
    last = time.monotonic()
    for number in range(20):
        await (await producer.send(TOPIC, b"k", b"before-%d" % number, partition=0))
        last = time.monotonic()
    fault()  # type: ignore[operator]
    await (await producer.send(TOPIC, b"k", b"after", partition=0))
    return time.monotonic() - last


async def test_failovers_do_not_wait_for_the_session(tmp_path: Path) -> None:
    settings = {
        "zookeeper.session.timeout.ms": int(SESSION_S * 1000),
        "replica.lag.time.max.ms": 30_000,
        "http.port": -1,
    }
    figures: dict[str, float] = {}
    #: Whether ZooKeeper still held the session of the node that was gone.
    in_time: dict[str, bool] = {}
    with (
        ProcessCluster(tmp_path, nodes=4, settings=settings) as cluster,
        eye(cluster.zookeeper_connect) as zookeeper,
    ):

        async def still_registered(broker_id: int) -> bool:
            return await asyncio.to_thread(zookeeper.text, f"/brokers/ids/{broker_id}") is not None

        async with AsyncClient.connect(cluster.bootstrap) as client:
            controller = await asyncio.to_thread(controller_of, cluster)
            others = [BrokerId(each) for each in (1, 2, 3, 4) if each != controller]
            topic = NewTopic(TOPIC, assignment={0: tuple(others)}, configs={"min.insync.replicas": "2"})
            (result,) = await client.create_topics([topic])
            assert result.error == 0, result
            await wait_in_sync(cluster, TOPIC, 3)
            producer = Producer(client, acks="all", idempotent=True, linger_ms=0)

            figures["leader killed"] = await silence(client, producer, cluster.nodes[others[0]].kill)
            in_time["leader killed"] = await still_registered(others[0])
            await asyncio.to_thread(cluster.restart, others[0])
            await wait_in_sync(cluster, TOPIC, 3)

            leader = (await client.metadata([TOPIC])).topics[0].partitions[0].leader
            stopped = cluster.nodes[leader]
            figures["leader stopped"] = await silence(client, producer, lambda: stopped.signal(signal.SIGSTOP))
            in_time["leader stopped"] = await still_registered(leader)
            stopped.signal(signal.SIGCONT)
            await wait_in_sync(cluster, TOPIC, 3)

            # The controller dies, then a leader: what has to be done is done by the next controller.
            leader = (await client.metadata([TOPIC])).topics[0].partitions[0].leader
            began = time.monotonic()
            cluster.nodes[controller].kill()
            figures["controller and leader killed"] = await silence(client, producer, cluster.nodes[leader].kill)
            in_time["controller and leader killed"] = await still_registered(leader)
            while await asyncio.to_thread(controller_of, cluster) in (controller, -1):
                await asyncio.sleep(0.05)
            in_time["another controller"] = await still_registered(controller)
            figures["another controller"] = time.monotonic() - began
            await producer.close()
    print("\n" + ", ".join(f"{name}: {seconds:.2f} s" for name, seconds in figures.items()))
    assert all(in_time.values()), in_time
