"""Produce requests for more partitions than one turn takes: their batches are not appended in one turn of the loop."""

from __future__ import annotations

from pathlib import Path
from typing import Any

import pytest

from kafkalite.client.async_client import AsyncClient
from kafkalite.client.consumer import EARLIEST, Consumer
from kafkalite.extension.messages.topics import NewTopic
from kafkalite.protocol import wire
from kafkalite.testing.kafka_client import FrameClient
from tests.support.logs import build_batch
from tests.support.loopback_cluster import LoopbackCluster


def produce(mark: bytes, partitions: int) -> Any:
    request = wire.ProduceRequest
    data = [
        request.PartitionProduceData(number, build_batch([(None, b"%s-%03d" % (mark, number))]))
        for number in range(partitions)
    ]
    return request(None, -1, 30_000, [request.TopicProduceData("t", partition_data=data)])


@pytest.mark.parametrize("partitions", [98, 99, 100, 150, 300])
@pytest.mark.parametrize("connections", [1, 3])
async def test_what_is_received_meanwhile_is_not_taken_for_its_records(
    tmp_path: Path, connections: int, partitions: int
) -> None:
    """All connections are received into one buffer, and a connection's next request into its own: what is used in a later
    turn of the loop has to be copied. Records of other requests were appended, and these were acknowledged and lost."""
    async with LoopbackCluster(tmp_path) as cluster, AsyncClient.connect(cluster.bootstrap) as client:
        await client.create_topics([NewTopic("t", partitions, 1)])
        host, _, port = cluster.bootstrap.rpartition(":")
        producers = [FrameClient() for _ in range(connections)]
        for producer in producers:
            await producer.connect(host, int(port))
        marks = [b"%d" % number for number in range(6)]
        for number, mark in enumerate(marks):
            producers[number % connections].send(produce(mark, partitions), 9)
        for number in range(len(marks)):
            _, answer = await producers[number % connections].receive()
            assert not any(each.error_code for each in answer.responses[0].partition_responses)
        for producer in producers:
            producer.close()
        wanted = sorted(b"%s-%03d" % (mark, number) for mark in marks for number in range(partitions))
        found: list[bytes | None] = []
        async with Consumer(client) as consumer:
            await consumer.assign_topics(["t"], EARLIEST)
            while len(found) < len(wanted):
                found += [record.value for record in await consumer.poll()]
        assert sorted(each or b"" for each in found) == wanted
