"""Where the epochs of groups with an assignment from the coordinator begin, and what a group without members has."""

from __future__ import annotations

from types import ModuleType
from typing import Any

import pytest

from kafkalite.coordinators.groups.decisions.classic.events import SyncRequest
from kafkalite.coordinators.groups.decisions.consumer import classic_members
from kafkalite.coordinators.groups.decisions.consumer import heartbeats as consumer
from kafkalite.coordinators.groups.decisions.consumer.group import ConsumerGroup
from kafkalite.coordinators.groups.decisions.members import (
    ClassicProtocols,
    ConsumerMember,
    CurrentAssignment,
    GroupEpoch,
    MemberMetadata,
    TargetEpoch,
)
from kafkalite.coordinators.groups.decisions.share import heartbeats as share
from kafkalite.coordinators.groups.decisions.share.group import ShareGroup, ShareMember
from kafkalite.coordinators.groups.decisions.streams import heartbeats as streams
from kafkalite.coordinators.groups.decisions.streams.group import StreamsGroup
from kafkalite.coordinators.groups.decisions.streams.members import StreamsMember
from kafkalite.errors import ErrorCode
from tests.support.failing import fails_with


def with_two_members(kind: type[Any]) -> Any:
    group = kind("g")
    member: Any = {ConsumerGroup: ConsumerMember, ShareGroup: ShareMember, StreamsGroup: StreamsMember}[kind]
    for name in ("m1", "m2"):
        group.apply(MemberMetadata(name, member(name)))
    return group


@pytest.mark.parametrize(("kind", "rules"), [(ConsumerGroup, consumer), (ShareGroup, share), (StreamsGroup, streams)])
def test_a_group_without_members_has_the_target_of_its_epoch(kind: type[Any], rules: ModuleType) -> None:
    """Of the first that leaves, the others share out what it had; behind the last one nothing has to be computed (KAFKA-20442)."""
    group = with_two_members(kind)
    assert (group.epoch, group.target_epoch) == (1, 1)
    for left, epochs in (("m1", (2, 1)), ("m2", (3, 3))):
        for record in rules.removed(group, [group.member(left)]):
            group.apply(record)
        assert (group.epoch, group.target_epoch) == epochs


def test_all_members_that_leave_at_once() -> None:
    group = with_two_members(ConsumerGroup)
    for record in consumer.removed(group, list(group.members.values())):
        group.apply(record)
    assert (group.epoch, group.target_epoch, group.state.value) == (2, 2, "Empty")


def test_a_group_of_a_version_that_began_with_zero() -> None:
    """Its coordinator died before the first target was written: its members still get one."""
    group = ConsumerGroup("g")
    for record in (MemberMetadata("m", ConsumerMember("m")), GroupEpoch(1)):
        group.apply(record)
    assert group.needs_assignment
    group.apply(TargetEpoch(1))
    assert not group.needs_assignment


def test_a_member_of_the_classic_protocol_goes_on_until_there_is_a_new_target() -> None:
    """Between assignments there may be an interval: until then it would only wait in its JoinGroup (KAFKA-20272)."""
    group = ConsumerGroup("g")
    member = ConsumerMember("m", epoch=2, classic=ClassicProtocols(45_000, (("range", b""),)))
    for record in (MemberMetadata("m", member), CurrentAssignment("m", member), GroupEpoch(3), TargetEpoch(2)):
        group.apply(record)
    assert classic_members.heartbeat(group, "m", None, 2, now=0) is ErrorCode.NONE
    request = SyncRequest("token", "m", None, 2, "consumer", "range", {})
    assert classic_members.sync(group, request, now=0) == group.members["m"]
    group.apply(TargetEpoch(3))
    assert classic_members.heartbeat(group, "m", None, 2, now=0) is ErrorCode.REBALANCE_IN_PROGRESS
    with fails_with(ErrorCode.REBALANCE_IN_PROGRESS):
        classic_members.sync(group, request, now=0)
