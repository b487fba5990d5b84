"""The passes over all logs that come again and again: flushes, retention, checkpoints, removals, compaction."""

from __future__ import annotations

import asyncio
from collections.abc import Callable

from kafkalite.config import BrokerConfig
from kafkalite.env.seams import Clock, Disk
from kafkalite.errors import ApiError, StorageError
from kafkalite.log import checkpoints
from kafkalite.log.cleaner import compact
from kafkalite.log.dir_failures import DirFailures
from kafkalite.log.moving import DiskMoves
from kafkalite.log.offset_checkpoints import OffsetCheckpoints
from kafkalite.log.partition_log import PartitionLog
from kafkalite.log.pool import LogPool
from kafkalite.log.removals import Removals
from kafkalite.model import TopicPartition
from kafkalite.telemetry.logs import get_logger

_log = get_logger(__name__)

#: Logs that housekeeping looks at before it lets others run.
_HOUSEKEEPING_CHUNK = 64
_TICK_S = 1.0
#: Kafka's log.cleaner.backoff.ms.
_CLEANER_BACKOFF_S = 15.0


class Housekeeping:
    """A log with a storage error met in a pass goes offline; the pass goes on with the next one.

    Args:
        hw_of: high watermark of a partition, for retention and compaction.
    """

    def __init__(
        self,
        pool: LogPool,
        config: BrokerConfig,
        disk: Disk,
        clock: Clock,
        removals: Removals,
        offsets: OffsetCheckpoints,
        failures: DirFailures,
        moves: DiskMoves,
        *,
        hw_of: Callable[[TopicPartition], int],
    ) -> None:
        self._pool = pool
        self._config = config
        self._disk = disk
        self._clock = clock
        self._removals = removals
        self._offsets = offsets
        self._failures = failures
        self._moves = moves
        self._hw_of = hw_of
        self.producer_id_expiration_ms = config.producer_id_expiration_ms
        self._compacting: TopicPartition | None = None
        #: Replaced and set whenever a compaction ends.
        self._compacted = asyncio.Event()

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
        for number, log in enumerate(self._pool.all()):
            if number % _HOUSEKEEPING_CHUNK == _HOUSEKEEPING_CHUNK - 1:
                await asyncio.sleep(0)
            if self._pool.holds(log):
                try:
                    job(log)
                except StorageError as error:
                    self._failures.log_failed(error, is_certain=False)

    async def retention_pass(self) -> int:
        """Delete old segments and forget silent producers; returns the number of files taken out of service."""
        now_ms, now_s = self._clock.wall_ms(), self._clock.monotonic()
        removed = 0

        def look_at(log: PartitionLog) -> None:
            nonlocal removed
            for path in log.delete_old_segments(self._hw_of(log.topic_partition), now_ms):
                self._removals.later(path, log.config.file_delete_delay_ms, is_dir=False)
                removed += 1
            log.expire_producers(now_ms, self.producer_id_expiration_ms, now_s)

        await self._each_log(look_at)
        return removed

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
            await asyncio.sleep(_CLEANER_BACKOFF_S)
            await self.cleaning_pass()

    async def cleaning_pass(self) -> int:
        """Compact every log that is due; returns how many were."""
        cleaned = 0
        for log in [log for log in self._pool.all() if "compact" in log.config.cleanup_policy]:
            tp = log.topic_partition
            if self._pool.logs.get(tp) is not log or tp in self._moves:
                continue
            log_dir = self._pool.dirs[log.directory]
            self._compacting = tp
            dirty = min(log_dir.cleaned_to.get(tp, 0), log.log_end_offset)
            try:
                reached = await log_dir.unless_gone(
                    compact(
                        log,
                        self._disk,
                        first_dirty_offset=dirty,
                        high_watermark=self._hw_of(tp),
                        now_ms=self._clock.wall_ms(),
                    )
                )
            except StorageError as error:
                self._failures.log_failed(error, is_certain=False)
                continue
            except TimeoutError:
                continue
            except ApiError as error:
                _log.error("log.not_compacted", partition=str(tp), error=str(error))
                continue
            finally:
                self._compacting = None
                ended, self._compacted = self._compacted, asyncio.Event()
                ended.set()
            if reached != dirty and log_dir.online:
                cleaned += 1
                log_dir.cleaned_to[tp] = reached
                self._offsets.drop_foreign(log_dir, log_dir.cleaned_to)
                self._offsets.write(log_dir, checkpoints.CLEANER_OFFSETS, log_dir.cleaned_to, durable=False)
        return cleaned

    async def compaction_over(self, topic_partition: TopicPartition) -> None:
        """See `LogManager.compaction_over`."""
        while self._compacting == topic_partition:
            await self._compacted.wait()
