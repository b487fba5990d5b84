"""All replicas hosted by this node: the parts that serve them, and how these are put together."""

from __future__ import annotations

import asyncio
import dataclasses
from collections.abc import Sequence
from typing import TYPE_CHECKING, Protocol

from kafkalite.coordination.session import SessionKeeper
from kafkalite.env.own_time import OwnTime
from kafkalite.env.seams import Env
from kafkalite.env.supervisor import Supervisor
from kafkalite.errors import StorageError
from kafkalite.model import NO_LEADER, NO_LEADER_EPOCH, NO_TOPIC_ID, LeaderEpoch, Offset, TopicPartition
from kafkalite.replica.commands import Commands
from kafkalite.replica.consumer_fetch import ConsumerFetchHandler
from kafkalite.replica.decisions import strays
from kafkalite.replica.decisions.nearby import RACK_AWARE_SELECTOR
from kafkalite.replica.describing import Describing
from kafkalite.replica.doubts import DoubtfulReplicas
from kafkalite.replica.fetcher import FetcherContext, Fetchers
from kafkalite.replica.follower_fetch import FollowerFetch
from kafkalite.replica.hosted import HostedPartitions
from kafkalite.replica.isr_keeper import IsrKeeper
from kafkalite.replica.log_starts import LogStarts
from kafkalite.replica.metadata_cache import MetadataCache
from kafkalite.replica.offline_replicas import Healing, OfflineReplicas
from kafkalite.replica.open_transactions import OpenTransactions
from kafkalite.replica.partition import Partition
from kafkalite.replica.produce import ProduceHandler
from kafkalite.replica.replica_fetch import ReplicaFetchHandler
from kafkalite.replica.roles import ReplicaSettings, Roles
from kafkalite.replica.session_roles import SessionRoles
from kafkalite.replica.stray_logs import StrayLogs
from kafkalite.rpc.local_broker import LocalBroker
from kafkalite.rpc.messages.control import (
    IsrChange,
)
from kafkalite.rpc.messages.replication import (
    LogEnd,
    LogEndsRequest,
    LogEndsResponse,
)
from kafkalite.telemetry.logs import get_logger

if TYPE_CHECKING:
    from kafkalite.log.log_manager import LogManager
    from kafkalite.log.partition_log import PartitionLog
    from kafkalite.log.strays import Stray

_log = get_logger(__name__)


class ControllerLink(Protocol):
    """The way to the controller (`controller.client`)."""

    def notify_isr(self, changes: Sequence[IsrChange]) -> None:
        """Pass these changes on, batched; returns at once."""


class ReplicaManager:
    """Made and started once. The listeners, the controller's commands and the session call the part that they need.

    All callbacks (`done`) are called exactly once, in the loop, maybe before the call returns; they must not raise.

    Args:
        healing: hears of replicas that are offline, and may recreate them.
        controller: gets the ISR changes that this node's leaders have made.
    """

    def __init__(
        self,
        *,
        settings: ReplicaSettings,
        env: Env,
        supervisor: Supervisor,
        logs: LogManager,
        session: SessionKeeper,
        local: LocalBroker,
        metadata: MetadataCache,
        controller: ControllerLink,
        healing: Healing,
        own_time: OwnTime | None = None,
    ) -> None:
        self._config = config = settings.now
        self._settings = settings
        self._supervisor = supervisor
        self._logs = logs
        self.cold = logs.cold
        self.local = local
        self._identity = identity = local.identity
        self.metadata = metadata
        self._tasks: list[asyncio.Task[None]] = []
        self._saved_marks: dict[TopicPartition, int] = {}
        self._healing = healing
        self.hosted = HostedPartitions(
            clock=env.clock,
            supervisor=supervisor,
            session=session,
            trust_ms=config.zookeeper_session_timeout_ms,
            silence_ms=config.replica_fetch_wait_max_ms
            + (config.broker_heartbeat_timeout_ms or config.zookeeper_session_timeout_ms),
            events=self,
        )
        self._log_starts = LogStarts(logs, supervisor, self.hosted)
        self._doubts = DoubtfulReplicas(self.hosted, logs, metadata)
        self.following = FollowerFetch(self.hosted, logs.cold, supervisor, local.broker_id, self._doubts.copied)
        self.following.throttled_rate = config.follower_replication_throttled_rate
        self.fetchers = Fetchers(
            FetcherContext(
                config=config,
                network=env.network,
                supervisor=supervisor,
                random=env.random,
                local=local,
                endpoint=metadata.rpc_endpoint,
                is_synced=self.hosted.is_synced,
                take=self.following.take,
                wait_ms=self.following.wait_ms,
            )
        )
        self._isr_keeper = IsrKeeper(
            self.hosted,
            metadata,
            session,
            env.random,
            own_time=own_time or OwnTime(env.clock),
            lag_time_max_ms=config.replica_lag_time_max_ms,
            notify=controller.notify_isr,
        )
        self.offline_replicas = OfflineReplicas(logs, identity, healing)
        self.roles = Roles(
            hosted=self.hosted,
            logs=logs,
            fetchers=self.fetchers,
            settings=settings,
            identity=identity,
            offline_replicas=self.offline_replicas,
            doubtful=self._doubts,
            isr_keeper=self._isr_keeper,
        )
        self.strays = StrayLogs(
            config=config, hosted=self.hosted, logs=logs, metadata=metadata, identity=identity, roles=self.roles
        )
        self.commands = Commands(
            hosted=self.hosted,
            logs=logs,
            fetchers=self.fetchers,
            metadata=metadata,
            identity=identity,
            offline_replicas=self.offline_replicas,
            doubtful=self._doubts,
            isr_keeper=self._isr_keeper,
            roles=self.roles,
            strays=self.strays,
        )
        self.producing = ProduceHandler(self.hosted, metadata)
        self.consuming = ConsumerFetchHandler(
            self.hosted,
            metadata,
            logs.cold,
            fetch_max_bytes=config.fetch_max_bytes,
            selects_by_rack=config.replica_selector_class == RACK_AWARE_SELECTOR,
        )
        self.serving = ReplicaFetchHandler(
            self.hosted,
            metadata,
            logs.cold,
            response_max_bytes=config.replica_fetch_response_max_bytes,
            on_caught_up=self._isr_keeper.on_follower_fetch,
        )
        self.serving.throttled_rate = config.leader_replication_throttled_rate
        self.open_transactions = OpenTransactions(self.hosted, env.clock, config.transaction_max_timeout_ms)
        self.describing = Describing(
            hosted=self.hosted,
            strays=self.strays,
            offline_replicas=self.offline_replicas,
            logs=logs,
            metadata=metadata,
            open_transactions=self.open_transactions,
            clock=env.clock,
            identity=identity,
            lag_time_max_ms=config.replica_lag_time_max_ms,
        )
        self.session_roles = SessionRoles(
            logs=logs, local=local, metadata=metadata, hosted=self.hosted, commands=self.commands, strays=self.strays
        )
        logs.pool.host = self

    # --- life ----------------------------------------------------------------------------------

    def start(self) -> None:
        """Begin to carry out commands, to watch over ISRs and to save high watermarks."""
        spawn = self._supervisor.spawn
        self._tasks = [
            spawn("replica.commands", self.commands.queue.run()),
            spawn("replica.isr_keeper", self._isr_keeper.run(self.serving.expire)),
            spawn("replica.isr_writer", self._isr_keeper.writer.run()),
            spawn("replica.open_transactions", self.open_transactions.run()),
            spawn("replica.high_watermark_checkpoint", self._save_marks()),
        ]

    async def stop(self) -> None:
        """Stop fetching and committing, answer all who wait, save the high watermarks. The logs stay open."""
        for task in self._tasks:
            task.cancel()
        for task in self._tasks:
            await asyncio.wait([task])
        self._tasks = []
        self.fetchers.close()
        self.producing.close()
        self.hosted.close()
        self.serving.close()
        self.checkpoint_high_watermarks()

    async def _save_marks(self) -> None:
        interval_s = self._config.replica_high_watermark_checkpoint_interval_ms / 1000
        while True:
            await asyncio.sleep(interval_s)
            marks = self._high_watermarks()
            if marks != self._saved_marks:
                await self._logs.offsets.save_high_watermarks_apart(marks)
                self._saved_marks = marks

    def _high_watermarks(self) -> dict[TopicPartition, int]:
        """All of them."""
        marks: dict[TopicPartition, int] = dict(self.roles.stopped_high_watermarks)
        for partition in self.hosted.all():
            if partition.storage_error is None:
                marks[partition.topic_partition] = partition.high_watermark
        return marks

    def checkpoint_high_watermarks(self) -> None:
        """Save all high watermarks, if any has moved."""
        marks = self._high_watermarks()
        if marks == self._saved_marks:
            return
        try:
            self._logs.offsets.save_high_watermarks(marks)
            self._saved_marks = marks
        except StorageError as error:
            _log.error("replica.high_watermarks_not_saved", directory=error.directory, error=str(error))

    def topic_config_changed(self, topic: str) -> None:
        """The topic's configuration is another one now."""
        config = self._settings.topic_config(topic)
        for partition in self.hosted.of_topic(topic):
            is_newly_flushed = config.log_flush_before_ack and not partition.config.log_flush_before_ack
            partition.config = config
            partition.log.config = config
            if is_newly_flushed and partition.storage_error is None:
                self.hosted.ensure_flushing(partition)  # earlier records must survive a loss of power from now on, too
            leader = partition.leader
            if leader is not None:
                leader.min_insync_replicas = config.min_insync_replicas
                if not config.log_flush_before_ack:
                    leader.durable_end_offset = leader.log_end_offset
                self.hosted.advance(partition)
        self._isr_keeper.schedule_check()  # min.insync.replicas may have been lowered: then no replica is eligible any more

    # --- what happens to logs (kafkalite.log.host) ------------------------------------------------

    def dir_failed(self, error: StorageError) -> None:
        """A log directory went offline: every replica in it does (KIP-18)."""
        for partition in self.hosted.all():
            if partition.log.directory == error.directory:
                self.hosted.fail_storage(partition, error, is_certain=True)
        self.fetchers.drop_idle()

    def log_failed(self, topic_partition: TopicPartition, error: StorageError) -> None:
        """One log went offline (found by housekeeping, or by ourselves): its replica does."""
        partition = self.hosted.get(topic_partition)
        if partition is not None and partition.log.path == error.path:
            self.hosted.fail_storage(partition, error, is_certain=True)

    def examined(self, directory: str) -> None:
        """Lost replicas may be recreated."""
        self._healing.schedule()

    def exchanged(self, old: PartitionLog, new: PartitionLog) -> None:
        """See HostedPartitions.exchanged."""
        self.hosted.exchanged(old, new)

    def gives_way(self, topic_partition: TopicPartition) -> bool:
        """See LogHost."""
        partition = self.hosted.get(topic_partition)
        if partition is None:
            return self._logs.pool.is_doubtful(topic_partition)
        # Also of one that is offline, and whose log is about to be served.
        is_doubtful = self._logs.pool.is_doubtful(topic_partition)
        is_complete = self._identity()[0] in (*partition.isr, *partition.elr) and not is_doubtful
        return partition.leader is None and partition.leader_id == NO_LEADER and not is_complete

    def replaced(self, old: PartitionLog, new: PartitionLog) -> None:
        """See LogHost."""
        partition = self.hosted.get(old.topic_partition)
        if partition is not None and partition.log is old:
            self.roles.take_log(partition, new)

    # --- what happens to replicas (kafkalite.replica.hosted) ---------------------------------------

    def replica_offline(self, partition: Partition, error: StorageError) -> None:
        """See ReplicaEvents."""
        self.fetchers.stop(partition.topic_partition)
        self._healing.report(partition.topic_partition, online=False)
        self._logs.failures.log_failed(error)

    def log_synced(self, partition: Partition) -> None:
        """See ReplicaEvents."""
        self.fetchers.list_again(partition.topic_partition)

    def start_moved(self, partition: Partition) -> None:
        """See ReplicaEvents."""
        self._log_starts.save(partition)

    # --- questions --------------------------------------------------------------------------------

    def find_drained(self) -> None:
        """Partitions that are to be removed may have become empty: notify the controller soon."""
        self._isr_keeper.schedule_check()

    def all_in_sync(self, topic_partition: TopicPartition) -> bool:
        """See LogHost."""
        state = self.metadata.partition(topic_partition)
        if state is None:
            return False
        partition = self.hosted.get(topic_partition)
        leader = None if partition is None else partition.leader
        if leader is None:
            return set(state.replicas) <= set(state.isr)
        # A replica that is added copies as soon as the leader knows it, and UpdateMetadata may come later.
        return {*state.replicas, *leader.followers} <= set(leader.committed_isr)

    def producers_dropped(self, topic_partition: TopicPartition, count: int) -> None:
        """See LogHost."""
        if (partition := self.hosted.get(topic_partition)) is not None:
            self.hosted.producers_dropped(partition, count)

    def is_elsewhere(self, stray: Stray) -> bool:
        """Whether the records of a stray are known to be in sync elsewhere (kafkalite.replica.decisions.strays)."""
        if stray.is_later:
            return False
        topic, number = stray.topic_partition
        key = stray.topic_partition
        if self.metadata.topic(topic) is None and stray.topic_id != NO_TOPIC_ID:
            key = TopicPartition(self.metadata.topic_name(stray.topic_id) or topic, number)  # a name that was cut
        state = self.metadata.partition(key)
        if state is None or not stray.is_of(key, state.topic_id):
            return False
        partition = self.hosted.get(key)
        if partition is not None and partition.leader is not None:
            state = dataclasses.replace(state, leader=partition.leader.broker_id, isr=partition.leader.committed_isr)
        is_sound = partition is not None and partition.storage_error is None and partition.topic_id == state.topic_id
        return strays.is_elsewhere(self._identity()[0], state, self.metadata.broker_epochs, is_sound_here=is_sound)

    def replica_of(self, stray: Stray) -> Partition | None:
        """The replica here whose log was set aside."""
        return next((p for p in self.hosted.all() if stray.is_of(p.topic_partition, p.topic_id)), None)

    def offline(self) -> list[Partition]:
        """Replicas that are offline, sorted."""
        found = [partition for partition in self.hosted.all() if partition.storage_error is not None]
        return sorted(found, key=lambda partition: partition.topic_partition)

    def log_ends(self, request: LogEndsRequest) -> LogEndsResponse:
        """The ends of logs, hosted or not: a node that has just registered still waits for its commands."""
        ends: list[LogEnd] = []
        for topic, number in request.partitions:
            key = TopicPartition(topic, number)
            hosted = self.hosted.get(key)
            log = hosted.log if hosted is not None else self._logs.get(key)
            if key in self.session_roles.missing and self._logs.pool.is_nowhere(key):
                # The controller waits for one that is not named: it may be readable again.
                ends.append(LogEnd(topic, number, NO_LEADER_EPOCH, Offset(0)))
                continue
            if hosted is None and key in self.session_roles.missing:
                continue  # the log that is here is a former topic's
            if self._logs.pool.may_have_more(key):
                continue  # this is waited for, too
            if log is not None and (hosted is None or hosted.storage_error is None):
                leader = None if hosted is None else hosted.leader
                leads_in = NO_LEADER_EPOCH if leader is None else leader.leader_epoch
                is_doubtful = self._logs.pool.is_doubtful(key)
                # An empty log that is not there in the place of another one: it is enough that the replicas have answered (ADR 78).
                epoch = max(log.latest_epoch, 0) if self._logs.pool.was_here(key) else log.latest_epoch
                ends.append(
                    LogEnd(
                        topic,
                        number,
                        LeaderEpoch(epoch),
                        log.log_end_offset,
                        leads_in,
                        is_doubtful,
                        topic_id=log.topic_id,
                    )
                )
        if request.with_strays:
            asked = {TopicPartition(*each) for each in request.partitions}
            for stray in self._logs.removals.strays():
                own = asked & {stray.topic_partition}
                if stray.is_cut:
                    own = {each for each in asked if stray.is_of(each, stray.topic_id)}
                if not stray.is_requested:
                    ends += [LogEnd(*key, *stray.extent, topic_id=stray.topic_id, is_stray=True) for key in sorted(own)]
        return LogEndsResponse(tuple(ends), self._logs.pool.has_offline_dir)

    def high_watermark(self, topic_partition: TopicPartition) -> Offset:
        """For the log's retention and compaction, which never go past it: a log that is not served loses nothing."""
        partition = self.hosted.get(topic_partition)
        return partition.high_watermark if partition is not None else Offset(0)
