"""The group coordinator: groups of the `__consumer_offsets` partitions that this node leads.

A shell around `group` and `offsets`: it finds the group, hands events in, performs effects (answers, records), and
keeps time. A group's answers go out only when what they promise is replicated.
"""

from __future__ import annotations

import asyncio
import heapq
import uuid
from collections.abc import Callable, Collection, Iterable, Iterator, Mapping, Sequence
from dataclasses import field, replace
from itertools import count

from kafkalite.coordinators.groups import records
from kafkalite.coordinators.groups.group import Group, GroupState
from kafkalite.coordinators.groups.group_events import Effect, JoinAnswer, JoinRequest, StoreGroup, SyncAnswer
from kafkalite.coordinators.groups.offsets import MAX_METADATA_BYTES, CommittedOffset, GroupOffsets
from kafkalite.coordinators.groups.subscription import CONSUMER, topics_in
from kafkalite.coordinators.internal_log import InternalLog, KeyValue
from kafkalite.coordinators.services import Services
from kafkalite.errors import ApiError, ErrorCode, api_error
from kafkalite.lazy_dataclass import dataclass
from kafkalite.model import GROUP_TOPIC, LeaderEpoch, Offset, ProducerId, TopicPartition
from kafkalite.protocol.codec import WireError
from kafkalite.record.batch import BatchHeader
from kafkalite.record.reader import EndTransactionMarker, Record
from kafkalite.telemetry.logs import get_logger
from kafkalite.telemetry.repeats import Repeats

_log = get_logger(__name__)

#: offsets.retention.check.interval.ms
_EXPIRY_CHECK_S = 600.0
_TICK_S = 0.05
#: group.max.size: Kafka has no bound; ours is far above any use and keeps one group from eating the node.
MAX_GROUP_SIZE = 10_000
_DELETE_CHUNK = 1_000

CommitResults = dict[TopicPartition, ErrorCode]


@dataclass(slots=True)
class GroupEntry:
    """One group and its offsets. `scheduled_ms` is the earliest tick that is due for it."""

    group: Group
    offsets: GroupOffsets = field(default_factory=GroupOffsets)
    scheduled_ms: int | None = None


@dataclass(slots=True)
class GroupPartition:
    """The groups of one partition of `__consumer_offsets`."""

    index: int
    leader_epoch: LeaderEpoch
    entries: dict[str, GroupEntry] = field(default_factory=dict)
    #: Producer with an open transaction -> groups it committed offsets for.
    transactions: dict[ProducerId, dict[str, None]] = field(default_factory=dict)


class GroupCoordinator:
    """See the module. `run` follows leadership; the methods are what the APIs need. All raise ApiError."""

    def __init__(self, services: Services) -> None:
        self._services = services
        self._clock = services.clock
        self.log: InternalLog[GroupPartition] = InternalLog(
            services, GROUP_TOPIC, GroupPartition, self._replay, self._loaded, self._unloaded
        )
        self._repeats = Repeats(self._clock.monotonic)
        self._ticks: list[tuple[int, int, GroupPartition, str]] = []
        self._numbers = count()

    def start(self) -> None:
        spawn = self._services.supervisor.spawn
        spawn("groups.leadership", self.log.run())
        spawn("groups.clock", self._run_clock())
        spawn("groups.expiry", self._run_expiry())

    # --- finding ---

    def _now(self) -> int:
        return int(self._clock.monotonic() * 1000)

    def _find(self, group_id: str) -> tuple[GroupPartition, GroupEntry | None]:
        if not group_id:
            raise api_error(ErrorCode.INVALID_GROUP_ID)
        partition = self.log.state_for(group_id)
        return partition, partition.entries.get(group_id)

    def _need(self, group_id: str) -> tuple[GroupPartition, GroupEntry]:
        partition, entry = self._find(group_id)
        if entry is None:
            raise api_error(ErrorCode.UNKNOWN_MEMBER_ID)
        return partition, entry

    def _make(self, partition: GroupPartition, group_id: str) -> GroupEntry:
        group = Group(group_id, initial_rebalance_delay_ms=self._services.config.group_initial_rebalance_delay_ms)
        group.state_since_ms = self._clock.wall_ms()
        entry = partition.entries[group_id] = GroupEntry(group)
        return entry

    # --- membership ---

    def join(self, group_id: str, request: JoinRequest) -> None:
        """`request.token` is called with the JoinAnswer."""
        config = self._services.config
        if not config.group_min_session_timeout_ms <= request.session_timeout_ms <= config.group_max_session_timeout_ms:
            raise api_error(ErrorCode.INVALID_SESSION_TIMEOUT)
        partition, entry = self._find(group_id)
        if entry is None:
            if request.member_id:
                raise api_error(ErrorCode.UNKNOWN_MEMBER_ID)
            entry = self._make(partition, group_id)
        group = entry.group
        known = len(group.members) + len(group.pending_members)
        if known >= MAX_GROUP_SIZE and request.member_id not in group.members:
            raise api_error(ErrorCode.GROUP_MAX_SIZE_REACHED)
        self._perform(partition, entry, group.join(request, self._now()))

    def new_member_id(self, prefix: str) -> str:
        return f"{prefix}-{uuid.UUID(int=self._services.random.getrandbits(128), version=4)}"

    def sync(
        self,
        group_id: str,
        token: Callable[[SyncAnswer], None],
        member_id: str,
        instance_id: str | None,
        generation: int,
        protocol_type: str | None,
        protocol: str | None,
        assignments: Mapping[str, bytes],
    ) -> None:
        partition, entry = self._need(group_id)
        effects = entry.group.sync(
            token, member_id, instance_id, generation, protocol_type, protocol, assignments, self._now()
        )
        self._perform(partition, entry, effects)

    def heartbeat(self, group_id: str, member_id: str, instance_id: str | None, generation: int) -> ErrorCode:
        _, entry = self._need(group_id)
        return entry.group.heartbeat(member_id, instance_id, generation, self._now())

    def leave(self, group_id: str, member_id: str, instance_id: str | None) -> ErrorCode:
        partition, entry = self._need(group_id)
        error, effects = entry.group.leave(member_id, instance_id, self._now())
        self._perform(partition, entry, effects)
        return error

    def _perform(self, partition: GroupPartition, entry: GroupEntry, effects: Sequence[Effect]) -> None:
        for effect in effects:
            match effect:
                case StoreGroup():
                    self._store(partition, entry, effect)
                case JoinAnswer(token=token) | SyncAnswer(token=token):
                    assert callable(token)
                    token(effect)
        self._schedule(partition, entry)

    def _store(self, partition: GroupPartition, entry: GroupEntry, order: StoreGroup) -> None:
        group = entry.group

        def done(error: ErrorCode, base_offset: Offset) -> None:
            if error and (suppressed := self._repeats.admit(("group.store_failed", error))) is not None:
                _log.warning("group.store_failed", group=group.group_id, error=error.name, suppressed=suppressed)
            self._perform(partition, entry, group.stored(order, error, self._now()))

        # Stored with wall time: another node reads it, and the monotonic clock is this process's own.
        moment, group.state_since_ms = group.state_since_ms, self._clock.wall_ms()
        value = records.group_value(group, order.assignments)
        group.state_since_ms = moment if group.members else group.state_since_ms
        self.log.append(partition.index, [(records.group_key(group.group_id), value)], done)

    # --- time ---

    def _schedule(self, partition: GroupPartition, entry: GroupEntry) -> None:
        """Make sure that the group's next deadline is in the heap. Stale entries are dropped when they come up."""
        deadline = entry.group.next_deadline()
        if deadline is not None and (entry.scheduled_ms is None or deadline < entry.scheduled_ms):
            entry.scheduled_ms = deadline
            heapq.heappush(self._ticks, (deadline, next(self._numbers), partition, entry.group.group_id))

    async def _run_clock(self) -> None:
        while True:
            await asyncio.sleep(_TICK_S)
            self.tick()

    def tick(self) -> None:
        """Let every group whose deadline has passed see the time."""
        now = self._now()
        while self._ticks and self._ticks[0][0] <= now:
            deadline, _, partition, group_id = heapq.heappop(self._ticks)
            entry = partition.entries.get(group_id)
            if entry is None or entry.scheduled_ms != deadline:
                continue
            entry.scheduled_ms = None
            if self.log.ready_state(partition.index) is partition:
                self._perform(partition, entry, entry.group.tick(now))

    # --- offsets ---

    def commit(
        self,
        group_id: str,
        member_id: str,
        instance_id: str | None,
        generation: int,
        offsets: Mapping[TopicPartition, CommittedOffset],
        done: Callable[[CommitResults], None],
        *,
        producer: tuple[ProducerId, int] | None = None,
        guard: int | None = None,
    ) -> None:
        """Commit offsets, in a transaction if `producer` (id, epoch) is given; `done` gets each one's outcome.

        `guard`: with which the transaction was verified; None: it was not.
        """
        partition, entry = self._find(group_id)
        if entry is None:
            if generation >= 0 and producer is None:
                raise api_error(ErrorCode.ILLEGAL_GENERATION)
            entry = self._make(partition, group_id)
        error = entry.group.commit_error(
            member_id, instance_id, generation, self._now(), is_transactional=producer is not None
        )
        if error:
            raise api_error(error)
        results = {
            topic_partition: ErrorCode.OFFSET_METADATA_TOO_LARGE
            for topic_partition, offset in offsets.items()
            if len(offset.metadata.encode()) > MAX_METADATA_BYTES
        }
        accepted = {key: value for key, value in offsets.items() if key not in results}
        if not accepted:
            done(results)
            return

        def stored(error: ErrorCode, base_offset: Offset) -> None:
            entry.offsets.end_append(accepted)
            for index, (topic_partition, offset) in enumerate(accepted.items()):
                results[topic_partition] = error
                if error:
                    continue
                placed = replace(offset, record_offset=base_offset + index)
                if producer is None:
                    entry.offsets.commit(topic_partition, placed)
                else:
                    entry.offsets.commit_in_transaction(producer[0], topic_partition, placed)
                    partition.transactions.setdefault(producer[0], {})[group_id] = None
            done(results)

        producer_id, producer_epoch = producer if producer is not None else (-1, -1)
        pairs = [(records.offset_key(group_id, key), records.offset_value(value)) for key, value in accepted.items()]
        # From here on the log may hold a commit for which a reader of stable offsets has to wait.
        entry.offsets.begin_append(accepted)
        self.log.append(
            partition.index,
            pairs,
            stored,
            producer_id=producer_id,
            producer_epoch=producer_epoch,
            guard=guard,
        )

    def end_transaction(self, index: int, producer_id: ProducerId, *, is_committed: bool) -> None:
        """A producer's marker is in this partition of `__consumer_offsets`."""
        partition = self.log.ready_state(index)
        if partition is not None:
            _end_transaction(partition, producer_id, is_committed=is_committed)

    def offsets_of(self, group_id: str) -> GroupOffsets:
        """The group's offsets; an unknown group has none."""
        _, entry = self._find(group_id)
        return entry.offsets if entry is not None else GroupOffsets()

    def committed(
        self, wanted: Collection[TopicPartition]
    ) -> tuple[tuple[int, ...], dict[TopicPartition, tuple[Offset, int, bool]]]:
        """The partitions of `__consumer_offsets` that are loaded here; and for each of `wanted` that any group has an
        offset for: the lowest, how many groups, and whether an open transaction may change one."""
        found: dict[TopicPartition, tuple[Offset, int, bool]] = {}
        loaded = list(self.log.states())
        for partition in loaded:
            for entry in partition.entries.values():
                for key in wanted:
                    offset = entry.offsets.committed.get(key)
                    is_unstable = entry.offsets.is_unstable(key)
                    if offset is None and not is_unstable:
                        continue
                    lowest, groups, unstable = found.get(key, (Offset(2**63 - 1), 0, False))
                    if offset is not None:
                        lowest = min(lowest, offset.offset)
                    found[key] = (lowest, groups + 1, unstable or is_unstable)
        return tuple(sorted(partition.index for partition in loaded)), found

    # --- administration ---

    def groups(self) -> Iterable[Group]:
        """The groups coordinated here. Raises ApiError COORDINATOR_LOAD_IN_PROGRESS while some are not known yet."""
        if self.log.is_loading:
            raise api_error(ErrorCode.COORDINATOR_LOAD_IN_PROGRESS)
        for partition in self.log.states():
            for _, entry in sorted(partition.entries.items()):
                yield entry.group

    def count(self) -> tuple[int, int]:
        """(groups, committed offsets) coordinated here, as far as they are loaded."""
        entries = [entry for partition in self.log.states() for entry in partition.entries.values()]
        return len(entries), sum(len(entry.offsets.committed) for entry in entries)

    def committed_by_group(self) -> Iterator[tuple[str, int, Mapping[TopicPartition, int]]]:
        """(group, how many members it has, its committed offsets) of those coordinated here, as far as they are loaded."""
        for partition in self.log.states():
            for name, entry in partition.entries.items():
                offsets = {key: int(each.offset) for key, each in entry.offsets.committed.items()}
                yield name, len(entry.group.members), offsets

    def describe(self, group_id: str) -> Group | None:
        """None: there is no such group."""
        _, entry = self._find(group_id)
        return entry.group if entry is not None else None

    async def delete_group(self, group_id: str) -> None:
        """Raises ApiError NON_EMPTY_GROUP, GROUP_ID_NOT_FOUND."""
        partition, entry = self._find(group_id)
        if entry is None or entry.group.state is GroupState.DEAD:
            raise api_error(ErrorCode.GROUP_ID_NOT_FOUND)
        if entry.group.state is not GroupState.EMPTY:
            raise api_error(ErrorCode.NON_EMPTY_GROUP)
        await self._forget(partition, entry, sorted(entry.offsets.committed), and_group=True)

    async def delete_offsets(self, group_id: str, partitions: Sequence[TopicPartition]) -> CommitResults:
        """Forget offsets of topics that no member subscribes to. Raises ApiError GROUP_ID_NOT_FOUND."""
        partition, entry = self._find(group_id)
        if entry is None or entry.group.state is GroupState.DEAD:
            raise api_error(ErrorCode.GROUP_ID_NOT_FOUND)
        group = entry.group
        if group.members and group.protocol_type != CONSUMER:
            raise api_error(ErrorCode.NON_EMPTY_GROUP)
        subscribed = subscribed_topics(group)
        results: CommitResults = {}
        doomed: list[TopicPartition] = []
        for key in partitions:
            if subscribed is None or key.topic in subscribed:
                results[key] = ErrorCode.GROUP_SUBSCRIBED_TO_TOPIC
            else:
                results[key] = ErrorCode.NONE
                if key in entry.offsets.committed:
                    doomed.append(key)
        await self._forget(partition, entry, doomed)
        return results

    async def topics_deleted(self, topics: Iterable[str]) -> None:
        """Offsets of topics that are no more are purged."""
        gone = sorted(set(topics))
        for partition in list(self.log.states()):
            for entry in list(partition.entries.values()):
                if doomed := entry.offsets.of_topics(gone):
                    await self._forget_quietly(partition, entry, doomed)

    async def partitions_removed(self, keys: Iterable[TopicPartition]) -> None:
        """Offsets of partitions that are no more are purged."""
        gone = sorted(set(keys))
        for partition in list(self.log.states()):
            for entry in list(partition.entries.values()):
                if doomed := [key for key in gone if key in entry.offsets.committed]:
                    await self._forget_quietly(partition, entry, doomed)

    async def _forget(
        self, partition: GroupPartition, entry: GroupEntry, doomed: Sequence[TopicPartition], *, and_group: bool = False
    ) -> None:
        """Write tombstones, then forget what was committed before them. Raises ApiError if they could not be written."""
        group_id = entry.group.group_id
        for start in range(0, len(doomed) or 1, _DELETE_CHUNK):
            chunk = doomed[start : start + _DELETE_CHUNK]
            tombstones: list[KeyValue] = [(records.offset_key(group_id, key), None) for key in chunk]
            is_last = start + _DELETE_CHUNK >= len(doomed)
            if and_group and is_last and entry.group.state is GroupState.EMPTY:
                tombstones.append((records.group_key(group_id), None))
            if not tombstones:
                return
            base_offset = await self._append(partition, tombstones)
            for index, key in enumerate(chunk):
                entry.offsets.forget(key, base_offset + index)
        # A member or a commit that came meanwhile keeps the group.
        is_over = and_group and entry.group.state is GroupState.EMPTY and entry.offsets.is_empty()
        if is_over and partition.entries.get(group_id) is entry:
            entry.group.close(ErrorCode.COORDINATOR_NOT_AVAILABLE)
            del partition.entries[group_id]

    async def _append(self, partition: GroupPartition, pairs: Sequence[KeyValue]) -> Offset:
        """The offset of the first record. Raises ApiError if they could not be written."""
        outcome: asyncio.Future[tuple[ErrorCode, Offset]] = asyncio.get_running_loop().create_future()

        def done(error: ErrorCode, base_offset: Offset) -> None:
            if not outcome.done():
                outcome.set_result((error, base_offset))

        self.log.append(partition.index, pairs, done)
        error, base_offset = await outcome
        if error:
            raise api_error(error)
        return base_offset

    async def _forget_quietly(
        self, partition: GroupPartition, entry: GroupEntry, doomed: Sequence[TopicPartition], *, and_group: bool = False
    ) -> None:
        try:
            await self._forget(partition, entry, doomed, and_group=and_group)
        except ApiError as error:
            if (suppressed := self._repeats.admit(("group.expiry_failed", error.code))) is not None:
                _log.warning(
                    "group.expiry_failed", group=entry.group.group_id, error=error.code.name, suppressed=suppressed
                )

    async def _run_expiry(self) -> None:
        while True:
            await asyncio.sleep(_EXPIRY_CHECK_S)
            await self.expire()

    async def expire(self) -> None:
        """Forget offsets that have outlived `offsets.retention.minutes`, and groups with nothing left."""
        retention_ms = self._services.config.offsets_retention_minutes * 60_000
        for partition in list(self.log.states()):
            for entry in list(partition.entries.values()):
                group = entry.group
                doomed: list[TopicPartition] = []
                now_ms = self._clock.wall_ms()
                if group.state is GroupState.EMPTY:
                    idle_since = group.state_since_ms if group.protocol_type else None
                    doomed = entry.offsets.expired(now_ms, retention_ms, idle_since)
                elif group.state is GroupState.STABLE and group.protocol_type == CONSUMER:
                    subscribed = subscribed_topics(group)
                    expired = entry.offsets.expired(now_ms, retention_ms, None)
                    doomed = [key for key in expired if subscribed is not None and key.topic not in subscribed]
                is_over = (
                    group.state is GroupState.EMPTY
                    and not group.pending_members
                    and not entry.offsets.is_pending
                    and len(doomed) == len(entry.offsets.committed)
                )
                if doomed or is_over:
                    await self._forget_quietly(partition, entry, doomed, and_group=is_over)

    # --- loading ---

    def _replay(
        self, partition: GroupPartition, header: BatchHeader, data: list[Record], marker: EndTransactionMarker | None
    ) -> None:
        producer_id = ProducerId(header.producer_id)
        if marker is not None:
            _end_transaction(partition, producer_id, is_committed=marker.commit)
            return
        for record in data:
            try:
                parsed = records.parse(record.key, record.value, record.offset)
            except WireError as error:
                suppressed = self._repeats.admit(("group.record_skipped", partition.index))
                if suppressed is not None:
                    _log.error(
                        "group.record_skipped",
                        partition=partition.index,
                        offset=record.offset,
                        error=str(error),
                        suppressed=suppressed,
                    )
                continue
            match parsed:
                case records.OffsetRecord():
                    self._replay_offset(partition, parsed, record.offset, header, producer_id)
                case records.GroupRecord():
                    self._replay_group(partition, parsed)

    def _replay_offset(
        self,
        partition: GroupPartition,
        parsed: records.OffsetRecord,
        record_offset: int,
        header: BatchHeader,
        producer_id: ProducerId,
    ) -> None:
        entry = partition.entries.get(parsed.group_id) or self._make(partition, parsed.group_id)
        if parsed.value is None:
            entry.offsets.forget(parsed.partition, record_offset)
        elif header.is_transactional:
            entry.offsets.commit_in_transaction(producer_id, parsed.partition, parsed.value)
            partition.transactions.setdefault(producer_id, {})[parsed.group_id] = None
        else:
            entry.offsets.commit(parsed.partition, parsed.value)

    def _replay_group(self, partition: GroupPartition, parsed: records.GroupRecord) -> None:
        if parsed.is_tombstone:
            entry = partition.entries.get(parsed.group_id)
            if entry is not None:
                entry.group = Group(
                    parsed.group_id,
                    initial_rebalance_delay_ms=self._services.config.group_initial_rebalance_delay_ms,
                )
            return
        entry = partition.entries.get(parsed.group_id) or self._make(partition, parsed.group_id)
        entry.group.restore(
            parsed.protocol_type,
            parsed.protocol,
            parsed.generation,
            parsed.leader,
            parsed.members,
            parsed.since_ms,
            self._now(),
        )

    def _loaded(self, partition: GroupPartition) -> None:
        now = self._now()
        for group_id, entry in list(partition.entries.items()):
            group = entry.group
            if group.generation == 0 and not group.members and entry.offsets.is_empty():
                del partition.entries[group_id]
                continue
            for member in group.members.values():
                member.deadline_ms = now + member.session_timeout_ms
            self._schedule(partition, entry)

    def _unloaded(self, partition: GroupPartition) -> None:
        for entry in partition.entries.values():
            for effect in entry.group.close(ErrorCode.NOT_COORDINATOR):
                if isinstance(effect, JoinAnswer | SyncAnswer):
                    assert callable(effect.token)
                    effect.token(effect)


def _end_transaction(partition: GroupPartition, producer_id: ProducerId, *, is_committed: bool) -> None:
    for group_id in partition.transactions.pop(producer_id, {}):
        entry = partition.entries.get(group_id)
        if entry is not None:
            entry.offsets.end_transaction(producer_id, is_committed=is_committed)


def subscribed_topics(group: Group) -> frozenset[str] | None:
    """The topics that members of a consumer group subscribe to; None if one of them does not say it in a way we know."""
    topics: set[str] = set()
    for member in group.members.values():
        subscribed = topics_in(member.metadata(group.protocol))
        if subscribed is None:
            return None
        topics |= subscribed
    return frozenset(topics)
