"""A member of the consumer protocol, against a coordinator that says each thing once."""

from __future__ import annotations

import asyncio
from collections.abc import Callable
from typing import Any

import pytest

from kafkalite.client.admin.groups import Groups
from kafkalite.client.async_client import AsyncClient
from kafkalite.client.exchange import Request
from kafkalite.model import BrokerId, TopicPartition
from kafkalite.protocol import wire
from kafkalite.rpc.answers import RpcError, RpcTimeout
from kafkalite.testing.consumer_membership import ConsumerMembership
from tests.fake_cluster import FakeCluster, topic_id_of

T0 = TopicPartition("t", 0)


class Coordinator(Groups):
    """Assigns t-0 to each member that joins, and says so in that answer only, as KIP-848 has it."""

    def __init__(self, client: AsyncClient) -> None:
        super().__init__(client)
        #: The partitions that each heartbeat says the member has.
        self.owned: list[list[int]] = []

    async def ask(
        self, group: str, request: Request, error_of: Callable[[Any], int], *, timeout_s: float | None = None
    ) -> tuple[BrokerId, Any]:
        assert isinstance(request, wire.ConsumerGroupHeartbeatRequest)
        self.owned.append([number for each in request.topic_partitions or () for number in each.partitions])
        response = wire.ConsumerGroupHeartbeatResponse
        answer = response(member_id=request.member_id, member_epoch=1, heartbeat_interval_ms=1)
        if request.member_epoch == 0:
            answer.assignment = response.Assignment([response.TopicPartitions(topic_id_of("t"), [0])])
        return BrokerId(1), answer


async def test_a_topic_that_the_asked_node_does_not_know_yet_is_looked_for_again() -> None:
    async with FakeCluster(1) as cluster, AsyncClient.connect(cluster.bootstrap) as client:
        coordinator = Coordinator(client)
        member = ConsumerMembership(client, coordinator, "g", ["t"])
        await member.join()
        assert not member.partitions
        cluster.create("t")
        await member.is_stale.wait()
        await member.join()
        assert list(member.partitions) == [T0]
        assert coordinator.owned[-1] == [0]
        member.abandon()


async def test_an_assignment_whose_topics_cannot_be_asked_for_is_kept(monkeypatch: pytest.MonkeyPatch) -> None:
    async with FakeCluster(1) as cluster, AsyncClient.connect(cluster.bootstrap) as client:
        cluster.create("t")
        asked = client.metadata
        failures: list[RpcError] = [RpcTimeout("no node answers")]

        async def metadata(topics: Any = None, *, timeout_s: float = 30.0) -> Any:
            if failures:
                raise failures.pop()
            return await asked(topics, timeout_s=timeout_s)

        monkeypatch.setattr(client, "metadata", metadata)
        member = ConsumerMembership(client, Coordinator(client), "g", ["t"])
        with pytest.raises(RpcError):
            await member.join()
        await member.join()
        assert list(member.partitions) == [T0]
        member.abandon()


async def test_what_an_answer_said_that_did_not_arrive_is_asked_for_again() -> None:
    """The coordinator takes t-0 away; the member worked on with it until the group removed it."""

    class Loses(Coordinator):
        async def ask(
            self, group: str, request: Request, error_of: Callable[[Any], int], *, timeout_s: float | None = None
        ) -> tuple[BrokerId, Any]:
            broker, answer = await super().ask(group, request, error_of, timeout_s=timeout_s)
            assert isinstance(request, wire.ConsumerGroupHeartbeatRequest)
            if len(self.owned) == 2:
                raise RpcTimeout("the answer is lost")
            if len(self.owned) > 2 and request.subscribed_topic_names and request.rebalance_timeout_ms > 0:
                answer.assignment = wire.ConsumerGroupHeartbeatResponse.Assignment([])
            return broker, answer

    async with FakeCluster(1) as cluster, AsyncClient.connect(cluster.bootstrap) as client:
        cluster.create("t")
        coordinator = Loses(client)
        member = ConsumerMembership(client, coordinator, "g", ["t"])
        await member.join()
        assert list(member.partitions) == [T0]
        async with asyncio.timeout(150):
            await member.is_stale.wait()
        await member.join()
        assert not member.partitions and coordinator.owned[-1] == []
        member.abandon()
