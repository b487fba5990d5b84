"""Saving high watermarks, recovery points and log starts in the checkpoint files of their directories."""

from __future__ import annotations

from collections.abc import Callable, Mapping

from kafkalite.log import checkpoints
from kafkalite.log.log_dir import LogDir
from kafkalite.log.partition_log import PartitionLog
from kafkalite.log.pool import LogPool
from kafkalite.model import Offset, TopicPartition


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
        for tp in [tp for tp in offsets if (log := self._pool.logs.get(tp)) is None or log.directory != log_dir.path]:
            del offsets[tp]

    def write(self, log_dir: LogDir, name: str, offsets: Mapping[TopicPartition, int], *, durable: bool) -> None:
        try:
            log_dir.write_offsets(name, offsets, durable=durable)
        except OSError as error:
            self._file_failed(log_dir, name, error)

    def save_recovery_points_of(self, log: PartitionLog) -> None:
        """A recovery point went down and new records are about to be trusted: say so on disk first."""
        self._save_recovery_points(self._pool.dirs[log.directory])

    def _save_recovery_points(self, log_dir: LogDir) -> None:
        logs = self._pool.logs_in(log_dir)
        self.write(
            log_dir,
            checkpoints.RECOVERY_POINTS,
            {log.topic_partition: log.recovery_point for log in logs},
            durable=True,
        )
        for log in logs:
            log.needs_checkpoint = False

    async def save_offsets(self) -> None:
        """Save recovery points and log starts, off the loop."""
        for log_dir in self._pool.online():
            logs = self._pool.logs_in(log_dir)
            points = {log.topic_partition: log.recovery_point for log in logs}
            starts = {
                log.topic_partition: log.log_start_offset for log in logs if log.log_start_offset > log.first_offset
            }
            lowered = [log for log in logs if log.needs_checkpoint]
            for log in lowered:
                log.needs_checkpoint = False

            def save(
                log_dir: LogDir = log_dir,
                points: Mapping[TopicPartition, int] = points,
                starts: Mapping[TopicPartition, int] = starts,
            ) -> None:
                log_dir.write_offsets(checkpoints.RECOVERY_POINTS, points, durable=True)
                log_dir.write_offsets(checkpoints.LOG_STARTS, starts, durable=True)

            try:
                await log_dir.off_loop(save)
            except OSError as error:
                self._file_failed(log_dir, "saving offsets", error)
