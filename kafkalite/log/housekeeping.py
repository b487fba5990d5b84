"""The passes over all logs that come again and again: flushes, retention, checkpoints, removals, compaction."""

from __future__ import annotations

import asyncio
from collections.abc import AsyncIterator, Callable

from kafkalite.config import BrokerConfig
from kafkalite.env.pulse import Pulse
from kafkalite.env.turns import SLICE_S
from kafkalite.errors import ApiError, StorageError
from kafkalite.log import checkpoints
from kafkalite.log.cleaner import compact
from kafkalite.log.cold_reads import ColdReads
from kafkalite.log.dir_failures import DirFailures
from kafkalite.log.failures import FaultScope, fault_scope
from kafkalite.log.moving import DiskMoves
from kafkalite.log.offset_checkpoints import OffsetCheckpoints
from kafkalite.log.partition_log import PartitionLog
from kafkalite.log.pool import LogPool
from kafkalite.log.producer_state import largest_share
from kafkalite.log.removals import Removals
from kafkalite.telemetry.logs import get_logger

_log = get_logger(__name__)

#: Logs that housekeeping looks at before it lets others run; fewer if that takes longer than a slice.
_HOUSEKEEPING_CHUNK = 64
_TICK_S = 1.0


class Housekeeping:
    """A log with a storage error met in a pass goes offline; the pass goes on with the next one."""

    def __init__(
        self,
        pool: LogPool,
        config: BrokerConfig,
        removals: Removals,
        offsets: OffsetCheckpoints,
        failures: DirFailures,
        moves: DiskMoves,
        cold: ColdReads,
    ) -> None:
        self._pool = pool
        self._config = config
        self._cleaner_backoff_ms = config.log_cleaner_backoff_ms
        self._backoff_changed = Pulse()
        self._disk = pool.disk
        self._clock = pool.clock
        self._removals = removals
        self._offsets = offsets
        self._failures = failures
        self._moves = moves
        self._cold = cold
        self._turn = pool.compaction
        self.producer_id_expiration_ms = config.producer_id_expiration_ms
        self.max_producer_ids = config.max_producer_ids_per_broker
        #: A retention pass has met the log that is being compacted.
        self._retention_is_due = False
        self._files_retired = 0

    async def run(self) -> None:
        """Retention, flushes, checkpoints, removals; for ever. Run it as a task of its own."""
        retention_s = self._config.log_retention_check_interval_ms / 1000
        checkpoint_s = self._config.log_flush_offset_checkpoint_interval_ms / 1000
        now = self._clock.monotonic()
        next_retention, next_checkpoint = now + retention_s, now + checkpoint_s
        tick_s = min(_TICK_S, retention_s, checkpoint_s)
        while True:
            await asyncio.sleep(tick_s)
            await self.flush_pass()
            self.limit_producers()
            now = self._clock.monotonic()
            if now >= next_retention:
                next_retention = now + retention_s
                await self.retention_pass()
            if now >= next_checkpoint:
                next_checkpoint = now + checkpoint_s
                await self._offsets.save_offsets()
            await self._removals.run_due()

    async def _each_log(self, job: Callable[[PartitionLog], None]) -> None:
        """Do `job` for every log, letting others run now and then; a log with a storage error goes offline."""
        async for log in self._logs():
            self._each(log, job)

    async def _logs(self) -> AsyncIterator[PartitionLog]:
        """Every log; others run now and then."""
        until = self._clock.monotonic() + SLICE_S
        for number, log in enumerate(self._pool.all(), 1):
            yield log
            # Most need nothing. Those that roll and delete a segment take a millisecond each.
            if not number % _HOUSEKEEPING_CHUNK or self._clock.monotonic() >= until:
                await asyncio.sleep(0)
                until = self._clock.monotonic() + SLICE_S

    def _each(self, log: PartitionLog, job: Callable[[PartitionLog], None]) -> None:
        if self._pool.holds(log):
            try:
                job(log)
            except StorageError as error:
                self._failures.log_failed(error, is_certain=False)
            except ApiError:
                return  # damage is for those who need the records

    async def retention_pass(self) -> int:
        """Delete old segments and forget silent producers; returns the number of files taken out of service."""
        now_ms, now_s = self._clock.wall_ms(), self._clock.monotonic()
        before = self._files_retired

        def check(log: PartitionLog) -> None:
            if log is self._turn.log:
                self._retention_is_due = True  # its segments are being read: afterwards
            else:
                self._delete_old(log)
            log.expire_producers(now_ms, self.producer_id_expiration_ms, now_s)
            if dropped := log.drop_silent_producers(log.config.max_producer_ids):  # it was lowered
                self._pool.host.producers_dropped(log.topic_partition, dropped)

        async for log in self._logs():
            if log.needs_timestamps and self._pool.holds(log):
                await self._load_timestamps(log)
        await self._each_log(check)
        return self._files_retired - before

    async def _load_timestamps(self, log: PartitionLog) -> None:
        """Of segments that have not been looked at since the start: from the disk, and not on the loop."""
        try:
            await self._pool.dirs[log.directory].unless_gone(log.load_timestamps(self._cold, ("node", "housekeeping")))
        except StorageError as error:
            if self._pool.holds(log):
                self._failures.log_failed(error, is_certain=False)
        except (ApiError, TimeoutError):
            return  # damage is for those who need the records; or the directory went offline meanwhile

    def _delete_old(self, log: PartitionLog) -> None:
        """Raises StorageError."""
        for path in log.delete_old_segments(self._pool.host.high_watermark(log.topic_partition), self._clock.wall_ms()):
            self._removals.later(path, log.config.file_delete_delay_ms, is_dir=False)
            self._files_retired += 1

    def limit_producers(self) -> None:
        """Keep `max.producer.ids.per.broker`: the logs with the most producers forget those that have not written for longest."""
        logs = list(self._pool.logs.values())
        counts = [len(log.active_producers()) for log in logs]
        if sum(counts) <= self.max_producer_ids:
            return
        most = largest_share(counts, self.max_producer_ids)
        for log, count in zip(logs, counts):
            if count > most and (dropped := log.drop_silent_producers(most)):
                self._pool.host.producers_dropped(log.topic_partition, dropped)

    async def flush_pass(self) -> None:
        """fsync what is due by flush.ms or flush.messages, and segments that have rolled."""
        now_ms = self._clock.wall_ms()
        # Every second over every log: nothing is sorted, nothing awaited for those that need nothing.
        for log in [log for log in self._pool.logs.values() if log.has_rolled or log.is_flush_due(now_ms)]:
            if not self._pool.holds(log):
                continue
            log_dir = self._pool.dirs[log.directory]
            try:
                if log.is_flush_due(now_ms):
                    await log_dir.unless_gone(log.flush())
                else:
                    await log_dir.unless_gone(log.flush_rolled())
            except StorageError as error:
                self._failures.log_failed(error, is_certain=False)
            except TimeoutError:
                continue  # the directory went offline meanwhile

    async def run_cleaner(self) -> None:
        """Compaction, one log after the other; for ever. Run it as a task of its own."""
        while True:
            began = self._clock.monotonic()
            while (left_s := began + self._cleaner_backoff_ms / 1000 - self._clock.monotonic()) > 0:
                await self._backoff_changed.wait(left_s)
            await self.cleaning_pass()

    def change_cleaner_backoff(self, backoff_ms: int) -> None:
        """Also of the pause that is under way."""
        self._cleaner_backoff_ms = backoff_ms
        self._backoff_changed.beat()

    async def cleaning_pass(self) -> int:
        """Compact every log that is due; returns how many were."""
        cleaned = 0
        async for log in self._logs():
            if "compact" in log.config.cleanup_policy and self._pool.holds(log):
                cleaned += await self._compact(log)
                if self._retention_is_due:
                    self._retention_is_due = False
                    self._each(log, self._delete_old)
        return cleaned

    async def _compact(self, log: PartitionLog) -> bool:
        """One pass over one log; whether it cleaned anything. Moves wait for its end, and retention leaves the log alone."""
        tp = log.topic_partition
        log_dir = self._pool.dirs[log.directory]
        if log.needs_timestamps:
            await self._load_timestamps(log)
        if tp in self._moves or not self._pool.holds(log):
            return False
        dirty = min(log_dir.cleaned_to.get(tp, 0), log.log_end_offset)
        self._turn.begin(log)
        try:
            reached = await log_dir.unless_gone(
                compact(
                    log,
                    self._disk,
                    first_dirty_offset=dirty,
                    high_watermark=self._pool.host.high_watermark(tp),
                    now_ms=self._clock.wall_ms(),
                    cold=self._cold,
                    keeps_tombstones=not self._pool.host.all_in_sync(tp),
                )
            )
        except StorageError as error:
            if fault_scope(error) is FaultScope.ROOM and not log.is_failed:
                # The copy could not be written; the segments are unchanged.
                _log.error("log.not_compacted", partition=str(tp), error=str(error))
            else:
                self._failures.log_failed(error, is_certain=False)
            return False
        except TimeoutError:
            return False  # the directory went offline meanwhile
        except ApiError as error:
            _log.error("log.not_compacted", partition=str(tp), error=str(error))
            return False
        finally:
            self._turn.end()
        if reached == dirty or not self._pool.holds(log):
            return False
        log_dir.cleaned_to[tp] = reached
        self._offsets.drop_foreign(log_dir, log_dir.cleaned_to)
        self._offsets.write(log_dir, checkpoints.CLEANER_OFFSETS, log_dir.cleaned_to, durable=False)
        return True
