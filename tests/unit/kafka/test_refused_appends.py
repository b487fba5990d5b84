"""Coordinators whose log takes no records for a while (too few replicas in sync): they go on as soon as it does."""

from __future__ import annotations

import asyncio
from typing import Any

import pytest

from kafkalite.coordinators.groups.decisions.classic.group import Group
from kafkalite.errors import ApiError, ErrorCode
from kafkalite.protocol import wire
from tests.support.waiting import until

from .conftest import Broker
from .consumer_members import Member, settled, started
from .coordinator_requests import TRANSACTIONS, commit, coordinator, join
from .test_share_groups import Member as ShareMember


def looks_once(broker: Broker, monkeypatch: Any) -> list[int]:
    """Appends are refused from now on; the second one within a look at the clock fails the test. Returns the number of appends."""
    refuse = broker.services.partitions._append
    appends = [0]

    def counted(*arguments: Any, **named: Any) -> Any:
        appends[0] += 1
        assert appends[0] <= 2, "asked again and again"
        return refuse(*arguments, **named)

    broker.services.partitions.fail_appends = ErrorCode.NOT_ENOUGH_REPLICAS
    monkeypatch.setattr(broker.services.partitions, "_append", counted)
    return appends


async def test_a_member_that_gives_nothing_up_cannot_be_removed_now(broker: Broker, monkeypatch: Any) -> None:
    """The group was looked at for ever within one turn of the loop: the node did nothing else any more."""
    client = await started(broker)
    first, second = Member(client, "m1", "t"), Member(client, "m2", "t")
    await first.beat()
    await second.beat()
    await first.beat()
    groups = broker.side.groups
    group = groups.describe("g").consumer  # type: ignore[union-attr]
    assert group is not None and group.members["m1"].must_revoke
    group.times["m1"].revocation = 1
    appends = looks_once(broker, monkeypatch)
    groups._schedule_at(groups.find("g"), 1)  # type: ignore[arg-type]
    groups.tick()
    assert appends == [1]
    groups.tick()
    assert appends == [1]  # not before a second is over
    assert sorted(group.members) == ["m1", "m2"]


async def test_static_members_that_have_no_time_to_join(make_broker: Any, monkeypatch: Any) -> None:
    """With a rebalance timeout of 0 and nobody back yet the group was looked at for ever, too."""
    broker = await make_broker(group_initial_rebalance_delay_ms=200)
    client, other = await started(broker), await broker.client()
    first = asyncio.create_task(client.ask(join("c"), 3))
    await asyncio.sleep(0)
    static = await other.ask(join("c", group_instance_id="i", rebalance_timeout_ms=0), 5)
    leader = await first
    for each, asked in ((client, leader), (other, static)):
        assert (await each.ask(wire.SyncGroupRequest("c", asked.generation_id, asked.member_id), 3)).error_code == 0
    looks, tick = [0], Group.tick

    def counted(self: Group, now: int) -> Any:
        looks[0] += 1
        assert looks[0] < 100, "asked again and again"
        return tick(self, now)

    monkeypatch.setattr(Group, "tick", counted)
    assert (await client.ask(wire.LeaveGroupRequest("c", leader.member_id), 2)).error_code == 0
    await asyncio.sleep(0.01)
    assert (await other.ask(wire.HeartbeatRequest("c", 1, static.member_id, "i"), 3)).error_code == (
        ErrorCode.REBALANCE_IN_PROGRESS
    )
    back = join("c", static.member_id, group_instance_id="i", rebalance_timeout_ms=10_000)
    assert (await other.ask(back, 5)).error_code == 0


async def test_a_group_that_has_not_come_to_be_is_not_there(broker: Broker) -> None:
    client = await started(broker)
    regex = Member(client, "m", subscribed_topic_regex="(", group="a")
    assert (await regex.beat(subscribed_topic_names=[])).error_code == ErrorCode.INVALID_REGULAR_EXPRESSION
    assert (await client.ask(join("b", protocols=[]), 5)).error_code == ErrorCode.INCONSISTENT_GROUP_PROTOCOL
    broker.services.partitions.fail_appends = ErrorCode.NOT_ENOUGH_REPLICAS
    assert (await client.ask(commit("c", 5), 8)).topics[0].partitions[0].error_code
    assert (await ShareMember(client, "m", "t", group="d").beat()).error_code
    broker.services.partitions.fail_appends = None
    assert (await client.ask(wire.ListGroupsRequest(), 5)).groups == []
    described = (await client.ask(wire.DescribeGroupsRequest(list("abcd")), 6)).groups
    assert {each.error_code for each in described} == {ErrorCode.GROUP_ID_NOT_FOUND}
    deleted = await client.ask(wire.DeleteGroupsRequest(list("abcd")), 2)
    assert {each.error_code for each in deleted.results} == {ErrorCode.GROUP_ID_NOT_FOUND}
    assert not (await Member(client, "m", "t", group="d").beat()).error_code  # its id is free for a group of any type


async def test_ids_of_producers_that_never_came_to_be_are_forgotten(broker: Broker) -> None:
    client = await broker.client()
    await coordinator(client, "a", TRANSACTIONS)
    broker.services.partitions.fail_appends = ErrorCode.NOT_ENOUGH_REPLICAS
    with pytest.raises(ApiError):
        await broker.side.transactions.init_producer("a", 1_000, (-1, -1))
    await broker.side.transactions.expire()
    assert not broker.side.transactions.partition_of("a").slots


async def test_a_join_is_answered_once(broker: Broker, monkeypatch: Any) -> None:
    """The last member of the consumer protocol is replaced; that the group is a classic one now cannot be written."""
    client = await started(broker)
    await Member(client, "m", "t", instance_id="i").beat()
    partitions = broker.services.partitions
    append = partitions._append
    appends = [0]

    def second_refused(*arguments: Any, **named: Any) -> Any:
        appends[0] += 1
        partitions.fail_appends = ErrorCode.NOT_ENOUGH_REPLICAS if appends[0] == 2 else None
        return append(*arguments, **named)

    monkeypatch.setattr(partitions, "_append", second_refused)
    joined = await client.ask(join("g", group_instance_id="i"), 5)
    assert (joined.error_code, appends) == (0, [2])
    described = await client.ask(
        wire.ConsumerGroupDescribeRequest(["g"]), 1
    )  # the answer to this, not another one to the join
    assert [each.member_type for each in described.groups[0].members] == [0]
    joined = await client.ask(join("g", joined.member_id, group_instance_id="i"), 5)
    assert joined.error_code == 0
    assert (await client.ask(wire.ListGroupsRequest([], ["classic"]), 5)).groups


async def test_a_target_that_cannot_be_stored_is_not_made_with_every_heartbeat(
    broker: Broker, monkeypatch: Any
) -> None:
    client = await started(broker)
    first, second = Member(client, "m1", "t"), Member(client, "m2", "t")
    await first.beat()
    partitions = broker.services.partitions
    append = partitions._append
    refused = [-1]

    def all_but_one_refused(*arguments: Any, **named: Any) -> Any:
        refused[0] += 1
        partitions.fail_appends = ErrorCode.NOT_ENOUGH_REPLICAS if refused[0] else None
        return append(*arguments, **named)

    monkeypatch.setattr(partitions, "_append", all_but_one_refused)
    loop = asyncio.get_running_loop()
    began = loop.time()
    assert (await second.beat()).error_code == ErrorCode.COORDINATOR_NOT_AVAILABLE
    for _ in range(20):
        assert (await first.beat()).error_code == 0
        await asyncio.sleep(0)
    assert refused[0] <= 2 + (loop.time() - began), "again once a second"
    monkeypatch.setattr(partitions, "_append", append)
    partitions.fail_appends = None
    await settled(first, second, count=4)


async def test_a_share_group_whose_last_member_is_gone(broker: Broker, monkeypatch: Any) -> None:
    """The removal is written, the next target is not: nobody is removed a second time, and the clock has no work."""
    client = await started(broker)
    first, second = ShareMember(client, "m1", "t"), ShareMember(client, "m2", "t")
    await first.beat()
    await second.beat()
    groups = broker.side.groups
    entry = groups.find("g")
    assert entry is not None and entry.share is not None
    entry.share_runtime.assigned_ms = -(2**62)
    entry.share.deadlines["m1"] = 1
    partitions = broker.services.partitions
    append = partitions._append
    appends = [0]

    def second_refused(*arguments: Any, **named: Any) -> Any:
        appends[0] += 1
        partitions.fail_appends = ErrorCode.NOT_ENOUGH_REPLICAS if appends[0] == 2 else None
        return append(*arguments, **named)

    monkeypatch.setattr(partitions, "_append", second_refused)
    groups.shares.tick(entry)
    await until(lambda: appends == [2])  # the target is made in steps
    assert (list(entry.share.members), list(entry.share.deadlines)) == (["m2"], ["m2"])


async def test_a_refused_request_leaves_no_group(broker: Broker) -> None:
    """Each name took 3 kB until the next expiry, ten minutes later: names are free."""
    client = await started(broker)

    async def refusals(first: int) -> list[int]:
        names = [f"g{first + number}" for number in range(5)]
        return [
            (await Member(client, "m", "t", group=names[0]).beat(server_assignor="nope")).error_code,
            (await ShareMember(client, "m", "t", group=names[1]).beat(subscribed_topic_names=[])).error_code,
            (await client.ask(join(names[2], protocol_type=""), 5)).error_code,
            (await client.ask(commit(names[3], 1, metadata="x" * 5_000), 8)).topics[0].partitions[0].error_code,
            (await client.ask(join(names[4], "unknown"), 5)).error_code,
        ]

    assert all(await refusals(0))
    broker.services.partitions.fail_appends = ErrorCode.NOT_ENOUGH_REPLICAS
    assert all(await refusals(10))
    assert (await Member(client, "m", "t", group="g20").beat()).error_code
    assert (await ShareMember(client, "m", "t", group="g21").beat()).error_code
    assert (await client.ask(commit("g22", 1), 8)).topics[0].partitions[0].error_code
    assert [name for partition in broker.side.groups.log.states() for name in partition.entries] == []
