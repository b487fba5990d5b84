"""A coordinator that nobody follows, so that another node may have its place, sends its clients away."""

from __future__ import annotations

from collections.abc import Awaitable, Callable
from typing import Any

import pytest

from kafkalite.errors import ErrorCode
from kafkalite.model import GROUP_TOPIC, TRANSACTION_TOPIC, TopicPartition
from kafkalite.protocol import wire
from kafkalite.testing.simulation.plants import PLANTS

from .conftest import Broker, FrameClient
from .consumer_members import Member as ConsumerMember
from .consumer_members import started
from .coordinator_requests import TRANSACTIONS, commit, coordinator, fetched, join
from .test_share_groups import Member as ShareMember

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


@pytest.mark.parametrize("protocol", ["classic", "consumer", "share"])
@pytest.mark.parametrize("is_back", [False, True])
async def test_sessions_do_not_end_because_clients_were_sent_away(
    make_broker: Any, protocol: str, *, is_back: bool
) -> None:
    """Heartbeats were refused with NOT_COORDINATOR, and their members removed for not sending any."""
    broker = await make_broker(offsets_topic_num_partitions=1, group_initial_rebalance_delay_ms=0)
    client = await started(broker)
    groups, replaced = broker.side.groups, broker.services.partitions.replaced
    beat, name = await joined(client, protocol)
    entry = groups.describe("g")
    assert entry is not None
    replaced.add(TopicPartition(GROUP_TOPIC, 0))
    if is_back:
        assert (await beat()).error_code == ErrorCode.NOT_COORDINATOR
        replaced.clear()
    for over in range(2):
        if protocol == "classic":
            entry.group.members[name].deadline_ms = 1
        elif protocol == "consumer":
            entry.consumer.times[name].session = 1
        else:
            entry.share.deadlines[name] = 1
        entry.scheduled_ms = None
        groups._schedule_at(entry, 1)
        groups.tick()
        is_there = over == 0 or not is_back  # while it sends them away, it does not know more the second time
        assert (name in (entry.newer or entry.group).members) is is_there
    replaced.clear()
    assert (await beat()).error_code == (ErrorCode.NONE if not is_back else ErrorCode.UNKNOWN_MEMBER_ID)


async def joined(client: FrameClient, protocol: str) -> tuple[Callable[[], Awaitable[Any]], str]:
    """A member of "g": its heartbeat, and its id."""
    if protocol == "classic":
        answer = await client.ask(join("g"), 3)
        name, generation = answer.member_id, answer.generation_id
        assert (await client.ask(wire.SyncGroupRequest("g", generation, name), 3)).error_code == 0
        return lambda: client.ask(wire.HeartbeatRequest("g", generation, name), 3), name
    member: Any = ConsumerMember(client, "m", "t") if protocol == "consumer" else ShareMember(client, "m", "t")
    assert (await member.beat()).error_code == 0
    return member.beat, "m"
