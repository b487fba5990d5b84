"""What a heartbeat does to its group in the protocols whose members own what they are assigned (KIP-848, KIP-1071). Pure."""

from __future__ import annotations

from collections.abc import Callable
from dataclasses import field, replace
from typing import Any, Generic, TypeVar

from kafkalite.coordinators.groups.decisions.assigned_group import AssignedGroup, M, T
from kafkalite.coordinators.groups.decisions.members import (
    JOIN_EPOCH,
    LEAVE_FOR_A_WHILE_EPOCH,
    CurrentAssignment,
    EpochHeartbeat,
    EpochMember,
    MemberMetadata,
    MemberRecord,
    TargetMember,
    removal,
)
from kafkalite.errors import ApiError, ErrorCode, api_error
from kafkalite.lazy_dataclass import dataclass

R = TypeVar("R")


@dataclass(slots=True)
class Outcome(Generic[M, R]):
    """What is written; `member` is as it is afterwards. `waits`: for the target assignment of the group's new epoch, then
    `settle` is the next step. `shows_assignment`: the answer has it."""

    member: M
    records: list[R] = field(default_factory=list)
    waits: bool = False
    shows_assignment: bool = False


OutcomeT = TypeVar("OutcomeT", bound=Outcome[Any, Any])


def check_room(group: AssignedGroup[M, T], member_id: str, instance_id: str | None, max_size: int) -> None:
    """Raises ApiError GROUP_MAX_SIZE_REACHED."""
    is_member = member_id in group.members or group.static_member(instance_id) is not None
    if not is_member and len(group.members) >= max_size:
        raise api_error(ErrorCode.GROUP_MAX_SIZE_REACHED, f"a group has at most {max_size} members")


def with_said(known: M, request: EpochHeartbeat) -> M:
    """The member with what every heartbeat says."""
    return replace(
        known,
        instance_id=known.instance_id if request.instance_id is None else request.instance_id,
        rack_id=known.rack_id if request.rack_id is None else request.rack_id,
        rebalance_timeout_ms=known.rebalance_timeout_ms
        if request.rebalance_timeout_ms == -1
        else request.rebalance_timeout_ms,
        client_id=request.client_id,
        client_host=request.client_host,
    )


def take_step(group: AssignedGroup[M, T], outcome: OutcomeT, after: M, now: int) -> OutcomeT:
    """The member goes on to `after`, and has until then to give up what it should."""
    before = outcome.member
    if after is before:
        return outcome
    outcome.member = after
    outcome.records.append(CurrentAssignment(after.member_id, after))
    outcome.shows_assignment |= after.assigned != before.assigned
    times = group.expect(after.member_id)
    times.revocation = 0
    if after.must_revoke:
        times.revocation, times.epoch = now + after.rebalance_timeout_ms, after.epoch
    return outcome


# --- who it is ---


@dataclass(frozen=True, slots=True)
class FoundMember(Generic[M]):
    """The member of a request, what is written if it replaces a static one, and whether it is new."""

    member: M
    records: list[MemberRecord] = field(default_factory=list)
    is_new: bool = False


def find(
    group: AssignedGroup[M, T],
    new: M,
    epoch: int,
    instance_id: str | None,
    check: Callable[[M], None],
    may_replace: Callable[[M], bool],
    *,
    is_classic: bool = False,
) -> FoundMember[M]:
    """The member that sends a heartbeat. Raises ApiError.

    Args:
        new: the member as it is if the group does not know it.
        check: raises if a known member's epoch is wrong.
        may_replace: whether a static member may be replaced by another with its instance id.
        is_classic: it speaks the classic protocol, in which an epoch does not say more than whether it joins.
    """
    member_id = new.member_id
    if instance_id is not None:
        known = group.static_member(instance_id)
        if known is not None:
            return _known_static(group, known, member_id, epoch, instance_id, check, may_replace, is_classic=is_classic)
        if epoch != JOIN_EPOCH:
            raise _unknown_instance(instance_id)
        return FoundMember(group.members.get(member_id, new), is_new=member_id not in group.members)
    if epoch == JOIN_EPOCH and member_id not in group.members:
        return FoundMember(new, is_new=True)
    known = group.member(member_id)
    if not is_classic:
        check(known)
    return FoundMember(known)


def _known_static(
    group: AssignedGroup[M, T],
    known: M,
    member_id: str,
    epoch: int,
    instance_id: str,
    check: Callable[[M], None],
    may_replace: Callable[[M], bool],
    *,
    is_classic: bool,
) -> FoundMember[M]:
    if known.member_id == member_id:
        if is_classic:
            return FoundMember(known)
        if known.epoch != LEAVE_FOR_A_WHILE_EPOCH:
            check(known)
            return FoundMember(known)
        if epoch != JOIN_EPOCH:
            raise api_error(ErrorCode.FENCED_MEMBER_EPOCH, f"member {member_id!r} left for a while: it has to join")
        return FoundMember(replace(known, epoch=0, previous_epoch=0))
    if epoch != JOIN_EPOCH:
        raise _fenced(known, member_id, instance_id)
    if not may_replace(known):
        text = f"Instance id {instance_id} is owned by member {known.member_id}."
        raise api_error(ErrorCode.UNRELEASED_INSTANCE_ID, text)
    # It is back under another member id, with what it had.
    new = replace(known, member_id=member_id, epoch=0, previous_epoch=0, revoking=group.NOTHING)
    records: list[MemberRecord] = [
        *removal(known.member_id),
        MemberMetadata(member_id, new),
        TargetMember(member_id, group.target_of(known.member_id)),
        CurrentAssignment(member_id, new),
    ]
    return FoundMember(new, records)


def _unknown_instance(instance_id: str) -> Exception:
    return api_error(ErrorCode.UNKNOWN_MEMBER_ID, f"Instance id {instance_id} is unknown.")


def _fenced(known: EpochMember, member_id: str, instance_id: str) -> Exception:
    text = f"Static member {member_id} with instance id {instance_id} was fenced by member {known.member_id}."
    return api_error(ErrorCode.FENCED_INSTANCE_ID, text)


def check_epoch(member: EpochMember, received: int, kind: str, *, holds_only_assigned: Callable[[], bool]) -> None:
    """A member that joins again has nothing, and is always right. Raises ApiError FENCED_MEMBER_EPOCH.

    Args:
        kind: of the group.
        holds_only_assigned: it has nothing but what it was assigned. Then the response with its new epoch was lost.
    """
    if received in (member.epoch, JOIN_EPOCH):
        return
    if received > member.epoch or received != member.previous_epoch or not holds_only_assigned():
        raise fenced_epoch(received, member.epoch, kind)


def fenced_epoch(received: int, known: int, kind: str) -> ApiError:
    """In Kafka's words, which its clients log."""
    side = "greater" if received > known else "smaller"
    text = f"The {kind} group member has a {side} member epoch ({received}) than the one known by the group coordinator ({known})."
    return api_error(ErrorCode.FENCED_MEMBER_EPOCH, f"{text} The member must abandon all its partitions and rejoin.")


# --- leaving ---


def find_leaving(group: AssignedGroup[M, T], member_id: str, instance_id: str | None) -> M:
    """Raises ApiError UNKNOWN_MEMBER_ID, FENCED_INSTANCE_ID."""
    if instance_id is None:
        return group.member(member_id)
    known = group.static_member(instance_id)
    if known is None:
        raise _unknown_instance(instance_id)
    if known.member_id != member_id:
        raise _fenced(known, member_id, instance_id)
    return known


def leave_for_a_while(group: AssignedGroup[M, T], member: M) -> list[MemberRecord]:
    """A static member is restarted: it keeps what it has until its session expires (KIP-345)."""
    left = replace(member, epoch=LEAVE_FOR_A_WHILE_EPOCH, revoking=group.NOTHING)
    return [CurrentAssignment(left.member_id, left)]
