"""Facade over all replicas hosted by this node, and everything that may be asked of them."""

from __future__ import annotations

import asyncio
import dataclasses
from collections.abc import Callable, Mapping, Sequence
from typing import TYPE_CHECKING

from kafkalite.config import BrokerConfig, TopicConfig
from kafkalite.coordination import broker_znodes, paths
from kafkalite.coordination.coordinator import Coordinator
from kafkalite.coordination.session import SessionKeeper
from kafkalite.env.seams import Env
from kafkalite.env.supervisor import Supervisor
from kafkalite.errors import StorageError
from kafkalite.extension.messages.topics import DescribeReplicasResponse
from kafkalite.extension.messages.watching import HealthProblem
from kafkalite.log.validation import Origin
from kafkalite.model import NO_TOPIC_ID, BrokerEpoch, BrokerId, Buffer, Offset, TopicPartition
from kafkalite.replica import authority
from kafkalite.replica.client_fetch import ClientFetch, FetchTerms
from kafkalite.replica.commands import Commands
from kafkalite.replica.consumer_fetch import ConsumerFetchHandler
from kafkalite.replica.decisions import strays
from kafkalite.replica.decisions.nearby import RACK_AWARE_SELECTOR
from kafkalite.replica.describing import Describing
from kafkalite.replica.doubts import DoubtfulReplicas
from kafkalite.replica.fetch_session import ReplicaFetchDone
from kafkalite.replica.fetcher import FetcherContext, Fetchers
from kafkalite.replica.follower_fetch import FollowerFetch
from kafkalite.replica.hosted import HostedPartitions
from kafkalite.replica.isr_keeper import IsrKeeper
from kafkalite.replica.isr_writer import IsrWriter
from kafkalite.replica.log_starts import LogStarts
from kafkalite.replica.metadata_cache import MetadataCache
from kafkalite.replica.offline_replicas import Healing, OfflineReplicas
from kafkalite.replica.open_transactions import OpenTransactions
from kafkalite.replica.partition import Partition
from kafkalite.replica.produce import ProduceHandler
from kafkalite.replica.purgatory import FetchDone, ProduceDone, ResponseLimit
from kafkalite.replica.replica_fetch import ReplicaFetchHandler
from kafkalite.replica.requests import ListOffsetsRequest, ListOffsetsResponse
from kafkalite.replica.roles import Roles
from kafkalite.replica.startup import own_topics, read_cluster
from kafkalite.replica.stray_logs import StrayLogs
from kafkalite.rpc.messages.control import (
    IsrChange,
    UpdateMetadataRequest,
)
from kafkalite.rpc.messages.replication import (
    LogEnd,
    LogEndsRequest,
    LogEndsResponse,
    ReplicaFetchRequest,
    ReplicaFetchWake,
)
from kafkalite.telemetry.logs import get_logger

if TYPE_CHECKING:
    from kafkalite.coordination.topic_znodes import TopicZnode
    from kafkalite.log.log_manager import LogManager
    from kafkalite.log.partition_log import PartitionLog
    from kafkalite.log.strays import Stray

_log = get_logger(__name__)


class ReplicaManager:
    """Made and started once; its callers are the RPC and Kafka listeners, the controller's commands and the session.

    All callbacks (`done`) are called exactly once, in the loop, maybe before the call returns; they must not raise.

    Args:
        identity: broker id, and the broker epoch of the current registration (-1 before the first).
        notify_isr: told of ISR changes that this leader has made; passes them on to the controller, batched.
    """

    def __init__(
        self,
        *,
        config: BrokerConfig,
        env: Env,
        supervisor: Supervisor,
        logs: LogManager,
        session: SessionKeeper,
        topic_configs: Callable[[str], TopicConfig],
        identity: Callable[[], tuple[BrokerId, BrokerEpoch]],
        cluster_id: Callable[[], str],
        metadata: MetadataCache,
        notify_isr: Callable[[list[IsrChange]], None],
        healing: Healing,
    ) -> None:
        self._config = config
        self._supervisor = supervisor
        self._logs = logs
        self.cold = logs.cold
        self._session = session
        self._identity = identity
        self._topic_configs = topic_configs
        self._cluster_id = cluster_id
        self.metadata = metadata
        self._tasks: list[asyncio.Task[None]] = []
        self._saved_marks: dict[TopicPartition, Offset] = {}
        self._healing = healing
        self.hosted = HostedPartitions(
            clock=env.clock,
            supervisor=supervisor,
            session=session,
            trust_ms=config.zookeeper_session_timeout_ms,
            events=self,
        )
        self._log_starts = LogStarts(logs, supervisor, self.hosted)
        self._doubts = DoubtfulReplicas(self.hosted, logs, metadata)
        following = FollowerFetch(self.hosted, self._doubts.copied)
        self._fetchers = Fetchers(
            FetcherContext(
                config=config,
                network=env.network,
                supervisor=supervisor,
                random=env.random,
                identity=identity,
                cluster_id=cluster_id,
                endpoint=metadata.rpc_endpoint,
                is_synced=self.hosted.is_synced,
                take=following.take,
            )
        )
        self._isr_writer = IsrWriter(
            session,
            env.random,
            is_current=lambda task: self._isr_keeper.is_current(task),
            live_epochs=lambda: metadata.broker_epochs,
            on_settled=lambda settled: self._isr_keeper.on_settled(settled),
        )
        self._isr_keeper = IsrKeeper(
            self.hosted,
            metadata,
            session,
            self._isr_writer,
            lag_time_max_ms=config.replica_lag_time_max_ms,
            notify=notify_isr,
            expire_sessions=lambda silent_ms: self._serving.expire(silent_ms),
        )
        self.restarting = OfflineReplicas(logs, identity, healing)
        self._roles = Roles(
            hosted=self.hosted,
            logs=logs,
            fetchers=self._fetchers,
            topic_configs=topic_configs,
            identity=identity,
            restarting=self.restarting,
            doubtful=self._doubts,
            isr_keeper=self._isr_keeper,
        )
        self._strays = StrayLogs(
            config=config, hosted=self.hosted, logs=logs, metadata=metadata, identity=identity, roles=self._roles
        )
        self.commands = Commands(
            hosted=self.hosted,
            logs=logs,
            fetchers=self._fetchers,
            metadata=metadata,
            identity=identity,
            restarting=self.restarting,
            doubtful=self._doubts,
            isr_keeper=self._isr_keeper,
            roles=self._roles,
            strays=self._strays,
        )
        self._producing = ProduceHandler(self.hosted, metadata)
        self.consuming = ConsumerFetchHandler(
            self.hosted,
            metadata,
            logs.cold,
            fetch_max_bytes=config.fetch_max_bytes,
            selects_by_rack=config.replica_selector_class == RACK_AWARE_SELECTOR,
            rack_of=lambda broker_id: broker.rack if (broker := metadata.broker(broker_id)) is not None else None,
        )
        self._serving = ReplicaFetchHandler(
            self.hosted,
            metadata,
            logs.cold,
            response_max_bytes=config.replica_fetch_response_max_bytes,
            on_caught_up=self._isr_keeper.on_follower_fetch,
        )
        self._serving.throttled_rate = config.leader_replication_throttled_rate
        self.open_transactions = OpenTransactions(self.hosted, env.clock, lambda: config.transaction_max_timeout_ms)
        self._describing = Describing(
            self.hosted, self._strays, self.restarting, logs, metadata, self.open_transactions, env.clock, identity
        )
        logs.pool.host = self

    # --- life ----------------------------------------------------------------------------------

    def start(self) -> None:
        """Begin to carry out commands, to watch over ISRs and to save high watermarks."""
        spawn = self._supervisor.spawn
        self._tasks = [
            spawn("replica.commands", self.commands.queue.run()),
            spawn("replica.isr_keeper", self._isr_keeper.run()),
            spawn("replica.isr_writer", self._isr_writer.run()),
            spawn("replica.open_transactions", self.open_transactions.run()),
            spawn("replica.high_watermark_checkpoint", self._save_marks()),
        ]

    def limit_listed_replicas(self, rate: int) -> None:
        """Bytes/s for replicas that topics list in leader.replication.throttled.replicas and that are not in sync."""
        self._serving.throttled_rate = rate

    def resize_fetchers(self, count: int) -> None:
        """So many fetch connections for each leader from now on."""
        self._fetchers.resize(count)

    async def stop(self) -> None:
        """Stop fetching and committing, answer all who wait, save the high watermarks. The logs stay open."""
        for task in self._tasks:
            task.cancel()
        for task in self._tasks:
            await asyncio.wait([task])
        self._tasks = []
        self._fetchers.close()
        self._producing.close()
        self.hosted.close()
        self._serving.close()
        self.checkpoint_high_watermarks()

    async def find_missing_logs(self, coordinator: Coordinator, *, is_start: bool) -> frozenset[TopicPartition]:
        """Before this node registers: the logs that are not here of partitions that count it as in sync, for its
        registration to tell; as many as that has room for.

        A directory without an identity belongs to a new node, or to one that lost a disk. At the start it is new if nothing
        is missing: whatever is made from its registration on is new for certain, and tells so by when it was written.

        Raises the Coordinator's errors.
        """
        if not self._logs.opening.may_miss_logs() and not (is_start and self._logs.pool.lost_power):
            return frozenset()
        snapshot = await read_cluster(coordinator)
        broker_id = self._identity()[0]
        missing = [
            key
            for state in snapshot.partitions
            if broker_id in (*state.isr, *state.elr)
            and self._logs.get(key := TopicPartition(state.topic, state.partition)) is None
        ]
        if missing:
            reported = broker_znodes.with_room(missing)
            _log.warning("logs.missing", partitions=len(missing), reported=len(reported), first=str(missing[0]))
            return reported
        if is_start and snapshot.is_readable:
            self._logs.opening.confirm_complete()
        return frozenset()

    async def on_session(self, coordinator: Coordinator) -> None:
        """A new ZooKeeper session: take the roles that ZooKeeper names, without waiting for a controller.

        Register with SessionKeeper.on_session. Raises the Coordinator's errors (SessionKeeper repeats it).
        """
        since = self.commands.count
        snapshot = await read_cluster(coordinator)
        if self.metadata.is_empty:
            self.metadata.apply(
                UpdateMetadataRequest(
                    snapshot.controller_id,
                    snapshot.controller_epoch,
                    BrokerEpoch(-1),
                    brokers=snapshot.brokers,
                    partitions=snapshot.partitions,
                    is_full=True,
                    cause="startup",
                )
            )
            self.commands.brokers_changed()
        await self.commands.take_snapshot(
            snapshot.brokers, snapshot.partitions, is_complete=snapshot.is_complete, since=since
        )

    @property
    def needs_classification(self) -> bool:
        """See StrayLogs.needs_classification."""
        return self._strays.needs_classification

    async def set_aside_strays(self, coordinator: Coordinator, *, is_guarded: bool) -> bool:
        """Set aside logs that do not belong to this node any more (kafkalite.replica.decisions.strays): a disk is back, or a complete list did
        not name them (`is_guarded`: then not too many at once).

        False: look again. Raises the Coordinator's errors.
        """
        since = self.commands.count
        names = sorted({key.topic for key in self._strays.suspects()})
        topics: dict[str, TopicZnode | None] = {}
        if names:
            await coordinator.sync(paths.TOPICS)
            topics = await own_topics(coordinator, self._cluster_id(), names)
        return await self.commands.set_aside_strays(topics, since=since, is_guarded=is_guarded)

    def on_session_lost(self) -> None:
        """The session has expired: other nodes may lead partitions of this one. Register with SessionKeeper.on_lost.

        A leader that is alone in sync must know before it commits anything more; the others go on (`authority`) until
        `on_session` has read the present leaders.
        """
        for partition in self.hosted.all():
            if partition.leader is not None and not authority.may_commit(partition.leader):
                self.hosted.resign(
                    partition, "the ZooKeeper session has expired, and this node is the only in-sync replica"
                )

    async def _save_marks(self) -> None:
        interval_s = self._config.replica_high_watermark_checkpoint_interval_ms / 1000
        while True:
            await asyncio.sleep(interval_s)
            self.checkpoint_high_watermarks()

    def checkpoint_high_watermarks(self) -> None:
        """Save all high watermarks, if any has moved."""
        marks = dict(self._roles.stopped_high_watermarks)
        for partition in self.hosted.all():
            if partition.storage_error is None:
                marks[partition.topic_partition] = partition.high_watermark
        if marks == self._saved_marks:
            return
        try:
            self._logs.offsets.save_high_watermarks(marks)
            self._saved_marks = marks
        except StorageError as error:
            _log.error("replica.high_watermarks_not_saved", directory=error.directory, error=str(error))

    def topic_config_changed(self, topic: str) -> None:
        """The topic's configuration is another one now."""
        config = self._topic_configs(topic)
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
        self._fetchers.drop_idle()

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

    # --- what happens to replicas (kafkalite.replica.hosted) ---------------------------------------

    def replica_offline(self, partition: Partition, error: StorageError) -> None:
        """See ReplicaEvents."""
        self._fetchers.stop(partition.topic_partition)
        self._healing.report(partition.topic_partition, online=False)
        self._logs.failures.log_failed(error)

    def log_synced(self, partition: Partition) -> None:
        """See ReplicaEvents."""
        self._fetchers.list_again(partition.topic_partition)

    def start_moved(self, partition: Partition) -> None:
        """See ReplicaEvents."""
        self._log_starts.save(partition)

    # --- questions --------------------------------------------------------------------------------

    def find_drained(self) -> None:
        """Partitions that are to be removed may have become empty: tell the controller soon."""
        self._isr_keeper.schedule_check()

    def is_elsewhere(self, stray: Stray) -> bool:
        """Whether the records of a stray are known to be in sync elsewhere (kafkalite.replica.decisions.strays)."""
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

    # --- data ----------------------------------------------------------------------------------

    def produce(
        self,
        acks: int,
        timeout_ms: int,
        partitions: Sequence[tuple[TopicPartition, Buffer]],
        done: ProduceDone,
        *,
        origin: Origin = "client",
        guards: Mapping[TopicPartition, int] | None = None,
        transaction_version: int = 0,
    ) -> None:
        """See ProduceHandler.produce."""
        self._producing.produce(
            acks, timeout_ms, partitions, done, origin=origin, guards=guards, transaction_version=transaction_version
        )

    def begin_verification(
        self, topic_partition: TopicPartition, producer_id: int, producer_epoch: int, sequence: int
    ) -> int:
        """See ProduceHandler.begin_verification."""
        return self._producing.begin_verification(topic_partition, producer_id, producer_epoch, sequence)

    def end_verification(self, topic_partition: TopicPartition, producer_id: int, guard: int) -> None:
        """See ProduceHandler.end_verification."""
        self._producing.end_verification(topic_partition, producer_id, guard)

    def fetch(self, fetch: ClientFetch, terms: FetchTerms, done: FetchDone, room: ResponseLimit | None = None) -> None:
        """See ConsumerFetchHandler.fetch."""
        self.consuming.fetch(fetch, terms, done, room)

    def log_ends(self, request: LogEndsRequest) -> LogEndsResponse:
        """The ends of logs, hosted or not: a node that has just registered still waits for its commands."""
        ends: list[LogEnd] = []
        for topic, number in request.partitions:
            key = TopicPartition(topic, number)
            hosted = self.hosted.get(key)
            log = self._logs.get(key) if hosted is None else hosted.log
            if log is not None and (hosted is None or hosted.storage_error is None):
                ends.append(LogEnd(topic, number, log.latest_epoch, log.log_end_offset))
        return LogEndsResponse(tuple(ends))

    async def list_offsets(self, request: ListOffsetsRequest) -> ListOffsetsResponse:
        """See ConsumerFetchHandler.list_offsets."""
        return await self.consuming.list_offsets(request)

    def replica_fetch(self, request: ReplicaFetchRequest, done: ReplicaFetchDone) -> None:
        """See ReplicaFetchHandler.fetch."""
        self._serving.fetch(request, done)

    def notify_replica_fetch(self, message: ReplicaFetchWake) -> None:
        """See ReplicaFetchHandler.wake."""
        self._serving.wake(message)

    # --- asked by people and by other parts of the node ------------------------------------------

    def describe(self, topics: Sequence[str], partitions: Sequence[tuple[str, int]] = ()) -> DescribeReplicasResponse:
        """See Describing.describe."""
        return self._describing.describe(topics, partitions)

    def problems(self) -> tuple[HealthProblem, ...]:
        """See Describing.problems."""
        return self._describing.problems()

    def counts(self) -> dict[str, int]:
        """See Describing.counts."""
        return self._describing.counts()

    def partition(self, topic_partition: TopicPartition) -> Partition | None:
        """The replica hosted here; for reading only."""
        return self.hosted.get(topic_partition)

    def high_watermark(self, topic_partition: TopicPartition) -> Offset:
        """For the log's retention and compaction, which never go past it: a log that is not served loses nothing."""
        partition = self.hosted.get(topic_partition)
        return partition.high_watermark if partition is not None else Offset(0)
