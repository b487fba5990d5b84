"""What happens to a group while its coordinator waits: for an assignor, for an append."""

from __future__ import annotations

import asyncio
from types import SimpleNamespace
from typing import Any

import pytest

from kafkalite.coordinators.groups.consumer import assigning
from kafkalite.coordinators.groups.consumer.assigning import TargetAssignments
from kafkalite.errors import ErrorCode

from .conftest import Broker
from .consumer_members import Member, described, settled, started
from .coordinator_requests import join


class SlowAssignor:
    """The results of the assignor wait until `go_on` is set."""

    def __init__(self, monkeypatch: pytest.MonkeyPatch) -> None:
        self.go_on = asyncio.Event()
        self.has_begun = asyncio.Event()
        assign = TargetAssignments._targets

        async def slow(*arguments: Any) -> Any:
            found = await assign(*arguments)
            self.has_begun.set()
            await self.go_on.wait()
            return found

        monkeypatch.setattr(TargetAssignments, "_targets", slow)


async def test_a_static_member_is_restarted_while_a_target_is_computed(
    broker: Broker, monkeypatch: pytest.MonkeyPatch
) -> None:
    """The target was for its former id: the partitions in it were nobody's until the next change of the group."""
    client = await started(broker)
    first, second = Member(client, "m1", "t", instance_id="i"), Member(client, "m2", "t")
    await first.beat()
    await second.beat()
    await settled(first, second, count=4)
    assignor = SlowAssignor(monkeypatch)
    await second.beat(-1)
    await first.beat()
    await assignor.has_begun.wait()
    await first.beat(-2)
    again = Member(await broker.client(), "m3", "t", instance_id="i")
    joining = asyncio.create_task(again.beat())
    async with asyncio.timeout(150):
        while [each.member_id for each in (await described(client)).members] != ["m3"]:
            await asyncio.sleep(0.001)
    assignor.go_on.set()
    await joining
    await settled(again, count=4)


async def test_a_member_joins_with_a_new_topic_when_a_round_has_just_begun(
    broker: Broker, monkeypatch: pytest.MonkeyPatch
) -> None:
    """The target was for its epoch, but of the topics of before: it had no partitions until the next change of the group."""
    client = await started(broker)
    await broker.create("u", 3)
    first, second = Member(client, "m1", "t"), Member(client, "m2", "t")
    await first.beat()
    await second.beat()
    await settled(first, second, count=4)
    has_begun, go_on = asyncio.Event(), asyncio.Event()

    async def sleep(_: float) -> None:
        has_begun.set()
        await go_on.wait()

    monkeypatch.setattr(assigning, "asyncio", SimpleNamespace(sleep=sleep))
    await second.beat(-1)
    await has_begun.wait()
    third = Member(await broker.client(), "m3", "u")
    joining = asyncio.create_task(third.beat())
    async with asyncio.timeout(150):
        while [each.member_id for each in (await described(client)).members] != ["m1", "m3"]:
            await asyncio.sleep(0.001)
    go_on.set()
    await joining
    assert len(third.partitions) == 3
    await settled(first, third, count=7)


async def test_all_members_leave_while_they_wait_for_their_targets(
    broker: Broker, monkeypatch: pytest.MonkeyPatch
) -> None:
    """The last one that had joined got no answer, since a group without members gets no target."""
    assignor = SlowAssignor(monkeypatch)
    client = await started(broker)
    members = [Member(await broker.client(), name, "t") for name in ("m1", "m2")]
    joining = []
    for count, member in enumerate(members, 1):
        joining.append(asyncio.create_task(member.beat()))
        async with asyncio.timeout(150):
            while (group := await described(client)).error_code or len(group.members) < count:
                await asyncio.sleep(0.001)
        await assignor.has_begun.wait()
    for name in ("m1", "m2"):
        assert (await Member(client, name, "t").beat(-1)).error_code == 0
    assignor.go_on.set()
    async with asyncio.timeout(150):
        assert [(await each).error_code for each in joining] == [ErrorCode.UNKNOWN_MEMBER_ID] * 2


async def test_a_static_member_is_stopped_while_it_waits_for_its_target(
    broker: Broker, monkeypatch: pytest.MonkeyPatch
) -> None:
    """The target came when it had left, and made it a member again: it could not come back before its session expired."""
    client = await started(broker)
    assignor = SlowAssignor(monkeypatch)
    joining = asyncio.create_task(Member(client, "m1", "t", instance_id="i").beat())
    await assignor.has_begun.wait()
    assert (await Member(await broker.client(), "m1", "t", instance_id="i").beat(-2)).error_code == 0
    assignor.go_on.set()
    async with asyncio.timeout(150):
        assert (await joining).error_code == ErrorCode.UNKNOWN_MEMBER_ID
    again = Member(client, "m2", "t", instance_id="i")
    assert (await again.beat()).error_code == 0
    await settled(again, count=4)


async def test_a_member_that_waits_for_its_target_is_there(broker: Broker, monkeypatch: pytest.MonkeyPatch) -> None:
    """With an interval between assignments that is longer than a session, each join ended with the member's removal."""
    client = await started(broker)
    assignor = SlowAssignor(monkeypatch)
    member = Member(await broker.client(), "m", "t")
    joining = asyncio.create_task(member.beat())
    await assignor.has_begun.wait()
    groups = broker.side.groups
    entry = groups.find("g")
    assert entry is not None and entry.consumer is not None
    session_ms = entry.consumer.times["m"].session - groups._now()
    entry.consumer.times["m"].session = 1
    groups.consumers.tick(entry)
    assert list(entry.consumer.members) == ["m"]
    entry.consumer.times["m"].session = groups._now() + 1
    assignor.go_on.set()
    async with asyncio.timeout(150):
        assert (await joining).error_code == 0
    assert entry.consumer.times["m"].session > groups._now() + session_ms / 2
    assert len((await described(client)).members) == 1


async def test_the_last_place_of_a_group_can_be_taken(make_broker: Any) -> None:
    """A client that had to come back with its member id was counted twice: as the one that was to come, and as the one that came."""
    broker = await make_broker(group_max_size=1)
    client = await started(broker)
    asked = await client.ask(join("g"), 5)
    assert asked.error_code == ErrorCode.MEMBER_ID_REQUIRED
    assert (await client.ask(join("g"), 5)).error_code == ErrorCode.GROUP_MAX_SIZE_REACHED
    assert (await client.ask(join("g", asked.member_id), 5)).error_code == 0


async def test_a_group_that_was_a_classic_one_for_a_moment_gets_a_target(make_broker: Any) -> None:
    """The pause after its last target went on, for a group that was not there any more: nobody computed one for the next."""
    broker = await make_broker(
        group_consumer_assignment_interval_ms=60_000, group_consumer_max_assignment_interval_ms=60_000
    )
    client = await started(broker)
    asked = await client.ask(join("g"), 5)
    assert (await client.ask(join("g", asked.member_id), 5)).error_code == 0
    first = Member(client, "m1", "t")
    assert (await first.beat()).error_code == 0
    assert (await first.beat(-1)).error_code == 0
    entry = broker.side.groups.describe("g")
    assert entry is not None and entry.consumer is None
    async with asyncio.timeout(150):
        assert (await Member(client, "m2", "t").beat()).error_code == 0
