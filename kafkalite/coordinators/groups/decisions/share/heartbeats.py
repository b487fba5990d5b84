"""What a heartbeat does to its share group (KIP-932): join, stay, leave; which partitions are assigned. Pure."""

from __future__ import annotations

from collections.abc import Generator, Mapping, Sequence
from dataclasses import replace

from kafkalite.coordinators.groups.decisions.assigned_heartbeats import fenced_epoch
from kafkalite.coordinators.groups.decisions.assignment import AssignedTopic
from kafkalite.coordinators.groups.decisions.members import (
    JOIN_EPOCH,
    LEAVE_EPOCH,
    Assignment,
    GroupEpoch,
    MemberMetadata,
    TargetEpoch,
    TargetMember,
    removal,
)
from kafkalite.coordinators.groups.decisions.share.assignor import simple
from kafkalite.coordinators.groups.decisions.share.group import (
    SharedTopic,
    ShareGroup,
    ShareMember,
    ShareRecord,
    joined,
    partitions_of,
    without,
)
from kafkalite.errors import ErrorCode, api_error
from kafkalite.lazy_dataclass import dataclass

#: A member's id is a UUID in text (Kafka's limit).
MAX_MEMBER_ID = 36


@dataclass(frozen=True, slots=True)
class ShareHeartbeat:
    """What a ShareGroupHeartbeat says. None: as before."""

    member_id: str
    epoch: int
    rack_id: str | None = None
    topics: tuple[str, ...] | None = None
    client_id: str = ""
    client_host: str = ""
    #: Whose memory the member takes (`security.fair_room.user_of`).
    user: str = ""


def check(request: ShareHeartbeat) -> None:
    """Raises ApiError INVALID_REQUEST."""
    why = ""
    if not request.member_id:
        why = "MemberId can't be empty."
    elif len(request.member_id) > MAX_MEMBER_ID:
        why = f"MemberId can't have more than {MAX_MEMBER_ID} characters."
    elif request.rack_id == "":
        why = "RackId can't be empty."
    elif request.epoch < LEAVE_EPOCH:
        why = f"MemberEpoch {request.epoch} is invalid."
    elif request.epoch == JOIN_EPOCH and not request.topics:
        why = "SubscribedTopicNames must be set in first request."
    if why:
        raise api_error(ErrorCode.INVALID_REQUEST, why)


def heartbeat(group: ShareGroup, request: ShareHeartbeat, max_size: int) -> list[ShareRecord]:
    """The records by which a member joins, or changes what it said. Raises ApiError."""
    known = group.members.get(request.member_id)
    if known is None:
        if request.epoch != JOIN_EPOCH:
            group.member(request.member_id)
        if len(group.members) >= max_size:
            raise api_error(ErrorCode.GROUP_MAX_SIZE_REACHED, f"the group has at most {max_size} members")
    else:
        _check_epoch(known, request.epoch)
    before = known or ShareMember(request.member_id)
    after = replace(
        before,
        rack_id=before.rack_id if request.rack_id is None else request.rack_id,
        topics=before.topics if request.topics is None else tuple(sorted(set(request.topics))),
        client_id=request.client_id,
        client_host=request.client_host,
    )
    records: list[ShareRecord] = []
    if after != before or known is None:
        records.append(MemberMetadata(after.member_id, after))
    if known is None or after.topics != before.topics:
        records.append(GroupEpoch(group.epoch + 1, group.metadata_hash))
    return records


def _check_epoch(member: ShareMember, received: int) -> None:
    """Raises ApiError FENCED_MEMBER_EPOCH. An answer with a new epoch may have been lost: the one before it is accepted."""
    if received not in (JOIN_EPOCH, member.epoch, member.previous_epoch):
        raise fenced_epoch(received, member.epoch, "share")


def removed(group: ShareGroup, members: Sequence[ShareMember]) -> list[ShareRecord]:
    """The records after which these are no members any more."""
    records = [record for member in members for record in removal(member.member_id)]
    return [*records, GroupEpoch(group.epoch + 1, group.metadata_hash), *group.empty_target(len(members))]


def topics_compared(group: ShareGroup, topics: Mapping[str, AssignedTopic], metadata_hash: int) -> list[ShareRecord]:
    """The records that follow from the present topics: a new epoch, partitions that need a state.

    A partition with a state that is not wanted now keeps it: the group goes on from there when a member subscribes again.
    """
    records: list[ShareRecord] = []
    if metadata_hash != group.metadata_hash:
        # A group that needs a new target anyway needs no further epoch.
        epoch = group.epoch if group.epoch > group.target_epoch else group.epoch + 1
        records.append(GroupEpoch(epoch, metadata_hash))
    shared = group.shared
    known = partitions_of(joined(shared.initializing, shared.initialized))
    wanted = {
        topic.topic_id: SharedTopic(topic.name, frozenset(range(topic.partitions)))
        for topic in topics.values()
        if topic.topic_id not in shared.deleting
    }
    fresh = without(wanted, known)
    if fresh:
        records.append(replace(shared, initializing=joined(shared.initializing, fresh)))
    return records


def new_target(
    group: ShareGroup, topics: Mapping[str, AssignedTopic], now_ms: int
) -> Generator[None, None, list[ShareRecord]]:
    """The records of a target assignment for the group's epoch as it is now; none if there is one.

    Members that leave between two steps have no target; the epoch after that has one without them.
    """
    if group.target_epoch >= group.epoch or not group.members:
        return []
    epoch, ready = group.epoch, group.shared.initialized
    assignable = {
        name: (topic.topic_id, ready[topic.topic_id].partitions & frozenset(range(topic.partitions)))
        for name, topic in topics.items()
        if topic.topic_id in ready
    }
    members = {member.member_id: member.topics for member in group.members.values()}
    targets = yield from simple(members, dict(group.targets), assignable)
    if group.target_epoch >= epoch:  # all have left meanwhile
        return []
    records: list[ShareRecord] = [
        TargetMember(member_id, target)
        for member_id, target in targets.items()
        if group.targets.get(member_id) != target and member_id in group.members
    ]
    return [*records, TargetEpoch(epoch, now_ms)]


def reached(group: ShareGroup, member: ShareMember) -> ShareMember:
    """The member at its target: it has to wait for nobody."""
    target: Assignment = group.targets.get(member.member_id, {})
    if member.epoch == group.target_epoch:
        return member
    return replace(member, epoch=group.target_epoch, previous_epoch=member.epoch, assigned=target)
