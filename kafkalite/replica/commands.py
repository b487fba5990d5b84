"""The controller's commands: become leader or follower, stop, delete.

One lane: commands are carried out in the order in which they came, each partition's transition in one go, with a
pause for others after every slice. Fences: the controller's epoch (invariant F4), this broker's epoch (invariant F5), the partition's
leader epoch (invariant F3), the topic's id (invariant F18).
"""

from __future__ import annotations

import asyncio
from collections import deque
from collections.abc import Awaitable, Callable, Mapping, Sequence
from typing import TYPE_CHECKING, TypeVar

from kafkalite.config import BrokerConfig, TopicConfig
from kafkalite.errors import ApiError, ErrorCode, StorageError, api_error
from kafkalite.model import (
    EPOCH_DURING_DELETE,
    NO_BROKER_EPOCH,
    NO_LEADER,
    NO_LEADER_EPOCH,
    BrokerEpoch,
    BrokerId,
    ControllerEpoch,
    Offset,
    TopicId,
    TopicPartition,
)
from kafkalite.replica import doubts
from kafkalite.replica.decisions import strays
from kafkalite.replica.decisions.leader import new_leader
from kafkalite.replica.doubts import DoubtfulReplicas
from kafkalite.replica.fetcher import Fetchers
from kafkalite.replica.hosted import HostedPartitions
from kafkalite.replica.metadata_cache import MetadataCache
from kafkalite.replica.offline_replicas import OfflineReplicas
from kafkalite.replica.partition import Partition
from kafkalite.rpc.messages.control import (
    ALL_OF_A_VANISHED_TOPIC,
    Broker,
    LeaderAndIsrRequest,
    LeaderAndIsrResponse,
    PartitionError,
    PartitionState,
    StopPartition,
    StopReplicaRequest,
    StopReplicaResponse,
)
from kafkalite.telemetry.logs import get_logger

if TYPE_CHECKING:
    from kafkalite.coordination.znodes import TopicZnode
    from kafkalite.log.log_manager import LogManager

_log = get_logger(__name__)
T = TypeVar("T")

#: Partitions that are named one by one in the log when something happens to many.
MAX_NAMED = 20
#: Transitions before the loop gets its turn.
SLICE = 16
#: Commands that may wait; a controller has few under way at once.
MAX_QUEUED = 1_000
#: StopPartition.leader_epoch of a topic's deletion: passes whatever the replica's epoch is.


class Commands:
    """Carries out commands. `run` is the lane's task."""

    def __init__(
        self,
        *,
        config: BrokerConfig,
        hosted: HostedPartitions,
        logs: LogManager,
        fetchers: Fetchers,
        metadata: MetadataCache,
        topic_configs: Callable[[str], TopicConfig],
        identity: Callable[[], tuple[BrokerId, BrokerEpoch]],
        on_brokers_changed: Callable[[], None],
        restarting: OfflineReplicas,
        doubtful: DoubtfulReplicas,
        on_read_only: Callable[[], None] = lambda: None,
    ) -> None:
        self._restarting = restarting
        self._doubts = doubtful
        self._config = config
        self._hosted = hosted
        self._logs = logs
        self._fetchers = fetchers
        self._metadata = metadata
        self._topic_configs = topic_configs
        self._identity = identity
        self._on_brokers_changed = on_brokers_changed
        self._on_read_only = on_read_only
        self.controller_epoch = ControllerEpoch(-1)
        #: High watermarks of replicas that were stopped without being deleted.
        self.stopped_high_watermarks: dict[TopicPartition, Offset] = {}
        #: Why strays were left where they are; empty if they were not.
        self.stray_refusal = ""
        #: Local replicas that the last complete list did not name, and whether it is known whose all logs are.
        self._left_out: set[TopicPartition] = set()
        self._is_classified = True
        #: Logs of topics that were not in ZooKeeper when it was read last.
        self._orphans: dict[TopicPartition, TopicId] = {}
        #: What ZooKeeper had assigned to us when we read it after registering, until the controller's complete list.
        self._read_assigned: set[TopicPartition] = set()
        #: Commands carried out so far.
        self.count = 0
        self._queue: deque[tuple[Callable[[], Awaitable[object]], asyncio.Future[object]]] = deque()
        self._arrived = asyncio.Event()

    # --- the lane ------------------------------------------------------------------------------

    async def run(self) -> None:
        """Until cancelled."""
        while True:
            await self._arrived.wait()
            self._arrived.clear()
            while self._queue:
                work, answer = self._queue.popleft()
                try:
                    result = await work()
                except ApiError as error:
                    if not answer.done():
                        answer.set_exception(error)
                        answer.exception()
                    continue
                if not answer.done():
                    answer.set_result(result)

    def leader_and_isr(self, request: LeaderAndIsrRequest) -> Awaitable[LeaderAndIsrResponse]:
        """See LeaderAndIsrRequest. Its place in the lane is that of the call, not of the await."""
        return self._place(lambda: self._leader_and_isr(request))

    def stop_replica(self, request: StopReplicaRequest) -> Awaitable[StopReplicaResponse]:
        """See StopReplicaRequest."""
        return self._place(lambda: self._stop_replica(request))

    def take_snapshot(
        self, brokers: tuple[Broker, ...], partitions: Sequence[PartitionState], *, is_complete: bool, since: int
    ) -> Awaitable[tuple[PartitionError, ...]]:
        """Roles as ZooKeeper has them, read by this node itself (controller design E): no controller is needed for them.

        `since` is `count` from before the reading: after a command in between, nothing is started or classified as stray
        by what was read (it may have been stopped since).
        """
        return self._place(lambda: self._take_snapshot(brokers, partitions, is_complete=is_complete, since=since))

    def _place(self, work: Callable[[], Awaitable[T]]) -> Awaitable[T]:
        if len(self._queue) >= MAX_QUEUED:
            raise api_error(ErrorCode.THROTTLING_QUOTA_EXCEEDED, "too many commands are waiting")
        answer: asyncio.Future[T] = asyncio.get_running_loop().create_future()
        self._queue.append((work, answer))  # type: ignore[arg-type]
        self._arrived.set()
        return answer

    def fence(self, controller_epoch: ControllerEpoch, broker_epoch: BrokerEpoch) -> ErrorCode:
        """Whether a request comes from a controller of the past, or was meant for an earlier life of this broker."""
        if controller_epoch < self.controller_epoch:
            return ErrorCode.STALE_CONTROLLER_EPOCH
        own = self._identity()[1]
        # Not registered yet: commands to this broker are for the life whose registration is still there. That one may
        # have had more records.
        if own == NO_BROKER_EPOCH or broker_epoch < own:
            return ErrorCode.STALE_BROKER_EPOCH
        return ErrorCode.NONE

    # --- leader and follower -------------------------------------------------------------------

    async def _leader_and_isr(self, request: LeaderAndIsrRequest) -> LeaderAndIsrResponse:
        error = self.fence(request.controller_epoch, request.broker_epoch)
        if error is not ErrorCode.NONE:
            _log.warning("replica.command_fenced", error=error.name, controller=request.controller_id)
            return LeaderAndIsrResponse(error)
        self.controller_epoch = request.controller_epoch
        self.count += 1
        if self._metadata.learn_brokers(request.brokers):
            self._on_brokers_changed()
        refusals = await self._apply_all(request.partitions, request.cause)
        if self.controller_epoch > request.controller_epoch:
            return LeaderAndIsrResponse(ErrorCode.STALE_CONTROLLER_EPOCH, tuple(refusals))
        if request.is_init:
            named = {TopicPartition(state.topic, state.partition) for state in request.partitions}
            # The list may be older than what we read ourselves after registering: what ZooKeeper has assigned to us since
            # may be in sync by now. What it has taken from us since is stopped by name (moves and deletions are durable).
            self._left_out_by(named | self._read_assigned)
            self._read_assigned = set()
            if not any(partition.storage_error is not None for partition in self._hosted.all()):
                self._logs.confirm_complete()
        self._fetchers.drop_idle()
        _log.info(
            "replica.commanded",
            cause=request.cause,
            partitions=len(request.partitions),
            refused=len(refusals),
            is_init=request.is_init,
            controller_epoch=request.controller_epoch,
        )
        return LeaderAndIsrResponse(ErrorCode.NONE, tuple(refusals))

    async def _take_snapshot(
        self, brokers: tuple[Broker, ...], partitions: Sequence[PartitionState], *, is_complete: bool, since: int
    ) -> tuple[PartitionError, ...]:
        if self._metadata.learn_brokers(brokers):
            self._on_brokers_changed()
        broker_id = self._identity()[0]
        own = [state for state in partitions if broker_id in state.replicas]
        # Partitions it may not lead yet are still assigned, not stray.
        assigned = {TopicPartition(state.topic, state.partition) for state in own}
        self._read_assigned = assigned
        own = [state for state in own if state.leader != broker_id or self._may_lead_unasked(state)]
        if self.count != since:
            is_complete = False
            own = [s for s in own if self._hosted.get(TopicPartition(s.topic, s.partition)) is not None]
        else:
            self._resign_unconfirmed(own)
        refusals = await self._apply_all(own, "read from ZooKeeper")
        if is_complete:
            self._left_out_by(assigned | {partition.topic_partition for partition in self._hosted.all()})
        self._fetchers.drop_idle()
        _log.info("replica.roles_read", partitions=len(own), refused=len(refusals))
        return tuple(refusals)

    def _resign_unconfirmed(self, states: Sequence[PartitionState]) -> None:
        """End leaderships of an earlier session that ZooKeeper does not confirm."""
        broker_id = self._identity()[0]
        confirmed = {
            TopicPartition(state.topic, state.partition): state.leader_epoch
            for state in states
            if state.leader == broker_id
        }
        for partition in self._hosted.all():
            if partition.leader is not None and confirmed.get(partition.topic_partition) != partition.leader_epoch:
                self._hosted.resign(partition, "ZooKeeper does not have this node as its leader")

    def _may_lead_unasked(self, state: PartitionState) -> bool:
        """After an unclean stop this replica may lack what it had acknowledged: if others are in sync, the controller
        has to choose (invariant F14). Alone in the ISR, nobody has more; and who had a role in this process already is whole."""
        key = TopicPartition(state.topic, state.partition)
        partition = self._hosted.get(key)
        if self._logs.is_doubtful(key):
            return False
        if partition is not None and partition.leader_epoch != NO_LEADER_EPOCH:
            return True
        log = self._logs.get(key)
        return len(state.isr) == 1 or (log is not None and log.clean_start)

    async def _apply_all(self, states: Sequence[PartitionState], cause: str) -> list[PartitionError]:
        refusals: list[PartitionError] = []
        epoch = self.controller_epoch
        for position, state in enumerate(states):
            error = self._apply(state, cause)
            if error is not ErrorCode.NONE:
                refusals.append(PartitionError(state.topic, state.partition, error))
            if position % SLICE == SLICE - 1:
                await asyncio.sleep(0)
                if self.controller_epoch > epoch:  # a new controller has spoken (UpdateMetadata): stop here
                    break
        return refusals

    def _apply(self, state: PartitionState, cause: str) -> ErrorCode:
        """One partition; never fails the others (invariant 13)."""
        key = TopicPartition(state.topic, state.partition)
        broker_id = self._identity()[0]
        if broker_id not in state.replicas:
            return ErrorCode.UNKNOWN_TOPIC_OR_PARTITION
        partition = self._hosted.get(key)
        try:
            if partition is not None and strays.is_other(partition.topic_id, state.topic_id):
                _log.warning("replica.other_topic", partition=str(key), own=partition.topic_id, new=state.topic_id)
                self._stop(partition)
                self._logs.set_stray(key)
                partition = None
            if partition is not None and state.leader_epoch < partition.leader_epoch:
                return ErrorCode.STALE_CONTROLLER_EPOCH
            if partition is not None and partition.storage_error is not None:
                partition = self._begin_again(partition, state)
            if partition is None:
                partition = self._start_replica(key, state)
            if partition.storage_error is not None:
                self._restarting.on_command(partition, state)
                return ErrorCode.KAFKA_STORAGE_ERROR
            if state.leader_epoch == partition.leader_epoch and partition.is_settled:
                self._take_move(partition, state)
                return ErrorCode.NONE  # already applied: nothing is truncated, no fetcher starts again (invariant 30)
            if state.leader == broker_id:
                error = self._become_leader(partition, state)
                if error is ErrorCode.NONE:
                    self._record_role(partition, "replica.leads", cause)
                return error
            self._become_follower(partition, state)
            self._record_role(
                partition, "replica.offline_leader" if state.leader == NO_LEADER else "replica.follows", cause
            )
        except StorageError as error:
            if partition is None:
                _log.error("replica.not_started", partition=str(key), directory=error.directory, error=str(error))
                partition = self._host_offline(key, state, error)
            else:
                self._hosted.fail_storage(partition, error, is_certain=True)
            self._restarting.on_command(partition, state)
            return ErrorCode.KAFKA_STORAGE_ERROR
        except ApiError as error:
            return error.code
        return ErrorCode.NONE

    def _record_role(self, partition: Partition, what: str, cause: str) -> None:
        """For `admin why`."""
        leader = "nobody leads" if partition.leader_id == NO_LEADER else f"leader {partition.leader_id}"
        detail = (
            f"{leader}, epoch {partition.leader_epoch}, ISR {list(partition.current_isr)}, controller epoch "
            f"{partition.controller_epoch}, log end {partition.log.log_end_offset}"
        )
        self._hosted.history.record(str(partition.topic_partition), what, f"{detail}; {cause}" if cause else detail)

    def _begin_again(self, partition: Partition, state: PartitionState) -> Partition | None:
        """An offline replica is dropped (None), so that it is recreated, if allowed; otherwise it stays."""
        if self._restarting.refusal(partition, state):
            return partition
        key = partition.topic_partition
        log = self._logs.get(key)
        if log is not None:
            _log.warning("replica.back", partition=str(key), path=log.path, leader_epoch=state.leader_epoch)
            self._hosted.history.record(str(key), "replica.back", f"{log.path} is in service again")
        else:
            lost = partition.log.directory
            _log.warning("replica.restarted", partition=str(key), lost=lost, leader_epoch=state.leader_epoch)
            self._hosted.history.record(str(key), "replica.restarted", f"{lost} is lost; recreated empty")
        self._stop(partition)
        if log is not None and log.path == partition.log.path and log.topic_id == partition.topic_id:
            self.stopped_high_watermarks[key] = max(partition.follower_high_watermark, self._logs.high_watermark(key))
            return None
        self._restarting.restarts += 1
        return None

    def _host_offline(self, key: TopicPartition, state: PartitionState, error: StorageError) -> Partition:
        """A replica of ours whose log cannot be reached: answers KAFKA_STORAGE_ERROR until it is recreated."""
        log = self._logs.unusable(key, state.topic_id, self._topic_configs(key.topic))
        partition = Partition(key, state.topic_id, log, log.config, Offset(0))
        self._hosted.add(partition)
        self._hosted.fail_storage(partition, error, is_certain=True)
        return partition

    def retry_offline(self) -> Awaitable[None]:
        """Carry out what was commanded for offline replicas, as far as that has become possible."""
        return self._place(self._retry_offline)

    async def _retry_offline(self) -> None:
        for position, (key, state) in enumerate(sorted(self._restarting.commanded.items())):
            partition = self._hosted.get(key)
            if partition is None or partition.storage_error is None:
                self._restarting.forget(key)
            elif self._restarting.commanded.get(key) is state and not self._restarting.refusal(partition, state):
                self._apply(state, "the disk is back, or another disk takes the replica")
            if position % SLICE == SLICE - 1:
                await asyncio.sleep(0)

    def _start_replica(self, key: TopicPartition, state: PartitionState) -> Partition:
        """Host the partition: its log as it is on disk, or a new one. Raises StorageError."""
        config = self._topic_configs(key.topic)
        log = self._logs.get(key)
        if log is not None and strays.is_other(log.topic_id, state.topic_id):
            # Left over from a topic of the same name. If that was deleted while this node was away, the controller sends an order.
            _log.warning("replica.other_topic", partition=str(key), own=log.topic_id, new=state.topic_id)
            self._logs.set_stray(key)
            log = None
        mark = Offset(0)
        lost = self._restarting.may_have_lost(key, state) if log is None else None
        if lost is not None:
            return self._host_offline(key, state, lost)
        is_new_log = log is None
        if log is None:
            self.stopped_high_watermarks.pop(key, None)
            log = self._logs.create(key, state.topic_id, config)
        else:
            log.config = config
            kept = self.stopped_high_watermarks.pop(key, None)
            mark = kept if kept is not None else self._logs.high_watermark(key)
        mark = max(min(mark, log.log_end_offset), log.log_start_offset)
        partition = Partition(key, state.topic_id, log, config, mark)
        self._hosted.add(partition)
        self._restarting.forget(key)
        if (
            is_new_log
            and not state.is_new
            and self._logs.lost_power
            and doubts.should_have_had(state, self._identity()[0])
        ):
            self._doubts.begin(partition)
        else:
            self._doubts.on_hosted(partition)
        return partition

    def _take_state(self, partition: Partition, state: PartitionState) -> None:
        if state.leader_epoch != partition.leader_epoch:
            self._hosted.changed(partition)  # consumers that know the former epoch are fenced
        partition.leader_epoch = state.leader_epoch
        partition.partition_epoch = state.partition_epoch
        partition.controller_epoch = state.controller_epoch
        partition.leader_id = state.leader
        partition.replicas = state.replicas
        partition.isr = state.isr
        partition.elr = state.elr
        partition.last_known_elr = state.last_known_elr
        partition.is_settled = True
        self._take_move(partition, state)

    def _take_move(self, partition: Partition, state: PartitionState) -> None:
        """What comes with a reassignment or a removal, and is not part of the leadership."""
        partition.adding_replicas = state.adding_replicas
        partition.throttle = state.throttle
        if state.is_read_only and not partition.is_read_only:
            self._on_read_only()
        partition.is_read_only = state.is_read_only

    def _become_leader(self, partition: Partition, state: PartitionState) -> ErrorCode:
        broker_id = self._identity()[0]
        if broker_id not in state.isr:
            _log.error("replica.leader_outside_isr", partition=str(partition.topic_partition), isr=list(state.isr))
            return ErrorCode.INVALID_REQUEST
        self._fetchers.stop(partition.topic_partition)
        if doubts.must_refuse(partition, state):
            return self._refuse_to_lead(partition, state)
        log = partition.log
        end = log.log_end_offset
        if partition.is_doubtful:
            _log.error("replica.leads_after_loss", partition=str(partition.topic_partition), log_end_offset=end)
            detail = f"its log, which ends at {end}, may lack committed records; no replica with more is expected"
            self._hosted.history.record(str(partition.topic_partition), "replica.leads_after_loss", detail)
            self._doubts.end(partition, "it leads")
        log.assign_epoch_start(state.leader_epoch, end)
        mark = partition.high_watermark
        leader = new_leader(
            partition.leader,
            broker_id=broker_id,
            leader_epoch=state.leader_epoch,
            replicas=state.replicas,
            isr=tuple(member for member in state.isr if member in state.replicas),
            partition_epoch=state.partition_epoch,
            min_insync_replicas=partition.config.min_insync_replicas,
            log_end_offset=end,
            durable_end_offset=min(log.synced_offset, end) if partition.config.log_flush_before_ack else end,
            high_watermark=mark,
            at_ms=self._hosted.now_ms(),
            elr=state.elr,
            last_known_elr=state.last_known_elr,
        )
        # Followers listed it under the previous epoch; they get this one and list it again.
        self._hosted.drop_entries(partition, ErrorCode.NONE)
        self._take_state(partition, state)
        partition.leader = leader
        self._hosted.leadership.beat()
        if leader.durable_end_offset < end:
            self._hosted.ensure_flushing(partition)
        if leader.is_under_min_isr:
            self._hosted.fail_produce_waiters(partition, ErrorCode.NOT_ENOUGH_REPLICAS_AFTER_APPEND)
        self._hosted.advance(partition)
        return ErrorCode.NONE

    def _refuse_to_lead(self, partition: Partition, state: PartitionState) -> ErrorCode:
        """Until another replica leads, or the controller knows that there is no better one."""
        self._hosted.demote(partition)
        self._take_state(partition, state)
        partition.leader_id = NO_LEADER
        partition.is_settled = False
        _log.error("replica.refuses_to_lead", partition=str(partition.topic_partition), epoch=state.leader_epoch)
        self._hosted.history.record(
            str(partition.topic_partition), "replica.refuses_to_lead", doubts.lasting(partition)
        )
        return ErrorCode.ELIGIBLE_LEADERS_NOT_AVAILABLE

    def _become_follower(self, partition: Partition, state: PartitionState) -> None:
        self._hosted.demote(partition)
        self._take_state(partition, state)
        if state.leader == NO_LEADER:
            self._fetchers.stop(partition.topic_partition)
            if self._identity()[0] in state.isr:
                self._restarting.can_lead(partition)
        else:
            self._fetchers.follow(partition, state.leader)

    # --- stopping ------------------------------------------------------------------------------

    def _stop(self, partition: Partition) -> None:
        self._fetchers.stop(partition.topic_partition)
        self._hosted.demote(partition)
        self._hosted.remove(partition)
        self._restarting.forget(partition.topic_partition)

    async def _stop_replica(self, request: StopReplicaRequest) -> StopReplicaResponse:
        error = self.fence(request.controller_epoch, request.broker_epoch)
        if error is not ErrorCode.NONE:
            _log.warning("replica.command_fenced", error=error.name, controller=request.controller_id)
            return StopReplicaResponse(error)
        self.controller_epoch = request.controller_epoch
        self.count += 1
        refusals: list[PartitionError] = []
        for position, wanted in enumerate(request.partitions):
            error = self._stop_one(wanted)
            if error is not ErrorCode.NONE:
                refusals.append(PartitionError(wanted.topic, wanted.partition, error))
            if position % SLICE == SLICE - 1:
                await asyncio.sleep(0)
        if not await self._logs.sync_removals():
            # The controller removes what was reported as deleted: a loss of power must not bring it back.
            known = {(each.topic, each.partition) for each in refusals}
            refusals += [
                PartitionError(each.topic, each.partition, ErrorCode.KAFKA_STORAGE_ERROR)
                for each in request.partitions
                if each.delete_files and (each.topic, each.partition) not in known
            ]
        self._fetchers.drop_idle()
        _log.info("replica.stopped", cause=request.cause, partitions=len(request.partitions), refused=len(refusals))
        return StopReplicaResponse(ErrorCode.NONE, tuple(refusals))

    def _stop_one(self, wanted: StopPartition) -> ErrorCode:
        if wanted.partition == ALL_OF_A_VANISHED_TOPIC:
            return self._delete_orphans(wanted.topic)
        key = TopicPartition(wanted.topic, wanted.partition)
        partition = self._hosted.get(key)
        log = partition.log if partition is not None else self._logs.get(key)
        if log is not None and strays.is_other(log.topic_id, wanted.topic_id):
            if wanted.delete_files:
                self._logs.removal_requested(key, wanted.topic_id)
            return ErrorCode.INCONSISTENT_TOPIC_ID
        if partition is not None:
            if wanted.leader_epoch != EPOCH_DURING_DELETE and wanted.leader_epoch < partition.leader_epoch:
                return ErrorCode.FENCED_LEADER_EPOCH
            self._stop(partition)
            if not wanted.delete_files:
                self.stopped_high_watermarks[key] = partition.follower_high_watermark
        if not wanted.delete_files and wanted.leader_epoch == EPOCH_DURING_DELETE:
            self._is_classified = False  # the controller reports that its topic has vanished
        detail = "its files are deleted" if wanted.delete_files else "its files stay"
        self._hosted.history.record(str(key), "replica.stopped", detail)
        if not wanted.delete_files:
            return ErrorCode.NONE
        if log is None:
            self._logs.removal_requested(key, wanted.topic_id)
            return ErrorCode.NONE
        self.stopped_high_watermarks.pop(key, None)
        try:
            self._logs.delete(key, wanted.topic_id)
        except StorageError as error:
            _log.error("replica.not_deleted", partition=str(key), directory=error.directory, error=str(error))
            return ErrorCode.KAFKA_STORAGE_ERROR
        return ErrorCode.NONE

    # --- logs without a replica -------------------------------------------------------------------

    def _left_out_by(self, named: set[TopicPartition]) -> None:
        """A complete list does not name some local replicas: `set_aside_strays` decides by the topics' znodes."""
        self._left_out = {log.topic_partition for log in self._logs.all()} - named
        self._is_classified = self._is_classified and not self._left_out

    @property
    def needs_classification(self) -> bool:
        """Whether there may be logs that do not belong to this node (any more): `set_aside_strays` should be called soon."""
        return not self._is_classified or any(self._metadata.topic(key.topic) is not None for key in self._orphans)

    def suspects(self) -> dict[TopicPartition, TopicId]:
        """Logs without a replica, or that the last complete list left out, with their topics' ids."""
        found = [
            log
            for log in self._logs.all()
            if log.topic_partition in self._left_out or self._hosted.get(log.topic_partition) is None
        ]
        return {log.topic_partition: log.topic_id for log in found}

    def set_aside_strays(
        self, topics: Mapping[str, TopicZnode | None], *, since: int, is_guarded: bool
    ) -> Awaitable[bool]:
        """Set aside logs that `topics` (as read from ZooKeeper) does not give to this node; serve no topic that is gone.

        `since` is `count` from before the reading: returns False if there was a command in between; then read again.
        `is_guarded`: too many are left alone.
        """
        return self._place(lambda: self._set_aside_strays(topics, since=since, is_guarded=is_guarded))

    async def _set_aside_strays(self, topics: Mapping[str, TopicZnode | None], *, since: int, is_guarded: bool) -> bool:
        if self.count != since:
            return False
        suspects = self.suspects()
        classified = strays.classify(self._identity()[0], suspects, topics)
        local, max_percent = len(self._logs.all()), self._config.stray_max_fraction_percent
        refusal = strays.refusal(len(classified.surplus), local, max_percent) if is_guarded else ""
        if refusal and refusal != self.stray_refusal:
            _log.error(
                "replica.strays_refused", strays=len(classified.surplus), local=local, first=str(classified.surplus[0])
            )
        self.stray_refusal = refusal
        if not refusal:
            await self._put_away(classified.surplus, self._logs.set_stray, "replica.stray")
        await self._put_away(classified.replaced, self._logs.set_stray, "replica.stray")
        self._record_orphans({key: suspects[key] for key in classified.orphans})
        await self._put_away(classified.orphans, lambda key: None, "")
        self._left_out.clear()
        self._is_classified = True
        return True

    def _record_orphans(self, orphans: dict[TopicPartition, TopicId]) -> None:
        if orphans.keys() - self._orphans.keys():
            names = sorted({key.topic for key in orphans})
            _log.error("replica.topic_vanished", topics=names[:10], count=len(names), replicas=len(orphans))
        self._orphans = orphans

    async def _put_away(
        self, keys: Sequence[TopicPartition], put: Callable[[TopicPartition], None], event: str
    ) -> None:
        for position, key in enumerate(keys):
            partition = self._hosted.get(key)
            if partition is not None:
                self._stop(partition)
                self.stopped_high_watermarks[key] = partition.follower_high_watermark
            if event and position < MAX_NAMED:
                _log.warning(event, partition=str(key), of=len(keys))
            try:
                put(key)
            except StorageError as error:
                _log.error("replica.not_set_aside", partition=str(key), error=str(error))
            if position % SLICE == SLICE - 1:
                await asyncio.sleep(0)

    def unserved(self) -> dict[TopicPartition, TopicId]:
        """Logs whose topic is not in the cluster's metadata: kept until it is there again or an operator decides."""
        if self._metadata.controller_epoch < 0:
            return {}
        found = [log for log in self._logs.all() if self._hosted.get(log.topic_partition) is None]
        return {
            log.topic_partition: log.topic_id
            for log in found
            if self._metadata.topic(log.topic_partition.topic) is None
        }

    def _delete_orphans(self, topic: str) -> ErrorCode:
        """An operator has ordered the deletion of a topic that has vanished: delete its replicas."""
        error = ErrorCode.NONE
        for key in [key for key in self._orphans if key.topic == topic and self._hosted.get(key) is None]:
            self.stopped_high_watermarks.pop(key, None)
            try:
                self._logs.delete(key)
                del self._orphans[key]
            except StorageError as failure:
                _log.error("replica.not_deleted", partition=str(key), directory=failure.directory, error=str(failure))
                error = ErrorCode.KAFKA_STORAGE_ERROR
        for stray in self._logs.strays():
            if stray.topic_partition.topic == topic:
                self._logs.removal_requested(stray.topic_partition, stray.topic_id)
        return error
