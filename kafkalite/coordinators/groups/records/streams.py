"""The records of streams groups in `__consumer_offsets`, in Kafka's own formats (KIP-1071)."""

from __future__ import annotations

from collections.abc import Iterable, Sequence
from typing import Any

from kafkalite.coordinators.groups.decisions.members import CurrentAssignment, MemberMetadata, TargetEpoch, TargetMember
from kafkalite.coordinators.groups.decisions.streams.members import (
    StreamsGroupMetadata,
    StreamsMember,
    StreamsMemberState,
    StreamsRecord,
    StreamsTopologyRecord,
    Task,
    TaskSets,
    by_subtopology,
)
from kafkalite.coordinators.groups.decisions.streams.topology import (
    CopartitionGroup,
    InternalTopic,
    Subtopology,
    Topology,
)
from kafkalite.coordinators.groups.records.pairs import pair, parsed
from kafkalite.coordinators.internal_log import KeyValue
from kafkalite.lazy_dataclass import dataclass
from kafkalite.protocol import wire

_GROUP, _MEMBER, _TARGET, _TARGET_MEMBER, _CURRENT, _TOPOLOGY = 17, 19, 20, 21, 22, 23
#: Version of the key -> the record's wire classes.
_KINDS = {
    17: "StreamsGroupMetadata",
    19: "StreamsGroupMemberMetadata",
    20: "StreamsGroupTargetAssignmentMetadata",
    21: "StreamsGroupTargetAssignmentMember",
    22: "StreamsGroupCurrentMemberAssignment",
    23: "StreamsGroupTopology",
}
KEY_VERSIONS = frozenset(_KINDS)


@dataclass(frozen=True, slots=True)
class StreamsGroupRecord:
    """A record and the group that it is about."""

    group_id: str
    record: StreamsRecord
    is_tombstone: bool = False


def encode_record(group_id: str, record: StreamsRecord) -> KeyValue:
    """Key and value, each with its version in front."""
    match record:
        case MemberMetadata(member_id, member):
            return pair(_MEMBER, wire.StreamsGroupMemberMetadataKey(group_id, member_id), member and _member(member))
        case StreamsGroupMetadata():
            return pair(_GROUP, wire.StreamsGroupMetadataKey(group_id), _group(record))
        case StreamsTopologyRecord(topology):
            return pair(_TOPOLOGY, wire.StreamsGroupTopologyKey(group_id), topology and _topology(topology))
        case TargetMember(member_id, target):
            key = wire.StreamsGroupTargetAssignmentMemberKey(group_id, member_id)
            return pair(_TARGET_MEMBER, key, None if target is None else _target(target))
        case TargetEpoch(epoch, at_ms):
            value = None if epoch is None else wire.StreamsGroupTargetAssignmentMetadataValue(epoch, at_ms)
            return pair(_TARGET, wire.StreamsGroupTargetAssignmentMetadataKey(group_id), value)
        case CurrentAssignment(member_id, member):
            current = wire.StreamsGroupCurrentMemberAssignmentKey(group_id, member_id)
            return pair(_CURRENT, current, None if member is None else _current(member))


def _group(record: StreamsGroupMetadata) -> wire.StreamsGroupMetadataValue | None:
    if record.epoch is None:
        return None
    value = wire.StreamsGroupMetadataValue
    settings = [value.LastAssignmentConfig(*each) for each in record.settings]
    return value(record.epoch, record.metadata_hash, record.validated_epoch, settings)


def _member(member: StreamsMember) -> wire.StreamsGroupMemberMetadataValue:
    value = wire.StreamsGroupMemberMetadataValue
    return value(
        member.instance_id,
        member.rack_id,
        member.client_id,
        member.client_host,
        member.rebalance_timeout_ms,
        member.topology_epoch,
        member.process_id,
        None if member.endpoint is None else value.Endpoint(*member.endpoint),
        [value.KeyValue(*each) for each in member.tags],
    )


def _target(target: TaskSets) -> wire.StreamsGroupTargetAssignmentMemberValue:
    value = wire.StreamsGroupTargetAssignmentMemberValue
    return value(*([value.TaskIds(*each) for each in by_subtopology(tasks).items()] for tasks in target))


def _current(member: StreamsMember) -> wire.StreamsGroupCurrentMemberAssignmentValue:
    value = wire.StreamsGroupCurrentMemberAssignmentValue

    def active(tasks: frozenset[Task]) -> list[wire.StreamsGroupCurrentMemberAssignmentValue.TaskIds]:
        return [
            value.TaskIds(name, numbers, [member.since.get((name, number), member.epoch) for number in numbers])
            for name, numbers in by_subtopology(tasks).items()
        ]

    def others(tasks: frozenset[Task]) -> list[wire.StreamsGroupCurrentMemberAssignmentValue.TaskIds]:
        return [value.TaskIds(*each) for each in by_subtopology(tasks).items()]

    return value(
        member.epoch,
        member.previous_epoch,
        int(member.state),
        active(member.assigned.active),
        others(member.assigned.standby),
        others(member.assigned.warmup),
        active(member.revoking.active),
        others(member.revoking.standby),
        others(member.revoking.warmup),
    )


def _topology(topology: Topology) -> wire.StreamsGroupTopologyValue:
    value = wire.StreamsGroupTopologyValue

    def infos(topics: Sequence[InternalTopic]) -> list[wire.StreamsGroupTopologyValue.TopicInfo]:
        return [
            value.TopicInfo(
                topic.name,
                topic.partitions,
                topic.replication_factor,
                [value.TopicConfig(*each) for each in topic.configs],
            )
            for topic in topics
        ]

    return value(
        topology.epoch,
        [
            value.Subtopology(
                each.subtopology_id,
                list(each.source_topics),
                list(each.source_regexes),
                infos(each.changelogs),
                list(each.repartition_sinks),
                infos(each.repartition_sources),
                [
                    value.CopartitionGroup(
                        list(group.source_topics), list(group.source_regexes), list(group.repartition_source_topics)
                    )
                    for group in each.copartition_groups
                ],
            )
            for each in topology.subtopologies
        ],
    )


def parse(version: int, key: bytes, value: bytes | None) -> StreamsGroupRecord:
    """A record whose key has one of KEY_VERSIONS. Raises WireError."""
    found, stored = parsed(_KINDS[version], version, key, value)
    record: StreamsRecord
    match version:
        case 17:
            record = _parsed_group(stored) if stored else StreamsGroupMetadata(None)
        case 19:
            record = MemberMetadata(found.member_id, _parsed_member(found.member_id, stored) if stored else None)
        case 20:
            epoch = stored and (stored.assignment_epoch, stored.assignment_timestamp)
            record = TargetEpoch(*epoch) if epoch else TargetEpoch(None)
        case 21:
            target = TaskSets(*map(_tasks, (stored.active_tasks, stored.standby_tasks, stored.warmup_tasks))) if stored else None  # fmt: skip
            record = TargetMember(found.member_id, target)
        case 22:
            record = CurrentAssignment(found.member_id, _parsed_current(found.member_id, stored) if stored else None)
        case _:
            record = StreamsTopologyRecord(topology_of(stored) if stored else None)
    return StreamsGroupRecord(found.group_id, record, value is None)


def _parsed_group(stored: wire.StreamsGroupMetadataValue) -> StreamsGroupMetadata:
    settings = tuple((each.key, each.value) for each in stored.last_assignment_configs or ())
    return StreamsGroupMetadata(stored.epoch, stored.metadata_hash, stored.validated_topology_epoch, settings)


def _parsed_member(member_id: str, stored: wire.StreamsGroupMemberMetadataValue) -> StreamsMember:
    endpoint = stored.user_endpoint
    return StreamsMember(
        member_id,
        instance_id=stored.instance_id,
        rack_id=stored.rack_id,
        client_id=stored.client_id,
        client_host=stored.client_host,
        rebalance_timeout_ms=stored.rebalance_timeout_ms,
        topology_epoch=stored.topology_epoch,
        process_id=stored.process_id,
        endpoint=None if endpoint is None else (endpoint.host, endpoint.port),
        tags=tuple((each.key, each.value) for each in stored.client_tags),
    )


def _parsed_current(member_id: str, stored: wire.StreamsGroupCurrentMemberAssignmentValue) -> StreamsMember:
    states = {int(state): state for state in StreamsMemberState}
    assigned = TaskSets(*map(_tasks, (stored.active_tasks, stored.standby_tasks, stored.warmup_tasks)))
    revoking = TaskSets(
        *map(
            _tasks,
            (
                stored.active_tasks_pending_revocation,
                stored.standby_tasks_pending_revocation,
                stored.warmup_tasks_pending_revocation,
            ),
        )
    )
    since: dict[Task, int] = {}
    for each in (*stored.active_tasks, *stored.active_tasks_pending_revocation):
        # Without epochs of tasks the member's is the one that is safe.
        epochs = each.assignment_epochs or [stored.member_epoch] * len(each.partitions)
        since.update(zip(((each.subtopology_id, number) for number in each.partitions), epochs, strict=False))
    return StreamsMember(
        member_id,
        epoch=stored.member_epoch,
        previous_epoch=stored.previous_member_epoch,
        state=states.get(stored.state, StreamsMemberState.UNKNOWN),
        assigned=assigned,
        revoking=revoking,
        since=since,
    )


def _tasks(stored: Iterable[Any]) -> frozenset[Task]:
    return frozenset((each.subtopology_id, number) for each in stored for number in each.partitions)


def topology_of(message: Any) -> Topology:
    """A topology as a record or a heartbeat has it."""

    def topics(infos: Iterable[Any]) -> tuple[InternalTopic, ...]:
        return tuple(
            InternalTopic(
                each.name,
                each.partitions,
                each.replication_factor,
                tuple(sorted((config.key, config.value) for config in each.topic_configs)),
            )
            for each in infos
        )

    subtopologies = (
        Subtopology(
            each.subtopology_id,
            tuple(each.source_topics),
            tuple(each.source_topic_regex),
            topics(each.state_changelog_topics),
            tuple(each.repartition_sink_topics),
            topics(each.repartition_source_topics),
            tuple(
                CopartitionGroup(
                    tuple(group.source_topics), tuple(group.source_topic_regex), tuple(group.repartition_source_topics)
                )
                for group in each.copartition_groups
            ),
        )
        for each in message.subtopologies
    )
    return Topology(message.epoch, tuple(sorted(subtopologies, key=lambda each: each.subtopology_id)))
