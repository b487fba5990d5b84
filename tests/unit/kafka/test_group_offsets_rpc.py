"""Offsets that a reader without membership commits, through any node, seen by Kafka's own clients."""

from __future__ import annotations

import asyncio
from pathlib import Path

from kafkalite.client.blocking import BlockingClientConfig
from kafkalite.client.transactions import TransactionalClient
from kafkalite.errors import ApiError, ErrorCode
from kafkalite.model import TopicPartition
from kafkalite.protocol import wire
from kafkalite.testing.kafka_client import FrameClient
from tests.support.failing import fails_with
from tests.support.loopback_cluster import LoopbackCluster

from .test_node import _SETTINGS


async def test_offsets_reach_the_group_s_coordinator_from_either_node(tmp_path: Path) -> None:
    async with LoopbackCluster(tmp_path, nodes=2, settings=_SETTINGS) as cluster:
        kafka = await FrameClient.to(cluster.nodes[1].endpoints["kafka"])
        create = wire.CreateTopicsRequest
        await kafka.ask(create([create.CreatableTopic("t", 2, 2)], 10_000), 7)
        groups = [f"query-{n}" for n in range(4)]  # some are coordinated here, some there
        wanted = {TopicPartition("t", 0): 7, TopicPartition("t", 1): 9}

        def commit_all(bootstrap: str) -> None:
            with TransactionalClient(BlockingClientConfig(bootstrap)) as client:
                for group in groups:
                    client.commit_offsets(group, wanted, timeout_ms=30_000)
                    assert client.committed_offsets(group) == wanted
                assert client.committed_offsets("nobody") == {}
                with fails_with(ErrorCode.UNKNOWN_TOPIC_OR_PARTITION):
                    client.commit_offsets(groups[0], {TopicPartition("nope", 0): 1}, timeout_ms=2_000)

        for node in cluster.nodes.values():
            endpoint = node.endpoints["kafka"]
            await asyncio.to_thread(commit_all, f"{endpoint.host}:{endpoint.port}")
        owners = set()
        for group in groups:
            for node_id, node in cluster.nodes.items():
                try:
                    offsets = node.kafka.groups.offsets.offsets_of(group).committed
                except ApiError as error:
                    assert error.code is ErrorCode.NOT_COORDINATOR
                    continue
                owners.add(node_id)
                assert {tp: committed.offset for tp, committed in offsets.items()} == wanted
        assert owners == {1, 2}
        kafka.close()
