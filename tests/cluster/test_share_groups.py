"""A share group over nodes with real logs: what was accepted stays accepted when another node leads, the rest comes again."""

from __future__ import annotations

import asyncio
from pathlib import Path
from typing import Any
from uuid import uuid4

import pytest

from kafkalite.protocol import wire
from kafkalite.record.builder import RecordBatchBuilder
from kafkalite.testing.kafka_client import FrameClient
from tests.support.loopback_cluster import LoopbackCluster

pytestmark = [pytest.mark.cluster]

_SETTINGS = {
    "default.replication.factor": 3,
    "offsets.topic.num.partitions": 1,
    "share.coordinator.state.topic.num.partitions": 1,
    "group.share.heartbeat.interval.ms": 100,
    "zookeeper.session.timeout.ms": 3000,
}
_MOVED = {6, 15, 16, 14, 3, 100}  # not the leader or coordinator (yet)


async def _connect(address: tuple[str, int]) -> FrameClient:
    client = FrameClient()
    await client.connect(*address)
    return client


def _addresses(cluster: LoopbackCluster) -> dict[int, tuple[str, int]]:
    return {
        number: (node.endpoints["kafka"].host, node.endpoints["kafka"].port) for number, node in cluster.nodes.items()
    }


class _Group:
    """One member of the group g, which finds coordinator and leader for each request."""

    def __init__(self, cluster: LoopbackCluster) -> None:
        self.cluster = cluster
        self.name = str(uuid4())
        self.topic_id = b""

    async def ask(self, node_id: int | None, message: Any, version: int) -> Any:
        addresses = _addresses(self.cluster)
        address = addresses.get(node_id or -1) or next(iter(addresses.values()))
        client = await _connect(address)
        try:
            return await client.ask(message, version)
        finally:
            client.close()

    async def join(self) -> None:
        async with asyncio.timeout(60):
            while True:
                found = await self.ask(None, wire.FindCoordinatorRequest(key_type=0, coordinator_keys=["g"]), 4)
                node_id = found.coordinators[0].node_id
                beat = wire.ShareGroupHeartbeatRequest("g", self.name, 0, None, ["t"])
                answer = await self.ask(node_id, beat, 1)
                if not answer.error_code and answer.assignment is not None and answer.assignment.topic_partitions:
                    return
                assert answer.error_code in {0, *_MOVED}, answer
                await asyncio.sleep(0.05)

    async def leader(self) -> int:
        answer = await self.ask(None, wire.MetadataRequest([wire.MetadataRequest.MetadataRequestTopic(name="t")]), 12)
        self.topic_id = answer.topics[0].topic_id
        leader: int = answer.topics[0].partitions[0].leader_id
        return leader

    async def fetched(self) -> tuple[FrameClient, list[tuple[int, int, int]]]:
        """A connection with a session, and the first records that it gets."""
        request = wire.ShareFetchRequest
        async with asyncio.timeout(60):
            while True:
                leader = await self.leader()
                if leader in self.cluster.nodes:
                    client = await _connect(_addresses(self.cluster)[leader])
                    listed = [request.FetchTopic(self.topic_id, [request.FetchPartition(0)])]
                    answer = await client.ask(request("g", self.name, 0, 5_000, 1, 2**20, 500, 500, topics=listed), 2)
                    assert answer.error_code in {0, *_MOVED}, answer
                    for part in [part for topic in answer.responses for part in topic.partitions]:
                        assert part.error_code in {0, *_MOVED}, part
                        if part.acquired_records:
                            return client, [
                                (a.first_offset, a.last_offset, a.delivery_count) for a in part.acquired_records
                            ]
                    client.close()
                await asyncio.sleep(0.05)

    async def acknowledge(self, client: FrameClient, epoch: int, first: int, last: int, kind: int) -> int:
        request = wire.ShareAcknowledgeRequest
        batches = [request.AcknowledgePartition(0, [request.AcknowledgementBatch(first, last, [kind])])]
        answer = await client.ask(
            request("g", self.name, epoch, topics=[request.AcknowledgeTopic(self.topic_id, batches)]), 2
        )
        assert answer.error_code == 0
        code: int = answer.responses[0].partitions[0].error_code
        return code


async def test_another_leader_goes_on_where_the_group_was(tmp_path: Path) -> None:
    async with LoopbackCluster(tmp_path, nodes=3, settings=_SETTINGS) as cluster:
        group = _Group(cluster)
        create = wire.CreateTopicsRequest
        made = await group.ask(None, create([create.CreatableTopic("t", 1, 3)], 20_000), 7)
        assert made.topics[0].error_code == 0
        alter = wire.IncrementalAlterConfigsRequest
        reset = alter.AlterableConfig("share.auto.offset.reset", 0, "earliest")
        done = await group.ask(None, alter([alter.AlterConfigsResource(32, "g", [reset])]), 1)
        assert done.responses[0].error_code == 0
        await group.join()
        builder = RecordBatchBuilder()
        for number in range(10):
            builder.append(None, b"%d" % number, (), 1_000)
        produce = wire.ProduceRequest
        async with asyncio.timeout(60):
            while True:
                data = produce.PartitionProduceData(0, bytearray(builder.build()))
                message = produce(
                    acks=-1, timeout_ms=5_000, topic_data=[produce.TopicProduceData("t", partition_data=[data])]
                )
                answer = await group.ask(await group.leader(), message, 9)
                if not answer.responses[0].partition_responses[0].error_code:
                    break
        client, got = await group.fetched()
        assert got == [(0, 9, 1)]
        assert await group.acknowledge(client, 1, 0, 3, 1) == 0
        assert await group.acknowledge(client, 2, 6, 6, 3) == 0
        client.close()
        await cluster.stop(await group.leader())
        client, got = await group.fetched()
        assert [(first, last) for first, last, _ in got] == [(4, 5), (7, 9)]
        # The delivery to the first connection counts if the leader has written its end before it stopped.
        assert {count for _, _, count in got} in ({1}, {2})
        assert await group.acknowledge(client, 1, 4, 5, 1) == 0
        assert await group.acknowledge(client, 2, 7, 9, 1) == 0
        client.close()
    assert not cluster.failures
