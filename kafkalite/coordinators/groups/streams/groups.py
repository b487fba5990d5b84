"""Streams groups of the partitions that this node coordinates (KIP-1071): the shell around `decisions.streams`."""

from __future__ import annotations

from collections.abc import Callable, Mapping, Sequence
from typing import ClassVar

from kafkalite.coordinators.groups.assigned_groups import AssignedGroups, nothing
from kafkalite.coordinators.groups.decisions.members import JOIN_EPOCH
from kafkalite.coordinators.groups.decisions.streams import heartbeats
from kafkalite.coordinators.groups.decisions.streams.endpoints import EndpointPartitions, served
from kafkalite.coordinators.groups.decisions.streams.group import StreamsGroup, tombstones
from kafkalite.coordinators.groups.decisions.streams.heartbeats import StreamsHeartbeat, StreamsOutcome, StreamsSettings
from kafkalite.coordinators.groups.decisions.streams.members import StreamsMember, StreamsRecord, TaskSets
from kafkalite.coordinators.groups.decisions.streams.topology import InternalTopic, Status, Topology
from kafkalite.coordinators.groups.partition import GroupEntry, StreamsRuntime
from kafkalite.coordinators.groups.parts import GroupParts
from kafkalite.coordinators.groups.records.common import group_key
from kafkalite.coordinators.groups.records.streams import encode_record
from kafkalite.coordinators.groups.streams.internal_topics import InternalTopics
from kafkalite.coordinators.groups.streams.settings import streams_settings
from kafkalite.coordinators.groups.topics import metadata_hash
from kafkalite.coordinators.internal_log import KeyValue
from kafkalite.errors import ApiError, ErrorCode, api_error
from kafkalite.lazy_dataclass import dataclass


@dataclass(frozen=True, slots=True)
class StreamsAnswer:
    """`member` None: it has left, `epoch` says how. `endpoints` None: as the member knows them."""

    member_id: str
    epoch: int
    settings: StreamsSettings
    member: StreamsMember | None = None
    shows_assignment: bool = False
    statuses: tuple[tuple[Status, str], ...] = ()
    endpoint_epoch: int = 0
    endpoints: tuple[EndpointPartitions, ...] | None = None


StreamsDone = Callable[[ApiError | None, StreamsAnswer | None], None]


class StreamsGroups(AssignedGroups[StreamsGroup, StreamsMember, TaskSets, StreamsOutcome]):
    """See `AssignedGroups`."""

    KIND: ClassVar = "streams"

    def __init__(self, parts: GroupParts, work: Callable[[GroupEntry], None]) -> None:
        super().__init__(parts, work)
        self._internal_topics = InternalTopics(parts.services)
        #: Groups that cannot run until their topics are different: they are looked at whenever topics change.
        self._unready: dict[str, GroupEntry] = {}

    def of(self, entry: GroupEntry) -> tuple[StreamsGroup | None, StreamsRuntime]:
        return entry.streams, entry.streams_runtime

    def _encode(self, group_id: str, record: StreamsRecord) -> KeyValue:
        return encode_record(group_id, record)

    def _settle(self, group: StreamsGroup, member_id: str, owned: TaskSets | None) -> StreamsOutcome:
        return heartbeats.settle(group, member_id, owned, self._now())

    def _session_ms(self, group: StreamsGroup, member: StreamsMember) -> int:
        return streams_settings(self._services, group.group_id).session_timeout_ms

    def _new_runtime(self, entry: GroupEntry) -> None:
        entry.streams_runtime = StreamsRuntime()

    def topics_of(self, topology: Topology) -> tuple[int, Mapping[str, int]]:
        """A hash of the topics that the topology needs, and the partitions of those that exist."""
        found = self._topics.lookup(topology.required_topics())
        return metadata_hash(found), {name: topic.partitions for name, topic in found.items()}

    # --- heartbeats ---

    def heartbeat(
        self,
        entry: GroupEntry,
        request: StreamsHeartbeat,
        endpoint_epoch: int,
        may_create: Callable[[InternalTopic], ErrorCode],
        done: StreamsDone,
    ) -> None:
        """A member joins, is there, or leaves. `may_create`: why the client may not create a topic; NONE: it may."""
        settings = streams_settings(self._services, entry.group.group_id)

        def answer_to_leaving(member_id: str) -> StreamsAnswer:
            group = self._need(entry)
            if request.is_shutdown and group.shutdown_by is None:
                group.shutdown_by = member_id
            return StreamsAnswer(member_id, request.epoch, settings)

        if request.epoch < JOIN_EPOCH:
            self._leave(entry, request, answer_to_leaving, done)
            return
        group, extra = self._group_for(entry, request)
        outcome = heartbeats.heartbeat(group, request, settings, self.topics_of, self._now())
        configured = outcome.configured

        def answered(error: ApiError | None, outcome: StreamsOutcome | None) -> None:
            if error is not None or outcome is None:
                done(error, None)
            else:
                done(None, self._answer(entry, group, outcome, settings, endpoint_epoch))

        to_create = configured.to_create if configured is not None else ()
        # Before the answer, which says so.
        refused = self._internal_topics.refused(entry.streams_runtime, to_create, may_create)
        self._proceed(entry, group, outcome, request.owned, answered, before=extra)
        if to_create:
            self._internal_topics.create(group.group_id, entry.streams_runtime, to_create, refused)

    def _answer(
        self,
        entry: GroupEntry,
        group: StreamsGroup,
        outcome: StreamsOutcome,
        settings: StreamsSettings,
        endpoint_epoch: int,
    ) -> StreamsAnswer:
        member = outcome.member
        knows_endpoints = endpoint_epoch == group.endpoint_epoch
        return StreamsAnswer(
            member.member_id,
            member.epoch,
            settings,
            member,
            outcome.shows_assignment,
            tuple(heartbeats.statuses(group, member, entry.streams_runtime.creation)),
            group.endpoint_epoch,
            None if knows_endpoints else _endpoints(entry.streams_runtime, group),
        )

    def _group_for(self, entry: GroupEntry, request: StreamsHeartbeat) -> tuple[StreamsGroup, list[KeyValue]]:
        """The group, and what is written beside it if it is a new one: an empty classic group gives way."""
        if entry.streams is not None:
            return entry.streams, []
        group_id = entry.group.group_id
        is_other = entry.consumer is not None or entry.share is not None or not entry.is_empty
        if request.epoch != JOIN_EPOCH or is_other:
            raise api_error(ErrorCode.GROUP_ID_NOT_FOUND, f"Group {group_id} is not a streams group.")
        return StreamsGroup(group_id), [(group_key(group_id), None)] if entry.group.protocol_type else []

    def gives_way(self, entry: GroupEntry) -> bool:
        """A member of the classic protocol joins: whether the group is empty. Then only its offsets stay. Raises ApiError."""
        group = self._need(entry)
        if group.members:
            return False

        def drop() -> None:
            entry.streams = None
            self._new_runtime(entry)
            self._unready.pop(group.group_id, None)

        self._write(entry, group, tombstones(group), nothing, take=drop)
        return True

    def _take(self, entry: GroupEntry, group: StreamsGroup, outcome: StreamsOutcome) -> None:
        entry.streams = group
        if outcome.configured is not None:
            group.configured = outcome.configured

    def _proceeded(self, entry: GroupEntry, group: StreamsGroup) -> None:
        if group.delayed_until:
            self._schedule(entry, group.delayed_until)
        self.watch(entry, group)

    def watch(self, entry: GroupEntry, group: StreamsGroup) -> None:
        """Look at the group whenever topics change, as long as it cannot run."""
        if group.members and group.configured is not None and not group.configured.is_ready:
            self._unready[group.group_id] = entry
        else:
            self._unready.pop(group.group_id, None)

    def topics_changed(self) -> None:
        for entry in list(self._unready.values()):
            if entry.streams is None or entry.streams.is_dead:
                self._unready.pop(entry.group.group_id, None)
            else:
                self._work(entry)

    def remove(
        self,
        entry: GroupEntry,
        group: StreamsGroup,
        members: Sequence[StreamsMember],
        done: Callable[[ErrorCode], None],
    ) -> None:
        self._write(entry, group, heartbeats.removed(group, members), done)
        self._give_up(entry, ErrorCode.UNKNOWN_MEMBER_ID, members)
        self.watch(entry, group)
        self._work(entry)

    # --- time ---

    def tick(self, entry: GroupEntry) -> None:
        """Remove members that are overdue; end the delay of the first assignment."""
        group = self._need(entry)
        if group.delayed_until and group.delayed_until <= self._now():
            group.delayed_until = 0
            self._work(entry)
        super().tick(entry)

    def loaded(self, entry: GroupEntry) -> None:
        """What members know of endpoints is from another coordinator, which counted on its own."""
        self._need(entry).endpoint_epoch = int(self._services.clock.wall_ms() / 1000) & 0x3FFFFFFF
        super().loaded(entry)

    def unloaded(self, entry: GroupEntry) -> None:
        self._unready.pop(entry.group.group_id, None)
        super().unloaded(entry)


def _endpoints(runtime: StreamsRuntime, group: StreamsGroup) -> tuple[EndpointPartitions, ...]:
    """Found out once, however many members ask for them, and however often one that says that it has an earlier epoch."""
    now = (group.endpoint_epoch, group.configured)
    if runtime.endpoints is None or runtime.endpoints[0] != now:
        runtime.endpoints = now, tuple(served(group))
    return runtime.endpoints[1]
