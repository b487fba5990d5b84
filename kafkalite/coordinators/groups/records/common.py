"""What `__consumer_offsets` holds, in Kafka's own record formats: a two-byte version in front of keys and values."""

from __future__ import annotations

from collections.abc import Mapping

from kafkalite.coordinators.groups.decisions.classic.group import Group
from kafkalite.coordinators.groups.decisions.classic.members import ClassicGroupMember
from kafkalite.coordinators.groups.offsets import CommittedOffset
from kafkalite.coordinators.groups.records import consumer as consumer_records
from kafkalite.coordinators.groups.records import share as share_records
from kafkalite.coordinators.groups.records import streams as streams_records
from kafkalite.coordinators.groups.records.consumer import ConsumerRecord
from kafkalite.coordinators.groups.records.share import ShareGroupRecord
from kafkalite.coordinators.groups.records.streams import StreamsGroupRecord
from kafkalite.coordinators.internal_log import KeyValue
from kafkalite.lazy_dataclass import dataclass
from kafkalite.model import Offset, TopicPartition
from kafkalite.protocol import topic_ids, wire
from kafkalite.protocol.codec import decode, encode
from kafkalite.protocol.errors import WireError

_OFFSET_KEY_VERSION = 1
_OFFSET_VALUE_VERSION = 4
#: How keys of committed offsets begin.
OFFSET_KEYS = frozenset({b"\0\0", b"\0\1"})
_GROUP_KEY_VERSION = 2
_GROUP_VALUE_VERSION = 3


@dataclass(frozen=True, slots=True)
class OffsetRecord:
    """`value` None is a tombstone."""

    group_id: str
    partition: TopicPartition
    value: CommittedOffset | None


@dataclass(frozen=True, slots=True)
class GroupRecord:
    """A group's metadata; `is_tombstone` when it is deleted."""

    group_id: str
    is_tombstone: bool
    protocol_type: str = ""
    generation: int = -1
    protocol: str | None = None
    leader: str | None = None
    since_ms: int = -1
    members: tuple[ClassicGroupMember, ...] = ()


def _versioned(version: int, message: object) -> bytes:
    return version.to_bytes(2) + encode(message, version)


def offset_key(group_id: str, partition: TopicPartition) -> bytes:
    return _versioned(_OFFSET_KEY_VERSION, wire.OffsetCommitKey(group_id, partition.topic, partition.partition))


def offset_keys_begin(group_id: str) -> tuple[bytes, ...]:
    """What the keys of all committed offsets of a group begin with."""
    name = group_id.encode()
    return tuple(version + len(name).to_bytes(2) + name for version in sorted(OFFSET_KEYS))


def offset_value(offset: CommittedOffset) -> bytes:
    version = 1 if offset.expire_ms >= 0 else _OFFSET_VALUE_VERSION
    value = wire.OffsetCommitValue(
        offset.offset,
        offset.leader_epoch,
        offset.metadata,
        offset.commit_ms,
        offset.expire_ms,
        topic_ids.to_wire(offset.topic_id),
    )
    return _versioned(version, value)


def group_key(group_id: str) -> bytes:
    return _versioned(_GROUP_KEY_VERSION, wire.GroupMetadataKey(group_id))


def group_value(group: Group, assignments: Mapping[str, bytes]) -> bytes:
    value = wire.GroupMetadataValue
    members = [
        value.MemberMetadata(
            member.member_id,
            member.instance_id,
            member.client_id,
            member.client_host,
            member.rebalance_timeout_ms,
            member.session_timeout_ms,
            member.metadata(group.protocol),
            assignments.get(member.member_id, b""),
        )
        for member in group.members.values()
    ]
    return _versioned(
        _GROUP_VALUE_VERSION,
        value(group.protocol_type or "", group.generation, group.protocol, group.leader, group.stored_ms, members),
    )


def classic_record(group: Group, assignments: Mapping[str, bytes]) -> KeyValue:
    """Key and value of a classic group."""
    return group_key(group.group_id), group_value(group, assignments)


def parse(
    key: bytes | None, value: bytes | None, record_offset: int
) -> OffsetRecord | GroupRecord | ConsumerRecord | ShareGroupRecord | StreamsGroupRecord | None:
    """One record of the topic; None for a kind that is not ours (a newer Kafka's). Raises WireError."""
    if key is None or len(key) < 2:
        raise WireError("a record without a key in __consumer_offsets")
    version = int.from_bytes(key[:2])
    if version in (0, 1):
        return _parse_offset(decode(wire.OffsetCommitKey, version, key[2:]), value, record_offset)
    if version == _GROUP_KEY_VERSION:
        return _parse_group(decode(wire.GroupMetadataKey, version, key[2:]).group, value)
    if version in consumer_records.KEY_VERSIONS:
        return consumer_records.parse(version, key[2:], value)
    if version in streams_records.KEY_VERSIONS:
        return streams_records.parse(version, key[2:], value)
    if version in share_records.KEY_VERSIONS:
        return share_records.parse(version, key[2:], value)
    return None


def _parse_offset(key: wire.OffsetCommitKey, value: bytes | None, record_offset: int) -> OffsetRecord:
    partition = TopicPartition(key.topic, key.partition)
    if value is None:
        return OffsetRecord(key.group, partition, None)
    stored = decode(wire.OffsetCommitValue, _version(value, 4), value[2:])
    return OffsetRecord(
        key.group,
        partition,
        CommittedOffset(
            Offset(stored.offset),
            stored.leader_epoch,
            stored.metadata,
            stored.commit_timestamp,
            stored.expire_timestamp,
            record_offset,
            topic_ids.from_wire(stored.topic_id),
        ),
    )


def _parse_group(group_id: str, value: bytes | None) -> GroupRecord:
    if value is None:
        return GroupRecord(group_id, is_tombstone=True)
    stored = decode(wire.GroupMetadataValue, _version(value, 4), value[2:])
    members = tuple(
        ClassicGroupMember(
            member.member_id,
            member.group_instance_id,
            member.client_id,
            member.client_host,
            member.session_timeout,
            member.rebalance_timeout if member.rebalance_timeout >= 0 else member.session_timeout,
            ((stored.protocol or "", member.subscription),),
            member.assignment,
        )
        for member in stored.members
    )
    return GroupRecord(
        group_id,
        is_tombstone=False,
        protocol_type=stored.protocol_type,
        generation=stored.generation,
        protocol=stored.protocol,
        leader=stored.leader,
        since_ms=stored.current_state_timestamp,
        members=members,
    )


def _version(value: bytes, highest: int) -> int:
    version = int.from_bytes(value[:2])
    if len(value) < 2 or version > highest:
        raise WireError(f"a value of version {version} in __consumer_offsets")
    return version
