"""What a node does with its replicas when a ZooKeeper session begins or ends (docs/adr/0008)."""

from __future__ import annotations

import asyncio
from collections.abc import Callable, Coroutine
from typing import TYPE_CHECKING, Any

from kafkalite.coordination import broker_znodes, paths
from kafkalite.coordination.coordinator import Coordinator
from kafkalite.coordination.retry import side_by_side
from kafkalite.errors import ApiError, ErrorCode
from kafkalite.model import BrokerEpoch, LeaderEpoch, TopicPartition
from kafkalite.replica import authority
from kafkalite.replica.commands import Commands
from kafkalite.replica.decisions.strays import is_other
from kafkalite.replica.doubts import may_be_older
from kafkalite.replica.hosted import HostedPartitions
from kafkalite.replica.metadata_cache import MetadataCache
from kafkalite.replica.startup import ClusterSnapshot, own_topics, read_cluster, state_epochs
from kafkalite.replica.stray_logs import StrayLogs
from kafkalite.rpc.local_broker import LocalBroker
from kafkalite.rpc.messages.control import UpdateMetadataRequest
from kafkalite.telemetry.logs import get_logger

if TYPE_CHECKING:
    from kafkalite.coordination.topic_znodes import TopicZnode
    from kafkalite.log.log_manager import LogManager

_log = get_logger(__name__)

#: The pause before the roles are read again because too many commands were waiting.
_AGAIN_S = 0.5

_Record = Callable[[Coordinator], Coroutine[Any, Any, None]]


class SessionRoles:
    """Reads from ZooKeeper which roles this node has."""

    def __init__(
        self,
        *,
        logs: LogManager,
        local: LocalBroker,
        metadata: MetadataCache,
        hosted: HostedPartitions,
        commands: Commands,
        strays: StrayLogs,
    ) -> None:
        self._logs = logs
        self._local = local
        self._metadata = metadata
        self._hosted = hosted
        self._commands = commands
        self._strays = strays
        #: What `find_missing_logs` has found.
        self.missing: frozenset[TopicPartition] = frozenset()

    async def find_missing_logs(self, coordinator: Coordinator, *, is_start: bool) -> frozenset[TopicPartition]:
        """Before this node registers: the logs that are not here of partitions that count it as in sync, for its
        registration to report; as many as that has room for. Not those that may be readable again: they are in doubt, and waited for.
        At the start, logs that may be older copies are put in doubt.

        A directory without an identity belongs to a new node, or to one that lost a disk. At the start it is new if nothing
        is missing: whatever is made from its registration on is new for certain: the time of its creation shows it.

        Raises the Coordinator's errors.
        """
        pool = self._logs.pool
        self.missing = frozenset()
        opening = self._logs.opening
        if not opening.may_miss_logs() and not (is_start and pool.lost_power):
            return frozenset()
        # An earlier state may not have this node in sync, or in an epoch before the one that its log lacks.
        await coordinator.sync(paths.TOPICS)
        snapshot = await read_cluster(coordinator)
        missing: list[TopicPartition] = []
        for state in snapshot.partitions:
            if self._local.broker_id not in (*state.isr, *state.elr):
                continue
            key = TopicPartition(state.topic, state.partition)
            log = self._logs.get(key)
            if log is None or is_other(log.topic_id, state.topic_id):
                missing.append(key)
            elif is_start and opening.may_have_newer(log) and may_be_older(log, state):
                pool.doubt(key, is_doubtful=True)
        self._logs.offsets.save_doubts(durable=True)
        if missing:
            self.missing = frozenset(missing)
            pool.expect(missing)
            unreadable = pool.unreadable()
            reported = broker_znodes.with_room(key for key in missing if key not in unreadable)
            _log.warning("logs.missing", partitions=len(missing), reported=len(reported), first=str(missing[0]))
            return reported
        if is_start and snapshot.is_readable:
            opening.confirm_complete()
        return frozenset()

    async def on_session(self, coordinator: Coordinator, record: _Record | None = None) -> None:
        """A new ZooKeeper session: take the roles that ZooKeeper names, without waiting for a controller.

        `record`: what it has to write before it leads; it reads meanwhile. Safe to repeat.

        Register with SessionKeeper.on_session. Raises the Coordinator's errors (SessionKeeper repeats it).
        """
        while True:
            try:
                await self._take_roles(coordinator, record)
            except ApiError as error:
                if error.code is not ErrorCode.THROTTLING_QUOTA_EXCEEDED:
                    raise
                _log.warning("replica.roles_read_later", reason=str(error))
                await asyncio.sleep(_AGAIN_S)  # what was read is old when there is room again
            else:
                return

    async def _take_roles(self, coordinator: Coordinator, record: _Record | None) -> None:
        """Raises the Coordinator's errors; ApiError THROTTLING_QUOTA_EXCEEDED: too many commands of controllers are waiting."""
        since, metadata_version = self._commands.count, self._metadata.version
        async with side_by_side() as group:
            if record is not None:
                group.create_task(record(coordinator))
            reading = group.create_task(self._read(coordinator))
        snapshot = reading.result()
        if self._metadata.is_empty:
            self._metadata.apply(
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
            self._commands.brokers_changed()
            metadata_version = self._metadata.version
        await self._commands.take_snapshot(
            snapshot.brokers,
            snapshot.partitions,
            is_complete=snapshot.is_complete,
            since=since,
            metadata_version=metadata_version,
        )

    @staticmethod
    async def _read(coordinator: Coordinator) -> ClusterSnapshot:
        # A command may have deleted replicas of a topic whose request this node's server does not show yet.
        await coordinator.sync(paths.DELETE_TOPICS)
        return await read_cluster(coordinator)

    async def set_aside_strays(self, coordinator: Coordinator, *, is_guarded: bool) -> bool:
        """Set aside logs that do not belong to this node any more (kafkalite.replica.decisions.strays): a disk is back, or a complete list did
        not name them (`is_guarded`: then not too many at once).

        False: look again. Raises the Coordinator's errors.
        """
        since = self._commands.count
        suspects = sorted(self._strays.suspects())
        topics: dict[str, TopicZnode | None] = {}
        epochs: dict[TopicPartition, LeaderEpoch] = {}
        if suspects:
            await coordinator.sync(paths.TOPICS)
            names = sorted({key.topic for key in suspects})
            topics = await own_topics(coordinator, self._local.cluster_id, names)
            # Not from the metadata of a controller: they may be of the time before ZooKeeper was restored.
            epochs = await state_epochs(coordinator, suspects)
        return await self._commands.set_aside_strays(topics, epochs, since=since, is_guarded=is_guarded)

    def on_session_lost(self) -> None:
        """The session has expired: other nodes may lead partitions of this one. Register with SessionKeeper.on_lost.

        A leader that is alone in sync must know before it commits anything more; the others go on (`authority`) until
        `on_session` has read the present leaders.
        """
        for partition in self._hosted.all():
            if partition.leader is not None and not authority.may_commit(partition.leader):
                self._hosted.resign(
                    partition, "the ZooKeeper session has expired, and this node is the only in-sync replica"
                )
