"""Logs on this node's disks that it has no replica for, or that the last complete list did not name (kafkalite.replica.decisions.strays)."""

from __future__ import annotations

import asyncio
from collections.abc import Callable, Generator, Mapping, Sequence
from typing import TYPE_CHECKING

from kafkalite.config import BrokerConfig
from kafkalite.errors import ErrorCode, StorageError
from kafkalite.model import (
    NO_LEADER_EPOCH,
    BrokerEpoch,
    BrokerId,
    LeaderEpoch,
    TopicId,
    TopicPartition,
)
from kafkalite.replica.decisions import strays
from kafkalite.replica.hosted import HostedPartitions
from kafkalite.replica.metadata_cache import MetadataCache
from kafkalite.replica.roles import Roles
from kafkalite.telemetry.logs import get_logger

if TYPE_CHECKING:
    from kafkalite.coordination.topic_znodes import TopicZnode
    from kafkalite.log.log_manager import LogManager

_log = get_logger(__name__)

#: Logs put away before the loop gets its turn.
SLICE = 16
#: Partitions that are named one by one in the log when something happens to many.
MAX_NAMED = 20
#: Logs looked at between two yields: well below a millisecond.
_STEP = 500


class StrayLogs:
    """Which logs have no owner, and what becomes of them."""

    def __init__(
        self,
        *,
        config: BrokerConfig,
        hosted: HostedPartitions,
        logs: LogManager,
        metadata: MetadataCache,
        identity: Callable[[], tuple[BrokerId, BrokerEpoch]],
        roles: Roles,
    ) -> None:
        self._config = config
        self._hosted = hosted
        self._logs = logs
        self._metadata = metadata
        self._identity = identity
        self._roles = roles
        #: Why strays were left where they are, and which, and whether they were served; empty if they were not.
        self._refusal = ""
        self._refused: dict[TopicPartition, bool] = {}
        #: Local replicas that the last complete list did not name, and whether it is known whose all logs are.
        self._left_out: set[TopicPartition] = set()
        self._is_classified = True
        #: Logs of topics that were not in ZooKeeper when it was read last.
        self._orphans: dict[TopicPartition, TopicId] = {}

    def must_classify(self) -> None:
        """It has to be found out again whose all logs are."""
        self._is_classified = False

    def left_out_by(self, named: set[TopicPartition]) -> None:
        """A complete list does not name some local replicas: `set_aside` decides by the topics' znodes."""
        self._left_out = {log.topic_partition for log in self._logs.all()} - named
        self._is_classified = self._is_classified and not self._left_out

    @property
    def refusal(self) -> str:
        """Why strays were left where they are; "" if they were not, or the controller has since had them deleted, or given them to this node."""
        left = (
            self._logs.get(key) is not None and (was_served or self._hosted.get(key) is None)
            for key, was_served in self._refused.items()
        )
        return self._refusal if any(left) else ""

    @property
    def needs_classification(self) -> bool:
        """Whether there may be logs that do not belong to this node (any more): `set_aside` should be called soon."""
        return not self._is_classified or any(self._metadata.topic(key.topic) is not None for key in self._orphans)

    def suspects(self) -> dict[TopicPartition, TopicId]:
        """Logs without a replica, or that the last complete list left out, with their topics' ids."""
        found = [
            log
            for log in self._logs.all()
            if log.topic_partition in self._left_out or self._hosted.get(log.topic_partition) is None
        ]
        return {log.topic_partition: log.topic_id for log in found}

    async def set_aside(
        self,
        topics: Mapping[str, TopicZnode | None],
        epochs: Mapping[TopicPartition, LeaderEpoch],
        *,
        is_guarded: bool,
    ) -> None:
        """Set aside logs that `topics` (as read from ZooKeeper) does not give to this node; serve no topic that is gone.

        `epochs`: the leader epochs of their partitions there. `is_guarded`: too many are left alone.
        """
        suspects = self.suspects()
        classified = strays.classify(self._identity()[0], suspects, topics)
        local, max_percent = len(self._logs.all()), self._config.stray_max_fraction_percent
        refusal = strays.refusal(len(classified.surplus), local, max_percent) if is_guarded else ""
        if refusal and refusal != self._refusal:
            _log.error(
                "replica.strays_refused", strays=len(classified.surplus), local=local, first=str(classified.surplus[0])
            )
        self._refusal = refusal
        self._refused = {key: self._hosted.get(key) is not None for key in classified.surplus} if refusal else {}
        if not refusal:
            await self._put_away(
                classified.surplus, lambda key: self._set_surplus_aside(key, topics[key.topic], epochs), "replica.stray"
            )
        await self._put_away(classified.replaced, self._logs.set_stray, "replica.stray")
        self._record_orphans({key: suspects[key] for key in classified.orphans})
        await self._put_away(classified.orphans, lambda key: None, "")
        self._left_out.clear()
        self._is_classified = True

    def _set_surplus_aside(
        self, key: TopicPartition, topic: TopicZnode | None, epochs: Mapping[TopicPartition, LeaderEpoch]
    ) -> None:
        """Raises StorageError."""
        log, epoch = self._logs.get(key), epochs.get(key, NO_LEADER_EPOCH)
        # One that was removed from its topic in order has no state any more.
        is_there = key in epochs or (topic is not None and key.partition in topic.partitions)
        is_later = is_there and log is not None and strays.is_later(log.topic_id, log.latest_epoch, epoch)
        if is_later:
            _log.error("replica.stray_is_later", partition=str(key), leader_epoch=epoch)
        self._logs.set_stray(key, is_later=is_later)

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
                self._roles.stop(partition)
                self._roles.stopped_high_watermarks[key] = partition.follower_high_watermark
            if event and position < MAX_NAMED:
                _log.warning(event, partition=str(key), of=len(keys))
            try:
                put(key)
            except StorageError as error:
                _log.error("replica.not_set_aside", partition=str(key), error=str(error))
            if position % SLICE == SLICE - 1:
                await asyncio.sleep(0)

    def unserved(self) -> Generator[None, None, dict[TopicPartition, TopicId]]:
        """Logs whose topic is not in the cluster's metadata: kept until it is there again or an operator decides. In steps."""
        found: dict[TopicPartition, TopicId] = {}
        if self._metadata.controller_epoch < 0:
            return found
        logs = self._logs.pool.logs
        for number, key in enumerate(list(logs), 1):
            if self._hosted.get(key) is None and self._metadata.topic(key.topic) is None and key in logs:
                found[key] = logs[key].topic_id
            if not number % _STEP:
                yield
        return found

    def delete_orphans(self, topic: str) -> ErrorCode:
        """An operator has requested the deletion of a topic that has vanished: delete its replicas."""
        error = ErrorCode.NONE
        for key in [key for key in self._orphans if key.topic == topic and self._hosted.get(key) is None]:
            self._roles.stopped_high_watermarks.pop(key, None)
            try:
                self._logs.delete(key)
                del self._orphans[key]
            except StorageError as failure:
                _log.error("replica.not_deleted", partition=str(key), directory=failure.directory, error=str(failure))
                error = ErrorCode.KAFKA_STORAGE_ERROR
        for stray in self._logs.removals.strays():
            if stray.topic_partition.topic == topic:
                try:
                    self._logs.removals.deletion_requested(stray.topic_partition, stray.topic_id)
                except StorageError as failure:
                    _log.error("replica.not_deleted", partition=str(stray.topic_partition), error=str(failure))
                    error = ErrorCode.KAFKA_STORAGE_ERROR
        return error
