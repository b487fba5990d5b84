"""The controller's commands: become leader or follower, stop, delete.

Commands are carried out in the order in which they came, each partition's transition in one go, with a
pause for others after every slice. Fences: the controller's epoch (invariant F4), this broker's epoch (invariant F5), the partition's
leader epoch (invariant F3), the topic's id (invariant F18).
"""

from __future__ import annotations

import asyncio
from collections.abc import Awaitable, Callable, Mapping, Sequence
from functools import partial
from typing import TYPE_CHECKING

from kafkalite.errors import ErrorCode, StorageError
from kafkalite.model import (
    EPOCH_DURING_DELETE,
    NO_BROKER_EPOCH,
    NO_TOPIC_ID,
    BrokerEpoch,
    BrokerId,
    ControllerEpoch,
    LeaderEpoch,
    TopicPartition,
)
from kafkalite.replica.command_queue import CommandQueue
from kafkalite.replica.decisions.strays import is_other
from kafkalite.replica.doubts import DoubtfulReplicas
from kafkalite.replica.fetcher import Fetchers
from kafkalite.replica.hosted import HostedPartitions
from kafkalite.replica.isr_keeper import IsrKeeper
from kafkalite.replica.metadata_cache import MetadataCache
from kafkalite.replica.offline_replicas import OfflineReplicas
from kafkalite.replica.roles import Roles
from kafkalite.replica.stray_logs import StrayLogs
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
    UpdateMetadataRequest,
    UpdateMetadataResponse,
)
from kafkalite.telemetry.logs import get_logger

if TYPE_CHECKING:
    from kafkalite.coordination.topic_znodes import TopicZnode
    from kafkalite.log.log_manager import LogManager

_log = get_logger(__name__)

#: Transitions before the loop gets its turn.
SLICE = 16


class Commands:
    """Carries out commands. `queue.run` has to be a task."""

    def __init__(
        self,
        *,
        hosted: HostedPartitions,
        logs: LogManager,
        fetchers: Fetchers,
        metadata: MetadataCache,
        identity: Callable[[], tuple[BrokerId, BrokerEpoch]],
        offline_replicas: OfflineReplicas,
        doubtful: DoubtfulReplicas,
        isr_keeper: IsrKeeper,
        roles: Roles,
        strays: StrayLogs,
    ) -> None:
        self._offline_replicas = offline_replicas
        self._doubts = doubtful
        self._hosted = hosted
        self._logs = logs
        self._fetchers = fetchers
        self._metadata = metadata
        self._identity = identity
        self._isr_keeper = isr_keeper
        self._roles = roles
        self._strays = strays
        self.queue = CommandQueue()
        self.controller_epoch = ControllerEpoch(-1)
        #: What ZooKeeper had assigned to us when we read it after registering, until the controller's complete list.
        self._read_assigned: set[TopicPartition] = set()
        #: Commands carried out so far.
        self.count = 0

    def leader_and_isr(self, request: LeaderAndIsrRequest) -> Awaitable[LeaderAndIsrResponse]:
        """See LeaderAndIsrRequest. Its place in the queue is that of the call, not of the await."""
        return self.queue.place(lambda: self._leader_and_isr(request))

    def stop_replica(self, request: StopReplicaRequest) -> Awaitable[StopReplicaResponse]:
        """See StopReplicaRequest."""
        return self.queue.place(lambda: self._stop_replica(request))

    def take_snapshot(
        self,
        brokers: tuple[Broker, ...],
        partitions: Sequence[PartitionState],
        *,
        is_complete: bool,
        since: int,
        metadata_version: int,
    ) -> Awaitable[tuple[PartitionError, ...]]:
        """Roles as ZooKeeper has them, read by this node itself (controller design E): no controller is needed for them.

        `since` and `metadata_version` are `count` and the metadata's version from before the reading: after a command in between,
        nothing is started or classified as stray by what was read (it may have been stopped since); after metadata in between,
        no broker is added (it may have gone since).
        """

        def take() -> Awaitable[tuple[PartitionError, ...]]:
            if self._metadata.version == metadata_version and self._metadata.learn_brokers(brokers):
                self.brokers_changed()
            return self._take_snapshot(partitions, is_complete=is_complete, since=since)

        return self.queue.place(take)

    def fence(self, controller_epoch: ControllerEpoch, broker_epoch: BrokerEpoch) -> ErrorCode:
        """Whether a request comes from a controller of the past, or was meant for an earlier incarnation of this broker."""
        if controller_epoch < self.controller_epoch:
            return ErrorCode.STALE_CONTROLLER_EPOCH
        own = self._identity()[1]
        # Not registered yet: commands to this broker are for the incarnation whose registration is still there. That one may
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
            self.brokers_changed()
        refusals = await self._apply_all(request.partitions, request.cause)
        if self.controller_epoch > request.controller_epoch:
            return LeaderAndIsrResponse(ErrorCode.STALE_CONTROLLER_EPOCH, tuple(refusals))
        if request.is_init:
            self._roles.has_begun = True
            named = {TopicPartition(state.topic, state.partition) for state in request.partitions}
            # The list may be older than what we read ourselves after registering: what ZooKeeper has assigned to us since
            # may be in sync by now. What it has taken from us since is stopped by name (moves and deletions are durable).
            self._strays.left_out_by(named | self._read_assigned)
            self._read_assigned = set()
            if not any(partition.storage_error is not None for partition in self._hosted.all()):
                self._logs.opening.confirm_complete()
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
        self, partitions: Sequence[PartitionState], *, is_complete: bool, since: int
    ) -> tuple[PartitionError, ...]:
        broker_id = self._identity()[0]
        own = [state for state in partitions if broker_id in state.replicas]
        # Partitions it may not lead yet are still assigned, not stray.
        assigned = {TopicPartition(state.topic, state.partition) for state in own}
        self._read_assigned = assigned
        own = [state for state in own if self._roles.may_take_unasked(state)]
        if self.count != since:
            is_complete = False
            own = [state for state in own if self._is_of_hosted(state)]
        else:
            self._roles.resign_unconfirmed(own)
        refusals = await self._apply_all(own, "read from ZooKeeper", is_command=False)
        if is_complete:
            self._strays.left_out_by(assigned | {partition.topic_partition for partition in self._hosted.all()})
        self._fetchers.drop_idle()
        _log.info("replica.roles_read", partitions=len(own), refused=len(refusals))
        return tuple(refusals)

    def _is_of_hosted(self, state: PartitionState) -> bool:
        """Whether a state that was read before the last command is of a replica that is here: not of a topic of that name that was here before."""
        partition = self._hosted.get(TopicPartition(state.topic, state.partition))
        return partition is not None and not is_other(partition.topic_id, state.topic_id)

    async def _apply_all(
        self, states: Sequence[PartitionState], cause: str, *, is_command: bool = True
    ) -> list[PartitionError]:
        refusals: list[PartitionError] = []
        epoch = self.controller_epoch
        self._roles.doubt_lost_logs(states)
        for position, state in enumerate(states):
            error = self._roles.apply(state, cause, is_command=is_command)
            if error is not ErrorCode.NONE:
                refusals.append(PartitionError(state.topic, state.partition, error))
            if position % SLICE == SLICE - 1:
                await asyncio.sleep(0)
                if self.controller_epoch > epoch:  # a new controller has spoken (UpdateMetadata): stop here
                    break
        self._save_doubts()
        return refusals

    def _save_doubts(self) -> None:
        """The new ones are durable already."""
        self._logs.placing.forget_ahead()
        self._logs.offsets.save_doubts(durable=False)

    def retry_offline(self) -> Awaitable[None]:
        """Carry out what was commanded for offline replicas, as far as that has become possible."""
        return self.queue.place(self._retry_offline)

    async def _retry_offline(self) -> None:
        commanded = self._offline_replicas.commanded
        self._roles.doubt_lost_logs([state for key, state in commanded.items() if self._is_possible_now(key, state)])
        for position, (key, state) in enumerate(sorted(commanded.items())):
            partition = self._hosted.get(key)
            if partition is None or partition.storage_error is None:
                self._offline_replicas.forget(key)
            elif commanded.get(key) is state and self._is_possible_now(key, state):
                self._roles.apply(state, "the disk is back, or another disk takes the replica")
            if position % SLICE == SLICE - 1:
                await asyncio.sleep(0)
        self._save_doubts()

    def _is_possible_now(self, key: TopicPartition, state: PartitionState) -> bool:
        """Whether an offline replica can do what was commanded for it."""
        partition = self._hosted.get(key)
        if partition is None or partition.storage_error is None:
            return False
        return not self._offline_replicas.refusal(partition, state)

    # --- stopping ------------------------------------------------------------------------------

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
        if not await self._logs.removals.sync():
            # The controller removes what was reported as deleted: a loss of power must not bring it back.
            known = {(each.topic, each.partition) for each in refusals}
            refusals += [
                PartitionError(each.topic, each.partition, ErrorCode.KAFKA_STORAGE_ERROR)
                for each in request.partitions
                if each.delete_files and (each.topic, each.partition) not in known
            ]
        self._fetchers.drop_idle()
        _log.info("replica.stopped", cause=request.cause, partitions=len(request.partitions), refused=len(refusals))
        # Not only what was there last: an earlier copy may be on a disk that has failed since, and so was recreated elsewhere.
        away = [
            (each.topic, each.partition)
            for each in request.partitions
            if each.delete_files and each.topic_id != NO_TOPIC_ID and self._logs.pool.has_offline_dir
        ]
        return StopReplicaResponse(ErrorCode.NONE, tuple(refusals), tuple(away))

    def _stop_one(self, wanted: StopPartition) -> ErrorCode:
        if wanted.partition == ALL_OF_A_VANISHED_TOPIC:
            return self._strays.delete_orphans(wanted.topic)
        key = TopicPartition(wanted.topic, wanted.partition)
        partition = self._hosted.get(key)
        log = partition.log if partition is not None else self._logs.get(key)
        topic_id = self._logs.failures.failed_topic_id(key) if log is None else log.topic_id
        if topic_id is not None and is_other(topic_id, wanted.topic_id):
            deletion = partial(self._logs.removals.deletion_requested, key, wanted.topic_id)
            failed = wanted.delete_files and not _is_done(key, deletion)
            return ErrorCode.KAFKA_STORAGE_ERROR if failed else ErrorCode.INCONSISTENT_TOPIC_ID
        if partition is not None:
            if wanted.leader_epoch != EPOCH_DURING_DELETE and wanted.leader_epoch < partition.leader_epoch:
                return ErrorCode.FENCED_LEADER_EPOCH
            self._roles.stop(partition)
            if not wanted.delete_files:
                self._roles.stopped_high_watermarks[key] = partition.follower_high_watermark
        if not wanted.delete_files and wanted.leader_epoch == EPOCH_DURING_DELETE:
            self._strays.must_classify()  # the controller reports that its topic has vanished
        if partition is not None or log is not None:  # commands to delete are repeated while a disk is away
            detail = "its files are deleted" if wanted.delete_files else "its files stay"
            self._hosted.history.record(str(key), "replica.stopped", detail, topic_id=wanted.topic_id)
        if not wanted.delete_files:
            return ErrorCode.NONE
        delete = self._logs.removals.deletion_requested
        if topic_id is not None:
            self._roles.stopped_high_watermarks.pop(key, None)
            delete = self._logs.delete
        return ErrorCode.NONE if _is_done(key, partial(delete, key, wanted.topic_id)) else ErrorCode.KAFKA_STORAGE_ERROR

    # --- metadata --------------------------------------------------------------------------------

    def update_metadata(self, request: UpdateMetadataRequest) -> UpdateMetadataResponse:
        """Metadata for clients. Carried out at once: it need not wait for its turn."""
        error = self.fence(request.controller_epoch, request.broker_epoch)
        if error is not ErrorCode.NONE:
            return UpdateMetadataResponse(error, self.controller_epoch)
        self.controller_epoch = request.controller_epoch
        if self._metadata.apply(request):
            self.brokers_changed()
        self._doubts.on_metadata(self._identity()[0])
        return UpdateMetadataResponse(ErrorCode.NONE)

    def brokers_changed(self) -> None:
        """The live brokers have changed: followers may join the ISR, leaders may be reachable again."""
        self._isr_keeper.schedule_check()
        self._fetchers.retry()

    # --- logs without a replica ------------------------------------------------------------------

    def set_aside_strays(
        self,
        topics: Mapping[str, TopicZnode | None],
        epochs: Mapping[TopicPartition, LeaderEpoch],
        *,
        since: int,
        is_guarded: bool,
    ) -> Awaitable[bool]:
        """See StrayLogs.set_aside.

        `since` is `count` from before the reading: returns False if there was a command in between; then read again.
        """

        async def set_aside() -> bool:
            if self.count != since:
                return False
            await self._strays.set_aside(topics, epochs, is_guarded=is_guarded)
            return True

        return self.queue.place(set_aside)


def _is_done(key: TopicPartition, delete: Callable[[], None]) -> bool:
    try:
        delete()
    except StorageError as error:
        _log.error("replica.not_deleted", partition=str(key), directory=error.directory, error=str(error))
        return False
    return True
