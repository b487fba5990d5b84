"""The records of share groups in `__consumer_offsets`, in Kafka's own formats (KIP-932)."""

from __future__ import annotations

from collections.abc import Mapping
from typing import Any

from kafkalite.coordinators.groups.decisions.members import (
    CurrentAssignment,
    GroupEpoch,
    MemberMetadata,
    TargetEpoch,
    TargetMember,
)
from kafkalite.coordinators.groups.decisions.share.group import (
    NoSharedPartitions,
    PartitionsWithState,
    SharedTopic,
    SharedTopics,
    ShareMember,
    ShareRecord,
)
from kafkalite.coordinators.groups.records.pairs import pair, parsed
from kafkalite.coordinators.internal_log import KeyValue
from kafkalite.lazy_dataclass import dataclass
from kafkalite.protocol import wire
from kafkalite.protocol.topic_ids import from_wire, to_wire

_MEMBER, _GROUP, _TARGET, _TARGET_MEMBER, _CURRENT, _SHARED = 10, 11, 12, 13, 14, 15
#: Version of the key -> the record's wire classes.
_KINDS = {
    10: "ShareGroupMemberMetadata",
    11: "ShareGroupMetadata",
    12: "ShareGroupTargetAssignmentMetadata",
    13: "ShareGroupTargetAssignmentMember",
    14: "ShareGroupCurrentMemberAssignment",
    15: "ShareGroupStatePartitionMetadata",
}
KEY_VERSIONS = frozenset(_KINDS)


@dataclass(frozen=True, slots=True)
class ShareGroupRecord:
    """A record and the group that it is about."""

    group_id: str
    record: ShareRecord
    is_tombstone: bool = False


def encode_record(group_id: str, record: ShareRecord) -> KeyValue:
    """Key and value, each with its version in front."""
    value: Any = None
    match record:
        case MemberMetadata(member_id, member):
            if member is not None:
                value = wire.ShareGroupMemberMetadataValue(
                    member.rack_id, member.client_id, member.client_host, list(member.topics)
                )
            return pair(_MEMBER, wire.ShareGroupMemberMetadataKey(group_id, member_id), value)
        case GroupEpoch(epoch, metadata_hash):
            value = None if epoch is None else wire.ShareGroupMetadataValue(epoch, metadata_hash)
            return pair(_GROUP, wire.ShareGroupMetadataKey(group_id), value)
        case TargetEpoch(epoch, at_ms):
            value = None if epoch is None else wire.ShareGroupTargetAssignmentMetadataValue(epoch, at_ms)
            return pair(_TARGET, wire.ShareGroupTargetAssignmentMetadataKey(group_id), value)
        case TargetMember(member_id, target):
            cls = wire.ShareGroupTargetAssignmentMemberValue
            if target is not None:
                value = cls([cls.TopicPartition(to_wire(key), sorted(each)) for key, each in sorted(target.items())])
            return pair(_TARGET_MEMBER, wire.ShareGroupTargetAssignmentMemberKey(group_id, member_id), value)
        case CurrentAssignment(member_id, member):
            value = None if member is None else _current(member)
            return pair(_CURRENT, wire.ShareGroupCurrentMemberAssignmentKey(group_id, member_id), value)
        case PartitionsWithState():
            value = _shared(record)
    return pair(_SHARED, wire.ShareGroupStatePartitionMetadataKey(group_id), value)


def _current(member: ShareMember) -> wire.ShareGroupCurrentMemberAssignmentValue:
    cls = wire.ShareGroupCurrentMemberAssignmentValue
    assigned = [cls.TopicPartitions(to_wire(key), sorted(each)) for key, each in sorted(member.assigned.items())]
    return cls(member.epoch, member.previous_epoch, 0, assigned)


def _shared(record: PartitionsWithState) -> wire.ShareGroupStatePartitionMetadataValue:
    cls = wire.ShareGroupStatePartitionMetadataValue

    def named(topics: SharedTopics) -> list[Any]:
        return [
            cls.TopicPartitionsInfo(to_wire(topic_id), topic.name, sorted(topic.partitions))
            for topic_id, topic in sorted(topics.items())
        ]

    deleting = [cls.TopicInfo(to_wire(topic_id), name) for topic_id, name in sorted(record.deleting.items())]
    return cls(named(record.initializing), named(record.initialized), deleting)


def parse(version: int, key: bytes, value: bytes | None) -> ShareGroupRecord:
    """A record whose key has one of KEY_VERSIONS. Raises WireError."""
    found, stored = parsed(_KINDS[version], version, key, value)
    record: ShareRecord
    match version:
        case 10:
            record = MemberMetadata(found.member_id, _parsed_member(found.member_id, stored) if stored else None)
        case 11:
            record = GroupEpoch(stored.epoch, stored.metadata_hash) if stored else GroupEpoch(None)
        case 12:
            record = TargetEpoch(stored.assignment_epoch, stored.assignment_timestamp) if stored else TargetEpoch(None)
        case 13:
            record = TargetMember(found.member_id, _assignment(stored.topic_partitions) if stored else None)
        case 14:
            current = None
            if stored:
                current = ShareMember(
                    found.member_id,
                    epoch=stored.member_epoch,
                    previous_epoch=stored.previous_member_epoch,
                    assigned=_assignment(stored.assigned_partitions),
                )
            record = CurrentAssignment(found.member_id, current)
        case _:
            record = _parsed_shared(stored) if stored else NoSharedPartitions()
    return ShareGroupRecord(found.group_id, record, value is None)


def _parsed_member(member_id: str, stored: wire.ShareGroupMemberMetadataValue) -> ShareMember:
    return ShareMember(
        member_id,
        rack_id=stored.rack_id,
        client_id=stored.client_id,
        client_host=stored.client_host,
        topics=tuple(stored.subscribed_topic_names),
    )


def _assignment(stored: Any) -> Mapping[Any, frozenset[int]]:
    return {from_wire(each.topic_id): frozenset(each.partitions) for each in stored}


def _parsed_shared(stored: wire.ShareGroupStatePartitionMetadataValue) -> PartitionsWithState:
    def topics(found: Any) -> SharedTopics:
        return {from_wire(each.topic_id): SharedTopic(each.topic_name, frozenset(each.partitions)) for each in found}

    return PartitionsWithState(
        topics(stored.initializing_topics),
        topics(stored.initialized_topics),
        {from_wire(each.topic_id): each.topic_name for each in stored.deleting_topics},
    )
