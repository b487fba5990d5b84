"""What happens to a group while its coordinator waits: for an assignor, for an append."""

from __future__ import annotations

import asyncio
from typing import Any

import pytest

from kafkalite.coordinators.groups.consumer.assigning import TargetAssignments
from kafkalite.errors import ErrorCode

from .conftest import Broker
from .test_consumer_groups import Member, described, settled, started


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
    async with asyncio.timeout(10):
        while [each.member_id for each in (await described(client)).members] != ["m3"]:
            await asyncio.sleep(0.001)
    assignor.go_on.set()
    await joining
    await settled(again, count=4)


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
        async with asyncio.timeout(10):
            while (group := await described(client)).error_code or len(group.members) < count:
                await asyncio.sleep(0.001)
        await assignor.has_begun.wait()
    for name in ("m1", "m2"):
        assert (await Member(client, name, "t").beat(-1)).error_code == 0
    assignor.go_on.set()
    async with asyncio.timeout(10):
        assert [(await each).error_code for each in joining] == [ErrorCode.UNKNOWN_MEMBER_ID] * 2
