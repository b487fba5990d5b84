"""The group coordinator: groups of the `__consumer_offsets` partitions that this node leads.

It finds the group, hands events of classic groups in and performs their effects (answers, records), and keeps time. Consumer
groups (KIP-848) are `consumer_groups`, offsets `commits`, what is forgotten `removal`. A group's answers go out only when
what they promise is replicated.
"""

from __future__ import annotations

import heapq
import uuid
from collections.abc import Callable, Iterable, Iterator, Mapping, Sequence
from contextlib import contextmanager
from itertools import count

from kafkalite.coordinators.groups.commits import OffsetCommits, settled
from kafkalite.coordinators.groups.consumer.assigning import TargetAssignments
from kafkalite.coordinators.groups.consumer.groups import ConsumerGroups, HeartbeatDone
from kafkalite.coordinators.groups.decisions.classic.events import (
    Effect,
    JoinAnswer,
    JoinRequest,
    StoreGroup,
    SyncAnswer,
    SyncRequest,
)
from kafkalite.coordinators.groups.decisions.consumer.heartbeats import ConsumerHeartbeat
from kafkalite.coordinators.groups.decisions.members import JOIN_EPOCH
from kafkalite.coordinators.groups.decisions.share.heartbeats import ShareHeartbeat
from kafkalite.coordinators.groups.decisions.streams.heartbeats import StreamsHeartbeat
from kafkalite.coordinators.groups.decisions.streams.topology import InternalTopic
from kafkalite.coordinators.groups.loading import GroupReplay
from kafkalite.coordinators.groups.member_memory import (
    MemberMemory,
    Said,
    bytes_by_user,
    group_bytes,
    more_bytes,
    size_of,
)
from kafkalite.coordinators.groups.partition import GroupEntry, GroupPartition
from kafkalite.coordinators.groups.parts import GroupParts
from kafkalite.coordinators.groups.records import common as records
from kafkalite.coordinators.groups.removal import GroupRemoval
from kafkalite.coordinators.groups.share.group_log import ShareGroupLog
from kafkalite.coordinators.groups.share.groups import ShareGroups, ShareHeartbeatAnswer
from kafkalite.coordinators.groups.share.states import ShareGroupStates
from kafkalite.coordinators.groups.streams.assigning import StreamsTargets
from kafkalite.coordinators.groups.streams.descriptions import TopologyDescriptions
from kafkalite.coordinators.groups.streams.groups import StreamsDone, StreamsGroups
from kafkalite.coordinators.groups.topics import GroupTopics
from kafkalite.coordinators.internal_log import InternalLog
from kafkalite.coordinators.services import Services
from kafkalite.env.pulse import Pulse
from kafkalite.errors import ApiError, ErrorCode, api_error
from kafkalite.model import GROUP_TOPIC, Offset, TopicPartition
from kafkalite.telemetry.logs import get_logger
from kafkalite.telemetry.repeats import Repeats

_log = get_logger(__name__)

_TICK_S = 0.05
#: Characters of a member id before the part that is drawn: with more, it would be no string of the protocol.
_MAX_PREFIX = 10_000
#: How long the clock waits while no group has a deadline (a new one wakes it).
_IDLE_S = 60.0


class GroupCoordinator:
    """See the module. `run` follows leadership; the methods are what the APIs need. All raise ApiError."""

    def __init__(self, services: Services) -> None:
        self._services = services
        self._clock = services.clock
        self._replay = GroupReplay(services)
        self.log: InternalLog[GroupPartition] = InternalLog(
            services,
            GROUP_TOPIC,
            GroupPartition,
            self._replay.replay,
            self._loaded,
            self._unloaded,
            settle=self._replay.settle,
            when_committed=True,
        )
        self._repeats = Repeats(self._clock.monotonic)
        #: Beats when the first deadline is earlier than it was.
        self._earlier = Pulse()
        self._ticks: list[tuple[int, int, GroupPartition, str]] = []
        self._numbers = count()
        self._memory = MemberMemory(self._members_bytes, self._now)
        self.topics = GroupTopics(services)
        self.offsets = OffsetCommits(services.clock, self.log, self.topics, self.find, self._make)
        parts = GroupParts(services, self.log, self.topics, self._schedule_at)
        targets = TargetAssignments(parts)
        self.consumers = targets.groups = ConsumerGroups(parts, targets.work, self._perform)
        streams_targets = StreamsTargets(parts)
        self.streams = streams_targets.groups = StreamsGroups(parts, streams_targets.work)
        self.descriptions = TopologyDescriptions(services, self._known)
        share_log = ShareGroupLog(self.log)
        self.share_states = ShareGroupStates(parts, share_log)
        self.shares = ShareGroups(parts, share_log, self.share_states)
        self.removal = GroupRemoval(services, self.log, self.find, self.share_states)

    def start(self) -> None:
        spawn = self._services.supervisor.spawn
        spawn("groups.leadership", self.log.run())
        spawn("groups.clock", self._run_clock())
        spawn("groups.expiry", self.removal.run())
        spawn("groups.topics", self._follow_topics())

    async def _follow_topics(self) -> None:
        while True:
            await self._services.metadata_changed()
            self.topics.changed()
            self.streams.topics_changed()

    # --- finding ---

    def _now(self) -> int:
        return int(self._clock.monotonic() * 1000)

    def find(self, group_id: str) -> GroupEntry | None:
        """None: nothing is known of such a group. Raises ApiError: INVALID_GROUP_ID, or another node coordinates it."""
        if not group_id:
            raise api_error(ErrorCode.INVALID_GROUP_ID)
        return self.log.state_for(group_id).entries.get(group_id)

    def _make(self, group_id: str, user: str = "") -> GroupEntry:
        """A group that `find` has not found."""
        entry = self._replay.make(self.log.state_for(group_id), group_id)
        entry.user = user
        return entry

    @contextmanager
    def _entry(self, group_id: str, known: GroupEntry | None, user: str = "") -> Iterator[GroupEntry]:
        """A group that `find` has found or not, for what is done with it at once. One that is made for it, and then is of no use, is
        forgotten: names of groups are free, and such a one would stay until the next expiry."""
        entry = known or self._make(group_id, user)
        try:
            yield entry
        finally:
            if known is None:
                entry.forget_if_unused()

    def _need(self, group_id: str) -> GroupEntry:
        entry = self.find(group_id)
        if entry is None:
            raise api_error(ErrorCode.UNKNOWN_MEMBER_ID)
        return entry

    # --- membership ---

    def join(self, group_id: str, request: JoinRequest) -> None:
        """`request.token` is called with the JoinAnswer."""
        if not group_id:  # Kafka names this error before all others
            raise api_error(ErrorCode.INVALID_GROUP_ID)
        config = self._services.config
        if not config.group_min_session_timeout_ms <= request.session_timeout_ms <= config.group_max_session_timeout_ms:
            raise api_error(ErrorCode.INVALID_SESSION_TIMEOUT)
        entry = self.find(group_id)
        said = request.member_id or request.new_member_id, request.instance_id, request.client_id
        self._take_memory(request.user, group_bytes(entry) + size_of(request.protocols, *said))
        if entry is None and request.member_id:
            raise api_error(ErrorCode.UNKNOWN_MEMBER_ID)
        with self._entry(group_id, entry, request.user) as entry:
            self._join(entry, request)

    def _join(self, entry: GroupEntry, request: JoinRequest) -> None:
        config = self._services.config
        if entry.share is not None or (entry.streams is not None and not self.streams.gives_way(entry)):
            raise api_error(ErrorCode.INCONSISTENT_GROUP_PROTOCOL)
        if entry.consumer is not None and self.consumers.join(entry, request):
            return
        group = entry.group
        is_known = request.member_id in group.members or request.member_id in group.pending_members
        if not is_known and len(group.members) + len(group.pending_members) >= config.group_max_size:
            raise api_error(ErrorCode.GROUP_MAX_SIZE_REACHED)
        self._perform(entry, group.join(request, self._now()))

    def _members_bytes(self) -> Mapping[str, int]:
        return bytes_by_user(entry for partition in self.log.states() for entry in partition.entries.values())

    def _take_memory(self, user: str, size: int) -> None:
        if not self._memory.take(user, size):
            raise api_error(ErrorCode.COORDINATOR_NOT_AVAILABLE, "the members of all groups take too much memory")

    def _hear(self, group_id: str, request: Said) -> GroupEntry | None:
        """The entry of a group; None: it is to be made. Raises ApiError: there is no such group, or no memory for what the member says."""
        entry = self.find(group_id)
        if entry is None and request.epoch != JOIN_EPOCH:
            raise api_error(ErrorCode.GROUP_ID_NOT_FOUND, f"there is no group {group_id!r}")
        if request.epoch >= JOIN_EPOCH and (size := more_bytes(entry, request)):
            self._take_memory(request.user, size)
            if entry is not None:
                entry.user = request.user
        return entry

    def new_member_id(self, prefix: str) -> str:
        return f"{prefix[:_MAX_PREFIX]}-{uuid.UUID(int=self._services.random.getrandbits(128), version=4)}"

    def sync(self, group_id: str, request: SyncRequest) -> None:
        """`request.token` is called with the SyncAnswer."""
        entry = self._need(group_id)
        if entry.consumer is not None:
            self.consumers.sync(entry, request)
        else:
            self._perform(entry, entry.group.sync(request, self._now()))

    def heartbeat(self, group_id: str, member_id: str, instance_id: str | None, generation: int) -> ErrorCode:
        entry = self._need(group_id)
        if entry.consumer is not None:
            return self.consumers.classic_heartbeat(entry, member_id, instance_id, generation)
        return entry.group.heartbeat(member_id, instance_id, generation, self._now())

    def leave(self, group_id: str, member_id: str, instance_id: str | None) -> ErrorCode:
        entry = self._need(group_id)
        if entry.consumer is not None:
            self.consumers.classic_leave(entry, member_id, instance_id)
            return ErrorCode.NONE
        error, effects = entry.group.leave(member_id, instance_id, self._now())
        if not error:
            self._perform(entry, effects)
        return error

    def consumer_heartbeat(
        self, group_id: str, request: ConsumerHeartbeat, is_visible: Callable[[str], bool], done: HeartbeatDone
    ) -> None:
        """See ConsumerGroups.heartbeat."""
        with self._entry(group_id, self._hear(group_id, request), request.user) as entry:
            if entry.share is not None or entry.streams is not None:
                raise api_error(ErrorCode.GROUP_ID_NOT_FOUND, f"Group {group_id} is not a consumer group.")
            self.consumers.heartbeat(entry, request, is_visible, done)

    def streams_heartbeat(
        self,
        group_id: str,
        request: StreamsHeartbeat,
        endpoint_epoch: int,
        may_create: Callable[[InternalTopic], ErrorCode],
        done: StreamsDone,
    ) -> None:
        """See StreamsGroups.heartbeat."""
        with self._entry(group_id, self._hear(group_id, request), request.user) as entry:
            self.streams.heartbeat(entry, request, endpoint_epoch, may_create, done)

    async def share_heartbeat(self, group_id: str, request: ShareHeartbeat) -> ShareHeartbeatAnswer:
        """See ShareGroups.heartbeat."""
        known = self._hear(group_id, request)
        entry = self.share_group(group_id, request.user)
        try:
            return await self.shares.heartbeat(entry, request)
        finally:
            if known is None:
                entry.forget_if_unused()

    def share_group(self, group_id: str, user: str = "") -> GroupEntry:
        """A share group, or what will be one once something of it is stored. Raises ApiError if it is of another type."""
        entry = self.find(group_id)
        if entry is None:
            entry = self._make(group_id, user)
        elif entry.share is None and not entry.is_new:
            raise api_error(ErrorCode.GROUP_ID_NOT_FOUND, f"Group {group_id} is not a share group.")
        return entry

    def _groups_of(self, entry: GroupEntry) -> ConsumerGroups | StreamsGroups | ShareGroups | None:
        """Those of the entry's protocol; None: it is a classic group."""
        if entry.streams is not None:
            return self.streams
        if entry.share is not None:
            return self.shares
        return None if entry.consumer is None else self.consumers

    def _perform(self, entry: GroupEntry, effects: Sequence[Effect]) -> None:
        for effect in effects:
            match effect:
                case StoreGroup():
                    self._store(entry, effect)
                case JoinAnswer(token=token) | SyncAnswer(token=token):
                    assert callable(token)
                    token(effect)
        self._schedule(entry)

    def _store(self, entry: GroupEntry, effect: StoreGroup) -> None:
        group = entry.group

        def done(error: ErrorCode, base_offset: Offset) -> None:
            if error and (suppressed := self._repeats.admit(("group.store_failed", error))) is not None:
                _log.warning("group.store_failed", group=group.group_id, error=error.name, suppressed=suppressed)
            self._perform(entry, group.stored(effect, error, self._now()))

        group.stored_ms = self._clock.wall_ms()
        value = records.group_value(group, effect.assignments)
        self.log.append(entry.partition.index, entry.partition, [(records.group_key(group.group_id), value)], done)

    # --- time ---

    def _schedule(self, entry: GroupEntry) -> None:
        """Make sure that the group's next deadline is in the heap. Stale entries are dropped when they come up."""
        self._schedule_at(entry, (entry.newer or entry.group).next_deadline())

    def _schedule_at(self, entry: GroupEntry, deadline: int | None) -> None:
        if deadline is not None and (entry.scheduled_ms is None or deadline < entry.scheduled_ms):
            entry.scheduled_ms = deadline
            heapq.heappush(self._ticks, (deadline, next(self._numbers), entry.partition, entry.group.group_id))
            if self._ticks[0][0] == deadline:
                self._earlier.beat()

    async def _run_clock(self) -> None:
        while True:
            left_s = (self._ticks[0][0] - self._now()) / 1000 if self._ticks else _IDLE_S
            await self._earlier.wait(max(_TICK_S, left_s))
            self.tick()

    def tick(self) -> None:
        """Serve every group whose deadline has passed, once. If it has another one that is due, the next call serves it."""
        now = self._now()
        due: list[GroupEntry] = []
        while self._ticks and self._ticks[0][0] <= now:
            deadline, _, partition, group_id = heapq.heappop(self._ticks)
            entry = partition.entries.get(group_id)
            if entry is not None and entry.scheduled_ms == deadline:
                entry.scheduled_ms = None
                due.append(entry)
        loaded = [entry for entry in due if self.log.ready_state(entry.partition.index) is entry.partition]
        for partition in {entry.partition.index: entry.partition for entry in loaded}.values():
            if self.log.sends_away(partition.index):
                for entry in partition.entries.values():
                    self._give_time(entry)
        for entry in loaded:
            effects: Sequence[Effect] = ()
            groups = self._groups_of(entry)
            if groups is None:
                effects = entry.group.tick(now)
            else:
                groups.tick(entry)
            self._perform(entry, effects)

    def _give_time(self, entry: GroupEntry) -> None:
        """Members get a whole session to find their coordinator, which may be this one again."""
        groups = self._groups_of(entry)
        if groups is None:
            entry.group.give_time(self._now())
            self._schedule(entry)
        else:
            groups.give_time(entry)

    # --- administration ---

    def groups(self) -> Iterable[GroupEntry]:
        """The groups coordinated here. Raises ApiError COORDINATOR_LOAD_IN_PROGRESS while some are not known yet."""
        if self.log.is_loading:
            raise api_error(ErrorCode.COORDINATOR_LOAD_IN_PROGRESS)
        for partition in self.log.states():
            for _, entry in sorted(partition.entries.items()):
                if entry.is_listed:
                    yield entry

    def count(self) -> tuple[int, int]:
        """(groups, committed offsets) coordinated here, as far as they are loaded."""
        entries = [entry for partition in self.log.states() for entry in partition.entries.values()]
        return len(entries), sum(len(entry.offsets.committed) for entry in entries)

    def committed_by_group(self) -> Iterator[tuple[str, int, Mapping[TopicPartition, int]]]:
        """(group, how many members it has, its committed offsets) of those coordinated here, as far as they are loaded."""
        for partition in self.log.states():
            for name, entry in partition.entries.items():
                offsets = {key: int(each.offset) for key, each in settled(self.log, entry).committed.items()}
                yield name, entry.member_count, offsets

    def _known(self, group_id: str) -> GroupEntry | None:
        """None: there is no such group, or another node coordinates it."""
        try:
            return self.describe(group_id)
        except ApiError:
            return None

    def describe(self, group_id: str) -> GroupEntry | None:
        """None: there is no such group."""
        entry = self.find(group_id)
        return entry if entry is not None and entry.is_listed else None

    # --- loading ---

    def _loaded(self, partition: GroupPartition) -> None:
        for group_id, entry in list(partition.entries.items()):
            groups = self._groups_of(entry)
            if groups is not None:
                groups.loaded(entry)
                continue
            group = entry.group
            if group.generation == 0 and not group.members and entry.offsets.is_empty():
                del partition.entries[group_id]
                continue
            self._give_time(entry)

    def _unloaded(self, partition: GroupPartition) -> None:
        for entry in partition.entries.values():
            self.consumers.unloaded(entry)
            self.streams.unloaded(entry)
            self.shares.unloaded(entry)
            for effect in entry.group.close(ErrorCode.NOT_COORDINATOR):
                if isinstance(effect, JoinAnswer | SyncAnswer):
                    assert callable(effect.token)
                    effect.token(effect)
