"""All logs of a node over its log directories: the one door to them. What is behind it:

| module | is responsible for |
|---|---|
| `pool` | which logs are in service, which went offline |
| `opening` | directories come into service, at the start and later |
| `placing`, `removals` | a new log gets a directory; a log's files go |
| `failure_handler`, `dir_failures` | is it the log or the disk; what goes offline |
| `offset_checkpoints` | saving high watermarks, recovery points, log starts |
| `housekeeping` | flush, retention, compaction passes |
| `moving` | replicas move between disks |
"""

from __future__ import annotations

from collections.abc import Callable, Mapping

from kafkalite.config import BrokerConfig, TopicConfig
from kafkalite.env.own_time import OwnTime
from kafkalite.env.seams import LEAST_LOG_FILES, Clock, Disk
from kafkalite.env.supervisor import Policy, Supervisor
from kafkalite.errors import StorageError
from kafkalite.log import checkpoints
from kafkalite.log.cold_reads import ColdReads
from kafkalite.log.dir_failures import DirFailures
from kafkalite.log.housekeeping import Housekeeping
from kafkalite.log.loader import no_log
from kafkalite.log.log_dir import DELETE_SUFFIX, STRAY_SUFFIX, FailedLog, LogDir, dir_error
from kafkalite.log.log_dir_failure_handler import LogDirFailureHandler
from kafkalite.log.moving import DiskMoves
from kafkalite.log.offset_checkpoints import OffsetCheckpoints
from kafkalite.log.opening import Opening
from kafkalite.log.partition_log import PartitionLog
from kafkalite.log.placing import Placing
from kafkalite.log.pool import LogPool
from kafkalite.log.removals import Removals
from kafkalite.log.reopening import Reopening
from kafkalite.log.room import has_room
from kafkalite.log.strays import Stray
from kafkalite.model import Offset, TopicId, TopicPartition

#: fsyncs in flight at a clean shutdown.
_CLOSE_WORKERS = 8


class LogManager:
    """The logs of one node.

    A log with a storage error goes offline at once, alone: it leaves `all()` and `get`, and `on_log_failed` is called. Then
    the failure handler finds out whether the whole disk has failed; if so its directory goes offline (KIP-18): all its logs, its
    checkpoint files are left alone, `on_dir_failed` is called once. The process continues with the others. `on_examined` is
    called when the cause is known and lost replicas can be recreated (`restart_refusal`).
    """

    def __init__(
        self,
        config: BrokerConfig,
        disk: Disk,
        clock: Clock,
        *,
        supervisor: Supervisor,
        own_time: OwnTime | None = None,
        on_dir_failed: Callable[[str, StorageError], None],
        on_log_failed: Callable[[TopicPartition, StorageError], None] = lambda tp, error: None,
        on_examined: Callable[[str], None] = lambda directory: None,
        hw_of: Callable[[TopicPartition], int] | None = None,
        handle_capacity: int = LEAST_LOG_FILES,
    ) -> None:
        self._config = config
        self._disk = disk
        self._clock = clock
        self._supervisor = supervisor
        #: High watermark of a partition, for retention; may be set later. Without it nothing is deleted.
        self.hw_of = hw_of or self.high_watermark
        #: Told when a log has taken the place of another one; may be set later.
        self.on_exchanged: Callable[[PartitionLog, PartitionLog], None] = lambda old, new: None
        self._closed = False
        #: Reads of what is not in the page cache.
        self.cold = ColdReads(disk, clock, supervisor)
        own_time = self._own_time = own_time or OwnTime(clock)
        capacity = max(16, handle_capacity // len(config.log_dirs))
        self._pool = LogPool([LogDir(disk, path, capacity) for path in config.log_dirs])
        for path in config.log_dirs:
            disk.separate(path)
        #: Replicas on their way from one disk to another.
        self.moves = DiskMoves(self, config, disk, clock, supervisor, self.cold)
        self._pool.on_taken = self.moves.forget
        self._pool.on_lost = self.moves.lost
        self._on_examined = on_examined
        self._removals = Removals(
            self._pool, disk, clock, stray_delay_ms=config.stray_delete_delay_ms, report_error=self._report_error
        )
        self._reopening = Reopening(self._pool, disk, clock)
        self._failures = DirFailures(
            self._pool, config, disk, clock, self._removals, report_error=self._report_error, on_dir_failed=on_dir_failed,
            on_log_failed=on_log_failed, on_examined=on_examined, end_moves=self.moves.dir_failed,
            reopening=self._reopening,
        )  # fmt: skip
        self._failure_handler = LogDirFailureHandler(
            disk,
            clock,
            own_time,
            supervisor,
            busy_s=config.log_dir_probe_timeout_ms / 1000,
            dir_failed=self._failures.dir_failed,
            make_room=self._removals.make_room,
            reopen_failed=self._failures.reopen_failed,
            on_examined=on_examined,
        )
        self._offsets = OffsetCheckpoints(self._pool, file_failed=self._failures.file_failed)
        self._placing = Placing(self._pool, config, disk, clock, self._failure_handler, self._failures, self._offsets)
        self._opening = Opening(
            self._pool, config, disk, clock, own_time, supervisor, self._failure_handler, self._removals, self._offsets,
            self._failures, self.moves, self._reopening,
        )  # fmt: skip
        self._housekeeping = Housekeeping(
            self._pool, config, disk, clock, self._removals, self._offsets, self._failures, self.moves,
            self.cold,
            hw_of=lambda topic_partition: self.hw_of(topic_partition),
        )  # fmt: skip
        self._pool.on_put = self._offsets.watch

    def _report_error(self, log_dir: LogDir, error: StorageError) -> None:
        self._failure_handler.report_error(log_dir, error)

    # --- start, and disks that come back (kafkalite.log.opening) --------------------------------------

    async def start(self, cluster_id: str, broker_id: int, topic_configs: Mapping[str, Mapping[str, str]]) -> None:
        """Lock and check the directories, open every log in them.

        Raises:
            StartupRefused: a directory is taken or somebody else's, or none of them works.
        """
        await self._opening.start(cluster_id, broker_id, topic_configs)

    async def bring_online(
        self, directory: str, cluster_id: str, broker_id: int, topic_configs: Mapping[str, Mapping[str, str]]
    ) -> int:
        """Take an offline directory into service again, with what is in it now; how many logs were found.

        A log that this node has elsewhere by now is set aside.

        Raises:
            ApiError: LOG_DIR_NOT_FOUND; KAFKA_STORAGE_ERROR when it still cannot be used, or is somebody else's.
        """
        return await self._opening.bring_online(directory, cluster_id, broker_id, topic_configs)

    async def with_room_again(self) -> list[str]:
        """Directories that went offline because they were full, and have room again; each is checked from time to time."""
        found = []
        for log_dir in list(self._pool.dirs.values()):
            now = self._clock.monotonic()
            if log_dir.online or not log_dir.waits_for_room or now < log_dir.room.next_check:
                continue
            log_dir.room.is_still_full(now)
            try:
                if await has_room(self._disk, log_dir.path, self._own_time):
                    found.append(log_dir.path)
            except TimeoutError:
                log_dir.waits_for_room = False  # it is not full but dead
        return found

    def may_miss_logs(self) -> str:
        """A directory on which logs of this node may have been that are not to be had now; "" if there is none."""
        return self._opening.may_miss_logs()

    def holds_nothing(self) -> bool:
        """Whether this node has no log at all, and nothing proves that it should not: it is new, or has lost every disk."""
        return self._opening.holds_nothing()

    def confirm_complete(self) -> None:
        """Every replica assigned to this node is here: directories that were empty have nothing left to explain."""
        self._opening.confirm_complete()

    # --- look-up ----------------------------------------------------------------------------------

    def get(self, topic_partition: TopicPartition) -> PartitionLog | None:
        return self._pool.logs.get(topic_partition)

    def all(self) -> list[PartitionLog]:
        """Sorted by partition."""
        return self._pool.all()

    @property
    def offline_partitions(self) -> dict[TopicPartition, str]:
        """Partitions that went offline, alone or with their directory -> that directory."""
        return self._pool.offline_partitions

    def high_watermark(self, topic_partition: TopicPartition) -> Offset:
        """As checkpointed, never beyond the log's end; 0 if it never was."""
        return self._offsets.high_watermark(topic_partition)

    def lost_committed(self, topic_partition: TopicPartition) -> bool:
        """Whether recovery cut the log below the high watermark it once knew: the replica must not count as in sync."""
        return self._offsets.lost_committed(topic_partition)

    @property
    def lost_power(self) -> bool:
        """Whether the host may have been without power since these directories were last in use."""
        return any(log_dir.doubts.lost_power for log_dir in self._pool.dirs.values())

    def doubtful(self) -> list[TopicPartition]:
        """Logs that may lack committed records (kafkalite.log.doubts), sorted."""
        return sorted(tp for tp in self._pool.logs if self.is_doubtful(tp))

    def is_doubtful(self, topic_partition: TopicPartition) -> bool:
        log = self._pool.logs.get(topic_partition)
        return log is not None and topic_partition in self._pool.dirs[log.directory].doubts.logs

    def doubt(self, topic_partition: TopicPartition, *, is_doubtful: bool) -> None:
        """Record that a log may lack committed records, or that it has caught up. Saved with the high watermarks."""
        log = self._pool.logs.get(topic_partition)
        if log is not None:
            known = self._pool.dirs[log.directory].doubts.logs
            if is_doubtful:
                known.add(topic_partition)
            else:
                known.discard(topic_partition)

    @property
    def unclean_start(self) -> bool:
        """Whether any log was opened after an unclean shutdown (invariant F14)."""
        return any(not log.clean_start for log in self._pool.logs.values())

    def dirs(self) -> list[LogDir]:
        """All of them, as configured. For reading only."""
        return list(self._pool.dirs.values())

    def healthy_dirs(self) -> list[str]:
        return [log_dir.path for log_dir in self._pool.online()]

    def offline_dirs(self) -> list[str]:
        return [log_dir.path for log_dir in self._pool.dirs.values() if not log_dir.online]

    def dir_of(self, path: str) -> LogDir | None:
        return self._pool.dirs.get(path)

    # --- creation and removal (kafkalite.log.placing, kafkalite.log.removals) -------------------------

    def create(
        self, topic_partition: TopicPartition, topic_id: TopicId, config: TopicConfig, *, directory: str | None = None
    ) -> PartitionLog:
        """A new, empty log, in the healthy directory with the most room for each log that is in it.

        A replica that went offline is placed elsewhere than where it was, if that is possible. A directory that
        refuses is suspected, and the next one tried.

        Args:
            directory: this one and no other.

        Raises:
            ApiError: KAFKA_STORAGE_ERROR when no directory is healthy. StorageError.
        """
        for log_dir in self._pool.dirs.values():
            log_dir.doubts.logs.discard(topic_partition)
        return self._placing.create(topic_partition, topic_id, config, directory=directory)

    def unusable(self, topic_partition: TopicPartition, topic_id: TopicId, config: TopicConfig) -> PartitionLog:
        """What stands for a log that is on a dead disk: empty, and refuses everything. Nothing is written."""
        directory = (
            self._pool.offline_partitions.get(topic_partition) or self.may_miss_logs() or next(iter(self._pool.dirs))
        )
        log_dir = self._pool.dirs[directory]
        self._pool.offline_partitions[topic_partition] = directory
        return no_log(
            topic_partition, config, topic_id, disk=self._disk, handles=log_dir.handles, directory=directory,
            path=f"{directory}/{topic_partition}", now_ms=self._clock.wall_ms,
        )  # fmt: skip

    def delete(self, topic_partition: TopicPartition, topic_id: TopicId | None = None) -> None:
        """Take the log out of service at once; its files go after file.delete.delay.ms. Raises StorageError.

        Args:
            topic_id: of the deleted partition, which may have no log here; its directories that were set aside are removed, too.
        """
        log = self._pool.take(topic_partition)
        self._pool.forget_offline(topic_partition)
        if topic_id is not None:
            self._removals.ordered(topic_partition, topic_id)
        if log is not None:
            self._removals.set_aside(log, DELETE_SUFFIX, log.config.file_delete_delay_ms)
        else:
            self._failures.take_failed_away(topic_partition, DELETE_SUFFIX, self._config.topic.file_delete_delay_ms)

    def removal_requested(self, topic_partition: TopicPartition, topic_id: TopicId) -> None:
        """The partition is deleted here, and has no log: its directories that were set aside are removed after the delay."""
        self._removals.ordered(topic_partition, topic_id)

    def set_stray(self, topic_partition: TopicPartition) -> None:
        """As `delete`, but keep the files under a name that says so; see `removals`. Raises StorageError."""
        log = self._pool.take(topic_partition)
        if log is not None:
            self._removals.set_aside(log, STRAY_SUFFIX, 0)
        else:
            self._failures.take_failed_away(topic_partition, STRAY_SUFFIX)

    async def sync_removals(self) -> bool:
        """Wait until what was deleted or set aside stays so through a loss of power; False if a directory cannot do it."""
        return await self._removals.sync()

    # --- moves between disks (kafkalite.log.moving) --------------------------------------------------

    def name_aside(self, directory: str, topic_partition: TopicPartition, suffix: str) -> str:
        return self._removals.name_aside(directory, topic_partition, suffix)

    def discard(self, log: PartitionLog, delay_ms: int) -> None:
        """Take the directory of a log that is in no pool away; its files go after the delay."""
        self._removals.discard(log, delay_ms)

    def keep_aside(self, log: PartitionLog) -> None:
        """As `discard`, but as a stray: it may have what is lost elsewhere."""
        self._removals.discard(log, 0, STRAY_SUFFIX)

    def discard_path(self, path: str) -> None:
        """Remove a directory soon."""
        self._removals.discard_path(path)

    async def compaction_over(self, topic_partition: TopicPartition) -> None:
        """Wait while the log is being compacted."""
        await self._housekeeping.compaction_over(topic_partition)

    def exchange(self, old: PartitionLog, new: PartitionLog) -> None:
        """`new` takes the name and the place of `old`. Raises StorageError: then nothing has changed."""
        tp = old.topic_partition
        assert self._pool.holds(old)
        before, after = self._pool.dirs[old.directory], self._pool.dirs[new.directory]
        path = f"{after.path}/{tp}"
        try:
            self._failures.set_leftover_aside(after, tp)  # an earlier replica's
        except OSError as error:
            raise new.storage_error("making room for the log", error) from error
        for known in (after.high_watermarks, after.recovery_points, after.cleaned_to):
            known.pop(tp, None)
        if tp in before.high_watermarks:
            after.high_watermarks[tp] = before.high_watermarks[tp]
        if tp in before.doubts.logs:
            after.doubts.logs.add(tp)
        # While `old` is in service: what fails here may take the disk of `new` offline, and nothing must have changed then.
        self._offsets.write(after, checkpoints.HIGH_WATERMARKS, after.high_watermarks, durable=False)
        start = old.log_start_offset
        if start > new.first_offset or after.log_starts.get(tp, 0) > start:
            self._offsets.set_log_start(after, tp, start)
            new.start_saved(start)
        if not after.online:
            raise StorageError(f"{after.path}: {after.offline_reason}", directory=after.path, path=new.path)
        new.take_over(old)
        new.relocate(path)
        self._pool.swap(old, new)
        self.on_exchanged(old, new)
        old.close()

    # --- failures (kafkalite.log.dir_failures) -------------------------------------------------------

    def log_failed(self, error: StorageError) -> None:
        """A log cannot be used: it is out of the pools when this returns; what else that means is found out. Idempotent."""
        self._failures.log_failed(error)

    def dir_failed(self, error: StorageError) -> list[TopicPartition]:
        """Take the error's directory offline; the partitions that were in it. Idempotent."""
        return self._failures.dir_failed(error)

    def reopen_failed(self) -> None:
        """Check failed logs again when they are due, in a task of its own (kafkalite.log.reopening)."""
        if self._reopening.is_due():
            self._supervisor.spawn("logs.look_again", self._reopen_failed(), Policy.ISOLATED)

    async def _reopen_failed(self) -> None:
        for log_dir in self._pool.online():
            if log_dir.failed and await self._reopening.check(log_dir):
                self._on_examined(log_dir.path)

    def failed_log(self, topic_partition: TopicPartition) -> FailedLog | None:
        """A log that is out of service, whose files are kept where they are."""
        found = self._failures.failed_log(topic_partition)
        return None if found is None else found[1]

    def failed_logs(self) -> list[FailedLog]:
        """All of them, sorted."""
        found = [failed for log_dir in self._pool.online() for failed in log_dir.failed.values()]
        return sorted(found, key=lambda failed: failed.topic_partition)

    # --- what was set aside (kafkalite.log.removals) ---------------------------------------------------

    def on_elsewhere(self, is_elsewhere: Callable[[Stray], bool]) -> None:
        """Set the function that knows whether the records of a stray are in sync elsewhere."""
        self._removals.is_elsewhere = is_elsewhere

    def strays(self) -> list[Stray]:
        """All directories that were set aside, where the log directory is online; sorted."""
        return self._removals.strays()

    def overdue_strays(self) -> list[Stray]:
        """Those whose delay is over, and that are kept because no other copy is known."""
        return self._removals.overdue()

    def remove_stray(self, stray: Stray) -> None:
        """By order of an operator."""
        self._removals.remove_stray(stray)

    async def restore_stray(self, stray: Stray, topic_partition: TopicPartition, config: TopicConfig) -> None:
        """A directory that was set aside becomes the partition's log again, unchanged.

        Raises:
            ApiError: KAFKA_STORAGE_ERROR; the partition has a log, or this one cannot be opened.
        """
        await self._failures.restore(stray, topic_partition, config)

    def restart_refusal(self, topic_partition: TopicPartition) -> str:
        """Why a replica that went offline cannot be recreated now; "" if it can."""
        return self._failures.restart_refusal(topic_partition)

    # --- checkpoints (kafkalite.log.offset_checkpoints) ----------------------------------------------

    def checkpoint_high_watermarks(self, high_watermarks: Mapping[TopicPartition, int]) -> None:
        """Save them, each in the directory of its log. Not synced: an old high watermark is safe, only late."""
        self._offsets.save_high_watermarks(high_watermarks)

    async def checkpoint_offsets(self) -> None:
        """Save recovery points and log starts, off the loop."""
        await self._offsets.save_offsets()

    async def save_log_start(self, log: PartitionLog) -> bool:
        """Make the start of a log durable, off the loop; all logs of a directory that wait share one save.

        Returns:
            Whether it is durable; False if the file cannot be written, or the log went out of service.
        """
        return await self._offsets.save_log_start(log)

    # --- housekeeping (kafkalite.log.housekeeping) ---------------------------------------------------

    @property
    def producer_id_expiration_ms(self) -> int:
        """Time in ms after which inactive producers are removed."""
        return self._housekeeping.producer_id_expiration_ms

    @producer_id_expiration_ms.setter
    def producer_id_expiration_ms(self, expiration_ms: int) -> None:
        self._housekeeping.producer_id_expiration_ms = expiration_ms

    @property
    def cleaner_backoff_ms(self) -> int:
        """Pause in ms between two searches for logs to compact."""
        return self._housekeeping.cleaner_backoff_ms

    @cleaner_backoff_ms.setter
    def cleaner_backoff_ms(self, backoff_ms: int) -> None:
        self._housekeeping.cleaner_backoff_ms = backoff_ms

    async def run_housekeeping(self) -> None:
        """Retention, flushes, checkpoints, removals, compaction, the watch over the disks; for ever. Run it as a task of its own."""
        self._supervisor.spawn("log cleaner", self.run_cleaner())
        self._opening.start_watch()
        await self._housekeeping.run()

    async def retention_pass(self) -> int:
        """Delete old segments and forget silent producers; returns the number of files taken out of service."""
        return await self._housekeeping.retention_pass()

    async def flush_pass(self) -> None:
        """fsync what is due by flush.ms or flush.messages, and segments that have rolled."""
        await self._housekeeping.flush_pass()

    async def removal_pass(self) -> None:
        """Remove files and directories that were taken out of service long enough ago."""
        await self._removals.run_due()

    async def run_cleaner(self) -> None:
        """Compaction, one log after the other; for ever. `run_housekeeping` starts it."""
        await self._housekeeping.run_cleaner()

    async def cleaning_pass(self) -> int:
        """Compact every log that is due; returns how many were."""
        return await self._housekeeping.cleaning_pass()

    # --- the end ----------------------------------------------------------------------------------

    async def close(self, *, clean: bool = True, broker_epoch: int = -1) -> None:
        """Flush, checkpoint and leave the marker that makes the next start fast; without `clean` just let go."""
        if self._closed:
            return
        self._closed = True
        self.moves.close()
        if clean:
            await self._flush_all()
            await self._offsets.save_offsets()
            self.moves.settle()
        for log in self._pool.all():
            log.close()
        for log_dir in self._pool.online():
            if clean:
                self._offsets.drop_foreign(log_dir, log_dir.high_watermarks)
                self._offsets.write(log_dir, checkpoints.HIGH_WATERMARKS, log_dir.high_watermarks, durable=True)
            if clean and log_dir.online:
                try:
                    log_dir.mark_clean(broker_epoch)
                except OSError as error:
                    self.dir_failed(dir_error(log_dir, "marking a clean shutdown", error))
        for log_dir in self._pool.dirs.values():
            log_dir.release()

    async def _flush_all(self) -> None:
        """Flush every log, a few at a time: an fsync is mostly waiting."""
        logs = iter(self._pool.all())

        async def work() -> None:
            for log in logs:
                log_dir = self._pool.dirs[log.directory]
                try:
                    await log_dir.unless_gone(log.close_cleanly())
                except (StorageError, TimeoutError) as error:
                    # Not marked clean, hence no time for a verdict: the next start recovers it.
                    self.dir_failed(dir_error(log_dir, "flushing at the end", error))

        for worker in [
            self._supervisor.spawn("flush at close", work(), Policy.ISOLATED) for _ in range(_CLOSE_WORKERS)
        ]:
            await worker
