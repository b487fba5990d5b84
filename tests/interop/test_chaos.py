"""Foreign clients while nodes are killed and stopped: nothing acknowledged is lost, nothing is there twice."""

from __future__ import annotations

import asyncio
import collections
import itertools
import os
import random
import signal
from pathlib import Path

import pytest

from kafkalite.protocol import wire
from kafkalite.testing.kafka_client import FrameClient
from kafkalite.testing.processes import ProcessCluster

from .conftest import chaos_client

pytestmark = [pytest.mark.timeout(1_200), pytest.mark.cluster]

_SETTINGS = {
    "group.initial.rebalance.delay.ms": 300,
    "min.insync.replicas": 2,
    "offsets.topic.num.partitions": 5,
    "transaction.state.log.num.partitions": 5,
    "zookeeper.session.timeout.ms": 3000,
}
_CHAOS_S = float(os.environ.get("KAFKALITE_CHAOS_SECONDS", "20"))


class _Roles:
    """Who does what at the moment, asked of whoever answers; by name, the roles that the pipeline depends on."""

    def __init__(self, endpoints: list[str]) -> None:
        self._endpoints = endpoints

    async def holder(self, role: str) -> int:
        """The broker id, or -1 if nobody says."""
        for endpoint in self._endpoints:
            client = FrameClient()
            host, _, port = endpoint.rpartition(":")
            try:
                async with asyncio.timeout(3):
                    await client.connect(host, int(port))
                    found = await self._ask(client, role)
            except (OSError, TimeoutError, asyncio.IncompleteReadError):
                continue
            finally:
                if hasattr(client, "writer"):
                    client.close()
            if found >= 0:
                return found
        return -1

    async def _ask(self, client: FrameClient, role: str) -> int:
        kind, _, name = role.partition(" ")
        if kind == "leader":
            topic = wire.MetadataRequest.MetadataRequestTopic(name=name)
            answer = await client.ask(wire.MetadataRequest([topic], allow_auto_topic_creation=False), 9)
            return int(answer.topics[0].partitions[0].leader_id) if answer.topics[0].partitions else -1
        answer = await client.ask(wire.FindCoordinatorRequest(name, {"group": 0, "transaction": 1}[kind]), 2)
        return int(answer.node_id)


_ROLES = ("transaction pipeline", "group pipeline-group", "leader out", "group plain-group", "leader in")
_MUST_BE_HIT = {"transaction pipeline", "group pipeline-group"}


async def _disturb(cluster: ProcessCluster, source: random.Random, hit: collections.Counter[str]) -> None:
    """Kill one node at a time, those that matter in turn, or stop any; each is back before the next one goes. Until the time is over and the
    coordinators were hit: on a busy machine clients may have none before."""
    loop = asyncio.get_running_loop()
    until_s = loop.time() + _CHAOS_S
    roles = _Roles(cluster.bootstrap)
    for role in itertools.cycle((*_ROLES, "stop")):
        if loop.time() >= until_s and hit.keys() >= _MUST_BE_HIT:
            return
        await asyncio.sleep(source.uniform(1, 2))
        if role == "stop":
            node = cluster.nodes[source.randint(1, 3)]
            node.signal(signal.SIGSTOP)
            await asyncio.sleep(source.uniform(1, 5))
            node.signal(signal.SIGCONT)
        elif (broker_id := await roles.holder(role)) in cluster.nodes:
            await loop.run_in_executor(None, cluster.nodes[broker_id].kill)
            hit[role] += 1
            await asyncio.sleep(source.uniform(0.5, 3))
            # In the main thread: a process dies with what started it.
            cluster.restart(broker_id)


@pytest.mark.checklist(63, "F25")
async def test_librdkafka_under_kill_9_and_stop(python_clients: Path, tmp_path: Path) -> None:
    hit: collections.Counter[str] = collections.Counter()
    with ProcessCluster(tmp_path, nodes=3, settings=_SETTINGS) as cluster:
        async with chaos_client(python_clients, cluster) as seen:
            await _disturb(cluster, random.Random(5), hit)
    print(dict(hit), seen)
    clean = {"lost": 0, "duplicated": 0}
    assert seen["acked"] > 100 * _CHAOS_S / 10
    assert seen["transactions"] > 5
    assert seen["rebalances"] > 3
    assert seen["failed"] == []
    assert (seen["in"], seen["plain"], seen["out"]) == (clean, clean, clean)
    assert seen["not consumed by the group"] == 0
