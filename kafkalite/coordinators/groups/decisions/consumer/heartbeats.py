"""What a heartbeat of the consumer protocol does to its group (KIP-848): join, stay, leave. Pure.

The answer to a member that joins, or changes what it subscribes to, waits for the target assignment that takes it into
account: the coordinator computes it meanwhile, once for all that wait. All other heartbeats are answered at once.
"""

from __future__ import annotations

from collections.abc import Callable, Sequence
from dataclasses import field, replace

from kafkalite.coordinators.groups.decisions.assigned_group import (
    away,
    check_epoch,
    fenced,
    unknown_instance,
    unreleased,
)
from kafkalite.coordinators.groups.decisions.consumer.group import ConsumerGroup
from kafkalite.coordinators.groups.decisions.consumer.reconciling import reconcile
from kafkalite.coordinators.groups.decisions.members import (
    JOIN_EPOCH,
    LEAVE_FOR_A_WHILE_EPOCH,
    Assignment,
    ConsumerMember,
    CurrentAssignment,
    GroupEpoch,
    MemberMetadata,
    MemberState,
    Record,
    RegexTopics,
    TargetMember,
)
from kafkalite.errors import ErrorCode, api_error
from kafkalite.lazy_dataclass import dataclass
from kafkalite.model import TopicId


@dataclass(frozen=True, slots=True)
class GroupSettings:
    """The broker's, or the group's own, as far as the rules need them (ms)."""

    assignors: tuple[str, ...]
    session_timeout_ms: int
    heartbeat_interval_ms: int
    max_size: int
    max_classic_size: int
    can_upgrade: bool
    can_downgrade: bool


@dataclass(frozen=True, slots=True)
class ConsumerHeartbeat:
    """What a ConsumerGroupHeartbeat says. None (`rebalance_timeout_ms` -1): as before. `regex` "": none any more."""

    member_id: str
    epoch: int
    instance_id: str | None = None
    rack_id: str | None = None
    rebalance_timeout_ms: int = -1
    topics: tuple[str, ...] | None = None
    regex: str | None = None
    assignor: str | None = None
    owned: Assignment | None = None
    client_id: str = ""
    client_host: str = ""

    @property
    def is_full(self) -> bool:
        """Whether it says all, as after an error: the answer says all, too."""
        said = self.rebalance_timeout_ms != -1 and self.owned is not None
        return self.epoch == JOIN_EPOCH or (said and (self.topics is not None or self.regex is not None))


@dataclass(slots=True)
class ConsumerOutcome:
    """What is written; `member` is as it is afterwards. `waits`: for the target assignment of the group's new epoch, then
    `settle` is the next step. `shows_assignment`: the answer has it."""

    member: ConsumerMember
    records: list[Record] = field(default_factory=list)
    waits: bool = False
    shows_assignment: bool = False


def check(request: ConsumerHeartbeat, *, needs_member_id: bool) -> None:
    """Raises ApiError INVALID_REQUEST."""
    empty = [
        name
        for name, value in (("InstanceId", request.instance_id), ("RackId", request.rack_id))
        if value is not None and not value
    ]
    if (needs_member_id or request.epoch != JOIN_EPOCH) and not request.member_id:
        empty.append("MemberId")
    if empty:
        raise api_error(ErrorCode.INVALID_REQUEST, f"{empty[0]} can't be empty.")
    if request.epoch < LEAVE_FOR_A_WHILE_EPOCH:
        raise api_error(ErrorCode.INVALID_REQUEST, f"MemberEpoch {request.epoch} is invalid.")
    if request.epoch == LEAVE_FOR_A_WHILE_EPOCH and request.instance_id is None:
        raise api_error(ErrorCode.INVALID_REQUEST, "InstanceId can't be null.")
    if request.epoch == JOIN_EPOCH:
        if request.rebalance_timeout_ms == -1:
            raise api_error(ErrorCode.INVALID_REQUEST, "RebalanceTimeoutMs must be provided in first request.")
        if request.owned is None or any(request.owned.values()):
            raise api_error(ErrorCode.INVALID_REQUEST, "TopicPartitions must be empty when (re-)joining.")
        if request.topics is None and not request.regex:
            raise api_error(
                ErrorCode.INVALID_REQUEST,
                "Either SubscribedTopicNames or SubscribedTopicRegex must be set in first request.",
            )


def heartbeat(group: ConsumerGroup, request: ConsumerHeartbeat, settings: GroupSettings, now: int) -> ConsumerOutcome:
    """A member joins, or says that it is there. Raises ApiError."""
    if request.assignor is not None and request.assignor not in settings.assignors:
        supported = ", ".join(settings.assignors)
        text = f"ServerAssignor {request.assignor} is not supported. Supported assignors: {supported}."
        raise api_error(ErrorCode.UNSUPPORTED_ASSIGNOR, text)
    check_room(group, request.member_id, request.instance_id, settings)
    known, records, is_new = find(group, request.member_id, request.epoch, request.instance_id, request.owned)
    updated = _updated(known, request)
    return advance(
        group,
        ConsumerOutcome(updated, records, shows_assignment=request.is_full),
        known,
        request.owned,
        is_joining=is_new or request.epoch == JOIN_EPOCH,
        is_new=is_new,
        session_timeout_ms=settings.session_timeout_ms,
        now=now,
    )


def check_room(group: ConsumerGroup, member_id: str, instance_id: str | None, settings: GroupSettings) -> None:
    """Raises ApiError GROUP_MAX_SIZE_REACHED."""
    is_member = member_id in group.members or group.static_member(instance_id) is not None
    if not is_member and len(group.members) >= settings.max_size:
        raise api_error(ErrorCode.GROUP_MAX_SIZE_REACHED, f"a group has at most {settings.max_size} members")


def advance(
    group: ConsumerGroup,
    outcome: ConsumerOutcome,
    known: ConsumerMember,
    owned: Assignment | None,
    *,
    is_joining: bool,
    is_new: bool,
    session_timeout_ms: int,
    now: int,
) -> ConsumerOutcome:
    """Store what changed of the member `known`, and take it a step towards its target, or let it wait for a new one."""
    updated, records = outcome.member, outcome.records
    if is_new or updated != known:
        records.append(MemberMetadata(updated.member_id, updated))
    bumps = is_new or (updated.topics, updated.regex) != (known.topics, known.regex)
    if bumps:
        records.append(GroupEpoch(group.epoch + 1, group.metadata_hash))
        records += _unused(group, updated)
    group.expect(updated.member_id).session = now + session_timeout_ms
    if bumps or (is_joining and group.needs_assignment):
        outcome.waits = outcome.shows_assignment = True
        return outcome
    target = group.target_of(updated.member_id)
    replaced = group.static_member(updated.instance_id)
    if not target and replaced is not None:
        target = group.target_of(replaced.member_id)
    return _reconciled(group, outcome, target, owned, now)


def settle(group: ConsumerGroup, member_id: str, owned: Assignment | None, now: int) -> ConsumerOutcome:
    """The target assignment that a member waits for is there: its next step. Raises ApiError UNKNOWN_MEMBER_ID."""
    outcome = ConsumerOutcome(group.member(member_id), shows_assignment=True)
    return _reconciled(group, outcome, group.target_of(member_id), owned, now)


def _reconciled(
    group: ConsumerGroup, outcome: ConsumerOutcome, target: Assignment, owned: Assignment | None, now: int
) -> ConsumerOutcome:
    before = outcome.member

    def is_free(topic_id: TopicId, partition: int) -> bool:
        return group.is_free(topic_id, partition, before.member_id)

    after = reconcile(before, group.target_epoch, target, owned, is_free)
    if after is before:
        return outcome
    outcome.member = after
    outcome.records.append(CurrentAssignment(after.member_id, after))
    outcome.shows_assignment |= after.assigned != before.assigned
    times = group.expect(after.member_id)
    times.revocation = 0
    if after.classic is None and after.state is MemberState.UNREVOKED_PARTITIONS:
        times.revocation, times.epoch = now + after.rebalance_timeout_ms, after.epoch
    return outcome


def _updated(known: ConsumerMember, request: ConsumerHeartbeat) -> ConsumerMember:
    return replace(
        known,
        instance_id=known.instance_id if request.instance_id is None else request.instance_id,
        rack_id=known.rack_id if request.rack_id is None else request.rack_id,
        rebalance_timeout_ms=known.rebalance_timeout_ms
        if request.rebalance_timeout_ms == -1
        else request.rebalance_timeout_ms,
        topics=known.topics if request.topics is None else tuple(sorted(set(request.topics))),
        regex=known.regex if request.regex is None else request.regex,
        assignor=known.assignor if request.assignor is None else request.assignor,
        client_id=request.client_id,
        client_host=request.client_host,
        classic=None,
    )


# --- who it is ---


def find(
    group: ConsumerGroup,
    member_id: str,
    epoch: int,
    instance_id: str | None,
    owned: Assignment | None,
    *,
    is_classic: bool = False,
) -> tuple[ConsumerMember, list[Record], bool]:
    """The member of a request, what is written if it replaces a static one, and whether it is new. Raises ApiError."""
    if instance_id is not None:
        return _find_static(group, member_id, epoch, instance_id, owned, is_classic=is_classic)
    known = group.members.get(member_id)
    if known is None and epoch == JOIN_EPOCH:
        return ConsumerMember(member_id), [], True
    known = group.member(member_id)
    if not is_classic:
        _check_epoch(known, epoch, owned)
    return known, [], False


def _find_static(
    group: ConsumerGroup,
    member_id: str,
    epoch: int,
    instance_id: str,
    owned: Assignment | None,
    *,
    is_classic: bool,
) -> tuple[ConsumerMember, list[Record], bool]:
    known = group.static_member(instance_id)
    if known is None:
        if epoch != JOIN_EPOCH:
            raise unknown_instance(instance_id)
        return group.members.get(member_id) or ConsumerMember(member_id), [], member_id not in group.members
    if known.member_id == member_id:
        if not is_classic and known.epoch != LEAVE_FOR_A_WHILE_EPOCH:
            _check_epoch(known, epoch, owned)
            return known, [], False
        if epoch != JOIN_EPOCH and not is_classic:
            raise away(member_id)
        return replace(known, epoch=0, previous_epoch=0) if not is_classic else known, [], False
    if epoch != JOIN_EPOCH:
        raise fenced(known, member_id, instance_id)
    if not is_classic and known.classic is None and known.epoch != LEAVE_FOR_A_WHILE_EPOCH:
        raise unreleased(known, instance_id)
    return _replacement(group, known, member_id)


def _replacement(
    group: ConsumerGroup, known: ConsumerMember, member_id: str
) -> tuple[ConsumerMember, list[Record], bool]:
    """A static member is back under another member id, with what it had."""
    new = replace(known, member_id=member_id, epoch=0, previous_epoch=0, revoking={})
    records: list[Record] = [
        *_removal(known),
        MemberMetadata(member_id, new),
        TargetMember(member_id, group.target_of(known.member_id)),
        CurrentAssignment(member_id, new),
    ]
    return new, records, False


def _check_epoch(member: ConsumerMember, received: int, owned: Assignment | None) -> None:
    """Raises ApiError FENCED_MEMBER_EPOCH."""
    check_epoch(
        member, received, "partitions", holds_only_assigned=lambda: owned is not None and _is_part(owned, member)
    )


def _is_part(owned: Assignment, member: ConsumerMember) -> bool:
    """Whether it has nothing but what it was assigned: then the answer with its new epoch was lost."""
    return all(partitions <= member.assigned.get(topic_id, {}).keys() for topic_id, partitions in owned.items())


# --- leaving ---


def leave_for_a_while(member: ConsumerMember) -> ConsumerOutcome:
    """A static member is restarted: it keeps its partitions until its session expires (KIP-345)."""
    left = replace(member, epoch=LEAVE_FOR_A_WHILE_EPOCH, revoking={})
    return ConsumerOutcome(left, [CurrentAssignment(left.member_id, left)])


def removed(group: ConsumerGroup, members: Sequence[ConsumerMember]) -> list[Record]:
    """The records after which these are no members any more: the others share out what they had."""
    gone = {member.member_id for member in members}
    records = [record for member in members for record in _removal(member)]
    left = {member.regex for member in group.members.values() if member.member_id not in gone}
    records += [RegexTopics(regex, None) for regex in group.regexes if regex not in left]
    return [*records, GroupEpoch(group.epoch + 1, group.metadata_hash)]


def _removal(member: ConsumerMember) -> list[Record]:
    return [
        CurrentAssignment(member.member_id, None),
        TargetMember(member.member_id, None),
        MemberMetadata(member.member_id, None),
    ]


def _unused(group: ConsumerGroup, updated: ConsumerMember) -> list[Record]:
    """Tombstones of regular expressions that no member has once this one is `updated`."""
    used = {member.regex for member in group.members.values() if member.member_id != updated.member_id}
    return [RegexTopics(regex, None) for regex in group.regexes if regex not in used | {updated.regex}]


# --- offsets ---


def held_since(topic_id: Callable[[str], TopicId | None]) -> Callable[[ConsumerMember, str, int], int | None]:
    """Since which epoch a member has a partition of a topic; None: it does not have it."""

    def since(member: ConsumerMember, topic: str, partition: int) -> int | None:
        known = topic_id(topic)
        if known is None:
            return None
        epoch = member.assigned.get(known, {}).get(partition)
        return member.revoking.get(known, {}).get(partition) if epoch is None else epoch

    return since


def is_classic(member: ConsumerMember) -> bool:
    """Whether it speaks the classic protocol."""
    return member.classic is not None
