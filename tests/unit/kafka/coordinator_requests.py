"""What clients ask coordinators for, and how a coordinator moves."""

from __future__ import annotations

import asyncio
from typing import Any

from kafkalite.errors import ErrorCode
from kafkalite.model import TopicPartition
from kafkalite.partition_values import ProducedPartition
from kafkalite.protocol import wire
from kafkalite.protocol.codec import encode

from .conftest import Broker, FrameClient

GROUPS, TRANSACTIONS = 0, 1


async def coordinator(client: FrameClient, key: str, kind: int = GROUPS, version: int = 4) -> None:
    """Wait until `key` has a coordinator that has loaded."""
    request = wire.FindCoordinatorRequest(key=key, key_type=kind, coordinator_keys=[key])
    async with asyncio.timeout(150):
        while True:
            answer = await client.ask(request, version)
            found = answer.coordinators[0] if version >= 4 else answer
            if found.error_code == 0:
                assert found.node_id == 1
                break
        if kind == GROUPS:
            while (await fetched(client, key)).error_code:
                await asyncio.sleep(0)
        else:
            described = wire.DescribeTransactionsRequest([key])
            not_ready = (ErrorCode.COORDINATOR_LOAD_IN_PROGRESS, ErrorCode.NOT_COORDINATOR)
            while (await client.ask(described, 0)).transaction_states[0].error_code in not_ready:
                await asyncio.sleep(0)


async def fetched(client: FrameClient, group: str, *partitions: TopicPartition, stable: bool = False) -> Any:
    request = wire.OffsetFetchRequest
    topics = [request.OffsetFetchRequestTopics(key.topic, partition_indexes=[key.partition]) for key in partitions]
    asked = request.OffsetFetchRequestGroup(group, topics=topics or None)
    return (await client.ask(request(groups=[asked], require_stable=stable), 8)).groups[0]


def commit(group: str, offset: int, topic: str = "t", metadata: str = "", **fields: Any) -> Any:
    request = wire.OffsetCommitRequest
    part = request.OffsetCommitRequestPartition(0, offset, committed_metadata=metadata)
    return request(group, topics=[request.OffsetCommitRequestTopic(topic, partitions=[part])], **fields)


def join(group: str, member_id: str = "", **fields: Any) -> Any:
    request = wire.JoinGroupRequest
    subscription = (1).to_bytes(2) + encode(wire.ConsumerProtocolSubscription(["t"]), 1)
    values: dict[str, Any] = {
        "session_timeout_ms": 10_000,
        "rebalance_timeout_ms": 10_000,
        "protocol_type": "consumer",
        "protocols": [request.JoinGroupRequestProtocol("range", subscription)],
    }
    return request(group, member_id=member_id, **(values | fields))


async def move(broker: Broker, *topics: str) -> None:
    """Leadership of internal topics goes away, and comes back: everything is loaded from the log."""
    away = set(topics)
    broker.services.partitions.led = lambda key: key.topic not in away
    broker.services.partitions.tell_change()
    while any(
        next(log.states(), None) is not None
        for log in (broker.side.groups.log, broker.side.transactions.log)
        if log.topic in away
    ):
        await asyncio.sleep(0)
    broker.services.partitions.led = lambda key: True
    broker.services.partitions.tell_change()


def wire_error(key: TopicPartition) -> Any:
    """The answer to a write whose partition has another leader by now."""
    return ProducedPartition(key.topic, key.partition, int(ErrorCode.NOT_LEADER_OR_FOLLOWER), -1)  # type: ignore[arg-type]
