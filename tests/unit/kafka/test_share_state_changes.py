"""States of shared partitions change when the group's record of it is stored, and one change at a time."""

from __future__ import annotations

import asyncio
from collections.abc import Callable
from typing import Any
from uuid import UUID

import pytest

from kafkalite.coordinators.groups.decisions.classic.group import Group
from kafkalite.coordinators.groups.decisions.share.group import PartitionsWithState, SharedTopic, ShareGroup
from kafkalite.coordinators.groups.partition import GroupEntry, GroupPartition, ShareRuntime
from kafkalite.coordinators.groups.share.group_log import ShareGroupLog
from kafkalite.coordinators.groups.share.states import ShareGroupStates
from kafkalite.coordinators.shares.persistence import ShareKey
from kafkalite.coordinators.shares.state import StoredState, initialized
from kafkalite.errors import ApiError, ErrorCode
from kafkalite.model import GROUP_TOPIC, NO_OFFSET, LeaderEpoch, Offset, TopicId, TopicPartition
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


def deletion(topic: str = "t") -> Any:
    request = wire.DeleteShareGroupOffsetsRequest
    return request("g", [request.DeleteShareGroupOffsetsRequestTopic(topic)])


def group_of(broker: Broker) -> ShareGroup:
    entry = broker.side.groups.describe("g")
    assert entry is not None and entry.share is not None
    return entry.share


async def all_have_states(broker: Broker) -> None:
    """Raises ApiError. A group that takes a state for there never begins another one: nobody gets the partition's records."""
    await until(lambda: not group_of(broker).shared.initializing)
    for number in range(4):
        await broker.side.share_persister.read(key_of(broker, "t", number), 0)


class SlowBeginning:
    """The state of one partition is not begun before `go_on` is set; `done` are the others that were begun."""

    def __init__(self, broker: Broker, monkeypatch: pytest.MonkeyPatch, key: ShareKey) -> None:
        self.go_on, self.has_begun = asyncio.Event(), asyncio.Event()
        self.done: set[int] = set()
        initialize = broker.side.share_persister.initialize

        async def slow(asked: ShareKey, *arguments: Any) -> None:
            if asked == key:
                self.has_begun.set()
                await self.go_on.wait()
            await initialize(asked, *arguments)
            self.done.add(asked.partition)

        monkeypatch.setattr(broker.side.share_persister, "initialize", slow)

    async def waits(self) -> None:
        """Until all others are begun: four."""
        await self.has_begun.wait()
        await until(lambda: len(self.done) == 4)


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


async def _deleting_unseen(
    broker: Broker, monkeypatch: pytest.MonkeyPatch, goes_on: asyncio.Event
) -> asyncio.Task[Any]:
    """States of the group are deleted until `goes_on` is set, and the group is not busy."""
    client, delete = await empty_group(broker), broker.side.share_persister.delete

    async def slow(key: ShareKey) -> None:
        await goes_on.wait()
        await delete(key)

    monkeypatch.setattr(broker.side.share_persister, "delete", slow)
    monkeypatch.setattr(ShareRuntime, "is_busy", property(lambda self: self.is_initializing or bool(self.altering)))
    deleting = asyncio.create_task(client.ask(deletion(), 0))
    await until(lambda: bool(group_of(broker).shared.deleting))
    return deleting


async def test_the_deletion_of_a_group_does_not_come_around_without_end(
    broker: Broker, monkeypatch: pytest.MonkeyPatch
) -> None:
    """It would hold the loop if it missed a deletion that is under way: nothing that it waits for is open then."""
    goes_on = asyncio.Event()
    deleting = await _deleting_unseen(broker, monkeypatch, goes_on)
    rounds, stored = 0, ShareGroupLog.stored

    async def counted(self: ShareGroupLog, *arguments: Any) -> None:
        nonlocal rounds
        rounds += 1
        assert rounds < 100, "without end"
        await stored(self, *arguments)

    with monkeypatch.context() as patched:
        patched.setattr(ShareGroupLog, "stored", counted)
        with pytest.raises(ApiError) as refusal:
            await broker.side.groups.removal.delete_group("g")
    assert refusal.value.code is ErrorCode.COORDINATOR_LOAD_IN_PROGRESS, "the client asks again"
    goes_on.set()
    await deleting
    await broker.side.groups.removal.delete_group("g")
    assert broker.side.groups.describe("g") is None


async def test_the_deletion_of_a_group_whose_offsets_are_set_again_and_again_has_an_end(
    broker: Broker, monkeypatch: pytest.MonkeyPatch
) -> None:
    client = await empty_group(broker)
    shares, rounds = broker.side.groups.share_states, 0
    delete_states = shares.delete_states

    async def and_set_again(*arguments: Any) -> Any:
        nonlocal rounds
        rounds += 1
        assert rounds < 100, "without end"
        found = await delete_states(*arguments)
        assert (await client.ask(alteration(3), 0)).error_code == 0
        return found

    monkeypatch.setattr(shares, "delete_states", and_set_again)
    with pytest.raises(ApiError) as refusal:
        await broker.side.groups.removal.delete_group("g")
    assert refusal.value.code is ErrorCode.COORDINATOR_LOAD_IN_PROGRESS, "the client asks again"


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


async def test_a_state_that_was_deleted_before_the_others_were_begun_is_begun_again(
    broker: Broker, monkeypatch: pytest.MonkeyPatch
) -> None:
    """States of one topic were begun, those of another one not yet: their share coordinator was away. Offsets of the first one were deleted,
    and a member came that wanted it. The group then took the states of before for there."""
    client, second = await started(broker), await broker.client()
    await broker.create("u")
    slow = SlowBeginning(broker, monkeypatch, key_of(broker, "u", 0))
    joining = asyncio.create_task(Member(client, "m1", "t", "u").beat())
    await slow.waits()
    assert not (await Member(second, "m1").beat(-1)).error_code
    assert [each.error_code for each in (await second.ask(deletion(), 0)).responses] == [0]
    again = asyncio.create_task(Member(second, "m2", "t", "u").beat())
    await until(lambda: len(group_of(broker).shared.initializing) == 2)
    slow.go_on.set()
    await asyncio.gather(joining, again)
    await all_have_states(broker)


async def test_a_state_of_a_removed_partition_is_begun_again_with_the_partition(
    broker: Broker, monkeypatch: pytest.MonkeyPatch
) -> None:
    """The same, when a partition was removed from its topic, and was there again."""
    client, second = await started(broker), await broker.client()
    await broker.create("u")
    slow = SlowBeginning(broker, monkeypatch, key_of(broker, "u", 0))
    joining = asyncio.create_task(Member(client, "m1", "t", "u").beat())
    await slow.waits()
    shares, topic_id = broker.side.groups.share_states, broker.services.metadata(["t"]).topics[0].topic_id
    with monkeypatch.context() as patched:
        patched.setattr(shares, "_still_gone", lambda _: {topic_id: frozenset({3})})
        await shares.partitions_removed([TopicPartition("t", 3)])
    group = group_of(broker)
    assert 3 not in group.shared.initializing[topic_id].partitions
    again = asyncio.create_task(Member(second, "m2", "t", "u").beat())
    await until(lambda: 3 in group.shared.initializing[topic_id].partitions)
    slow.go_on.set()
    await asyncio.gather(joining, again)
    await all_have_states(broker)


async def test_states_are_deleted_once(broker: Broker, monkeypatch: pytest.MonkeyPatch) -> None:
    """The end of one topic's deletion was taken for the end of all. A member's heartbeat began the other one's a second time, and
    its last requests came when the states had begun again."""
    client, second = await started(broker), await broker.client()
    await broker.create("u")
    await Member(client, "m1", "t", "u").beat()
    await Member(client, "m1").beat(-1)
    delete, gates, u = broker.side.share_persister.delete, dict[ShareKey, list[asyncio.Event]](), key_of(broker, "u", 0)

    async def slow(key: ShareKey) -> None:
        if key != u:
            gates.setdefault(key, []).append(gate := asyncio.Event())
            await gate.wait()
        await delete(key)

    monkeypatch.setattr(broker.side.share_persister, "delete", slow)
    first = asyncio.create_task(client.ask(deletion(), 0))
    await until(lambda: len(gates) == 4)
    await second.ask(deletion("u"), 0)
    member = Member(second, "m2", "u")
    await member.beat()
    assert member.count == 1
    assert [len(each) for each in gates.values()] == [1] * 4
    for gate, *_ in gates.values():
        gate.set()
    await first
    await member.beat(0, subscribed_topic_names=["t", "u"])
    await all_have_states(broker)


async def _fenced_group(broker: Broker) -> FrameClient:
    """A group whose next state has a higher epoch than those of a new group."""
    client = await started(broker)
    await broker.create("u")
    await Member(client, "m1", "u").beat()
    for _ in range(5):
        await Member(client, "m2", "u").beat()
        await Member(client, "m2").beat(-1)
    await Member(client, "m1").beat(-1)
    return client


async def test_a_group_is_deleted_when_the_offsets_that_were_being_set_are_there(
    broker: Broker, monkeypatch: pytest.MonkeyPatch
) -> None:
    """Else they were set later, in an epoch of the deleted group: it fenced the next group of this name."""
    client, second = await _fenced_group(broker), await broker.client()
    slow = SlowBeginning(broker, monkeypatch, key_of(broker, "t", 0))
    altering = asyncio.create_task(client.ask(alteration(3), 0))
    await slow.has_begun.wait()
    asked, delete_states = asyncio.Event(), ShareGroupStates.delete_group

    async def delete_group(self: ShareGroupStates, entry: GroupEntry) -> None:
        asked.set()
        await delete_states(self, entry)

    monkeypatch.setattr(ShareGroupStates, "delete_group", delete_group)
    deleting = asyncio.create_task(second.ask(wire.DeleteGroupsRequest(["g"]), 2))
    await asked.wait()
    slow.go_on.set()
    assert (await altering).responses[0].partitions[0].error_code == 0
    assert (await deleting).results[0].error_code == 0
    last = Member(second, "m3", "t")
    await last.beat()
    assert last.count == 4


class _OneState:
    """A share coordinator with one state; each deletion waits for its gate."""

    def __init__(self) -> None:
        self.state: StoredState | None = None
        self.gates: list[asyncio.Event] = []

    async def delete(self, key: ShareKey) -> None:
        self.gates.append(gate := asyncio.Event())
        await gate.wait()
        self.state = None

    async def initialize(self, key: ShareKey, state_epoch: int, start_offset: Offset) -> None:
        self.state = initialized(self.state, state_epoch, start_offset, 0) or self.state


def _group_with(topic_id: str, number: int) -> tuple[GroupEntry, ShareGroup]:
    """A group with a partition whose state is to begin."""
    shared = PartitionsWithState({TopicId(topic_id): SharedTopic("t", frozenset({number}))})
    entry = GroupEntry(GroupPartition(0, LeaderEpoch(0)), Group("g"), share=ShareGroup("g", shared=shared))
    assert entry.share is not None
    return entry, entry.share


@pytest.mark.parametrize("in_turn", [list, lambda gates: gates[::-1]], ids=["in order", "the later one first"])
async def test_a_doubtful_state_is_deleted_once(broker: Broker, in_turn: Callable[[Any], Any]) -> None:
    """An administrator sets the offset of a partition that is about to begin. The second deletion took what was set, after the answer."""
    shares, key, coordinator = broker.side.groups.share_states, ShareKey("g", UUID(int=1), 0), _OneState()
    shares.persister = lambda: coordinator  # type: ignore[assignment, return-value]
    topic_id, (entry, group) = TopicId("T"), _group_with("T", 0)
    entry.share_runtime.doubtful = {topic_id: {0}}
    beginning = asyncio.create_task(shares._begin(entry, group, topic_id, key, 5, NO_OFFSET))
    await until(lambda: bool(coordinator.gates))
    setting = asyncio.create_task(shares._begin(entry, group, topic_id, key, 6, Offset(3)))
    for _ in range(5):
        await asyncio.sleep(0)
    for gate in in_turn(coordinator.gates):
        gate.set()
        for _ in range(5):
            await asyncio.sleep(0)
    await asyncio.gather(beginning, setting, return_exceptions=True)
    assert coordinator.state is not None and coordinator.state.start_offset == 3


@pytest.mark.parametrize("what", ["deletion", "beginning"])
async def test_what_a_former_coordinator_was_about_to_ask_for_is_given_up(
    broker: Broker, monkeypatch: pytest.MonkeyPatch, what: str
) -> None:
    """It waited for a share coordinator, and so did the group's next coordinator. Its deletion came last, and took the state that had begun
    again; or it began a state of a group that was deleted, in an epoch that fenced the next group of this name."""
    client, second = await _fenced_group(broker), await broker.client()
    if what == "deletion":
        await Member(client, "m1", "t").beat()
        await Member(client, "m1").beat(-1)
    name = "delete" if what == "deletion" else "initialize"
    serve, gates = getattr(broker.side.share_persister, name), list[asyncio.Event]()

    async def slow(key: ShareKey, *arguments: Any) -> None:
        if len(gates) < 4:
            gates.append(gate := asyncio.Event())
            await gate.wait()
        await serve(key, *arguments)

    monkeypatch.setattr(broker.side.share_persister, name, slow)
    asking = asyncio.create_task(client.ask(deletion(), 0) if what == "deletion" else Member(client, "m1", "t").beat())
    await until(lambda: len(gates) == 4)
    reload(broker)
    await until(lambda: not broker.side.groups.log.is_loading)
    if what == "beginning":
        await Member(second, "m1").beat(-1)
        assert (await second.ask(wire.DeleteGroupsRequest(["g"]), 2)).results[0].error_code == 0
    last = Member(second, "m3", "t")
    if what == "deletion":
        await last.beat()
        await until(lambda: not group_of(broker).shared.deleting)
        await last.beat(0, subscribed_topic_names=["t", "u"])
        await until(lambda: not group_of(broker).shared.initializing)
    for gate in gates:
        gate.set()
    await asking
    async with asyncio.timeout(150):
        while last.count < 4:
            await last.beat(0)
    await all_have_states(broker)
