"""Streams groups of the partitions that this node coordinates (KIP-1071): the shell around `decisions.streams`.

A decision returns records. They are appended, then applied; the answer goes out when they are replicated.
"""

from __future__ import annotations

from collections.abc import Callable, Iterator, Mapping, Sequence

from kafkalite.coordinators.groups.decisions.members import JOIN_EPOCH, LEAVE_FOR_A_WHILE_EPOCH
from kafkalite.coordinators.groups.decisions.streams import heartbeats
from kafkalite.coordinators.groups.decisions.streams.endpoints import EndpointPartitions, served
from kafkalite.coordinators.groups.decisions.streams.group import StreamsGroup, is_unrevoked
from kafkalite.coordinators.groups.decisions.streams.heartbeats import StreamsHeartbeat, StreamsOutcome, StreamsSettings
from kafkalite.coordinators.groups.decisions.streams.members import StreamsMember, StreamsRecord, TaskSets
from kafkalite.coordinators.groups.decisions.streams.topology import Status, Topology
from kafkalite.coordinators.groups.group_log import GroupLog
from kafkalite.coordinators.groups.partition import (
    GroupEntry,
    GroupPartition,
    StreamsMemberDone,
    StreamsRuntime,
    WaitingStreamsMember,
)
from kafkalite.coordinators.groups.records.common import group_key
from kafkalite.coordinators.groups.records.streams import encode_record
from kafkalite.coordinators.groups.streams.internal_topics import InternalTopics
from kafkalite.coordinators.groups.streams.settings import streams_settings
from kafkalite.coordinators.groups.topics import GroupTopics, metadata_hash
from kafkalite.coordinators.internal_log import InternalLog, KeyValue
from kafkalite.coordinators.services import Services
from kafkalite.errors import ApiError, ErrorCode, api_error
from kafkalite.lazy_dataclass import dataclass
from kafkalite.telemetry.logs import get_logger

_log = get_logger(__name__)

#: Answers in one go: about two milliseconds.
_SETTLED_AT_ONCE = 50


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


class StreamsGroups:
    """See the module. Methods raise ApiError; `done` is called once if they do not.

    Args:
        schedule: has `tick` called for an entry when this moment (ms) has passed.
        work: has the target assignment, and what it depends on, brought up to date.
    """

    def __init__(
        self,
        services: Services,
        log: InternalLog[GroupPartition],
        topics: GroupTopics,
        schedule: Callable[[GroupPartition, GroupEntry, int | None], None],
        work: Callable[[GroupPartition, GroupEntry], None],
    ) -> None:
        self._services = services
        self._log = GroupLog(services, log)
        self._topics = topics
        self._schedule = schedule
        self._work = work
        self._internal_topics = InternalTopics(services)
        #: Groups that cannot run until their topics are different: they are looked at whenever topics change.
        self._unready: dict[str, tuple[GroupPartition, GroupEntry]] = {}

    def _now(self) -> int:
        return int(self._services.clock.monotonic() * 1000)

    def topics_of(self, topology: Topology) -> tuple[int, Mapping[str, int]]:
        """A hash of the topics that the topology needs, and the partitions of those that exist."""
        found = self._topics.lookup(topology.required_topics())
        return metadata_hash(found), {name: topic.partitions for name, topic in found.items()}

    # --- heartbeats ---

    def heartbeat(
        self,
        partition: GroupPartition,
        entry: GroupEntry,
        request: StreamsHeartbeat,
        endpoint_epoch: int,
        may_create: Callable[[str], bool],
        done: StreamsDone,
    ) -> None:
        """A member joins, is there, or leaves. `may_create`: whether the client has the right to create a topic."""
        if request.epoch < JOIN_EPOCH:
            self._leave(partition, entry, request, done)
            return
        settings = streams_settings(self._services, entry.group.group_id)
        group, extra = self._group_for(entry, request)
        outcome = heartbeats.heartbeat(group, request, settings, self.topics_of, self._now())
        configured = outcome.configured

        def answered(error: ApiError | None, outcome: StreamsOutcome | None) -> None:
            if error is not None or outcome is None:
                done(error, None)
            else:
                done(None, self._answer(entry, group, outcome, settings, endpoint_epoch))

        self._proceed(partition, entry, group, outcome, request.owned, answered, extra)
        if configured is not None and configured.to_create:
            self._internal_topics.create(group.group_id, entry.streams_runtime, configured.to_create, may_create)

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
            None if knows_endpoints else tuple(served(group)),
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

    def _proceed(
        self,
        partition: GroupPartition,
        entry: GroupEntry,
        group: StreamsGroup,
        outcome: StreamsOutcome,
        owned: TaskSets | None,
        done: StreamsMemberDone,
        extra: Sequence[KeyValue] = (),
    ) -> None:
        """Write the outcome; answer with the member when that is replicated, or when it has a target to go by."""
        member = outcome.member

        def finished(error: ErrorCode) -> None:
            done(api_error(error) if error else None, outcome)

        def take() -> None:
            entry.streams = group
            if outcome.configured is not None:
                group.configured = outcome.configured

        runtime = entry.streams_runtime
        self._write(partition, entry, group, outcome.records, _nothing if outcome.waits else finished, take, extra)
        if outcome.waits:
            runtime.waiting.append(WaitingStreamsMember(member.member_id, group.epoch, owned, done))
        self._schedule(partition, entry, group.next_deadline())
        self.watch(partition, entry, group)
        self._work(partition, entry)

    def watch(self, partition: GroupPartition, entry: GroupEntry, group: StreamsGroup) -> None:
        """Look at the group whenever topics change, as long as it cannot run."""
        if group.members and group.configured is not None and not group.configured.is_ready:
            self._unready[group.group_id] = (partition, entry)
        else:
            self._unready.pop(group.group_id, None)

    def topics_changed(self) -> None:
        for partition, entry in list(self._unready.values()):
            if entry.streams is None or entry.streams.is_dead:
                self._unready.pop(entry.group.group_id, None)
            else:
                self._work(partition, entry)

    def _leave(
        self, partition: GroupPartition, entry: GroupEntry, request: StreamsHeartbeat, done: StreamsDone
    ) -> None:
        group = entry.streams
        if group is None:
            raise api_error(ErrorCode.GROUP_ID_NOT_FOUND, f"there is no streams group {entry.group.group_id!r}")
        member = heartbeats.find_leaving(group, request.member_id, request.instance_id)
        settings = streams_settings(self._services, group.group_id)
        answer = StreamsAnswer(member.member_id, request.epoch, settings)
        if request.is_shutdown and group.shutdown_by is None:
            group.shutdown_by = member.member_id

        def finished(error: ErrorCode) -> None:
            done(api_error(error) if error else None, None if error else answer)

        if request.epoch == LEAVE_FOR_A_WHILE_EPOCH:
            self._write(partition, entry, group, heartbeats.leave_for_a_while(member), finished)
            return
        self._remove(partition, entry, group, [member], finished)

    def _remove(
        self,
        partition: GroupPartition,
        entry: GroupEntry,
        group: StreamsGroup,
        members: Sequence[StreamsMember],
        done: Callable[[ErrorCode], None],
    ) -> None:
        self._write(partition, entry, group, heartbeats.removed(group, members), done)
        gone = {member.member_id for member in members}
        runtime = entry.streams_runtime
        abandoned = [each for each in runtime.waiting if each.member_id in gone]
        runtime.waiting = [each for each in runtime.waiting if each.member_id not in gone]
        for each in abandoned:
            each.done(api_error(ErrorCode.UNKNOWN_MEMBER_ID), None)
        self.watch(partition, entry, group)
        self._work(partition, entry)

    # --- what waits ---

    def settle(self, partition: GroupPartition, entry: GroupEntry, group: StreamsGroup) -> Iterator[None]:
        """There is a new target assignment: answer the members that wait for it. Yields now and then."""
        runtime = entry.streams_runtime
        while ready := [each for each in runtime.waiting if each.epoch <= group.target_epoch][:_SETTLED_AT_ONCE]:
            taken = set(map(id, ready))
            runtime.waiting = [each for each in runtime.waiting if id(each) not in taken]
            for each in ready:
                try:
                    outcome = heartbeats.settle(group, each.member_id, each.owned, self._now())
                    self._proceed(partition, entry, group, outcome, each.owned, each.done)
                except ApiError as error:
                    each.done(error, None)
            yield

    def fail(self, entry: GroupEntry, error: ErrorCode) -> None:
        """All requests that wait get an error: the group is unloaded, or its target could not be stored."""
        runtime = entry.streams_runtime
        waiting, runtime.waiting = runtime.waiting, []
        for each in waiting:
            each.done(api_error(error), None)
        uncommitted, runtime.uncommitted = runtime.uncommitted, []
        for _, finish in uncommitted:
            finish(error)

    # --- time ---

    def tick(self, partition: GroupPartition, entry: GroupEntry) -> None:
        """Remove members that are overdue; end the delay of the first assignment."""
        group = entry.streams
        assert group is not None
        now = self._now()
        if group.delayed_until and group.delayed_until <= now:
            group.delayed_until = 0
            self._work(partition, entry)
        gone: list[StreamsMember] = []
        for member, reason in group.overdue(now):
            _log.info("group.member_removed", group=group.group_id, member=member.member_id, reason=reason)
            gone.append(member)
        if not gone:
            return
        try:
            self._remove(partition, entry, group, gone, _nothing)
        except ApiError:  # not written: the next tick tries again
            for member in gone:
                group.expect(member.member_id).session = now + 1_000

    def loaded(self, partition: GroupPartition, entry: GroupEntry) -> None:
        """Members get a whole session to find their new coordinator."""
        group = entry.streams
        assert group is not None
        now = self._now()
        session_ms = streams_settings(self._services, group.group_id).session_timeout_ms
        entry.streams_runtime = StreamsRuntime()
        # What members know of endpoints is from another coordinator, which counted on its own.
        group.endpoint_epoch = int(self._services.clock.wall_ms() / 1000) & 0x3FFFFFFF
        for member in group.members.values():
            times = group.expect(member.member_id)
            times.session = now + session_ms
            if is_unrevoked(member):
                times.revocation, times.epoch = now + member.rebalance_timeout_ms, member.epoch
        self._schedule(partition, entry, group.next_deadline())
        self._work(partition, entry)

    def unloaded(self, entry: GroupEntry) -> None:
        """Another node coordinates the group."""
        if entry.streams is not None:
            entry.streams.is_dead = True
            self._unready.pop(entry.streams.group_id, None)
            self.fail(entry, ErrorCode.NOT_COORDINATOR)

    # --- the log ---

    def write(
        self, partition: GroupPartition, entry: GroupEntry, group: StreamsGroup, records: Sequence[StreamsRecord]
    ) -> None:
        """Append and apply, without waiting for replication. Raises ApiError: nothing was appended."""
        self._write(partition, entry, group, records, _nothing)

    def _write(
        self,
        partition: GroupPartition,
        entry: GroupEntry,
        group: StreamsGroup,
        records: Sequence[StreamsRecord],
        done: Callable[[ErrorCode], None],
        take: Callable[[], None] | None = None,
        extra: Sequence[KeyValue] = (),
    ) -> None:
        """Append `extra` and `records`, apply these, `take` what follows, and call `done` when it is replicated."""

        def apply() -> None:
            for record in records:
                group.apply(record)
            if take is not None:
                take()

        if not records:
            apply()
            self._log.when_committed(partition, entry.streams_runtime, done)
            return
        pairs = [encode_record(group.group_id, record) for record in records]
        self._log.write(partition, entry.streams_runtime, [*extra, *pairs], apply, done)


def _nothing(*_: object) -> None:
    """Nobody waits for it."""
