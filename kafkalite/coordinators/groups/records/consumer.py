"""The records of consumer groups in `__consumer_offsets`, in Kafka's own formats (KIP-848, KIP-1251)."""

from __future__ import annotations

from collections.abc import Mapping
from typing import Any

from kafkalite.coordinators.groups.decisions.members import (
    Assignment,
    ClassicProtocols,
    ClassicTombstone,
    ConsumerMember,
    CurrentAssignment,
    GroupEpoch,
    Held,
    MemberMetadata,
    MemberState,
    OldMetadataTombstone,
    Record,
    RegexTopics,
    ResolvedRegex,
    TargetEpoch,
    TargetMember,
)
from kafkalite.coordinators.groups.records.pairs import pair, parsed
from kafkalite.coordinators.internal_log import KeyValue
from kafkalite.lazy_dataclass import dataclass
from kafkalite.model import TopicId
from kafkalite.protocol import wire
from kafkalite.protocol.topic_ids import from_wire, to_wire

_CLASSIC, _GROUP, _OLD_METADATA, _MEMBER, _TARGET, _TARGET_MEMBER, _CURRENT, _REGEX = 2, 3, 4, 5, 6, 7, 8, 16
#: Version of the key -> the record's wire classes.
_KINDS = {
    3: "ConsumerGroupMetadata",
    4: "ConsumerGroupPartitionMetadata",
    5: "ConsumerGroupMemberMetadata",
    6: "ConsumerGroupTargetAssignmentMetadata",
    7: "ConsumerGroupTargetAssignmentMember",
    8: "ConsumerGroupCurrentMemberAssignment",
    16: "ConsumerGroupRegularExpression",
}
KEY_VERSIONS = frozenset(_KINDS)


@dataclass(frozen=True, slots=True)
class ConsumerRecord:
    """A record and the group that it is about."""

    group_id: str
    record: Record
    is_tombstone: bool = False


def encode_record(group_id: str, record: Record) -> KeyValue:
    """Key and value, each with its version in front."""
    match record:
        case MemberMetadata(member_id, member):
            key, value = wire.ConsumerGroupMemberMetadataKey(group_id, member_id), member and _member(member)
            return pair(_MEMBER, key, value)
        case GroupEpoch(epoch, metadata_hash):
            epoch_value = None if epoch is None else wire.ConsumerGroupMetadataValue(epoch, metadata_hash)
            return pair(_GROUP, wire.ConsumerGroupMetadataKey(group_id), epoch_value)
        case TargetMember(member_id, target):
            return pair(
                _TARGET_MEMBER,
                wire.ConsumerGroupTargetAssignmentMemberKey(group_id, member_id),
                None if target is None else _target(target),
            )
        case TargetEpoch(epoch, at_ms):
            target_value = None if epoch is None else wire.ConsumerGroupTargetAssignmentMetadataValue(epoch, at_ms)
            return pair(_TARGET, wire.ConsumerGroupTargetAssignmentMetadataKey(group_id), target_value)
        case CurrentAssignment(member_id, member):
            return pair(
                _CURRENT,
                wire.ConsumerGroupCurrentMemberAssignmentKey(group_id, member_id),
                None if member is None else _current(member),
            )
        case RegexTopics(regex, resolved):
            value_of = wire.ConsumerGroupRegularExpressionValue
            regex_value = (
                None if resolved is None else value_of(list(resolved.topics), resolved.version, resolved.at_ms)
            )
            return pair(_REGEX, wire.ConsumerGroupRegularExpressionKey(group_id, regex), regex_value)
        case ClassicTombstone():
            return pair(_CLASSIC, wire.GroupMetadataKey(group_id), None)
        case OldMetadataTombstone():
            return pair(_OLD_METADATA, wire.ConsumerGroupPartitionMetadataKey(group_id), None)


def _member(member: ConsumerMember) -> wire.ConsumerGroupMemberMetadataValue:
    value = wire.ConsumerGroupMemberMetadataValue
    classic = None
    if member.classic is not None:
        protocols = [value.ClassicProtocol(name, metadata) for name, metadata in member.classic.protocols]
        classic = value.ClassicMemberMetadata(member.classic.session_timeout_ms, protocols)
    return value(
        member.instance_id,
        member.rack_id,
        member.client_id,
        member.client_host,
        list(member.topics),
        member.regex or None,
        member.rebalance_timeout_ms,
        member.assignor,
        classic,
    )


def _target(target: Assignment) -> wire.ConsumerGroupTargetAssignmentMemberValue:
    value = wire.ConsumerGroupTargetAssignmentMemberValue
    return value(
        [value.TopicPartition(to_wire(topic_id), sorted(numbers)) for topic_id, numbers in sorted(target.items())]
    )


def _current(member: ConsumerMember) -> wire.ConsumerGroupCurrentMemberAssignmentValue:
    value = wire.ConsumerGroupCurrentMemberAssignmentValue
    return value(
        member.epoch,
        member.previous_epoch,
        int(member.state),
        [value.TopicPartitions(*each) for each in _held(member.assigned)],
        [value.PendingRevocation(*each) for each in _held(member.revoking)],
    )


def _held(held: Held) -> list[tuple[bytes, list[int], list[int]]]:
    return [
        (to_wire(topic_id), sorted(partitions), [partitions[number] for number in sorted(partitions)])
        for topic_id, partitions in sorted(held.items())
        if partitions
    ]


def parse(version: int, key: bytes, value: bytes | None) -> ConsumerRecord:
    """A record whose key has one of KEY_VERSIONS. Raises WireError."""
    # Former brokers' metadata of partitions is not used, and its value has no class.
    found, stored = parsed(_KINDS[version], version, key, None if version == _OLD_METADATA else value)
    record: Record
    match version:
        case 3:
            record = GroupEpoch(stored.epoch, stored.metadata_hash) if stored else GroupEpoch(None)
        case 5:
            record = MemberMetadata(found.member_id, _parsed_member(found.member_id, stored) if stored else None)
        case 6:
            record = TargetEpoch(stored.assignment_epoch, stored.assignment_timestamp) if stored else TargetEpoch(None)
        case 7:
            target = {from_wire(each.topic_id): frozenset(each.partitions) for each in stored.topic_partitions} if stored else None  # fmt: skip
            record = TargetMember(found.member_id, target)
        case 8:
            record = CurrentAssignment(found.member_id, _parsed_current(found.member_id, stored) if stored else None)
        case 16:
            resolved = ResolvedRegex(tuple(stored.topics), stored.version, stored.timestamp) if stored else None
            record = RegexTopics(found.regular_expression, resolved)
        case _:
            record = OldMetadataTombstone()
    return ConsumerRecord(found.group_id, record, value is None)


def _parsed_member(member_id: str, stored: wire.ConsumerGroupMemberMetadataValue) -> ConsumerMember:
    classic = stored.classic_member_metadata
    return ConsumerMember(
        member_id,
        instance_id=stored.instance_id,
        rack_id=stored.rack_id,
        client_id=stored.client_id,
        client_host=stored.client_host,
        topics=tuple(stored.subscribed_topic_names),
        regex=stored.subscribed_topic_regex or "",
        rebalance_timeout_ms=stored.rebalance_timeout_ms,
        assignor=stored.server_assignor,
        classic=None
        if classic is None
        else ClassicProtocols(
            classic.session_timeout_ms, tuple((each.name, each.metadata) for each in classic.supported_protocols)
        ),
    )


def _parsed_current(member_id: str, stored: wire.ConsumerGroupCurrentMemberAssignmentValue) -> ConsumerMember:
    states = {int(state): state for state in MemberState}
    return ConsumerMember(
        member_id,
        epoch=stored.member_epoch,
        previous_epoch=stored.previous_member_epoch,
        state=states.get(stored.state, MemberState.UNKNOWN),
        assigned=_parsed_held(stored.assigned_partitions, stored.member_epoch),
        revoking=_parsed_held(stored.partitions_pending_revocation, stored.member_epoch),
    )


def _parsed_held(stored: Any, epoch: int) -> Mapping[TopicId, Mapping[int, int]]:
    """Before Kafka 4.3 records have no epochs of partitions: the member's is the one that is safe."""
    return {
        from_wire(each.topic_id): dict(
            zip(each.partitions, each.assignment_epochs or [epoch] * len(each.partitions), strict=False)
        )
        for each in stored
    }
