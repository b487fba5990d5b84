"""What a heartbeat of the consumer protocol does to its group (KIP-848): join, stay, leave. Pure.

The answer to a member that joins, or changes what it subscribes to, waits for the target assignment that takes it into
account: the coordinator computes it meanwhile, once for all that wait. All other heartbeats are answered at once.
"""

from __future__ import annotations

from collections.abc import Callable, Sequence
from dataclasses import field, replace

from kafkalite.coordinators.groups.decisions.consumer.group import ConsumerGroup
from kafkalite.coordinators.groups.decisions.consumer.reconciling import reconcile
from kafkalite.coordinators.groups.decisions.members import (
    JOIN_EPOCH,
    LEAVE_FOR_A_WHILE_EPOCH,
    Assignment,
    CurrentAssignment,
    GroupEpoch,
    Member,
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
class Heartbeat:
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
class Outcome:
    """What is written; `member` is as it is afterwards. `waits`: for the target assignment of the group's new epoch, then
    `settle` is the next step. `shows_assignment`: the answer has it."""

    member: Member
    records: list[Record] = field(default_factory=list)
    waits: bool = False
    shows_assignment: bool = False


def check(request: Heartbeat, *, needs_member_id: bool) -> None:
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


def heartbeat(group: ConsumerGroup, request: Heartbeat, settings: GroupSettings, now: int) -> Outcome:
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
        Outcome(updated, records, shows_assignment=request.is_full),
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
    outcome: Outcome,
    known: Member,
    owned: Assignment | None,
    *,
    is_joining: bool,
    is_new: bool,
    session_timeout_ms: int,
    now: int,
) -> Outcome:
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


def settle(group: ConsumerGroup, member_id: str, owned: Assignment | None, now: int) -> Outcome:
    """The target assignment that a member waits for is there: its next step. Raises ApiError UNKNOWN_MEMBER_ID."""
    outcome = Outcome(group.member(member_id), shows_assignment=True)
    return _reconciled(group, outcome, group.target_of(member_id), owned, now)


def _reconciled(
    group: ConsumerGroup, outcome: Outcome, target: Assignment, owned: Assignment | None, now: int
) -> Outcome:
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


def _updated(known: Member, request: Heartbeat) -> Member:
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
) -> tuple[Member, list[Record], bool]:
    """The member of a request, what is written if it replaces a static one, and whether it is new. Raises ApiError."""
    if instance_id is not None:
        return _find_static(group, member_id, epoch, instance_id, owned, is_classic=is_classic)
    known = group.members.get(member_id)
    if known is None and epoch == JOIN_EPOCH:
        return Member(member_id), [], True
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
) -> tuple[Member, list[Record], bool]:
    known = group.static_member(instance_id)
    if known is None:
        if epoch != JOIN_EPOCH:
            raise api_error(ErrorCode.UNKNOWN_MEMBER_ID, f"Instance id {instance_id} is unknown.")
        return group.members.get(member_id) or Member(member_id), [], member_id not in group.members
    if known.member_id == member_id:
        if not is_classic and known.epoch != LEAVE_FOR_A_WHILE_EPOCH:
            _check_epoch(known, epoch, owned)
            return known, [], False
        if epoch != JOIN_EPOCH and not is_classic:
            raise api_error(ErrorCode.FENCED_MEMBER_EPOCH, f"member {member_id!r} left for a while: it has to join")
        return replace(known, epoch=0, previous_epoch=0) if not is_classic else known, [], False
    if epoch != JOIN_EPOCH:
        raise _fenced(known, member_id, instance_id)
    if not is_classic and known.classic is None and known.epoch != LEAVE_FOR_A_WHILE_EPOCH:
        raise api_error(
            ErrorCode.UNRELEASED_INSTANCE_ID, f"Instance id {instance_id} is owned by member {known.member_id}."
        )
    return _replacement(group, known, member_id)


def _replacement(group: ConsumerGroup, known: Member, member_id: str) -> tuple[Member, list[Record], bool]:
    """A static member is back under another member id, with what it had."""
    new = replace(known, member_id=member_id, epoch=0, previous_epoch=0, revoking={})
    records: list[Record] = [
        *_removal(known),
        MemberMetadata(member_id, new),
        TargetMember(member_id, group.target_of(known.member_id)),
        CurrentAssignment(member_id, new),
    ]
    return new, records, False


def _fenced(known: Member, member_id: str, instance_id: str) -> Exception:
    text = f"Static member {member_id} with instance id {instance_id} was fenced by member {known.member_id}."
    return api_error(ErrorCode.FENCED_INSTANCE_ID, text)


def _check_epoch(member: Member, received: int, owned: Assignment | None) -> None:
    """Raises ApiError FENCED_MEMBER_EPOCH. A member that joins again has nothing, and is always right."""
    if received in (member.epoch, JOIN_EPOCH):
        return
    is_repeated = received == member.previous_epoch and owned is not None and _is_part(owned, member)
    if received > member.epoch or not is_repeated:
        text = (
            f"The member epoch {received} is not {member.epoch}. The member must abandon all its partitions and rejoin."
        )
        raise api_error(ErrorCode.FENCED_MEMBER_EPOCH, text)


def _is_part(owned: Assignment, member: Member) -> bool:
    """Whether it has nothing but what it was assigned: then the answer with its new epoch was lost."""
    return all(partitions <= member.assigned.get(topic_id, {}).keys() for topic_id, partitions in owned.items())


# --- leaving ---


def find_leaving(group: ConsumerGroup, member_id: str, instance_id: str | None) -> Member:
    """Raises ApiError UNKNOWN_MEMBER_ID, FENCED_INSTANCE_ID."""
    if instance_id is None:
        return group.member(member_id)
    known = group.static_member(instance_id)
    if known is None:
        raise api_error(ErrorCode.UNKNOWN_MEMBER_ID, f"Instance id {instance_id} is unknown.")
    if known.member_id != member_id:
        raise _fenced(known, member_id, instance_id)
    return known


def leave_for_a_while(member: Member) -> Outcome:
    """A static member is restarted: it keeps its partitions until its session expires (KIP-345)."""
    away = replace(member, epoch=LEAVE_FOR_A_WHILE_EPOCH, revoking={})
    return Outcome(away, [CurrentAssignment(away.member_id, away)])


def removed(group: ConsumerGroup, members: Sequence[Member]) -> list[Record]:
    """The records after which these are no members any more: the others share out what they had."""
    gone = {member.member_id for member in members}
    records = [record for member in members for record in _removal(member)]
    left = {member.regex for member in group.members.values() if member.member_id not in gone}
    records += [RegexTopics(regex, None) for regex in group.regexes if regex not in left]
    return [*records, GroupEpoch(group.epoch + 1, group.metadata_hash)]


def _removal(member: Member) -> list[Record]:
    return [
        CurrentAssignment(member.member_id, None),
        TargetMember(member.member_id, None),
        MemberMetadata(member.member_id, None),
    ]


def _unused(group: ConsumerGroup, updated: Member) -> list[Record]:
    """Tombstones of regular expressions that no member has once this one is `updated`."""
    used = {member.regex for member in group.members.values() if member.member_id != updated.member_id}
    return [RegexTopics(regex, None) for regex in group.regexes if regex not in used | {updated.regex}]


# --- offsets ---


def check_commit(
    group: ConsumerGroup,
    member_id: str,
    epoch: int,
    partitions: Sequence[tuple[str, int]],
    topic_id: Callable[[str], TopicId | None],
    *,
    is_transactional: bool,
    knows_epochs: bool,
) -> None:
    """Whether a member may commit offsets of these (topic, partition). Raises ApiError.

    Args:
        knows_epochs: the request's version has a member epoch, and its client the error of a wrong one.

    An older epoch will do for partitions that the member has had since then (KIP-1251).
    """
    if epoch < 0 and not group.members:
        return  # a client that assigns partitions itself, or an administrator
    if is_transactional and epoch < 0 and not member_id:
        return  # a producer of before KIP-447, which does not say who it is
    member = group.member(member_id)
    if member.classic is None and not knows_epochs and not is_transactional:
        raise api_error(
            ErrorCode.UNSUPPORTED_VERSION, "members of a consumer group commit with version 9 of OffsetCommit or later"
        )
    if epoch == member.epoch:
        return
    if epoch < member.epoch and all(
        _held_since(member, topic_id(topic), partition, epoch) for topic, partition in partitions
    ):
        return
    is_new = member.classic is None and not is_transactional
    code = ErrorCode.STALE_MEMBER_EPOCH if is_new else ErrorCode.ILLEGAL_GENERATION
    raise api_error(code, f"The received member epoch {epoch} does not match the expected member epoch {member.epoch}.")


def _held_since(member: Member, topic_id: TopicId | None, partition: int, epoch: int) -> bool:
    for held in (member.assigned, member.revoking):
        since = held.get(topic_id, {}).get(partition) if topic_id is not None else None
        if since is not None:
            return since <= epoch
    return False


def check_fetch(group: ConsumerGroup, member_id: str | None, epoch: int) -> None:
    """Whether a member may read the group's offsets. Raises ApiError UNKNOWN_MEMBER_ID, STALE_MEMBER_EPOCH."""
    if member_id is None and epoch < 0:
        return
    member = group.member(member_id or "")
    if epoch != member.epoch:
        text = f"The received member epoch {epoch} does not match the expected member epoch {member.epoch}."
        raise api_error(ErrorCode.STALE_MEMBER_EPOCH if member.classic is None else ErrorCode.ILLEGAL_GENERATION, text)
