"""The share coordinator: states of shared partitions, of the `__share_group_state` partitions that this node leads.

A shell around `state`: a transition is appended, then applied, so that what is in memory is what the log says. It is
answered when it is replicated. A read is answered when all that it shows is replicated.
"""

from __future__ import annotations

import asyncio
from base64 import urlsafe_b64decode, urlsafe_b64encode
from collections.abc import Iterator, Sequence
from contextlib import suppress
from dataclasses import field
from functools import partial
from typing import NamedTuple
from uuid import UUID

from kafkalite.coordinators.append_sizes import cuts
from kafkalite.coordinators.committed import CommittedAppends, WrittenPartition
from kafkalite.coordinators.internal_log import InternalLog
from kafkalite.coordinators.services import Services
from kafkalite.coordinators.shares import state as rules
from kafkalite.coordinators.shares.batches import completed
from kafkalite.coordinators.shares.delivery_states import StateBatch
from kafkalite.coordinators.shares.persistence import ShareKey, ShareState
from kafkalite.coordinators.shares.records import encode_snapshot, encode_update, parse
from kafkalite.coordinators.shares.state import Change, StoredState
from kafkalite.errors import ApiError, ErrorCode, StorageError, api_error
from kafkalite.lazy_dataclass import dataclass
from kafkalite.model import NO_OFFSET, SHARE_TOPIC, LeaderEpoch, Offset, TopicPartition
from kafkalite.protocol.errors import WireError
from kafkalite.protocol.topic_ids import from_wire
from kafkalite.record.batch import BatchHeader
from kafkalite.record.reader import EndTransactionMarker, Record
from kafkalite.rpc.messages.control import Broker
from kafkalite.telemetry.logs import get_logger
from kafkalite.telemetry.repeats import Repeats

_log = get_logger(__name__)

#: The time in seconds that the replicas of a partition get to delete records, before the next partition's turn.
_PRUNED_WITHIN_S = 10.0
#: Snapshots that are written in one step.
_CHUNK = 50
#: Records that a partition's log may have for each of its keys, and besides, before idle keys are written again.
_RECORDS_PER_KEY, _RECORDS_BESIDES = 2, 1_000


class ShareSummary(NamedTuple):
    """Of a state: `completed` counts the offsets from `start_offset` on that nobody gets any more."""

    state_epoch: int
    leader_epoch: int
    start_offset: Offset
    completed: int


@dataclass(slots=True)
class ShareEntry:
    """One key. `snapshot_at`: the offset of its last snapshot; `updates` since then; `written_to`: the end of its last record.

    `may_go_back`: a new leader has read the state and not written yet. If its log ends below the start offset (an unclean
    election), the group begins again at that end. The log says so, too: the next coordinator knows it.
    """

    state: StoredState
    snapshot_at: Offset
    updates: int = 0
    written_to: Offset = Offset(0)
    may_go_back: bool = False

    def change(self, after: StoredState, offset: Offset) -> None:
        """A record at `offset` has led to this state."""
        self.may_go_back = rules.may_go_back(self.state, after, was_allowed=self.may_go_back)
        self.state = after
        self.updates += 1
        self.written_to = Offset(offset + 1)


@dataclass(slots=True)
class SharePartitionStates:
    """The states of one partition of `__share_group_state`."""

    index: int
    leader_epoch: LeaderEpoch
    entries: dict[ShareKey, ShareEntry] = field(default_factory=dict)
    written: WrittenPartition = field(default_factory=WrittenPartition)

    def snapshot(self, key: ShareKey, state: StoredState, offset: Offset) -> None:
        """The record at `offset` is a snapshot of this key."""
        known = self.entries.get(key)
        may_go_back = known is not None and rules.may_go_back(known.state, state, was_allowed=known.may_go_back)
        self.entries[key] = ShareEntry(state, offset, written_to=Offset(offset + 1), may_go_back=may_go_back)


def coordinator_key(key: ShareKey) -> str:
    """What FindCoordinator takes, and whose hash chooses the partition (SharePartitionKey)."""
    topic_id = urlsafe_b64encode(key.topic_id.bytes).rstrip(b"=").decode()
    return f"{key.group_id}:{topic_id}:{key.partition}"


def share_key(text: str) -> ShareKey:
    """The key that `coordinator_key` made into `text`. Raises ApiError INVALID_REQUEST."""
    group_id, topic_id, partition = ("", "", "") if text.count(":") < 2 else text.rsplit(":", 2)
    try:
        raw = urlsafe_b64decode(topic_id + "==")
        if not group_id or len(raw) != 16:
            raise ValueError
        return ShareKey(group_id, UUID(bytes=raw), int(partition))
    except ValueError:
        raise api_error(ErrorCode.INVALID_REQUEST, f"{text!r} is not group:topic id:partition") from None


class ShareCoordinator:
    """See the module. Methods raise ApiError, also NOT_COORDINATOR and COORDINATOR_LOAD_IN_PROGRESS."""

    def __init__(self, services: Services) -> None:
        self._services = services
        self._repeats = Repeats(services.clock.monotonic)
        self.log: InternalLog[SharePartitionStates] = InternalLog(
            services,
            SHARE_TOPIC,
            SharePartitionStates,
            self._replay,
            lambda partition: None,
            lambda partition: None,
            when_committed=True,
        )
        self._appends = CommittedAppends(self.log)

    def start(self) -> None:
        spawn = self._services.supervisor.spawn
        spawn("shares.leadership", self.log.run())
        spawn("shares.pruning", self._run_pruning())

    async def coordinator_of(self, key: ShareKey) -> Broker:
        """The node that coordinates it. Raises ApiError COORDINATOR_NOT_AVAILABLE, CoordinatorError."""
        return await self.log.coordinator_of(coordinator_key(key))

    # --- requests ---

    async def initialize(self, key: ShareKey, state_epoch: int, start_offset: Offset) -> None:
        """See SharePersister."""
        _check_key(key)
        if self._is_deleted(key.topic_id):
            raise api_error(ErrorCode.UNKNOWN_TOPIC_OR_PARTITION, "the topic was deleted")
        if start_offset < NO_OFFSET:
            raise api_error(ErrorCode.INVALID_REQUEST, f"there is no start offset {start_offset}")
        partition, entry = self._find(key)
        known = None if entry is None else entry.state
        state = rules.initialized(known, state_epoch, start_offset, self._services.clock.wall_ms())
        if state is not None:
            await self._store_snapshot(partition, key, state)
        elif entry is not None:
            await self._appends.wait(partition, entry.written_to)

    async def read(self, key: ShareKey, leader_epoch: int) -> ShareState:
        """See SharePersister."""
        _check_key(key)
        partition, entry = self._find(key)
        state, change = rules.after_read(None if entry is None else entry.state, leader_epoch)
        assert entry is not None
        if change is None:
            await self._appends.wait(partition, entry.written_to)
        else:
            await self._store_change(partition, key, entry, change, state)
        return ShareState(state.state_epoch, state.leader_epoch, state.start_offset, state.batches)

    async def write(
        self, key: ShareKey, state_epoch: int, leader_epoch: int, start_offset: Offset, batches: Sequence[StateBatch]
    ) -> None:
        """See SharePersister."""
        _check_key(key)
        partition, entry = self._find(key)
        state = rules.check_write(None if entry is None else entry.state, state_epoch, leader_epoch)
        assert entry is not None
        change = rules.change_of(state, start_offset, batches)
        if leader_epoch == state.leader_epoch and not entry.may_go_back:
            change = rules.unless_late(state, change)
        await self._store_change(partition, key, entry, change, rules.applied(state, change))

    async def delete(self, key: ShareKey) -> None:
        """See SharePersister."""
        _check_key(key)
        partition, entry = self._find(key)
        if entry is None:
            await self._appends.wait(partition)
            return
        await self._appends.store(
            partition,
            [encode_snapshot(key, None)],
            lambda base: partition.entries.pop(key, None),
        )

    async def summary(self, key: ShareKey) -> ShareSummary:
        """The start offset is -1 if there is no state."""
        _check_key(key)
        partition, entry = self._find(key)
        if entry is None:
            return ShareSummary(0, 0, NO_OFFSET, 0)
        state = entry.state
        await self._appends.wait(partition, entry.written_to)
        return ShareSummary(state.state_epoch, state.leader_epoch, state.start_offset, completed(state.batches))

    def _find(self, key: ShareKey) -> tuple[SharePartitionStates, ShareEntry | None]:
        partition = self.log.state_for(coordinator_key(key))
        return partition, partition.entries.get(key)

    # --- the log ---

    async def _store_change(
        self, partition: SharePartitionStates, key: ShareKey, entry: ShareEntry, change: Change, after: StoredState
    ) -> None:
        if entry.updates >= self._services.config.share_coordinator_snapshot_update_records_per_snapshot:
            await self._store_snapshot(partition, key, rules.snapshot(after, self._services.clock.wall_ms()))
            return

        def apply(base: Offset) -> None:
            entry.change(after, base)

        await self._appends.store(partition, [encode_update(key, change, after)], apply)

    async def _store_snapshot(self, partition: SharePartitionStates, key: ShareKey, state: StoredState) -> None:
        def apply(base: Offset) -> None:
            partition.snapshot(key, state, base)

        await self._appends.store(partition, [encode_snapshot(key, state)], apply)

    def _replay(
        self,
        partition: SharePartitionStates,
        header: BatchHeader,
        data: list[Record],
        marker: EndTransactionMarker | None,
    ) -> None:
        for record in data:
            try:
                key, stored = parse(record.key, record.value)
            except WireError as error:
                suppressed = self._repeats.admit(("share.record_skipped", partition.index))
                if suppressed is not None:
                    _log.error(
                        "share.record_skipped",
                        partition=partition.index,
                        offset=record.offset,
                        error=str(error),
                        suppressed=suppressed,
                    )
                continue
            self._replay_record(partition, key, stored, Offset(record.offset))
        partition.written.end = Offset(header.next_offset)

    def _replay_record(
        self, partition: SharePartitionStates, key: ShareKey, stored: StoredState | Change | None, offset: Offset
    ) -> None:
        entry = partition.entries.get(key)
        if stored is None:
            partition.entries.pop(key, None)
        elif isinstance(stored, StoredState):
            partition.snapshot(key, stored, offset)
        elif entry is not None and entry.state.snapshot_epoch == stored.snapshot_epoch:
            # Without its snapshot an update was pruned half: the snapshot that follows has all of it.
            entry.change(rules.applied(entry.state, stored), offset)

    # --- what is not needed any more ---

    async def _run_pruning(self) -> None:
        while True:
            await asyncio.sleep(self._services.config.share_coordinator_state_topic_prune_interval_ms / 1000)
            await self.prune()

    async def prune(self) -> None:
        """Delete the records before the oldest snapshot that is needed, in every partition coordinated here. States of deleted topics go first:
        a request to begin one may have come when the group's coordinator had given up on it, and had deleted the state."""
        for partition in list(self.log.states()):
            try:
                for _ in self._delete_former(partition):
                    await asyncio.sleep(0)
                for _ in self._rewrite_idle(partition):
                    await asyncio.sleep(0)
                await self._prune(partition)
            except (ApiError, StorageError) as error:
                suppressed = self._repeats.admit(("share.prune_failed", partition.index))
                if suppressed is not None:
                    _log.info("share.prune_failed", partition=partition.index, error=str(error), suppressed=suppressed)

    def _is_deleted(self, topic_id: UUID) -> bool:
        return self._services.is_id_deleted(from_wire(topic_id.bytes))

    def _delete_former(self, partition: SharePartitionStates) -> Iterator[None]:
        """The states of topics of whose deletion this node has heard."""
        gone = {topic_id for topic_id in {key.topic_id for key in partition.entries} if self._is_deleted(topic_id)}
        doomed = [key for key in partition.entries if key.topic_id in gone]
        for position in range(0, len(doomed), _CHUNK):
            if self.log.ready_state(partition.index) is not partition:
                return
            self._delete_all(
                partition, [key for key in doomed[position : position + _CHUNK] if key in partition.entries]
            )
            yield

    def _delete_all(self, partition: SharePartitionStates, keys: Sequence[ShareKey]) -> None:
        def apply(_: Offset) -> None:
            for key in keys:
                del partition.entries[key]

        if keys:
            self._appends.append(partition, [encode_snapshot(key, None) for key in keys], apply)

    def _rewrite_idle(self, partition: SharePartitionStates) -> Iterator[None]:
        """Snapshots of keys that nobody writes, if they hold back many records of others."""
        target = TopicPartition(SHARE_TOPIC, partition.index)
        start, end = self._services.partitions.local_bounds(target)
        if end - start <= _RECORDS_PER_KEY * len(partition.entries) + _RECORDS_BESIDES:
            return
        now_ms = self._services.clock.wall_ms()
        before_ms = now_ms - self._services.config.share_coordinator_cold_partition_snapshot_interval_ms
        # A time in the future is that of a clock that was wrong.
        idle = [key for key, entry in partition.entries.items() if not before_ms < entry.state.written_ms <= now_ms]
        for position in range(0, len(idle), _CHUNK):
            if self.log.ready_state(partition.index) is not partition:
                return
            chunk = [key for key in idle[position : position + _CHUNK] if key in partition.entries]
            self._rewrite(partition, chunk, now_ms)
            yield

    def _rewrite(self, partition: SharePartitionStates, keys: Sequence[ShareKey], now_ms: int) -> None:
        states = [(key, rules.snapshot(partition.entries[key].state, now_ms)) for key in keys]
        records = [encode_snapshot(key, state) for key, state in states]

        def apply(written: Sequence[tuple[ShareKey, StoredState]], base: Offset) -> None:
            for offset, (key, state) in enumerate(written, base):
                partition.snapshot(key, state, Offset(offset))

        start = 0
        for end in cuts(records):
            self._appends.append(partition, records[start:end], partial(apply, states[start:end]))
            start = end

    async def _prune(self, partition: SharePartitionStates) -> None:
        target = TopicPartition(SHARE_TOPIC, partition.index)
        needed = min((entry.snapshot_at for entry in partition.entries.values()), default=partition.written.end)
        # A snapshot that is not replicated yet can be lost with this leader, and the one before it is needed then.
        await self._appends.wait(partition)
        if self.log.ready_state(partition.index) is not partition:
            return
        before = min(needed, self._services.partitions.local_high_watermark(target))
        if before > self._services.partitions.local_bounds(target)[0]:
            deleted = self._services.partitions.delete_records(target, before)
            with suppress(TimeoutError):  # a replica that is down deletes them when it is back
                async with asyncio.timeout(_PRUNED_WITHIN_S):
                    await deleted


def _check_key(key: ShareKey) -> None:
    if not key.group_id or key.partition < 0:
        raise api_error(ErrorCode.INVALID_REQUEST, f"there is no partition {key.partition} of group {key.group_id!r}")
