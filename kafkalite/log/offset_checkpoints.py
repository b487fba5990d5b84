"""Saving high watermarks, recovery points and log starts in the checkpoint files of their directories."""

from __future__ import annotations

from collections.abc import Callable, Mapping

from kafkalite.log import checkpoints
from kafkalite.log.log_dir import LogDir
from kafkalite.log.partition_log import PartitionLog
from kafkalite.log.pool import LogPool
from kafkalite.model import Offset, TopicPartition

#: The file that a thread has written, until it replaces the checkpoint.
_NEXT = ".next"
#: Immediate repetitions of a save that came too late.
_ATTEMPTS = 3


class OffsetCheckpoints:
    """The formats are in kafkalite.log.checkpoints.

    Args:
        file_failed: told when a file cannot be written: (directory, what, error).
    """

    def __init__(self, pool: LogPool, *, file_failed: Callable[[LogDir, str, OSError], None]) -> None:
        self._pool = pool
        self._file_failed = file_failed

    def high_watermark(self, topic_partition: TopicPartition) -> Offset:
        """See `LogManager.high_watermark`."""
        log = self._pool.logs.get(topic_partition)
        if log is None:
            return Offset(0)
        saved = self._pool.dirs[log.directory].high_watermarks.get(topic_partition, 0)
        return Offset(min(max(saved, log.log_start_offset), log.log_end_offset))

    def lost_committed(self, topic_partition: TopicPartition) -> bool:
        """See `LogManager.lost_committed`."""
        log = self._pool.logs.get(topic_partition)
        if log is None:
            return False
        return self._pool.dirs[log.directory].high_watermarks.get(topic_partition, 0) > log.log_end_offset

    def save_high_watermarks(self, high_watermarks: Mapping[TopicPartition, int]) -> None:
        """Save them, each in the directory of its log. Not synced: an old high watermark is safe, only late."""
        for tp, offset in high_watermarks.items():
            log = self._pool.logs.get(tp)
            if log is not None:
                self._pool.dirs[log.directory].high_watermarks[tp] = offset
        for log_dir in self._pool.online():
            self.drop_foreign(log_dir, log_dir.high_watermarks)
            self.write(log_dir, checkpoints.HIGH_WATERMARKS, log_dir.high_watermarks, durable=False)
            try:
                log_dir.doubts.save(durable=False)
            except OSError as error:
                self._file_failed(log_dir, checkpoints.DOUBTFUL, error)

    def drop_foreign(self, log_dir: LogDir, offsets: dict[TopicPartition, int]) -> None:
        """Forget what is not in this directory. Logs that have failed are: they may be opened again."""
        for tp in [tp for tp in offsets if (log := self._pool.logs.get(tp)) is None or log.directory != log_dir.path]:
            if tp not in log_dir.failed:
                del offsets[tp]

    def write(self, log_dir: LogDir, name: str, offsets: Mapping[TopicPartition, int], *, durable: bool) -> None:
        """Write a checkpoint that only the loop writes."""
        try:
            log_dir.write_offsets(name, offsets, durable=durable)
        except OSError as error:
            self._file_failed(log_dir, name, error)

    def save_recovery_points_of(self, log: PartitionLog) -> None:
        """A recovery point was lowered and new records will be trusted: write it to the disk first. Raises OSError."""
        log_dir = self._pool.dirs[log.directory]
        logs = self._pool.logs_in(log_dir)
        # A save under way in a thread has older points: it must not replace these.
        log_dir.recovery_points_version += 1
        points: dict[TopicPartition, int] = {log.topic_partition: log.recovery_point for log in logs}
        try:
            log_dir.write_offsets(checkpoints.RECOVERY_POINTS, points, durable=True)
        except OSError as error:
            self._file_failed(log_dir, checkpoints.RECOVERY_POINTS, error)
            raise
        log_dir.recovery_points = points
        for log in logs:
            log.needs_checkpoint = False

    async def save_offsets(self) -> None:
        """Save recovery points and log starts, off the loop. Callers share a save that waits for its turn."""
        for log_dir in self._pool.online():
            log_dir.saves_wanted += 1
            wanted = log_dir.saves_wanted
            async with log_dir.saving:
                if log_dir.saves_done < wanted and log_dir.online:
                    number = log_dir.saves_wanted
                    try:
                        for _ in range(_ATTEMPTS):
                            if await self._save(log_dir):
                                break
                        log_dir.saves_done = number
                    except OSError as error:
                        self._file_failed(log_dir, "saving offsets", error)

    async def _save(self, log_dir: LogDir) -> bool:
        """One directory, one save at a time. Raises OSError.

        The recovery points are written beside their file. They take its place within a turn of the loop, and only if the
        loop has not written lower ones meanwhile, and no log has begun under the name of another one (False).
        """
        logs = self._pool.logs_in(log_dir)
        version = log_dir.recovery_points_version
        points: dict[TopicPartition, int] = {log.topic_partition: log.recovery_point for log in logs}
        starts: dict[TopicPartition, int] = {
            log.topic_partition: log.log_start_offset for log in logs if log.log_start_offset > log.first_offset
        }
        for failed in log_dir.failed.values():
            # No recovery point: all of it is checked when it is opened. Deleted records stay deleted.
            tp = failed.topic_partition
            start: int = log_dir.log_starts.get(tp, 0) if failed.log is None else failed.log.log_start_offset
            if start and tp not in self._pool.logs:
                starts[tp] = start
        lowered = [log for log in logs if log.needs_checkpoint]

        def save() -> None:
            log_dir.write_offsets(checkpoints.RECOVERY_POINTS + _NEXT, points, durable=True)
            log_dir.write_offsets(checkpoints.LOG_STARTS, starts, durable=True)

        await log_dir.off_loop(save)
        if log_dir.recovery_points_version != version:
            return False
        log_dir.publish(checkpoints.RECOVERY_POINTS + _NEXT, checkpoints.RECOVERY_POINTS)
        log_dir.recovery_points = dict(points)
        await log_dir.off_loop(log_dir.sync)
        for log in lowered:
            if log.recovery_point >= points[log.topic_partition]:
                log.needs_checkpoint = False
        return True
