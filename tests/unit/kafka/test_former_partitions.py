"""What groups have of a partition that was removed is not that of the next partition with its number."""

from __future__ import annotations

import asyncio
from typing import Any

import pytest

from kafkalite.errors import ErrorCode, api_error
from kafkalite.model import GROUP_TOPIC, Offset, TopicPartition
from kafkalite.protocol import wire
from tests.support.waiting import until

from .conftest import Broker, FrameClient
from .consumer_members import started
from .coordinator_requests import commit, coordinator, fetched, move
from .test_share_groups import Member, key_of, reload

T1 = TopicPartition("t", 1)


def remove(broker: Broker) -> None:
    """The last partition of t is removed; who does not hear of it is another matter."""
    del broker.services.partitions.logs[T1]
    broker.services.partitions.tell_change()


async def add(broker: Broker) -> None:
    await broker.services.create_partitions("t", 2, None, timeout_ms=1000, validate_only=False)


async def read_to_five(broker: Broker) -> tuple[FrameClient, Member]:
    """A share group has read five records of each partition, in the third life of a leader."""
    client = await started(broker, 2)
    member = Member(client, "m", "t")
    await member.beat()
    state = await broker.side.share_persister.read(key_of(broker, "t", 1), 3)
    await broker.side.share_persister.write(key_of(broker, "t", 1), state.state_epoch, 3, Offset(5), [])
    return client, member


async def begins_again(broker: Broker, client: FrameClient) -> None:
    await add(broker)
    member = Member(client, "m2", "t")
    await member.beat()
    await until(lambda: not broker.side.groups.describe("g").share.shared.initializing)  # type: ignore[union-attr]
    assert (await broker.side.share_persister.read(key_of(broker, "t", 1), 0)).start_offset == -1


def states_of(broker: Broker) -> int:
    return sum(len(partition.entries) for partition in broker.side.shares.log.states())


async def test_a_share_group_forgets_a_removed_partition(broker: Broker) -> None:
    """The leader of the next one was fenced, as one of before the leader that had read the state."""
    client, member = await read_to_five(broker)
    remove(broker)
    await broker.side.groups.removal.partitions_removed([T1])
    assert states_of(broker) == 1
    shared = broker.side.groups.describe("g").share.shared  # type: ignore[union-attr]
    assert [sorted(each.partitions) for each in shared.initialized.values()] == [[0]]
    assert not shared.initializing
    await member.beat(-1)
    await begins_again(broker, client)


async def test_what_could_not_be_deleted_is_deleted_later(broker: Broker, monkeypatch: pytest.MonkeyPatch) -> None:
    client, _ = await read_to_five(broker)
    remove(broker)
    failed: list[Any] = []
    delete = broker.side.share_persister.delete

    async def once(key: Any) -> None:
        if not failed:
            failed.append(key)
            raise api_error(ErrorCode.COORDINATOR_NOT_AVAILABLE)
        await delete(key)

    monkeypatch.setattr(broker.side.share_persister, "delete", once)
    monkeypatch.setattr("kafkalite.coordinators.groups.share.states._DELETE_AGAIN_S", 0.01)
    await broker.side.groups.removal.partitions_removed([T1])
    assert failed and states_of(broker) == 1
    await begins_again(broker, client)


async def test_a_state_that_a_coordinator_could_not_delete_before_its_end(
    broker: Broker, monkeypatch: pytest.MonkeyPatch
) -> None:
    """The next one began it again with the epoch of the former leader: the new leader, in epoch 0, was fenced."""
    client, member = await read_to_five(broker)
    await member.beat(-1)
    remove(broker)

    async def never(key: Any) -> None:
        raise api_error(ErrorCode.COORDINATOR_NOT_AVAILABLE)

    with monkeypatch.context() as patched:
        patched.setattr(broker.side.share_persister, "delete", never)
        patched.setattr("kafkalite.coordinators.groups.share.states._DELETE_AGAIN_S", 0.01)
        removing = asyncio.create_task(broker.side.groups.removal.partitions_removed([T1]))
        await until(lambda: bool(broker.side.groups.describe("g").share.shared.initializing))  # type: ignore[union-attr]
        reload(broker)
        await until(lambda: not broker.side.groups.log.is_loading)
        await removing
    assert states_of(broker) == 2
    await begins_again(broker, client)


async def test_a_removal_that_is_reported_late_leaves_the_next_partition_alone(broker: Broker) -> None:
    await read_to_five(broker)
    await broker.side.groups.removal.partitions_removed([T1])
    assert (await broker.side.share_persister.read(key_of(broker, "t", 1), 3)).start_offset == 5


async def test_the_second_sweep_takes_states_of_removed_partitions(broker: Broker) -> None:
    """Nobody coordinated the group when its partition was removed."""
    client, member = await read_to_five(broker)
    await member.beat(-1)
    remove(broker)
    reload(broker)
    await until(lambda: not broker.side.groups.log.is_loading)
    for _ in range(2):
        assert states_of(broker) == 2
        await broker.side.groups.removal.sweep()
    await until(lambda: states_of(broker) == 1)
    await until(lambda: not broker.side.groups.describe("g").share.shared.initializing)  # type: ignore[union-attr]
    await begins_again(broker, client)


@pytest.mark.checklist(60)
async def test_the_second_sweep_takes_offsets_of_removed_partitions(broker: Broker) -> None:
    await broker.create("t", 2)
    client = await broker.client()
    await coordinator(client, "g")
    request = commit("g", 5)
    request.topics[0].partitions.append(wire.OffsetCommitRequest.OffsetCommitRequestPartition(1, 7))
    await client.ask(request, 8)
    remove(broker)
    await move(broker, GROUP_TOPIC)
    await coordinator(client, "g")
    await broker.side.groups.removal.sweep()
    await broker.side.groups.removal.sweep()
    for _ in range(2):
        found = [(await fetched(client, "g", key)).topics[0].partitions[0] for key in (TopicPartition("t", 0), T1)]
        assert [each.committed_offset for each in found] == [5, -1]
        await move(broker, GROUP_TOPIC)
        await coordinator(client, "g")
