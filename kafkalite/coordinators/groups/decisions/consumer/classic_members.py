"""Members that speak the classic protocol in a consumer group, while it changes from one to the other (KIP-848). Pure.

Their JoinGroup is a heartbeat that says all, their generation is their member epoch, and SyncGroup returns what they have
been assigned. The assignment is the coordinator's; they neither lead nor assign.
"""

from __future__ import annotations

from collections.abc import Callable, Sequence
from dataclasses import replace

from kafkalite.coordinators.groups.decisions.assigned_heartbeats import check_room
from kafkalite.coordinators.groups.decisions.classic.events import JoinRequest, SyncRequest
from kafkalite.coordinators.groups.decisions.classic.rebalance import MAX_PROTOCOLS
from kafkalite.coordinators.groups.decisions.consumer.group import ConsumerGroup
from kafkalite.coordinators.groups.decisions.consumer.heartbeats import ConsumerOutcome, GroupSettings, advance, find
from kafkalite.coordinators.groups.decisions.members import (
    JOIN_EPOCH,
    Assignment,
    ClassicProtocols,
    ConsumerMember,
    Held,
    MemberState,
)
from kafkalite.coordinators.groups.decisions.subscription import (
    CONSUMER,
    ConsumerSubscription,
    assignment_of,
    subscription_in,
)
from kafkalite.errors import ErrorCode, api_error
from kafkalite.model import TopicId

TopicIdOf = Callable[[str], TopicId | None]
TopicNameOf = Callable[[TopicId], str | None]


def join(
    group: ConsumerGroup, request: JoinRequest, settings: GroupSettings, topic_id_of: TopicIdOf, now: int
) -> tuple[ConsumerOutcome, Assignment]:
    """A member joins, or joins again: the outcome and what it says that it has. Raises ApiError.

    MEMBER_ID_REQUIRED: it has to come back with `request.new_member_id` (KIP-394).
    """
    if not settings.can_upgrade and not settings.can_downgrade:
        raise api_error(ErrorCode.INCONSISTENT_GROUP_PROTOCOL)  # no group has members of both protocols
    member_id = request.member_id or request.new_member_id
    check_room(group, member_id, request.instance_id, settings.max_size)
    _check_protocols(group, request)
    if not request.member_id and request.requires_known_member_id:
        raise api_error(ErrorCode.MEMBER_ID_REQUIRED)
    subscription = subscription_in(request.protocols[0][1])
    if subscription is None:
        raise api_error(ErrorCode.INCONSISTENT_GROUP_PROTOCOL)
    is_unknown = not request.member_id or (request.instance_id is None and member_id not in group.members)
    found = find(group, member_id, JOIN_EPOCH if is_unknown else -1, request.instance_id, None, is_classic=True)
    known = found.member
    updated = replace(
        known,
        instance_id=request.instance_id if request.instance_id is not None else known.instance_id,
        rack_id=subscription.rack_id or known.rack_id,
        rebalance_timeout_ms=request.rebalance_timeout_ms,
        topics=subscription.topics,
        regex="",
        assignor=None,
        client_id=request.client_id,
        client_host=request.client_host,
        classic=ClassicProtocols(request.session_timeout_ms, request.protocols),
    )
    owned = _owned(subscription, topic_id_of)
    outcome = advance(
        group,
        ConsumerOutcome(updated, [*found.records]),
        known,
        owned,
        is_joining=True,
        is_new=found.is_new,
        assignors=settings.assignors,
        session_timeout_ms=request.session_timeout_ms,
        now=now,
    )
    group.expect(updated.member_id).join = 0
    return outcome, owned


def _check_protocols(group: ConsumerGroup, request: JoinRequest) -> None:
    """Raises ApiError INCONSISTENT_GROUP_PROTOCOL."""
    if len(request.protocols) > MAX_PROTOCOLS:
        raise api_error(ErrorCode.INCONSISTENT_GROUP_PROTOCOL)
    others = [
        {name for name, _ in member.classic.protocols}
        for member in group.members.values()
        if member.classic is not None and member.member_id != request.member_id
    ]
    is_common = any(all(name in each for each in others) for name, _ in request.protocols)
    if request.protocol_type != CONSUMER or not is_common:  # none is common if it names none
        raise api_error(ErrorCode.INCONSISTENT_GROUP_PROTOCOL)


def _owned(subscription: ConsumerSubscription, topic_id_of: TopicIdOf) -> Assignment:
    owned: dict[TopicId, set[int]] = {}
    for topic, partition in subscription.owned:
        topic_id = topic_id_of(topic)
        if topic_id is not None:
            owned.setdefault(topic_id, set()).add(partition)
    return {topic_id: frozenset(partitions) for topic_id, partitions in owned.items()}


def joined(group: ConsumerGroup, member: ConsumerMember, now: int) -> None:
    """The member has its answer: it has to ask for its assignment."""
    assert member.classic is not None
    times = group.expect(member.member_id)
    times.session = now + member.classic.session_timeout_ms
    times.sync = now + member.rebalance_timeout_ms


def find_any(group: ConsumerGroup, member_id: str, instance_id: str | None) -> ConsumerMember:
    """A member of either protocol. Raises ApiError UNKNOWN_MEMBER_ID, FENCED_INSTANCE_ID."""
    if instance_id is None:
        member = group.member(member_id)
    else:
        known = group.static_member(instance_id)
        if known is None:
            raise api_error(ErrorCode.UNKNOWN_MEMBER_ID)
        if member_id and known.member_id != member_id:
            raise api_error(ErrorCode.FENCED_INSTANCE_ID)
        member = known
    return member


def find_classic(group: ConsumerGroup, member_id: str, instance_id: str | None) -> ConsumerMember:
    """Raises ApiError UNKNOWN_MEMBER_ID, FENCED_INSTANCE_ID."""
    member = find_any(group, member_id, instance_id)
    if member.member_id != member_id:  # none: as an administrator names it
        raise api_error(ErrorCode.FENCED_INSTANCE_ID)
    if member.classic is None:
        raise api_error(ErrorCode.UNKNOWN_MEMBER_ID, f"{member.member_id!r} speaks the consumer protocol")
    return member


def sync(group: ConsumerGroup, request: SyncRequest, now: int) -> ConsumerMember:
    """A member asks for its assignment: the member. Raises ApiError."""
    member = find_classic(group, request.member_id, request.instance_id)
    assert member.classic is not None
    if request.generation != member.epoch:
        raise api_error(ErrorCode.ILLEGAL_GENERATION)
    names = [name for name, _ in member.classic.protocols]
    if request.protocol_type not in (None, CONSUMER) or request.protocol not in (None, *names):
        raise api_error(ErrorCode.INCONSISTENT_GROUP_PROTOCOL)
    times = group.expect(member.member_id)
    if group.target_epoch > member.epoch and member.state is not MemberState.UNREVOKED_PARTITIONS:
        times.join = times.join or now + member.rebalance_timeout_ms
        raise api_error(ErrorCode.REBALANCE_IN_PROGRESS)
    times.sync = 0
    times.session = now + member.classic.session_timeout_ms
    return member


def heartbeat(group: ConsumerGroup, member_id: str, instance_id: str | None, generation: int, now: int) -> ErrorCode:
    """REBALANCE_IN_PROGRESS: it has to join again. Raises ApiError."""
    member = find_classic(group, member_id, instance_id)
    assert member.classic is not None
    if generation != member.epoch:
        raise api_error(ErrorCode.ILLEGAL_GENERATION)
    times = group.expect(member.member_id)
    times.session = now + member.classic.session_timeout_ms
    # Not before the target is there: the member would only wait in its JoinGroup (KAFKA-20272).
    if (
        member.epoch < group.target_epoch
        or member.state is MemberState.UNREVOKED_PARTITIONS
        or (member.state is MemberState.UNRELEASED_PARTITIONS and not _waits(group, member))
    ):
        times.join = times.join or now + member.rebalance_timeout_ms
        return ErrorCode.REBALANCE_IN_PROGRESS
    return ErrorCode.NONE


def _waits(group: ConsumerGroup, member: ConsumerMember) -> bool:
    """Whether a partition of its target still belongs to another member."""
    return any(
        partition not in member.assigned.get(topic_id, {}) and not group.is_free(topic_id, partition, member.member_id)
        for topic_id, partitions in group.target_of(member.member_id).items()
        for partition in partitions
    )


def assignment_bytes(member: ConsumerMember, topic_name_of: TopicNameOf) -> bytes:
    """What the member has been assigned, as a consumer of the classic protocol reads it."""
    assert member.classic is not None
    return held_bytes(member.assigned, member.classic.protocols, topic_name_of)


def held_bytes(held: Held, protocols: Sequence[tuple[str, bytes]], topic_name_of: TopicNameOf) -> bytes:
    named = [(topic_name_of(topic_id), sorted(partitions)) for topic_id, partitions in held.items() if partitions]
    found = subscription_in(protocols[0][1]) if protocols else None
    topics = sorted((name, numbers) for name, numbers in named if name is not None)
    return assignment_of(topics, found.version if found is not None else 0)
