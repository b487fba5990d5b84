"""Rights that end while sessions and long polls use them, and lists of what may be seen."""

from __future__ import annotations

import asyncio
from dataclasses import replace
from typing import Any
from uuid import UUID

import pytest

from kafkalite.coordination.topic_configs import GROUPS
from kafkalite.coordinators.shares.persistence import ShareKey
from kafkalite.errors import ErrorCode
from kafkalite.kafka.throttle_accounting import ThrottleAccounting
from kafkalite.model import Offset
from kafkalite.protocol import topic_ids, wire
from kafkalite.security.acl import Operation, ResourceType
from kafkalite.security.quotas import Entity

from .conftest import Broker, batch, produce
from .rights import allow, client_of, codes_in, counted_turns, guarded

TOPIC, GROUP = ResourceType.TOPIC, ResourceType.GROUP


@pytest.fixture
async def broker(make_broker: Any) -> Broker:
    return await guarded(make_broker)


async def test_a_fetch_session_ends_where_the_rights_end(broker: Broker) -> None:
    client = await client_of(broker, "ann")
    allow(broker, "ann", TOPIC, "t", Operation.READ)
    request = wire.FetchRequest
    part = request.FetchPartition(0, fetch_offset=0, partition_max_bytes=1000)
    opened = await client.ask(
        request(max_wait_ms=0, session_epoch=0, topics=[request.FetchTopic("t", partitions=[part])]), 12
    )
    assert opened.session_id > 0

    async def next_error(epoch: int) -> list[int]:
        again = request(max_wait_ms=0, session_id=opened.session_id, session_epoch=epoch)
        return [each.partitions[0].error_code for each in (await client.ask(again, 12)).responses]

    assert await next_error(1) == []
    allow(broker, "ann", TOPIC, "t", Operation.DESCRIBE)
    assert await next_error(2) == [29]
    allow(broker, "ann", TOPIC, "t", Operation.READ)
    assert await next_error(3) == [0]
    # Nobody else reads with it.
    other = await client_of(broker, "bob")
    stolen = await other.ask(request(max_wait_ms=0, session_id=opened.session_id, session_epoch=4), 12)
    assert stolen.error_code == ErrorCode.FETCH_SESSION_ID_NOT_FOUND


async def test_rights_that_end_before_a_session_begins_count(broker: Broker) -> None:
    """The first fetch was let pass, and waits for records; its answer opens the session."""
    client, root = await client_of(broker, "ann"), await client_of(broker, "root")
    allow(broker, "ann", TOPIC, "t", Operation.READ)
    request = wire.FetchRequest
    part = request.FetchPartition(0, fetch_offset=0, partition_max_bytes=1000)
    topics = [request.FetchTopic("t", partitions=[part])]
    client.send(request(max_wait_ms=600_000, min_bytes=1, session_epoch=0, topics=topics), 12)
    while not broker.services.partitions._tasks:
        await asyncio.sleep(0)
    allow(broker, "ann", TOPIC, "t", Operation.DESCRIBE)
    await root.ask(produce("t", (0, batch(b"x"))), 9)
    _, opened = await client.receive()
    assert opened.session_id > 0
    again = request(max_wait_ms=0, session_id=opened.session_id, session_epoch=1)
    [topic] = (await client.ask(again, 12)).responses
    assert [each.error_code for each in topic.partitions] == [ErrorCode.TOPIC_AUTHORIZATION_FAILED]


@pytest.mark.parametrize("api", ["Metadata", "DescribeTopicPartitions", "ListGroups", "ListTransactions"])
async def test_what_is_left_out_of_a_list_is_looked_up_in_slices(
    broker: Broker, api: str, monkeypatch: pytest.MonkeyPatch
) -> None:
    """With 50,000 topics or groups, 20 bytes of a user without any right took the event loop 0.6 s."""
    client = await client_of(broker, "ann")
    metadata, count = broker.services.metadata, 1000
    [topic] = metadata(["t"]).topics
    topics = tuple(replace(topic, topic=f"t{number}") for number in range(count))
    monkeypatch.setattr(
        broker.services,
        "metadata",
        lambda names=None: replace(metadata(names), topics=topics) if names is None else metadata(names),
    )
    [group] = broker.side.groups.groups()
    monkeypatch.setattr(broker.side.groups, "groups", lambda: [group] * count)
    [transaction] = broker.side.transactions.transactions()
    monkeypatch.setattr(broker.side.transactions, "transactions", lambda: [transaction] * count)
    broker.services.rights.quotas.put(Entity(None, "test"), {"request_percentage": 1e9})
    worked = []
    settle = ThrottleAccounting.settle

    def settled(self: ThrottleAccounting, answer: Any) -> None:
        worked.append(self.work_s)
        settle(self, answer)

    monkeypatch.setattr(ThrottleAccounting, "settle", settled)
    turns = counted_turns(monkeypatch)
    request = wire.MetadataRequest(None) if api == "Metadata" else getattr(wire, api + "Request")()
    answer = await client.ask(request, {"Metadata": 12, "DescribeTopicPartitions": 0}.get(api, 1))
    assert not list(filter(None, codes_in(answer)))
    assert len(turns) >= count // 100, "a step of at most a hundred"
    assert worked[0] > 0, "the quota counts it"


@pytest.mark.parametrize("epoch", [-1, 0])
async def test_a_long_poll_brings_nothing_that_may_not_be_read_any_more(broker: Broker, epoch: int) -> None:
    """A client says itself how long it waits: up to 24 days."""
    client, root = await client_of(broker, "ann"), await client_of(broker, "root")
    for topic in ("t", "u"):
        await root.ask(wire.CreateTopicsRequest([wire.CreateTopicsRequest.CreatableTopic(topic, 1, 1)], 1000), 4)
        allow(broker, "ann", TOPIC, topic, Operation.READ)
    request = wire.FetchRequest
    part = request.FetchPartition(0, fetch_offset=0, partition_max_bytes=1000)
    topics = [request.FetchTopic(topic, partitions=[part]) for topic in ("t", "u")]
    client.send(request(max_wait_ms=600_000, min_bytes=1, max_bytes=1000, session_epoch=epoch, topics=topics), 12)
    while not broker.services.partitions._tasks:
        await asyncio.sleep(0)
    allow(broker, "ann", TOPIC, "t", Operation.DESCRIBE)
    await root.ask(produce("t", (0, batch(b"x"))), 9)
    _, answer = await client.receive()
    got = {each.topic: (each.partitions[0].error_code, bytes(each.partitions[0].records)) for each in answer.responses}
    assert got == {"t": (ErrorCode.TOPIC_AUTHORIZATION_FAILED, b""), "u": (0, b"")}
    if epoch == 0:
        allow(broker, "ann", TOPIC, "t", Operation.READ)
        again = request(max_wait_ms=0, max_bytes=1000, session_id=answer.session_id, session_epoch=1)
        [topic] = (await client.ask(again, 12)).responses
        assert topic.partitions[0].error_code == 0 and topic.partitions[0].records


async def test_a_long_poll_of_a_share_group_gives_nothing_that_may_not_be_read_any_more(broker: Broker) -> None:
    client, root = await client_of(broker, "ann"), await client_of(broker, "root")
    allow(broker, "ann", GROUP, "g", Operation.READ)
    allow(broker, "ann", TOPIC, "t", Operation.READ)
    broker.services.settings[GROUPS]["g"] = {"share.auto.offset.reset": "earliest"}
    topic_id = topic_ids.to_wire(broker.services.metadata(["t"]).topics[0].topic_id)
    await broker.side.share_persister.initialize(ShareKey("g", UUID(bytes=topic_id), 0), 0, Offset(-1))
    fetch = wire.ShareFetchRequest
    listed = [fetch.FetchTopic(topic_id, [fetch.FetchPartition(0)])]
    wanted: dict[str, Any] = {"max_wait_ms": 600_000, "min_bytes": 1, "max_records": 5, "batch_size": 5}
    client.send(fetch("g", "m", 0, topics=listed, **wanted), 2)
    sessions = broker.side.share_fetching.sessions._sessions
    while not any(session.waiting for session in sessions.values()):
        await asyncio.sleep(0)
    allow(broker, "ann", TOPIC, "t")
    await root.ask(produce("t", (0, batch(b"x"))), 9)
    _, answer = await client.receive()
    [part] = answer.responses[0].partitions
    assert (part.error_code, part.acquired_records) == (ErrorCode.TOPIC_AUTHORIZATION_FAILED, [])
