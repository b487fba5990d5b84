"""The records of share groups in `__consumer_offsets`, in Kafka's own formats (KIP-932)."""

from __future__ import annotations

from collections.abc import Generator, Mapping
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
from kafkalite.env.turns import at_once
from kafkalite.lazy_dataclass import dataclass
from kafkalite.model import Buffer
from kafkalite.protocol import wire
from kafkalite.protocol.codec import encoding
from kafkalite.protocol.topic_ids import from_wire, to_wire

#: Of a record that is made in steps.
TOPICS_PER_STEP = 200
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
            value = at_once(_shared(record))
    return pair(_SHARED, wire.ShareGroupStatePartitionMetadataKey(group_id), value)


def _current(member: ShareMember) -> wire.ShareGroupCurrentMemberAssignmentValue:
    cls = wire.ShareGroupCurrentMemberAssignmentValue
    assigned = [cls.TopicPartitions(to_wire(key), sorted(each)) for key, each in sorted(member.assigned.items())]
    return cls(member.epoch, member.previous_epoch, 0, assigned)


def encoding_record(group_id: str, record: ShareRecord) -> Generator[None, None, KeyValue]:
    """As `encode_record`, in steps: a group may share the partitions of 12,000 topics."""
    if not isinstance(record, PartitionsWithState):
        return encode_record(group_id, record)
    value = yield from _shared(record)
    key, _ = pair(_SHARED, wire.ShareGroupStatePartitionMetadataKey(group_id), None)
    chunks: list[Buffer] = []
    chunks.append((yield from encoding(type(value).__name__, value, 0, bytearray(2), chunks)))
    return key, b"".join(chunks)


def _shared(record: PartitionsWithState) -> Generator[None, None, wire.ShareGroupStatePartitionMetadataValue]:
    """A step for each TOPICS_PER_STEP topics."""
    cls = wire.ShareGroupStatePartitionMetadataValue

    def named(topics: SharedTopics) -> Generator[None, None, list[Any]]:
        found = []
        for number, topic_id in enumerate(sorted(topics), 1):
            topic = topics[topic_id]
            found.append(cls.TopicPartitionsInfo(to_wire(topic_id), topic.name, sorted(topic.partitions)))
            if not number % TOPICS_PER_STEP:
                yield
        return found

    initializing = yield from named(record.initializing)
    initialized = yield from named(record.initialized)
    deleting = []
    for number, topic_id in enumerate(sorted(record.deleting), 1):
        deleting.append(cls.TopicInfo(to_wire(topic_id), record.deleting[topic_id]))
        if not number % TOPICS_PER_STEP:
            yield
    return cls(initializing, initialized, deleting)


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
