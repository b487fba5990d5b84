"""A streams group as its records say it is (KIP-1071), and what follows from that. Pure."""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import field, replace
from enum import Enum
from typing import ClassVar

from kafkalite.coordinators.groups.decisions.assigned_group import AssignedGroup
from kafkalite.coordinators.groups.decisions.members import (
    CurrentAssignment,
    MemberMetadata,
    TargetEpoch,
    TargetMember,
    members_gone,
)
from kafkalite.coordinators.groups.decisions.streams.members import (
    NOTHING,
    StreamsGroupMetadata,
    StreamsMember,
    StreamsRecord,
    StreamsTopologyRecord,
    Task,
    TaskSets,
)
from kafkalite.coordinators.groups.decisions.streams.topology import Configured, Topology
from kafkalite.lazy_dataclass import dataclass


class StreamsGroupState(Enum):
    """Values are Kafka's names on the wire."""

    EMPTY = "Empty"
    NOT_READY = "NotReady"
    ASSIGNING = "Assigning"
    RECONCILING = "Reconciling"
    STABLE = "Stable"
    DEAD = "Dead"


@dataclass(slots=True)
class StreamsGroup(AssignedGroup[StreamsMember, TaskSets]):
    """See the module. The configured topology and offsets of tasks are not stored."""

    HELD: ClassVar = "tasks"
    NOTHING: ClassVar = NOTHING

    validated_epoch: int = -1
    settings: tuple[tuple[str, str], ...] = ()
    topology: Topology | None = None
    #: Task -> the members that have it in any role, or have not given it up yet.
    holders: dict[Task, set[str]] = field(default_factory=dict)
    #: None: not compared with the topics yet.
    configured: Configured | None = None
    #: The member that has asked for the end of the whole application.
    shutdown_by: str | None = None
    #: Until when a new group waits for more members (ms of the monotonic clock); 0: it does not.
    delayed_until: int = 0
    #: Goes up when what members serve has changed (interactive queries).
    endpoint_epoch: int = 0
    #: Member -> the state of its tasks: task -> (offsets that it has, offsets that there are), as it said last.
    task_offsets: dict[str, tuple[Mapping[Task, int], Mapping[Task, int]]] = field(default_factory=dict)

    # --- records ---

    def apply(self, record: StreamsRecord) -> None:
        """Take what a record says. Records of a log that was compacted come without those that they replaced."""
        match record:
            case MemberMetadata(member_id, None):
                self.forget(member_id)
            case MemberMetadata(member_id, member) if member is not None:
                self._set_metadata(member_id, member)
            case StreamsGroupMetadata(epoch, metadata_hash, validated_epoch, settings):
                self.apply_epoch(epoch, metadata_hash)
                self.validated_epoch, self.settings = validated_epoch, settings
            case StreamsTopologyRecord(topology):
                self.topology, self.configured = topology, None
            case TargetMember() | TargetEpoch():
                self.apply_target(record)
            case CurrentAssignment(member_id, current):
                self._set_current(member_id, current)
            case _:
                pass

    def _set_metadata(self, member_id: str, new: StreamsMember) -> None:
        known = self.members.get(member_id)
        if known is not None and known.instance_id != new.instance_id:
            self.free_instance(known)
        self.endpoint_epoch += known is not None and known.endpoint != new.endpoint
        self.members[member_id] = _with_tasks_of(new, known or StreamsMember(member_id))
        if new.instance_id is not None:
            self.static_members[new.instance_id] = member_id

    def _set_current(self, member_id: str, current: StreamsMember | None) -> None:
        known = self.members.get(member_id) or (StreamsMember(member_id) if current is not None else None)
        if known is None:
            return
        before = known.assigned.active, known.assigned.standby | known.assigned.warmup
        self.release(known)
        after = self.members[member_id] = _with_tasks_of(known, current or StreamsMember(member_id))
        for task in after.assigned.all | after.revoking.all:
            self.holders.setdefault(task, set()).add(member_id)
        if known.endpoint and before != (after.assigned.active, after.assigned.standby | after.assigned.warmup):
            self.endpoint_epoch += 1

    def release(self, member: StreamsMember) -> None:
        for task in member.assigned.all | member.revoking.all:
            holders = self.holders.get(task, set())
            holders.discard(member.member_id)
            if not holders:
                self.holders.pop(task, None)

    def forget(self, member_id: str) -> StreamsMember | None:
        member = AssignedGroup.forget(self, member_id)
        self.task_offsets.pop(member_id, None)
        self.endpoint_epoch += member is not None and member.endpoint is not None
        if not self.members:
            self.shutdown_by, self.delayed_until = None, 0
        return member

    # --- what it is ---

    @property
    def state(self) -> StreamsGroupState:
        if self.is_dead:
            return StreamsGroupState.DEAD
        if not self.members:
            return StreamsGroupState.EMPTY
        if self.topology is None or self.validated_epoch != self.topology.epoch:
            return StreamsGroupState.NOT_READY
        if self.epoch > self.target_epoch:
            return StreamsGroupState.ASSIGNING
        if all(member.is_reconciled_to(self.target_epoch) for member in self.members.values()):
            return StreamsGroupState.STABLE
        return StreamsGroupState.RECONCILING

    def is_free(self, task: Task, mine: StreamsMember) -> tuple[bool, bool]:
        """First: no other member than `mine` processes the task, or still has to stop. Second: no other member of the same process has the task."""
        others = [self.members[name] for name in self.holders.get(task, ()) if name != mine.member_id]
        is_processed = any(task in other.assigned.active or task in other.revoking.active for other in others)
        return not is_processed, all(other.process_id != mine.process_id for other in others)

    def source_topics(self) -> set[str]:
        """The topics whose offsets the group needs; none without members."""
        if not self.members or self.topology is None:
            return set()
        return {name for each in self.topology.subtopologies for name in each.inputs}

    def held_since(self, member: StreamsMember, topic: str, partition: int) -> int | None:
        """Since which epoch a member has the task that reads a partition; None: it does not have it."""
        for each in self.topology.subtopologies if self.topology is not None else ():
            if topic in each.inputs:
                return member.since.get((each.subtopology_id, partition))
        return None

    def next_deadline(self) -> int | None:
        deadline = AssignedGroup.next_deadline(self)
        return min(filter(None, (deadline, self.delayed_until)), default=None)


def _with_tasks_of(member: StreamsMember, other: StreamsMember) -> StreamsMember:
    return replace(
        member,
        epoch=other.epoch,
        previous_epoch=other.previous_epoch,
        state=other.state,
        assigned=other.assigned,
        revoking=other.revoking,
        since=other.since,
    )


def tombstones(group: StreamsGroup) -> list[StreamsRecord]:
    """The records after which the group does not exist any more."""
    return [*members_gone(group.members, group.targets), StreamsTopologyRecord(None), StreamsGroupMetadata(None)]
