"""A coordinator that nobody follows, so that another node may have its place, sends its clients away."""

from __future__ import annotations

from typing import Any

import pytest

from kafkalite.errors import ErrorCode
from kafkalite.model import GROUP_TOPIC, TRANSACTION_TOPIC, TopicPartition
from kafkalite.protocol import wire
from kafkalite.testing.simulation.plants import PLANTS

from .conftest import Broker, FrameClient
from .coordinator_requests import TRANSACTIONS, commit, coordinator, fetched

OWNS_NOTHING: list[Any] = []


async def heartbeat(client: FrameClient, member: str, epoch: int) -> Any:
    request = wire.ConsumerGroupHeartbeatRequest(
        "g", member, epoch, rebalance_timeout_ms=10_000, subscribed_topic_names=["t"], topic_partitions=OWNS_NOTHING
    )
    return await client.ask(request, 1)


async def a_member(broker: Broker) -> tuple[FrameClient, int]:
    """A client that is a member of the group "g", and its epoch."""
    await broker.create("t")
    client = await broker.client()
    await coordinator(client, "g")
    return client, (await heartbeat(client, "member", 0)).member_epoch


@pytest.mark.parametrize("is_planted", [False, True])
async def test_a_heartbeat_is_not_answered_in_the_place_of_another_coordinator(
    make_broker: Any, monkeypatch: Any, *, is_planted: bool
) -> None:
    """The member would believe that its session goes on, which the other one lets end."""
    if is_planted:
        PLANTS["replaced"](monkeypatch.setattr)
    broker = await make_broker(offsets_topic_num_partitions=1)
    client, epoch = await a_member(broker)
    broker.services.partitions.replaced.add(TopicPartition(GROUP_TOPIC, 0))
    answered = (await heartbeat(client, "member", epoch)).error_code
    assert answered == (ErrorCode.NONE if is_planted else ErrorCode.NOT_COORDINATOR)
    broker.services.partitions.replaced.clear()
    assert (await heartbeat(client, "member", epoch)).error_code == ErrorCode.NONE


async def test_committed_offsets_are_for_the_other_coordinator_to_say(make_broker: Any) -> None:
    broker = await make_broker(offsets_topic_num_partitions=1)
    await broker.create("t")
    client = await broker.client()
    await coordinator(client, "g")
    await client.ask(commit("g", 5), 8)
    broker.services.partitions.replaced.add(TopicPartition(GROUP_TOPIC, 0))
    assert (await fetched(client, "g", TopicPartition("t", 0))).error_code == ErrorCode.NOT_COORDINATOR
    # Nor does it say that no group but its own could still want a partition that is drained.
    assert broker.side.groups.offsets.committed([TopicPartition("t", 0)]) == ((), {})


async def test_a_transaction_is_for_the_other_coordinator_to_begin(make_broker: Any) -> None:
    broker = await make_broker(transaction_state_log_num_partitions=1)
    client = await broker.client()
    await coordinator(client, "tx", TRANSACTIONS)
    broker.services.partitions.replaced.add(TopicPartition(TRANSACTION_TOPIC, 0))
    request = wire.InitProducerIdRequest("tx", 10_000)
    assert (await client.ask(request, 4)).error_code == ErrorCode.NOT_COORDINATOR
