"""A running group goes over from the classic to the consumer protocol, and back (KIP-848, online migration). Pure."""

from __future__ import annotations

from collections.abc import Sequence, Set

from kafkalite.coordinators.groups.decisions.classic.group import Group
from kafkalite.coordinators.groups.decisions.classic.members import ClassicGroupMember
from kafkalite.coordinators.groups.decisions.consumer.classic_members import TopicIdOf, TopicNameOf, held_bytes
from kafkalite.coordinators.groups.decisions.consumer.group import ConsumerGroup, held, tombstones
from kafkalite.coordinators.groups.decisions.consumer.heartbeats import GroupSettings
from kafkalite.coordinators.groups.decisions.members import (
    ClassicProtocols,
    ClassicTombstone,
    ConsumerMember,
    CurrentAssignment,
    GroupEpoch,
    MemberMetadata,
    Record,
    TargetEpoch,
    TargetMember,
)
from kafkalite.coordinators.groups.decisions.subscription import CONSUMER, assigned_in, has_user_data, subscription_in
from kafkalite.errors import ErrorCode, api_error
from kafkalite.model import TopicId


def upgrade(group: Group, settings: GroupSettings, topic_id_of: TopicIdOf) -> list[Record]:
    """The records that make a classic group a consumer group, with its members and what they have.

    Raises ApiError GROUP_ID_NOT_FOUND: it has members, and may not or cannot be changed.
    """
    if not group.members:
        return [ClassicTombstone()] if group.generation else []
    if not settings.can_upgrade:
        raise _refusal(group, "group.consumer.migration.policy does not allow it")
    if group.protocol_type != CONSUMER:
        raise _refusal(group, f"its protocol type is {group.protocol_type!r}")
    if len(group.members) > settings.max_size:
        raise _refusal(group, "it has more members than a consumer group may have")
    members = [_modern(group, member, topic_id_of) for member in group.members.values()]
    epoch = max(group.generation, 1)
    records: list[Record] = [ClassicTombstone()]
    records += [MemberMetadata(member.member_id, member) for member in members]
    records.append(GroupEpoch(epoch))
    targets = [(member, {key: frozenset(value) for key, value in member.assigned.items()}) for member in members]
    records += [TargetMember(member.member_id, target) for member, target in targets]
    records.append(TargetEpoch(epoch))
    records += [CurrentAssignment(member.member_id, member) for member in members]
    return records


def _refusal(group: Group, reason: str) -> Exception:
    text = f"Group {group.group_id} is a classic group, and {reason}."
    return api_error(ErrorCode.GROUP_ID_NOT_FOUND, text)


def _modern(group: Group, member: ClassicGroupMember, topic_id_of: TopicIdOf) -> ConsumerMember:
    """Raises ApiError GROUP_ID_NOT_FOUND: what it subscribes to cannot be read, or what it was assigned has more than partitions."""
    metadata = member.metadata(group.protocol) or (member.protocols[0][1] if member.protocols else b"")
    subscription = subscription_in(metadata)
    if subscription is None:
        raise _refusal(group, "what a member subscribes to cannot be read")
    if has_user_data(member.assignment):  # only its assignor could read them
        raise _refusal(group, "its members use an assignor of their own: switch to one of Kafka's first")
    partitions: dict[TopicId, set[int]] = {}
    for topic, partition in assigned_in(member.assignment):
        topic_id = topic_id_of(topic)
        if topic_id is not None:
            partitions.setdefault(topic_id, set()).add(partition)
    epoch = max(group.generation, 1)
    return ConsumerMember(
        member.member_id,
        instance_id=member.instance_id,
        rack_id=subscription.rack_id,
        client_id=member.client_id,
        client_host=member.client_host,
        topics=subscription.topics,
        rebalance_timeout_ms=member.rebalance_timeout_ms,
        classic=ClassicProtocols(member.session_timeout_ms, member.protocols),
        epoch=epoch,
        previous_epoch=epoch,
        assigned=held({key: frozenset(value) for key, value in partitions.items()}, epoch),
    )


def may_be_classic(group: ConsumerGroup, settings: GroupSettings) -> bool:
    """Whether the settings allow a group of this size to go over to the classic protocol."""
    return settings.can_downgrade and len(group.members) <= settings.max_classic_size


def is_downgraded(group: ConsumerGroup, leaving: Sequence[ConsumerMember], settings: GroupSettings) -> bool:
    """Whether the group becomes a classic one when these members leave: all others speak the classic protocol."""
    modern = sum(member.classic is None for member in leaving)
    left = len(group.members) - len(leaving)
    classic = group.classic_members - (len(leaving) - modern)
    return settings.can_downgrade and modern > 0 and 0 < left <= settings.max_classic_size and classic == left


def downgrade(
    group: ConsumerGroup, leaving: Set[str], topic_name_of: TopicNameOf, initial_rebalance_delay_ms: int, now: int
) -> tuple[list[Record], Group]:
    """The records that end the consumer group, and the classic group of all members but these, with what they have."""
    members = []
    for member in group.members.values():
        if member.member_id in leaving:
            continue
        assert member.classic is not None
        members.append(
            ClassicGroupMember(
                member.member_id,
                member.instance_id,
                member.client_id,
                member.client_host,
                member.classic.session_timeout_ms,
                member.rebalance_timeout_ms,
                member.classic.protocols,
                held_bytes(member.assigned, member.classic.protocols, topic_name_of),
            )
        )
    classic = Group(group.group_id, initial_rebalance_delay_ms=initial_rebalance_delay_ms)
    classic.restore(CONSUMER, None, group.epoch, members[0].member_id, members, 0, now)
    classic.protocol = classic.select_protocol()
    return tombstones(group), classic
