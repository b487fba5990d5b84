"""Offsets that were committed for a topic are not those of the next topic of its name."""

from __future__ import annotations

import asyncio
from typing import Any

import pytest

from kafkalite.coordinators.groups.offsets import CommittedOffset
from kafkalite.coordinators.groups.records import common as records
from kafkalite.env.turns import Turns
from kafkalite.extension.messages.topics import DeleteTopicsRequest
from kafkalite.model import GROUP_TOPIC, NO_TOPIC_ID, Offset, TopicId, TopicPartition
from kafkalite.protocol import wire
from kafkalite.protocol.topic_ids import to_wire

from .conftest import Broker, FrameClient
from .coordinator_requests import commit, coordinator, fetched, move
from .rights import counted_turns
from .test_pending_offsets import slow_followers

T0 = TopicPartition("t", 0)


@pytest.mark.parametrize("topic_id", [TopicId("x" * 21 + "A"), NO_TOPIC_ID])
@pytest.mark.parametrize("expire_ms", [-1, 7])
def test_a_record_has_the_topic_id(topic_id: TopicId, expire_ms: int) -> None:
    offset = CommittedOffset(Offset(5), 1, "m", 3, expire_ms, topic_id=topic_id)
    value = records.offset_value(offset)
    assert value[1] == (4 if expire_ms < 0 else 1)
    parsed = records.parse(records.offset_key("g", T0), value, 9)
    assert isinstance(parsed, records.OffsetRecord) and parsed.value is not None
    assert parsed.value.topic_id == (topic_id if expire_ms < 0 else NO_TOPIC_ID)
    assert (parsed.value.offset, parsed.value.record_offset, parsed.value.expire_ms) == (5, 9, expire_ms)


async def made_again(broker: Broker) -> FrameClient:
    """A group has committed 5 for a topic that was deleted while nobody coordinated the group, and is there again."""
    await broker.create("t")
    client = await broker.client()
    await coordinator(client, "g")
    await client.ask(commit("g", 5), 8)
    await broker.services.delete_topics(DeleteTopicsRequest(("t",)), {})
    await broker.create("t")
    return client


async def by_name(client: FrameClient) -> int:
    return int((await fetched(client, "g", T0)).topics[0].partitions[0].committed_offset)


async def by_id(broker: Broker, client: FrameClient, *, everything: bool = False) -> list[int]:
    request = wire.OffsetFetchRequest
    topic_id = to_wire(broker.services.metadata(["t"]).topics[0].topic_id)
    topics: Any = [request.OffsetFetchRequestTopics(topic_id=topic_id, partition_indexes=[0])]
    asked = request.OffsetFetchRequestGroup("g", topics=None if everything else topics)
    [group] = (await client.ask(request(groups=[asked]), 10)).groups
    return [part.committed_offset for topic in group.topics for part in topic.partitions]


async def test_a_client_that_asks_by_topic_id_gets_nothing_of_a_former_topic(broker: Broker) -> None:
    """As from Apache Kafka 4.4."""
    client = await made_again(broker)
    assert await by_id(broker, client) == [-1]
    assert await by_id(broker, client, everything=True) == []
    await client.ask(commit("g", 6), 8)
    for _ in range(2):
        assert await by_id(broker, client) == await by_id(broker, client, everything=True) == [6]
        await move(broker, GROUP_TOPIC)
        await coordinator(client, "g")


async def test_the_second_sweep_takes_offsets_of_former_topics(broker: Broker) -> None:
    client = await made_again(broker)
    removal = broker.side.groups.removal
    await removal.sweep()
    assert await by_name(client) == 5
    await removal.sweep()
    for _ in range(2):
        assert await by_name(client) == -1
        await move(broker, GROUP_TOPIC)
        await coordinator(client, "g")
    await client.ask(commit("g", 6), 8)
    for _ in range(3):
        await removal.sweep()
    assert await by_name(client) == 6


async def test_a_later_sweep_takes_offsets_of_a_topic_whose_deletion_nobody_reported(broker: Broker) -> None:
    """The controller ended before it had reached the coordinator; the next one sent the topics that there were by then."""
    await broker.create("t")
    client = await broker.client()
    await coordinator(client, "g")
    await client.ask(commit("g", 5), 8)
    removal = broker.side.groups.removal
    for _ in range(3):
        await removal.sweep()
    await broker.services.delete_topics(DeleteTopicsRequest(("t",)), {})
    await removal.sweep()
    assert await by_name(client) == 5, "its znode may have vanished by mistake (ADR 19)"
    await broker.create("t")
    await removal.sweep()
    for _ in range(2):
        assert await by_name(client) == -1
        await move(broker, GROUP_TOPIC)
        await coordinator(client, "g")
    await client.ask(commit("g", 6), 8)
    for _ in range(4):
        await removal.sweep()
    assert await by_name(client) == 6


@pytest.mark.checklist("C19")
async def test_offsets_of_a_topic_that_has_vanished_stay(broker: Broker) -> None:
    """Its replicas stay too: when its znodes are back, its groups go on where they were (ADR 19)."""
    await broker.create("t")
    client = await broker.client()
    await coordinator(client, "g")
    await client.ask(commit("g", 5), 8)
    restore = broker.services.vanish("t")
    for _ in range(2):
        for _ in range(3):
            await broker.side.groups.removal.sweep()
        await move(broker, GROUP_TOPIC)
        await coordinator(client, "g")
    restore()
    assert await by_name(client) == 5


async def test_a_sweep_that_could_not_be_written_is_repeated(broker: Broker, monkeypatch: pytest.MonkeyPatch) -> None:
    client = await made_again(broker)
    removal, refused = broker.side.groups.removal, broker.side.groups.removal._refused

    async def refuse(doomed: Any) -> Any:
        return list(doomed)

    await removal.sweep()
    with monkeypatch.context() as patched:
        patched.setattr(removal, "_refused", refuse)
        await removal.sweep()
    assert removal._refused == refused and await by_name(client) == 5
    await removal.sweep()
    assert await by_name(client) == -1


async def test_an_offset_without_a_topic_id_stays_while_there_is_a_topic_of_this_name(
    broker: Broker, monkeypatch: pytest.MonkeyPatch
) -> None:
    """It was written by an older version."""
    client = await made_again(broker)
    with monkeypatch.context() as patched:
        patched.setattr(records, "_OFFSET_VALUE_VERSION", 3)
        await client.ask(commit("g", 7), 8)
    await move(broker, GROUP_TOPIC)
    await coordinator(client, "g")
    removal = broker.side.groups.removal
    await removal.sweep()
    await removal.sweep()
    assert await by_name(client) == 7 and await by_id(broker, client) == [7]
    await broker.services.delete_topics(DeleteTopicsRequest(("t",)), {})
    await move(broker, GROUP_TOPIC)
    await coordinator(client, "g")
    await removal.sweep()
    await removal.sweep()
    assert await by_name(client) == -1


async def test_an_offset_of_a_former_topic_does_not_say_that_a_partition_is_read(broker: Broker) -> None:
    """A partition that is drained before its removal would lose records that nobody has read."""
    client = await made_again(broker)
    committed = broker.side.groups.offsets.committed
    assert committed([T0])[1] == {}
    await client.ask(commit("g", 6), 8)
    assert committed([T0])[1] == {T0: (6, 1, False)}


async def test_a_commit_that_is_under_way_during_a_sweep_is_kept(broker: Broker) -> None:
    """It is for the new topic; the tombstone of the former topic's offset would stand behind it."""
    client = await made_again(broker)
    removal = broker.side.groups.removal
    await removal.sweep()
    for _ in range(2):
        with slow_followers(broker) as held:
            committing = asyncio.create_task(client.ask(commit("g", 6), 8))
            await held.some(1)
            await removal.sweep()
            held.release()
            await committing
        assert await by_name(client) == 6


async def test_a_sweep_takes_a_turn_for_each_slice(make_broker: Any, monkeypatch: pytest.MonkeyPatch) -> None:
    """Clients wait for one slice only; and a topic that comes between two slices keeps what is committed for it."""
    broker: Broker = await make_broker(offsets_topic_num_partitions=1)
    client = await broker.client()
    await coordinator(client, "g")
    for topic in ("s", "t"):
        await broker.create(topic)
        for number in range(20):
            await client.ask(commit(f"g{number}", 5, topic=topic), 8)
    await broker.services.delete_topics(DeleteTopicsRequest(("t",)), {})
    turns, removal = counted_turns(monkeypatch), broker.side.groups.removal
    for _ in range(3):
        await removal.sweep()
    assert turns.count(("groups.sweep", 0)) >= 40
    await removal.expire()
    assert turns.count(("groups.expiry", 0)) >= 20
    [partition] = broker.side.groups.log.states()
    left = {key for entry in partition.entries.values() for key in entry.offsets.committed}
    assert left == {TopicPartition("s", 0)}

    taken = Turns.take

    async def meanwhile(self: Turns, owner: Any) -> None:
        monkeypatch.setattr(Turns, "take", taken)
        await broker.create("t")
        await client.ask(commit("g7", 6), 8)
        await taken(self, owner)

    partition.sweeps = 1
    monkeypatch.setattr(Turns, "take", meanwhile)
    await removal.sweep()
    assert partition.entries["g7"].offsets.committed[T0].offset == 6
