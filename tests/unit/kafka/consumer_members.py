"""Members of consumer groups (KIP-848), heartbeat by heartbeat through the wire."""

from __future__ import annotations

import asyncio
from typing import Any

from kafkalite.protocol import wire
from kafkalite.protocol.topic_ids import from_wire

from .conftest import Broker, FrameClient
from .coordinator_requests import coordinator

HEARTBEAT_S = 0.01


class Member:
    """A member of the consumer protocol, heartbeat by heartbeat."""

    def __init__(self, client: FrameClient, name: str, *topics: str, group: str = "g", **more: Any) -> None:
        self.client, self.name, self.group = client, name, group
        self.topics: list[str] | None = list(topics) or None
        self.more = more
        self.epoch = 0
        self.owned: dict[bytes, list[int]] = {}
        self.error = 0
        self.assigned: set[tuple[str, int]] = set()

    async def beat(self, epoch: int | None = None, **fields: Any) -> Any:
        request = wire.ConsumerGroupHeartbeatRequest
        epoch = self.epoch if epoch is None else epoch
        said: dict[str, Any] = {"member_id": self.name, "member_epoch": epoch, **self.more}
        if epoch == 0:
            said |= {"rebalance_timeout_ms": 10_000, "subscribed_topic_names": self.topics, "topic_partitions": []}
        elif epoch > 0:
            said["topic_partitions"] = [request.TopicPartitions(*each) for each in self.owned.items()]
        answer = await self.client.ask(request(self.group, **(said | fields)), 1)
        self.error = answer.error_code
        if not self.error:
            self.epoch = answer.member_epoch
            if answer.assignment is not None:
                self.owned = {each.topic_id: each.partitions for each in answer.assignment.topic_partitions}
        return answer

    @property
    def partitions(self) -> list[tuple[str, int]]:
        return sorted((from_wire(topic), number) for topic, numbers in self.owned.items() for number in numbers)


async def settled(*members: Member, count: int) -> None:
    """Members send heartbeats until all partitions are shared out."""
    async with asyncio.timeout(150):
        while True:
            for member in members:
                await member.beat()
                assert not member.error, member.error
            held = [each for member in members for each in member.partitions]
            assert len(set(held)) == len(held)
            if len(held) == count and len({member.epoch for member in members}) == 1:
                return
            await asyncio.sleep(HEARTBEAT_S)


async def described(client: FrameClient, group: str = "g") -> Any:
    return (await client.ask(wire.ConsumerGroupDescribeRequest([group]), 1)).groups[0]


async def started(broker: Broker, partitions: int = 4) -> FrameClient:
    await broker.create("t", partitions)
    client = await broker.client()
    await coordinator(client, "g")
    return client
