"""Bytes on a leader's disk change under it: the committed records come from another replica, and this one heals."""

from __future__ import annotations

import asyncio
from pathlib import Path

import pytest

from kafkalite.client.async_client import AsyncClient
from kafkalite.client.consumer import EARLIEST, Consumer
from kafkalite.env.turns import at_once
from kafkalite.errors import ErrorCode
from kafkalite.extension.messages.reassignment import (
    AlterReassignmentsRequest,
    AlterReassignmentsResponse,
    WantedReassignment,
)
from kafkalite.extension.messages.topics import NewTopic
from kafkalite.model import BrokerId, Offset, TopicPartition
from tests.support.failing import fails_with
from tests.support.loopback_cluster import LoopbackCluster
from tests.support.numbers import read_numbers, write_numbers

T0 = TopicPartition("t", 0)
COUNT = 200


def flip(directory: Path) -> None:
    """One bit, in the middle of the records."""
    (path,) = directory.glob("*.log")
    data = bytearray(path.read_bytes())
    data[len(data) // 2] ^= 1
    path.write_bytes(data)


async def in_sync(cluster: LoopbackCluster, count: int) -> int:
    """The leader, once so many are in the ISR and nobody has anything to tell."""
    while True:
        for number, node in cluster.nodes.items():
            partition = node.replicas.hosted.get(T0)
            if partition is None or partition.leader is None or len(partition.current_isr) != count:
                continue
            if not any(at_once(each.replicas.describing.problems()) for each in cluster.nodes.values()):
                return number
        await asyncio.sleep(0.05)


@pytest.mark.checklist(58)
@pytest.mark.parametrize("reader", ["consumer", "new replica"])
async def test_damage_in_committed_records_heals(tmp_path: Path, reader: str) -> None:
    async with LoopbackCluster(tmp_path, nodes=3) as cluster:
        async with AsyncClient.connect([str(cluster.nodes[1].endpoints["kafka"])]) as client:
            replicas = (BrokerId(1), BrokerId(2), BrokerId(3))
            await client.create_topics([NewTopic("t", assignment={0: replicas[: 3 if reader == "consumer" else 2]})])
            await write_numbers(client, 0, COUNT, batch_bytes=200)
            count = 3 if reader == "consumer" else 2
            leader = await in_sync(cluster, count)
            flip(tmp_path / f"node-{leader}" / "t-0")
            if reader == "consumer":
                assert await read_numbers(client, COUNT) == list(range(COUNT))
            else:
                order = AlterReassignmentsRequest((WantedReassignment("t", 0, replicas),))
                assert (await client.request(order, AlterReassignmentsResponse)).error == 0
            assert await in_sync(cluster, 3) != leader
            assert cluster.nodes[leader].replicas.offline_replicas.restarts == 1
            assert await read_numbers(client, COUNT) == list(range(COUNT))
            records = [sorted((tmp_path / f"node-{n}" / "t-0").glob("*.log"))[0].read_bytes() for n in (1, 2, 3)]
            assert records[0] == records[1] == records[2]
        assert not cluster.failures


async def test_who_alone_has_the_records_stays(tmp_path: Path) -> None:
    async with (
        LoopbackCluster(tmp_path, nodes=1) as cluster,
        AsyncClient.connect([str(cluster.nodes[1].endpoints["kafka"])]) as client,
    ):
        await client.create_topics([NewTopic("t", 1, 1)])
        await write_numbers(client, 0, COUNT, batch_bytes=200)
        flip(tmp_path / "node-1" / "t-0")
        async with Consumer(client) as consumer:
            consumer.assign({T0: EARLIEST})
            values = [int(record.value or b"") for record in await consumer.poll(timeout_s=5)]
        assert values == list(range(len(values))) and 0 < len(values) < COUNT
        with fails_with(ErrorCode.CORRUPT_MESSAGE):
            await client.fetch_raw(T0, Offset(len(values)), timeout_s=1)
        assert [problem.what for problem in at_once(cluster.nodes[1].replicas.describing.problems())] == [
            "replica.last_copy_damaged"
        ]
