"""What a heartbeat of the consumer protocol does to its group (KIP-848): join, stay, leave. Pure.

The answer to a member that joins, or changes what it subscribes to, waits for the target assignment that takes it into
account: the coordinator computes it meanwhile, once for all that wait. All other heartbeats are answered at once.
"""

from __future__ import annotations

from collections.abc import Callable, Sequence
from dataclasses import replace

from kafkalite.coordinators.groups.decisions.assigned_heartbeats import (
    FoundMember,
    Outcome,
    check_epoch,
    check_room,
    take_step,
    with_said,
)
from kafkalite.coordinators.groups.decisions.assigned_heartbeats import find as find_member
from kafkalite.coordinators.groups.decisions.consumer.group import ConsumerGroup
from kafkalite.coordinators.groups.decisions.consumer.reconciling import reconcile
from kafkalite.coordinators.groups.decisions.members import (
    JOIN_EPOCH,
    LEAVE_FOR_A_WHILE_EPOCH,
    Assignment,
    ConsumerMember,
    EpochHeartbeat,
    GroupEpoch,
    MemberMetadata,
    Record,
    RegexTopics,
    removal,
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
class ConsumerHeartbeat(EpochHeartbeat):
    """What a ConsumerGroupHeartbeat says. None (`rebalance_timeout_ms` -1): as before. `regex` "": none any more."""

    topics: tuple[str, ...] | None = None
    regex: str | None = None
    assignor: str | None = None
    owned: Assignment | None = None

    @property
    def is_full(self) -> bool:
        """Whether it says all, as after an error: the answer says all, too."""
        said = self.rebalance_timeout_ms != -1 and self.owned is not None
        return self.epoch == JOIN_EPOCH or (said and (self.topics is not None or self.regex is not None))


ConsumerOutcome = Outcome[ConsumerMember, Record]


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
        raise api_error(ErrorCode.INVALID_REQUEST, "MemberEpoch is invalid.")
    if request.epoch == LEAVE_FOR_A_WHILE_EPOCH and request.instance_id is None:
        raise api_error(ErrorCode.INVALID_REQUEST, "InstanceId can't be null.")
    if request.epoch == JOIN_EPOCH:
        if request.rebalance_timeout_ms == -1:
            raise api_error(ErrorCode.INVALID_REQUEST, "RebalanceTimeoutMs must be provided in first request.")
        if request.owned is None or any(request.owned.values()):
            raise api_error(ErrorCode.INVALID_REQUEST, "TopicPartitions must be empty when (re-)joining.")
        if request.topics is None and request.regex is None:
            raise api_error(
                ErrorCode.INVALID_REQUEST,
                "Either SubscribedTopicNames or SubscribedTopicRegex must be non-null when (re-)joining.",
            )


def heartbeat(group: ConsumerGroup, request: ConsumerHeartbeat, settings: GroupSettings, now: int) -> ConsumerOutcome:
    """A member joins, or says that it is there. Raises ApiError."""
    if request.assignor is not None and request.assignor not in settings.assignors:
        supported = ", ".join(settings.assignors)
        text = f"ServerAssignor {request.assignor} is not supported. Supported assignors: {supported}."
        raise api_error(ErrorCode.UNSUPPORTED_ASSIGNOR, text)
    check_room(group, request.member_id, request.instance_id, settings.max_size)
    found = find(group, request.member_id, request.epoch, request.instance_id, request.owned)
    updated = _updated(found.member, request)
    return advance(
        group,
        ConsumerOutcome(updated, [*found.records], shows_assignment=request.is_full),
        found.member,
        request.owned,
        is_joining=found.is_new or request.epoch == JOIN_EPOCH,
        is_new=found.is_new,
        assignors=settings.assignors,
        session_timeout_ms=settings.session_timeout_ms,
        now=now,
    )


def advance(
    group: ConsumerGroup,
    outcome: ConsumerOutcome,
    known: ConsumerMember,
    owned: Assignment | None,
    *,
    is_joining: bool,
    is_new: bool,
    assignors: Sequence[str],
    session_timeout_ms: int,
    now: int,
) -> ConsumerOutcome:
    """Store what changed of the member `known`, and take it a step towards its target, or let it wait for a new one."""
    updated, records = outcome.member, outcome.records
    if is_new or updated != known:
        records.append(MemberMetadata(updated.member_id, updated))
    bumps = is_new or (updated.topics, updated.regex) != (known.topics, known.regex)
    if not bumps and updated.assignor != known.assignor:
        bumps = group.assignor(assignors, updated) != group.assignor(assignors)
    if bumps:
        records.append(GroupEpoch(group.epoch + 1, group.metadata_hash))
        records += _unused(group, updated)
    group.expect(updated.member_id).session = now + session_timeout_ms
    if bumps or (is_joining and group.needs_assignment):
        outcome.waits = outcome.shows_assignment = True
        return outcome
    return _reconciled(group, outcome, group.target_for(updated), owned, now, is_joining=is_joining)


def settle(group: ConsumerGroup, member_id: str, owned: Assignment | None, now: int) -> ConsumerOutcome:
    """The target assignment that a member waits for is there: its next step. Raises ApiError UNKNOWN_MEMBER_ID."""
    outcome = ConsumerOutcome(group.member(member_id), shows_assignment=True)
    return _reconciled(group, outcome, group.target_of(member_id), owned, now, is_joining=True)


def _reconciled(
    group: ConsumerGroup,
    outcome: ConsumerOutcome,
    target: Assignment,
    owned: Assignment | None,
    now: int,
    *,
    is_joining: bool,
) -> ConsumerOutcome:
    before = outcome.member

    def is_free(topic_id: TopicId, partition: int) -> bool:
        return group.is_free(topic_id, partition, before.member_id)

    after = reconcile(before, group.target_epoch, target, owned, is_free, is_joining=is_joining)
    return take_step(group, outcome, after, now)


def _updated(known: ConsumerMember, request: ConsumerHeartbeat) -> ConsumerMember:
    return replace(
        with_said(known, request),
        topics=known.topics if request.topics is None else tuple(sorted(set(request.topics))),
        regex=known.regex if request.regex is None else request.regex,
        assignor=known.assignor if request.assignor is None else request.assignor,
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
) -> FoundMember[ConsumerMember]:
    """The member of a request. Raises ApiError."""

    def check_known(known: ConsumerMember) -> None:
        check_epoch(known, epoch, "consumer", holds_only_assigned=lambda: owned is not None and _is_part(owned, known))

    def may_replace(known: ConsumerMember) -> bool:
        return is_classic or known.classic is not None or known.epoch == LEAVE_FOR_A_WHILE_EPOCH

    new = ConsumerMember(member_id)
    return find_member(group, new, epoch, instance_id, check_known, may_replace, is_classic=is_classic)


def _is_part(owned: Assignment, member: ConsumerMember) -> bool:
    """Whether it has nothing but what it was assigned: then the answer with its new epoch was lost."""
    return all(partitions <= member.assigned.get(topic_id, {}).keys() for topic_id, partitions in owned.items())


# --- leaving ---


def removed(group: ConsumerGroup, members: Sequence[ConsumerMember]) -> list[Record]:
    """The records after which these are no members any more: the others share out what they had."""
    gone = {member.member_id for member in members}
    records: list[Record] = [record for member in members for record in removal(member.member_id)]
    left = {member.regex for member in group.members.values() if member.member_id not in gone}
    records += [RegexTopics(regex, None) for regex in group.regexes if regex not in left]
    return [*records, GroupEpoch(group.epoch + 1, group.metadata_hash), *group.empty_target(len(members))]


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
