"""A streams group as its records say it is (KIP-1071), and what follows from that. Pure."""

from __future__ import annotations

from collections.abc import Iterator, Mapping, Sequence
from dataclasses import field, replace
from enum import Enum

from kafkalite.coordinators.groups.decisions.consumer.group import MemberTimes
from kafkalite.coordinators.groups.decisions.streams.members import (
    NOTHING,
    StreamsCurrentAssignment,
    StreamsGroupMetadata,
    StreamsMember,
    StreamsMemberMetadata,
    StreamsMemberState,
    StreamsRecord,
    StreamsTargetEpoch,
    StreamsTargetMember,
    StreamsTopologyRecord,
    Task,
    TaskSets,
)
from kafkalite.coordinators.groups.decisions.streams.topology import Configured, Topology
from kafkalite.errors import ErrorCode, api_error
from kafkalite.lazy_dataclass import dataclass

#: The first epoch of members: they have it while the first assignment is delayed. The first one of the group is the next.
FIRST_MEMBER_EPOCH = 1


class StreamsGroupState(Enum):
    """Values are Kafka's names on the wire."""

    EMPTY = "Empty"
    NOT_READY = "NotReady"
    ASSIGNING = "Assigning"
    RECONCILING = "Reconciling"
    STABLE = "Stable"
    DEAD = "Dead"


@dataclass(slots=True)
class StreamsGroup:
    """See the module. Times, the configured topology and offsets of tasks are not stored."""

    group_id: str
    members: dict[str, StreamsMember] = field(default_factory=dict)
    #: Instance id -> member id.
    static_members: dict[str, str] = field(default_factory=dict)
    epoch: int = 0
    metadata_hash: int = 0
    validated_epoch: int = -1
    settings: tuple[tuple[str, str], ...] = ()
    topology: Topology | None = None
    target_epoch: int = 0
    target_at_ms: int = 0
    targets: dict[str, TaskSets] = field(default_factory=dict)
    #: Task -> the members that have it in any role, or have not given it up yet.
    holders: dict[Task, set[str]] = field(default_factory=dict)
    times: dict[str, MemberTimes] = field(default_factory=dict)
    #: None: not compared with the topics yet.
    configured: Configured | None = None
    #: Who has asked that the whole application ends.
    shutdown_by: str | None = None
    #: Until when a new group waits for more members (ms of the monotonic clock); 0: it does not.
    delayed_until: int = 0
    #: Goes up when what members serve has changed (interactive queries).
    endpoint_epoch: int = 0
    #: Member -> the state of its tasks: task -> (offsets that it has, offsets that there are), as it said last.
    task_offsets: dict[str, tuple[Mapping[Task, int], Mapping[Task, int]]] = field(default_factory=dict)
    is_dead: bool = False

    # --- records ---

    def apply(self, record: StreamsRecord) -> None:
        """Take what a record says. Records of a log that was compacted come without those that they replaced."""
        match record:
            case StreamsMemberMetadata(member_id, None):
                self._remove(member_id)
            case StreamsMemberMetadata(member_id, member) if member is not None:
                self._set_metadata(member_id, member)
            case StreamsGroupMetadata(epoch, metadata_hash, validated_epoch, settings):
                self.epoch, self.metadata_hash = epoch or 0, metadata_hash
                self.validated_epoch, self.settings = validated_epoch, settings
            case StreamsTopologyRecord(topology):
                self.topology, self.configured = topology, None
            case StreamsTargetMember(member_id, None):
                self.targets.pop(member_id, None)
            case StreamsTargetMember(member_id, target) if target is not None:
                self.targets[member_id] = target
            case StreamsTargetEpoch(epoch, at_ms):
                self.target_epoch, self.target_at_ms = epoch or 0, at_ms
            case StreamsCurrentAssignment(member_id, current):
                self._set_current(member_id, current)
            case _:
                pass

    def _set_metadata(self, member_id: str, new: StreamsMember) -> None:
        known = self.members.get(member_id)
        if known is not None and known.instance_id != new.instance_id:
            self._free_instance(known)
        self.members[member_id] = _with_tasks_of(new, known or StreamsMember(member_id))
        if new.instance_id is not None:
            self.static_members[new.instance_id] = member_id

    def _set_current(self, member_id: str, current: StreamsMember | None) -> None:
        known = self.members.get(member_id) or (StreamsMember(member_id) if current is not None else None)
        if known is None:
            return
        before = known.assigned.active, known.assigned.standby | known.assigned.warmup
        self._release(known)
        after = self.members[member_id] = _with_tasks_of(known, current or StreamsMember(member_id))
        for task in after.assigned.all | after.revoking.all:
            self.holders.setdefault(task, set()).add(member_id)
        if known.endpoint and before != (after.assigned.active, after.assigned.standby | after.assigned.warmup):
            self.endpoint_epoch += 1

    def _release(self, member: StreamsMember) -> None:
        for task in member.assigned.all | member.revoking.all:
            holders = self.holders.get(task, set())
            holders.discard(member.member_id)
            if not holders:
                self.holders.pop(task, None)

    def _free_instance(self, member: StreamsMember) -> None:
        if member.instance_id is not None and self.static_members.get(member.instance_id) == member.member_id:
            del self.static_members[member.instance_id]

    def _remove(self, member_id: str) -> None:
        member = self.members.pop(member_id, None)
        self.times.pop(member_id, None)
        self.targets.pop(member_id, None)
        self.task_offsets.pop(member_id, None)
        if member is not None:
            self._release(member)
            self._free_instance(member)
            self.endpoint_epoch += member.endpoint is not None
        if not self.members:
            self.shutdown_by, self.delayed_until = None, 0

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
        if all(member.is_reconciled_to(self.reached_epoch) for member in self.members.values()):
            return StreamsGroupState.STABLE
        return StreamsGroupState.RECONCILING

    @property
    def reached_epoch(self) -> int:
        """The epoch that members may reach now."""
        return max(FIRST_MEMBER_EPOCH, self.target_epoch)

    @property
    def needs_assignment(self) -> bool:
        return bool(self.members) and self.epoch > self.target_epoch

    @property
    def next_epoch(self) -> int:
        return max(self.epoch, FIRST_MEMBER_EPOCH) + 1

    def member(self, member_id: str) -> StreamsMember:
        """Raises ApiError UNKNOWN_MEMBER_ID."""
        found = self.members.get(member_id)
        if found is None:
            raise api_error(ErrorCode.UNKNOWN_MEMBER_ID, f"{member_id!r} is not a member of group {self.group_id!r}")
        return found

    def static_member(self, instance_id: str | None) -> StreamsMember | None:
        member_id = self.static_members.get(instance_id) if instance_id is not None else None
        return None if member_id is None else self.members.get(member_id)

    def target_of(self, member_id: str) -> TaskSets:
        return self.targets.get(member_id, NOTHING)

    def is_free(self, task: Task, mine: StreamsMember) -> tuple[bool, bool]:
        """Whether no member but `mine` processes the task, or has to stop that; whether none of its process has it at all."""
        others = [self.members[name] for name in self.holders.get(task, ()) if name != mine.member_id]
        is_processed = any(task in other.assigned.active or task in other.revoking.active for other in others)
        return not is_processed, all(other.process_id != mine.process_id for other in others)

    def source_topics(self) -> set[str]:
        """The topics whose offsets the group needs; none without members."""
        if not self.members or self.topology is None:
            return set()
        return {name for each in self.topology.subtopologies for name in each.inputs}

    # --- offsets ---

    def check_commit(
        self,
        member_id: str,
        epoch: int,
        partitions: Sequence[tuple[str, int]],
        *,
        is_transactional: bool,
        knows_epochs: bool,
    ) -> None:
        """Whether a member may commit offsets of these (topic, partition). Raises ApiError.

        An older epoch will do for tasks that the member has had since then (KIP-1251).
        """
        if epoch < 0 and not self.members:
            return  # an administrator
        if is_transactional and epoch < 0 and not member_id:
            return  # a producer that does not say who it is
        member = self.member(member_id)
        if not knows_epochs and not is_transactional:
            text = "members of a streams group commit with version 9 of OffsetCommit or later"
            raise api_error(ErrorCode.UNSUPPORTED_VERSION, text)
        if epoch == member.epoch:
            return
        if epoch < member.epoch and all(self._has_since(member, *each, epoch) for each in partitions):
            return
        code = ErrorCode.ILLEGAL_GENERATION if is_transactional else ErrorCode.STALE_MEMBER_EPOCH
        raise api_error(
            code, f"The received member epoch {epoch} does not match the expected member epoch {member.epoch}."
        )

    def _has_since(self, member: StreamsMember, topic: str, partition: int, epoch: int) -> bool:
        for each in self.topology.subtopologies if self.topology is not None else ():
            if topic in each.inputs:
                since = member.since.get((each.subtopology_id, partition))
                return since is not None and since <= epoch
        return False

    def check_fetch(self, member_id: str | None, epoch: int) -> None:
        """Whether a member may read the group's offsets. Raises ApiError UNKNOWN_MEMBER_ID, STALE_MEMBER_EPOCH."""
        if member_id is None and epoch < 0:
            return
        member = self.member(member_id or "")
        if epoch != member.epoch:
            text = f"The received member epoch {epoch} does not match the expected member epoch {member.epoch}."
            raise api_error(ErrorCode.STALE_MEMBER_EPOCH, text)

    # --- time ---

    def expect(self, member_id: str) -> MemberTimes:
        """The times of a member, to be set."""
        return self.times.setdefault(member_id, MemberTimes())

    def next_deadline(self) -> int | None:
        """When the group must be asked for `overdue` at the latest; None: never."""
        times = [each.next() for each in self.times.values() if each.is_any]
        return min([*times, *([self.delayed_until] if self.delayed_until else [])], default=None)

    def overdue(self, now: int) -> Iterator[tuple[StreamsMember, str]]:
        """Members whose time is up, and why. What does not hold any more is forgotten."""
        for member_id, times in list(self.times.items()):
            member = self.members.get(member_id)
            if member is None:
                del self.times[member_id]
                continue
            if times.revocation and times.revocation <= now and times.epoch != member.epoch:
                times.revocation = 0
            if times.session and times.session <= now:
                yield member, "its session expired"
            elif times.revocation and times.revocation <= now:
                yield member, "it has not given up its tasks in time"


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


def is_unrevoked(member: StreamsMember) -> bool:
    return member.state is StreamsMemberState.UNREVOKED_TASKS


def tombstones(group: StreamsGroup) -> list[StreamsRecord]:
    """The records after which the group does not exist any more."""
    records: list[StreamsRecord] = [StreamsCurrentAssignment(member_id, None) for member_id in group.members]
    records += [StreamsTargetMember(member_id, None) for member_id in {**group.targets, **group.members}]
    records.append(StreamsTargetEpoch(None))
    records += [StreamsMemberMetadata(member_id, None) for member_id in group.members]
    return [*records, StreamsTopologyRecord(None), StreamsGroupMetadata(None)]
