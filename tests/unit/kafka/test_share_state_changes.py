"""States of shared partitions change when the group's record of it is stored, and one change at a time."""

from __future__ import annotations

import asyncio
from typing import Any

import pytest

from kafkalite.coordinators.groups.partition import GroupEntry
from kafkalite.coordinators.groups.share.states import ShareGroupStates
from kafkalite.errors import ApiError, ErrorCode
from kafkalite.model import GROUP_TOPIC
from kafkalite.protocol import wire
from tests.support.waiting import until

from .conftest import Broker, FrameClient
from .consumer_members import started
from .test_share_groups import Member, key_of, offsets, reload
from .test_stale_coordinators import HeldAppends


class Unreplicated(HeldAppends):
    """Appends to `__consumer_offsets` are not replicated until `release`."""

    def __init__(self, broker: Broker, monkeypatch: Any) -> None:
        super().__init__(broker, monkeypatch)
        self._partitions = broker.services.partitions

    def hold(self) -> None:
        self.is_holding = True
        for key, log in self._partitions.logs.items():
            if key.topic == GROUP_TOPIC:
                self._partitions.committed[key] = log.log_end_offset

    def release(self) -> None:
        self._partitions.committed.clear()
        super().release()


def calls_of(broker: Broker, monkeypatch: Any, name: str) -> list[Any]:
    """The keys for which this method of the persister is called."""
    called: list[Any] = []
    serve = getattr(broker.side.share_persister, name)

    async def noted(key: Any, *arguments: Any) -> None:
        called.append(key)
        await serve(key, *arguments)

    monkeypatch.setattr(broker.side.share_persister, name, noted)
    return called


async def empty_group(broker: Broker) -> FrameClient:
    client = await started(broker)
    member = Member(client, "m", "t")
    await member.beat()
    await member.beat(-1)
    return client


def deletion() -> Any:
    request = wire.DeleteShareGroupOffsetsRequest
    return request("g", [request.DeleteShareGroupOffsetsRequestTopic("t")])


def alteration(offset: int) -> Any:
    request = wire.AlterShareGroupOffsetsRequest
    part = request.AlterShareGroupOffsetsRequestPartition(0, offset)
    return request("g", [request.AlterShareGroupOffsetsRequestTopic("t", [part])])


@pytest.mark.parametrize(("asked", "method"), [(deletion(), "delete"), (alteration(3), "initialize")])
async def test_a_state_changes_when_the_record_of_it_is_stored(
    broker: Broker, monkeypatch: pytest.MonkeyPatch, asked: Any, method: str
) -> None:
    """A coordinator that did not know of the deletion took the states for there: nobody got the partitions any more."""
    client = await empty_group(broker)
    called, appends = calls_of(broker, monkeypatch, method), Unreplicated(broker, monkeypatch)
    appends.hold()
    asking = asyncio.create_task(client.ask(asked, 0))
    await appends.any.wait()
    await asyncio.sleep(0.02)
    assert not called
    appends.release()
    assert (await asking).responses
    assert called


async def test_a_state_begins_when_the_record_of_it_is_stored(broker: Broker, monkeypatch: pytest.MonkeyPatch) -> None:
    client = await started(broker)
    called, appends = calls_of(broker, monkeypatch, "initialize"), Unreplicated(broker, monkeypatch)
    appends.hold()
    joining = asyncio.create_task(Member(client, "m", "t").beat())
    await appends.any.wait()
    await asyncio.sleep(0.02)
    assert not called
    appends.release()
    assert (await joining).error_code == 0
    assert called


async def test_offsets_that_are_set_outlive_a_deletion_of_before(
    broker: Broker, monkeypatch: pytest.MonkeyPatch
) -> None:
    """The end of the deletion could not be noted. It went on with the next member, and took what had been set meanwhile:
    the group believed that there was a state."""
    client = await empty_group(broker)
    partitions = broker.services.partitions
    delete = broker.side.share_persister.delete

    deleted: list[Any] = []

    async def last(key: Any) -> None:
        await delete(key)
        deleted.append(key)
        if len(deleted) == 4:
            partitions.fail_appends = ErrorCode.NOT_ENOUGH_REPLICAS

    with monkeypatch.context() as patched:
        patched.setattr(broker.side.share_persister, "delete", last)
        answer = await client.ask(deletion(), 0)
    partitions.fail_appends = None
    assert answer.error_code or answer.responses[0].error_code
    assert broker.side.groups.describe("g").share.shared.deleting  # type: ignore[union-attr]
    assert [each.error_code for each in (await client.ask(alteration(3), 0)).responses[0].partitions] == [0]
    member = Member(client, "m2", "t")
    await member.beat()
    assert member.count == 4
    assert (await offsets(client))[0][0] == 3
    assert await broker.side.share_persister.start_offset(key_of(broker, "t", 0)) == 3


async def test_offsets_that_are_set_during_a_deletion_are_set_again(
    broker: Broker, monkeypatch: pytest.MonkeyPatch
) -> None:
    client = await empty_group(broker)
    goes_on, delete = asyncio.Event(), broker.side.share_persister.delete

    async def slow(key: Any) -> None:
        await goes_on.wait()
        await delete(key)

    with monkeypatch.context() as patched:
        patched.setattr(broker.side.share_persister, "delete", slow)
        deleting = asyncio.create_task(client.ask(deletion(), 0))
        await until(lambda: bool(broker.side.groups.describe("g").share.shared.deleting))  # type: ignore[union-attr]
        other = await broker.client()
        assert (await other.ask(alteration(3), 0)).error_code == ErrorCode.COORDINATOR_LOAD_IN_PROGRESS
        goes_on.set()
        await deleting
    assert (await other.ask(alteration(3), 0)).error_code == 0
    assert (await offsets(client))[0][0] == 3


async def test_a_deletion_that_is_repeated_leaves_a_later_group_alone(
    broker: Broker, monkeypatch: pytest.MonkeyPatch
) -> None:
    """A client that had no answer asked again, and both deletions were under way. The group came back between the two."""
    client = await empty_group(broker)
    shares, delete = broker.side.groups.share_states, broker.side.groups.removal.delete_group
    goes_on, delete_states = asyncio.Event(), shares.delete_states

    async def slow(*arguments: Any) -> Any:
        found = await delete_states(*arguments)
        await goes_on.wait()
        return found

    with monkeypatch.context() as patched:
        patched.setattr(shares, "delete_states", slow)
        repeated = asyncio.create_task(delete("g"))
        await until(lambda: not broker.side.groups.describe("g").share.shared.initialized)  # type: ignore[union-attr]
    await delete("g")
    await Member(client, "m2", "t").beat()
    goes_on.set()
    with pytest.raises(ApiError):
        await repeated
    for _ in range(2):
        assert list(broker.side.groups.describe("g").share.members) == ["m2"]  # type: ignore[union-attr]
        reload(broker)
        await until(lambda: not broker.side.groups.log.is_loading)


async def test_a_group_is_deleted_when_states_that_were_about_to_begin_are_there(
    broker: Broker, monkeypatch: pytest.MonkeyPatch
) -> None:
    """Else they began later, in an epoch of the deleted group: it fenced the next group of this name."""
    client, second = await started(broker), await broker.client()
    begin, may_begin, begun = broker.side.share_persister.initialize, asyncio.Event(), asyncio.Event()

    async def initialize(*arguments: Any) -> None:
        begun.set()
        await may_begin.wait()
        await begin(*arguments)

    monkeypatch.setattr(broker.side.share_persister, "initialize", initialize)
    await Member(client, "m1", "absent").beat()
    beat = asyncio.create_task(Member(client, "m2", "t").beat())
    await begun.wait()
    for name in ("m1", "m2"):
        assert not (await Member(second, name).beat(-1)).error_code
    asked, delete = asyncio.Event(), ShareGroupStates.delete_group

    async def delete_group(self: ShareGroupStates, entry: GroupEntry) -> None:
        asked.set()
        await delete(self, entry)

    monkeypatch.setattr(ShareGroupStates, "delete_group", delete_group)
    deleting = asyncio.create_task(second.ask(wire.DeleteGroupsRequest(["g"]), 2))
    await asked.wait()
    may_begin.set()
    assert (await deleting).results[0].error_code == 0
    await beat
    last = Member(second, "m3", "t")
    await last.beat()
    assert last.count == 4
