"""What a heartbeat of the streams protocol does to its group (KIP-1071): join, stay, leave. Pure.

The answer to a member that joins waits for the target assignment that takes it into account, unless the first assignment of the
group is delayed so that more members can join. All other heartbeats are answered at once.
"""

from __future__ import annotations

from collections.abc import Callable, Mapping, Sequence
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
from kafkalite.coordinators.groups.decisions.members import (
    JOIN_EPOCH,
    LEAVE_FOR_A_WHILE_EPOCH,
    EpochHeartbeat,
    MemberMetadata,
    removal,
)
from kafkalite.coordinators.groups.decisions.streams.group import StreamsGroup
from kafkalite.coordinators.groups.decisions.streams.members import (
    NOTHING,
    StreamsGroupMetadata,
    StreamsMember,
    StreamsRecord,
    StreamsTopologyRecord,
    Task,
    TaskSets,
)
from kafkalite.coordinators.groups.decisions.streams.reconciling import reconcile
from kafkalite.coordinators.groups.decisions.streams.topology import Configured, Status, Topology, check, configure
from kafkalite.errors import ErrorCode, api_error
from kafkalite.lazy_dataclass import dataclass

#: A hash of the topics that a topology needs, and how many partitions each of those that exist has.
TopicsOf = Callable[[Topology], tuple[int, Mapping[str, int]]]


@dataclass(frozen=True, slots=True)
class StreamsSettings:
    """Of one group: its own, else the broker's (ms). `assignment`: those that the target depends on, as they are stored."""

    session_timeout_ms: int
    heartbeat_interval_ms: int
    max_size: int
    standby_replicas: int
    initial_delay_ms: int
    task_offset_interval_ms: int
    acceptable_lag: int

    @property
    def assignment(self) -> tuple[tuple[str, str], ...]:
        return (("num.standby.replicas", str(self.standby_replicas)),)


@dataclass(frozen=True, slots=True)
class StreamsHeartbeat(EpochHeartbeat):
    """What a StreamsGroupHeartbeat says. None (`rebalance_timeout_ms` -1): as before."""

    topology: Topology | None = None
    owned: TaskSets | None = None
    process_id: str | None = None
    endpoint: tuple[str, int] | None = None
    tags: tuple[tuple[str, str], ...] | None = None
    offsets: Mapping[Task, int] | None = None
    end_offsets: Mapping[Task, int] | None = None
    is_shutdown: bool = False


@dataclass(slots=True)
class StreamsOutcome(Outcome[StreamsMember, StreamsRecord]):
    """`configured`: the group's from now on."""

    configured: Configured | None = None


def check_request(request: StreamsHeartbeat) -> None:
    """Raises ApiError INVALID_REQUEST, STREAMS_INVALID_TOPOLOGY."""
    texts = (("MemberId", request.member_id), ("InstanceId", request.instance_id), ("RackId", request.rack_id))
    for name, value in texts:
        if value is not None and not value:
            raise _invalid(f"{name} can't be empty.")
    if request.epoch < LEAVE_FOR_A_WHILE_EPOCH:
        raise _invalid(f"MemberEpoch is {request.epoch}, but must be greater than or equal to -2.")
    if request.epoch == LEAVE_FOR_A_WHILE_EPOCH and request.instance_id is None:
        raise _invalid("InstanceId can't be null.")
    if request.epoch != JOIN_EPOCH:
        if request.topology is not None:
            raise _invalid("Topology can only be provided when (re-)joining.")
        return
    if request.rebalance_timeout_ms == -1:
        raise _invalid("RebalanceTimeoutMs must be provided in first request.")
    if request.topology is None:
        raise _invalid("Topology must be non-null when (re-)joining.")
    if request.owned is None or request.owned:
        raise _invalid("ActiveTasks, StandbyTasks and WarmupTasks must be empty when (re-)joining.")
    check(request.topology)


def _invalid(text: str) -> Exception:
    return api_error(ErrorCode.INVALID_REQUEST, text)


def heartbeat(
    group: StreamsGroup,
    request: StreamsHeartbeat,
    settings: StreamsSettings,
    topics_of: TopicsOf,
    now: int,
) -> StreamsOutcome:
    """A member joins, or says that it is there. Raises ApiError."""
    check_room(group, request.member_id, request.instance_id, settings.max_size)
    found = find(group, request)
    known, is_new = found.member, found.is_new
    records: list[StreamsRecord] = [*found.records]
    topology, is_changed = _topology(group, request)
    configured, metadata_hash = group.configured, group.metadata_hash
    if is_changed or configured is None:
        metadata_hash, existing = topics_of(topology)
        configured = configure(topology, existing)
    _check_tasks(configured, request.owned or NOTHING)
    updated = _updated(known, request)
    if is_new or updated != known:
        records.append(MemberMetadata(updated.member_id, updated))
    if is_changed:
        records.append(StreamsTopologyRecord(topology))
    validated = topology.epoch if configured.is_ready else -1
    bumps = (
        is_new
        or is_changed
        or _matters(updated) != _matters(known)
        or validated != group.validated_epoch
        or settings.assignment != group.settings
    )
    if bumps:
        records.append(StreamsGroupMetadata(group.epoch + 1, metadata_hash, validated, settings.assignment))
        if not group.members and settings.initial_delay_ms and not group.delayed_until:
            group.delayed_until = now + settings.initial_delay_ms
    outcome = StreamsOutcome(updated, records, shows_assignment=request.epoch == JOIN_EPOCH, configured=configured)
    _remember(group, request, configured, now + settings.session_timeout_ms)
    is_joining = is_new or request.epoch == JOIN_EPOCH
    if (bumps or group.needs_assignment) and is_joining and not group.delayed_until:
        outcome.waits = outcome.shows_assignment = True
        return outcome
    outcome = _reconciled(group, outcome, group.target_for(updated), request.owned, now, is_joining=is_joining)
    # An answer may have been lost: then the member has other tasks than it should, or an older epoch.
    is_behind = request.epoch != outcome.member.epoch
    outcome.shows_assignment |= is_behind or request.owned not in (None, outcome.member.assigned)
    return outcome


def _topology(group: StreamsGroup, request: StreamsHeartbeat) -> tuple[Topology, bool]:
    """The group's topology from now on, and whether it is a new one. Raises ApiError INVALID_REQUEST."""
    mine, theirs = group.topology, request.topology
    if theirs is None:
        if mine is None:
            raise _invalid("The group has no topology: the member has to join again.")
        return mine, False
    if mine is None or (not group.members and theirs != mine and theirs.epoch >= mine.epoch):
        return theirs, True
    if theirs.epoch >= mine.epoch and theirs != mine:
        raise _invalid("Topology updates are not supported yet.")
    return mine, False


def _check_tasks(configured: Configured, owned: TaskSets) -> None:
    """Raises ApiError INVALID_REQUEST."""
    if not configured.is_ready:
        return
    counts = {each.subtopology_id: each.tasks for each in configured.subtopologies}
    for subtopology, partition in owned.all:
        if subtopology not in counts:
            raise _invalid(f"Subtopology {subtopology} does not exist in the topology.")
        if not 0 <= partition < counts[subtopology]:
            text = f"Task {partition} for subtopology {subtopology} is invalid. Number of tasks for this subtopology: {counts[subtopology]}"
            raise _invalid(text)


def _remember(group: StreamsGroup, request: StreamsHeartbeat, configured: Configured, session_until: int) -> None:
    """What is known of a member, but not stored."""
    group.expect(request.member_id).session = session_until
    if request.is_shutdown and group.shutdown_by is None:
        group.shutdown_by = request.member_id
    if request.offsets is not None or request.end_offsets is not None:
        before = group.task_offsets.get(request.member_id, ({}, {}))
        group.task_offsets[request.member_id] = (
            before[0] if request.offsets is None else _of_tasks(configured, request.offsets),
            before[1] if request.end_offsets is None else _of_tasks(configured, request.end_offsets),
        )


def _of_tasks(configured: Configured, offsets: Mapping[Task, int]) -> Mapping[Task, int]:
    """Those of tasks that there are: a member can name anything, and it is kept in memory."""
    counts = {each.subtopology_id: each.tasks for each in configured.subtopologies}
    return {task: offset for task, offset in offsets.items() if 0 <= task[1] < counts.get(task[0], 0)}


def _matters(member: StreamsMember) -> tuple[object, ...]:
    """What the assignment depends on."""
    return member.process_id, member.topology_epoch, member.tags, member.rack_id


def settle(group: StreamsGroup, member_id: str, owned: TaskSets | None, now: int) -> StreamsOutcome:
    """The target assignment that a member waits for is there: its next step. Raises ApiError UNKNOWN_MEMBER_ID."""
    outcome = StreamsOutcome(group.member(member_id), shows_assignment=True)
    return _reconciled(group, outcome, group.target_of(member_id), owned, now, is_joining=True)


def _reconciled(
    group: StreamsGroup,
    outcome: StreamsOutcome,
    target: TaskSets,
    owned: TaskSets | None,
    now: int,
    *,
    is_joining: bool,
) -> StreamsOutcome:
    before = outcome.member

    def is_free(task: Task) -> tuple[bool, bool]:
        return group.is_free(task, before)

    after = reconcile(before, group.target_epoch, target, owned, is_free, is_joining=is_joining)
    return take_step(group, outcome, after, now)


def _updated(known: StreamsMember, request: StreamsHeartbeat) -> StreamsMember:
    return replace(
        with_said(known, request),
        topology_epoch=known.topology_epoch if request.topology is None else request.topology.epoch,
        process_id=known.process_id if request.process_id is None else request.process_id,
        endpoint=known.endpoint if request.endpoint is None else request.endpoint,
        tags=known.tags if request.tags is None else request.tags,
    )


# --- who it is ---


def find(group: StreamsGroup, request: StreamsHeartbeat) -> FoundMember[StreamsMember]:
    """The member of a request. Raises ApiError."""
    owned = request.owned

    def check_known(known: StreamsMember) -> None:
        check_epoch(
            known,
            request.epoch,
            "streams",
            holds_only_assigned=lambda: owned is not None and owned.is_part_of(known.assigned),
        )

    def may_replace(known: StreamsMember) -> bool:
        return known.epoch == LEAVE_FOR_A_WHILE_EPOCH

    new = StreamsMember(request.member_id)
    return find_member(group, new, request.epoch, request.instance_id, check_known, may_replace)


# --- leaving ---


def removed(group: StreamsGroup, members: Sequence[StreamsMember]) -> list[StreamsRecord]:
    """The records after which these are no members any more: the others share out what they had."""
    records = [record for member in members for record in removal(member.member_id)]
    return [
        *records,
        StreamsGroupMetadata(group.epoch + 1, group.metadata_hash, group.validated_epoch, group.settings),
        *group.empty_target(len(members)),
    ]


# --- what an answer says of the group ---


def statuses(group: StreamsGroup, member: StreamsMember, creation: str = "") -> list[tuple[Status, str]]:
    """What the member should know. `creation`: why internal topics could not be created."""
    found: list[tuple[Status, str]] = []
    if group.topology is not None and member.topology_epoch < group.topology.epoch:
        text = f"The member's topology epoch {member.topology_epoch} is behind the group's topology epoch {group.topology.epoch}."
        found.append((Status.STALE_TOPOLOGY, text))
    if group.delayed_until:
        text = "Assignment delayed due to the configured initial rebalance delay."
        found.append((Status.ASSIGNMENT_DELAYED, text))
    if group.configured is not None and group.configured.problem is not None:
        status, text = group.configured.problem
        is_creating = status is Status.MISSING_INTERNAL_TOPICS and creation
        found.append((status, f"{text}; {creation}" if is_creating else text))
    if group.shutdown_by is not None:
        text = f"Streams group member {group.shutdown_by} encountered a fatal error and requested a shutdown for the entire application."
        found.append((Status.SHUTDOWN_APPLICATION, text))
    return found
