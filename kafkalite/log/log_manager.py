"""All logs of a node over its log directories: the one door to them. What is behind it:

| module | is responsible for |
|---|---|
| `pool` | which logs are in service, which went offline |
| `opening` | directories come into service, at the start and later |
| `placing`, `removals` | a new log gets a directory; a log's files go |
| `log_dir_failure_handler`, `dir_failures` | is it the log or the disk; what goes offline |
| `offset_checkpoints` | saving high watermarks, recovery points, log starts |
| `housekeeping` | flush, retention, compaction passes |
| `moving` | replicas move between disks |
"""

from __future__ import annotations

from collections.abc import Awaitable, Callable

from kafkalite.config import BrokerConfig, TopicConfig
from kafkalite.env.own_time import OwnTime
from kafkalite.env.seams import LEAST_LOG_FILES, Clock, Disk
from kafkalite.env.supervisor import Policy, Supervisor
from kafkalite.errors import StorageError
from kafkalite.log import checkpoints
from kafkalite.log.cold_reads import ColdReads
from kafkalite.log.dir_failures import DirFailures
from kafkalite.log.host import LogHost
from kafkalite.log.housekeeping import Housekeeping
from kafkalite.log.loader import no_log
from kafkalite.log.local_log import LogPlace
from kafkalite.log.log_dir import DELETE_SUFFIX, STRAY_SUFFIX, LogDir, dir_error
from kafkalite.log.log_dir_failure_handler import LogDirFailureHandler
from kafkalite.log.moving import DiskMoves
from kafkalite.log.offset_checkpoints import OffsetCheckpoints
from kafkalite.log.opening import Opening
from kafkalite.log.partition_log import PartitionLog
from kafkalite.log.placing import Placing
from kafkalite.log.pool import LogPool
from kafkalite.log.removals import Removals
from kafkalite.log.reopening import Reopening
from kafkalite.log.strays import Stray
from kafkalite.model import TopicId, TopicPartition

#: fsyncs in flight at a clean shutdown.
_CLOSE_WORKERS = 8


class LogManager:
    """The logs of one node; callers take the part that they need.

    A log with a storage error goes offline at once, alone: it leaves `all()` and `get`, and the host hears `log_failed`. Then
    the failure handler finds out whether the whole disk has failed; if so its directory goes offline (KIP-18): all its logs, its
    checkpoint files are left alone, the host hears `dir_failed` once. The process continues with the others. It hears `examined`
    when the cause is known and lost replicas can be recreated (`failures.restart_refusal`).

    The node is `pool.host`, once it is there. Before that the checkpointed high watermarks count, and no stray is known to be elsewhere.
    """

    def __init__(
        self,
        config: BrokerConfig,
        disk: Disk,
        clock: Clock,
        *,
        supervisor: Supervisor,
        own_time: OwnTime | None = None,
        handle_capacity: int = LEAST_LOG_FILES,
    ) -> None:
        self._config = config
        self._disk = disk
        self._clock = clock
        self._supervisor = supervisor
        self._closed = False
        #: Reads of what is not in the page cache.
        self.cold = ColdReads(disk, clock, supervisor)
        capacity = max(16, handle_capacity // len(config.log_dirs))
        dirs = [LogDir(disk, path, capacity) for path in config.log_dirs]
        pool = LogPool(dirs, disk=disk, clock=clock, own_time=own_time or OwnTime(clock), supervisor=supervisor)
        self.pool = pool
        pool.cordon(config.cordoned_log_dirs)
        for path in config.log_dirs:
            disk.separate(path)
        self.removals = Removals(pool, stray_delay_ms=config.stray_delete_delay_ms)
        reopening = Reopening(pool, self.removals)
        self.failures = DirFailures(pool, self.removals, reopening)
        self.offsets = OffsetCheckpoints(pool, self.failures, self.removals)
        self._failure_handler = LogDirFailureHandler(
            pool, self.failures, self.removals, busy_s=config.log_dir_probe_timeout_ms / 1000
        )
        self.placing = Placing(pool, self._failure_handler, self.failures)
        #: Replicas on their way from one disk to another.
        self.moves = DiskMoves(pool, config, self.cold, self.removals, self.failures, self.offsets)
        self.opening = Opening(pool, config, self._failure_handler, self.removals, self.failures, self.moves, reopening)
        self.housekeeping = Housekeeping(
            pool, config, self.removals, self.offsets, self.failures, self.moves, self.cold
        )
        pool.events = self
        pool.host = NoHost(self.offsets)

    # --- what happens to logs and directories (PoolEvents) -------------------------------------------

    def log_put(self, log: PartitionLog) -> None:
        """See PoolEvents."""
        self.offsets.watch(log)

    def log_taken(self, topic_partition: TopicPartition, reason: str) -> None:
        """See PoolEvents."""
        self.moves.forget(topic_partition, reason)

    def log_lost(self, topic_partition: TopicPartition, reason: str) -> None:
        """See PoolEvents."""
        self.moves.lost(topic_partition, reason)

    def dir_lost(self, path: str) -> None:
        """See PoolEvents."""
        self.moves.dir_failed(path)

    def error_found(self, log_dir: LogDir, error: StorageError) -> None:
        """See PoolEvents."""
        self._failure_handler.report_error(log_dir, error)

    # --- look-up ----------------------------------------------------------------------------------

    def get(self, topic_partition: TopicPartition) -> PartitionLog | None:
        return self.pool.logs.get(topic_partition)

    def all(self) -> list[PartitionLog]:
        """Sorted by partition."""
        return self.pool.all()

    def unusable(self, topic_partition: TopicPartition, topic_id: TopicId, config: TopicConfig) -> PartitionLog:
        """What stands for a log that is on a dead disk: empty, and refuses everything. Nothing is written."""
        directory = (
            self.pool.offline_partitions.get(topic_partition)
            or self.opening.may_miss_logs()
            or next(iter(self.pool.dirs))
        )
        log_dir = self.pool.dirs[directory]
        self.pool.offline_partitions[topic_partition] = directory
        path = f"{directory}/{topic_partition}"
        place = LogPlace(self._disk, log_dir.handles, directory, path, self._clock.wall_ms)
        return no_log(topic_partition, config, topic_id, place)

    def delete(self, topic_partition: TopicPartition, topic_id: TopicId | None = None) -> None:
        """Take the log out of service at once; its files go after file.delete.delay.ms. Raises StorageError.

        Args:
            topic_id: of the deleted partition, which may have no log here; its directories that were set aside are removed, too.
        """
        log = self.pool.take(topic_partition)
        self.pool.forget_offline(topic_partition)
        if log is not None:
            self.removals.set_aside(log, DELETE_SUFFIX, log.config.file_delete_delay_ms)
        else:
            self.failures.take_failed_away(topic_partition, DELETE_SUFFIX, self._config.topic.file_delete_delay_ms)
        if topic_id is not None:
            self.removals.deletion_requested(topic_partition, topic_id)

    def set_stray(self, topic_partition: TopicPartition, *, is_later: bool = False) -> None:
        """As `delete`, but keep the files under a name that says so, and whether they are later than ZooKeeper; see `removals`. Raises
        StorageError."""
        log = self.pool.take(topic_partition)
        if log is not None:
            self.removals.set_aside(log, STRAY_SUFFIX, 0, is_later=is_later)
        else:
            self.failures.take_failed_away(topic_partition, STRAY_SUFFIX)

    # --- housekeeping (kafkalite.log.housekeeping) ---------------------------------------------------

    async def run_housekeeping(self) -> None:
        """Retention, flushes, checkpoints, removals, compaction, the watch over the disks; for ever. Run it as a task of its own."""
        self._supervisor.spawn("log cleaner", self.housekeeping.run_cleaner())
        self.opening.start_watch()
        await self.housekeeping.run()

    # --- the end ----------------------------------------------------------------------------------

    async def close(
        self,
        *,
        clean: bool = True,
        broker_epoch: int = -1,
        was_in_service: bool = True,
        record_stop: Callable[[int], Awaitable[bool]] | None = None,
    ) -> None:
        """Flush, checkpoint and leave the marker that makes the next start fast; without `clean` just let go.

        Args:
            record_stop: called with the number of a clean stop of all directories (kafkalite.log.doubts) before they get it; returns
                whether ZooKeeper has it.
            was_in_service: False: the start was not finished. Only directories that had the marker get it again: in others
                there may be logs whose records nobody has compared with a leader's.
        """
        if self._closed:
            return
        self._closed = True
        clean = clean and self.opening.is_complete
        unproven = set() if was_in_service else {log.directory for log in self.pool.all() if not log.clean_start}
        self.moves.close()
        if clean:
            await self._flush_all()
            await self.offsets.save_offsets()
            self.moves.settle()
        for log in self.pool.all():
            log.close()
        number = self.opening.start_number + 1
        # One that is offline would seem to be an old copy when it is back.
        is_recorded = (
            clean
            and was_in_service
            and not self.pool.has_offline_dir
            and record_stop is not None
            and await record_stop(number)
        )
        for log_dir in self.pool.online():
            if clean:
                self.offsets.drop_foreign(log_dir, log_dir.high_watermarks)
                self.offsets.write(log_dir, checkpoints.HIGH_WATERMARKS, log_dir.high_watermarks, durable=True)
            if clean and log_dir.online and (was_in_service or (log_dir.clean and log_dir.path not in unproven)):
                try:
                    if is_recorded:
                        log_dir.doubts.end(number)
                    log_dir.mark_clean(broker_epoch)
                except OSError as error:
                    self.failures.dir_failed(dir_error(log_dir, "marking a clean shutdown", error))
        for log_dir in self.pool.dirs.values():
            log_dir.release()

    async def _flush_all(self) -> None:
        """Flush every log, a few at a time: an fsync is mostly waiting."""
        logs = iter(self.pool.all())

        async def work() -> None:
            for log in logs:
                log_dir = self.pool.dirs[log.directory]
                try:
                    await log_dir.unless_gone(log.close_cleanly())
                except (StorageError, TimeoutError) as error:
                    # Not marked clean, so there is no time to examine it: the next start recovers it.
                    self.failures.dir_failed(dir_error(log_dir, "flushing at the end", error))

        for worker in [
            self._supervisor.spawn("flush at close", work(), Policy.ISOLATED) for _ in range(_CLOSE_WORKERS)
        ]:
            await worker


class NoHost(LogHost):
    """For logs that no node uses: nothing is reported to anybody, and the high watermarks are those of the checkpoint files."""

    def __init__(self, offsets: OffsetCheckpoints) -> None:
        self._offsets = offsets

    def high_watermark(self, topic_partition: TopicPartition) -> int:
        """See LogHost."""
        return self._offsets.high_watermark(topic_partition)

    def all_in_sync(self, topic_partition: TopicPartition) -> bool:
        """See LogHost."""
        return True

    def is_elsewhere(self, stray: Stray) -> bool:
        """See LogHost."""
        return False

    def gives_way(self, topic_partition: TopicPartition) -> bool:
        """See LogHost."""
        return False
