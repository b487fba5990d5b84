"""The Kafka side of real nodes."""

from __future__ import annotations

import asyncio
from pathlib import Path
from typing import Any

from kafkalite.kafka import wire
from kafkalite.testing.loopback_cluster import LoopbackCluster

from .conftest import Client, batch, fetch, produce
from .test_coordinators import commit

_SETTINGS: dict[str, Any] = {
    "offsets.topic.num.partitions": 2,
    "transaction.state.log.num.partitions": 2,
    "controlled.shutdown.enable": False,
}


async def _client(cluster: LoopbackCluster, broker_id: int) -> Client:
    endpoint = cluster.nodes[broker_id].endpoints["kafka"]
    client = Client()
    await client.connect(endpoint.host, endpoint.port)
    return client


async def _leaders(client: Client, topic: str) -> list[int]:
    answer = await client.ask(wire.MetadataRequest([wire.MetadataRequest.MetadataRequestTopic(name=topic)]), 9)
    return [part.leader_id for part in answer.topics[0].partitions]


async def test_produce_and_fetch_on_the_leader_and_only_there(tmp_path: Path) -> None:
    async with LoopbackCluster(tmp_path, nodes=2, settings=_SETTINGS) as cluster:
        first = await _client(cluster, 1)
        request = wire.CreateTopicsRequest
        answer = await first.ask(request([request.CreatableTopic("t", 1, 2)], 10_000), 7)
        assert (answer.topics[0].error_code, answer.topics[0].replication_factor) == (0, 2)
        [leader] = await _leaders(first, "t")
        other = await _client(cluster, 3 - leader)
        refused = await other.ask(produce("t", (0, batch(b"x"))), 9)
        assert refused.responses[0].partition_responses[0].error_code == 6
        client = await _client(cluster, leader)
        taken = await client.ask(produce("t", (0, batch(b"x")), acks=-1), 9)
        assert taken.responses[0].partition_responses[0].error_code == 0
        got = await client.ask(fetch("t", max_wait_ms=5000), 12)
        assert len(got.responses[0].partitions[0].records) > 61
        dirs = await client.ask(wire.DescribeLogDirsRequest(None), 4)
        assert {topic.name for each in dirs.results for topic in each.topics} == {"t"}
        for each in (first, other, client):
            each.close()


async def test_the_group_coordinator_follows_leadership_and_purges_deleted_topics(tmp_path: Path) -> None:
    settings = _SETTINGS | {"controlled.shutdown.enable": True}
    async with LoopbackCluster(tmp_path, nodes=2, settings=settings) as cluster:
        client = await _client(cluster, 1)
        request = wire.CreateTopicsRequest
        topics = [request.CreatableTopic("t", 1, 2), request.CreatableTopic("u", 1, 2)]
        await client.ask(request(topics, 10_000), 7)
        host_of = await _coordinator(client, "g")
        owner = await _client(cluster, host_of)
        for topic in ("t", "u"):
            assert (await owner.ask(commit("g", 7, topic=topic), 8)).topics[0].partitions[0].error_code == 0
        survivor = 3 - host_of
        await cluster.stop(host_of)
        other = await _client(cluster, survivor)
        assert await _coordinator(other, "g") == survivor
        assert await _committed(other) == {"t": 7, "u": 7}
        await cluster.start(host_of)
        await other.ask(wire.DeleteTopicsRequest(topic_names=["u"], timeout_ms=10_000), 5)
        async with asyncio.timeout(10):
            while await _committed(other) != {"t": 7}:
                await asyncio.sleep(0.02)
        for each in (client, owner, other):
            each.close()


async def _coordinator(client: Client, group: str) -> int:
    async with asyncio.timeout(15):
        while True:
            answer = await client.ask(wire.FindCoordinatorRequest(key=group), 2)
            if answer.error_code == 0:
                probe = wire.OffsetFetchRequest
                asked = probe(groups=[probe.OffsetFetchRequestGroup(group, topics=None)])
                node = Client()
                try:
                    await node.connect(answer.host, answer.port)
                except ConnectionError:  # it is down, and this one has not heard of it yet
                    continue
                ready = (await node.ask(asked, 8)).groups[0].error_code == 0
                node.close()
                if ready:
                    return int(answer.node_id)
            await asyncio.sleep(0.02)


async def _committed(client: Client) -> dict[str, int]:
    request = wire.OffsetFetchRequest
    answer = await client.ask(request(groups=[request.OffsetFetchRequestGroup("g", topics=None)]), 8)
    return {topic.name: topic.partitions[0].committed_offset for topic in answer.groups[0].topics}
