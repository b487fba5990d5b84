"""Saving high watermarks, recovery points and log starts in the checkpoint files of their directories."""

from __future__ import annotations

from collections.abc import Callable, Mapping
from functools import partial

from kafkalite.log import checkpoints
from kafkalite.log.dir_failures import DirFailures
from kafkalite.log.failures import lacks_room
from kafkalite.log.log_dir import LogDir
from kafkalite.log.log_state import LogState
from kafkalite.log.partition_log import PartitionLog
from kafkalite.log.pool import LogPool
from kafkalite.log.removals import Removals
from kafkalite.model import Offset, TopicPartition

#: The file that a thread has written, until it replaces the checkpoint.
_NEXT = ".next"
#: Immediate repetitions of a save that came too late.
_ATTEMPTS = 3


class OffsetCheckpoints:
    """The formats are in kafkalite.log.checkpoints."""

    def __init__(self, pool: LogPool, failures: DirFailures, removals: Removals) -> None:
        self._pool = pool
        self._failures = failures
        self._removals = removals

    def high_watermark(self, topic_partition: TopicPartition) -> Offset:
        """As checkpointed, never beyond the log's end; 0 if it never was."""
        log = self._pool.logs.get(topic_partition)
        if log is None:
            return Offset(0)
        saved = self._pool.dirs[log.directory].high_watermarks.get(topic_partition, 0)
        return Offset(min(max(saved, log.log_start_offset), log.log_end_offset))

    def save_high_watermarks(self, high_watermarks: Mapping[TopicPartition, int]) -> None:
        """Save them, each in the directory of its log. Not synced: an old high watermark is safe, only late."""
        self._take_high_watermarks(high_watermarks)
        for log_dir in self._pool.online():
            self.write(log_dir, checkpoints.HIGH_WATERMARKS, log_dir.high_watermarks, durable=False)
        self.save_doubts(durable=False)

    async def save_high_watermarks_apart(self, high_watermarks: Mapping[TopicPartition, int]) -> None:
        """The same, written off the loop: the watch finds a disk that hangs before it holds the node."""
        self._take_high_watermarks(high_watermarks)
        for log_dir in self._pool.online():
            marks = dict(log_dir.high_watermarks)
            name = checkpoints.HIGH_WATERMARKS
            save = partial(log_dir.write_offsets, name + _NEXT, marks, durable=False)
            try:
                try:
                    await log_dir.off_loop(save)
                except OSError as error:
                    if not lacks_room(error):
                        raise
                    await self._removals.make_room(log_dir)
                    await log_dir.off_loop(save)
                log_dir.publish(name + _NEXT, name)
            except OSError as error:
                self._failures.file_failed(log_dir, name, error)
        self.save_doubts(durable=False)

    def _take_high_watermarks(self, high_watermarks: Mapping[TopicPartition, int]) -> None:
        for tp, offset in high_watermarks.items():
            log = self._pool.logs.get(tp)
            if log is not None:
                self._pool.dirs[log.directory].high_watermarks[tp] = offset
        for log_dir in self._pool.online():
            self.drop_foreign(log_dir, log_dir.high_watermarks)

    def save_doubts(self, *, durable: bool) -> None:
        """Save which logs may lack committed records, where that has changed. On the loop."""
        for log_dir in self._pool.online():
            try:
                self._with_room(log_dir, partial(log_dir.doubts.save, durable=durable))
            except OSError as error:
                self._failures.file_failed(log_dir, checkpoints.DOUBTFUL, error)

    def drop_foreign(self, log_dir: LogDir, offsets: dict[TopicPartition, int]) -> None:
        """Forget what is not in this directory. Logs that have failed are: they may be opened again."""
        for tp in [tp for tp in offsets if (log := self._pool.logs.get(tp)) is None or log.directory != log_dir.path]:
            if tp not in log_dir.failed:
                del offsets[tp]

    def write(self, log_dir: LogDir, name: str, offsets: Mapping[TopicPartition, int], *, durable: bool) -> None:
        """Write a checkpoint that only the loop writes."""
        try:
            self._with_room(log_dir, lambda: log_dir.write_offsets(name, offsets, durable=durable))
        except OSError as error:
            self._failures.file_failed(log_dir, name, error)

    def _with_room(self, log_dir: LogDir, write: Callable[[], None]) -> None:
        """Write; while there is no room, what may go is removed, one after the other. Raises OSError."""
        while True:
            try:
                write()
            except OSError as error:
                if not lacks_room(error) or not self._removals.remove_next(log_dir):
                    raise
            else:
                return

    def watch(self, log: PartitionLog) -> None:
        """A log has come into service: hear of what happens to it. It may end below what the files know of an earlier one."""
        log.events = self
        self.cut(log)

    def cut(self, log: LogState) -> None:
        """The files must not know higher offsets than the log has: those that are written again must be compacted again."""
        if self._pool.logs.get(log.topic_partition) is not log:
            return
        log_dir = self._pool.dirs[log.directory]
        tp, end = log.topic_partition, log.log_end_offset
        if log_dir.cleaned_to.get(tp, 0) > end:
            log_dir.cleaned_to[tp] = end
            # Before anything is written there: later records above it would never be compacted.
            self.write(log_dir, checkpoints.CLEANER_OFFSETS, log_dir.cleaned_to, durable=True)
        if self._pool.logs.get(tp) is log:
            self._save_lowered_log_start(log)

    def recovery_point_lowered(self, log: LogState) -> None:
        """New records will be trusted: write the recovery points to the disk first. Raises OSError."""
        log_dir = self._pool.dirs[log.directory]
        logs = self._pool.logs_in(log_dir)
        # A save under way in a thread has older points: it must not replace these.
        log_dir.checkpoints_version += 1
        points: dict[TopicPartition, int] = {log.topic_partition: log.recovery_point for log in logs}
        try:
            self._with_room(log_dir, lambda: log_dir.write_offsets(checkpoints.RECOVERY_POINTS, points, durable=True))
        except OSError as error:
            self._failures.file_failed(log_dir, checkpoints.RECOVERY_POINTS, error)
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
                    if await self._save_or_fail(log_dir, with_points=True):
                        log_dir.saves_done = number

    async def save_log_start(self, log: PartitionLog) -> bool:
        """Make the start of a log durable, off the loop; all logs of a directory that wait share one save.

        Returns:
            Whether it is durable; False if the file cannot be written, or the log went out of service.
        """
        log_dir = self._pool.dirs[log.directory]
        target = log.log_start_offset
        for _ in range(_ATTEMPTS):
            if log.durable_start_offset >= target:
                return True
            async with log_dir.saving:
                if log.durable_start_offset >= target:
                    return True
                if not log_dir.online or not self._pool.holds(log):
                    return False
                if not await self._save_or_fail(log_dir, with_points=False):
                    return False
        return log.durable_start_offset >= min(target, log.log_start_offset)

    def _save_lowered_log_start(self, log: LogState) -> None:
        """A log was cut below its start, or took the place of another one: the file must not know a higher start.

        It would cost the records that come below that. On the loop, since they may come at once. Does nothing in most cases.
        """
        log_dir, tp = self._pool.dirs[log.directory], log.topic_partition
        if log_dir.log_starts.get(tp, 0) > log.log_start_offset:
            self.set_log_start(log_dir, tp, log.log_start_offset)

    def set_log_start(self, log_dir: LogDir, topic_partition: TopicPartition, offset: int) -> None:
        """Write one log start to the disk, on the loop; 0 removes it."""
        log_dir.checkpoints_version += 1  # a save under way has the old one
        starts = {**log_dir.log_starts, topic_partition: offset}
        if not offset:
            del starts[topic_partition]
        log_dir.log_starts = starts
        self.write(log_dir, checkpoints.LOG_STARTS, starts, durable=True)

    async def _save_or_fail(self, log_dir: LogDir, *, with_points: bool) -> bool:
        """Save until no other writer interferes; whether it was done. The caller holds `log_dir.saving`."""
        try:
            try:
                await self._save_again(log_dir, with_points=with_points)
            except OSError as error:
                if not lacks_room(error):
                    raise
                await self._removals.make_room(log_dir)
                await self._save_again(log_dir, with_points=with_points)
        except OSError as error:
            self._failures.file_failed(log_dir, "saving offsets", error)
            return False
        return True

    async def _save_again(self, log_dir: LogDir, *, with_points: bool) -> None:
        """Raises OSError."""
        for _ in range(_ATTEMPTS):
            if await self._save(log_dir, with_points=with_points):
                return

    async def _save(self, log_dir: LogDir, *, with_points: bool) -> bool:
        """One directory, one save at a time. Raises OSError.

        The offsets are written beside their files. They take their place within a turn of the loop, and only if the loop has
        not written lower ones meanwhile, and no log has begun under the name of another one (False).
        """
        logs = self._pool.logs_in(log_dir)
        version = log_dir.checkpoints_version
        starts = self._log_starts(log_dir, logs)
        points: dict[TopicPartition, int] = {log.topic_partition: log.recovery_point for log in logs}
        lowered = [log for log in logs if log.needs_checkpoint]

        def save() -> None:
            if with_points:
                log_dir.write_offsets(checkpoints.RECOVERY_POINTS + _NEXT, points, durable=True)
            log_dir.write_offsets(checkpoints.LOG_STARTS + _NEXT, starts, durable=True)

        await log_dir.off_loop(save)
        if log_dir.checkpoints_version != version:
            return False
        if with_points:
            log_dir.publish(checkpoints.RECOVERY_POINTS + _NEXT, checkpoints.RECOVERY_POINTS)
            log_dir.recovery_points = dict(points)
        log_dir.publish(checkpoints.LOG_STARTS + _NEXT, checkpoints.LOG_STARTS)
        log_dir.log_starts = starts
        await log_dir.off_loop(log_dir.sync)
        if log_dir.log_starts is starts:
            for log in logs:
                log.start_saved(starts.get(log.topic_partition, 0))
        if with_points:
            for log in lowered:
                if log.recovery_point >= points[log.topic_partition]:
                    log.needs_checkpoint = False
        return True

    def _log_starts(self, log_dir: LogDir, logs: list[PartitionLog]) -> dict[TopicPartition, int]:
        """Of every log in the directory that does not begin at 0.

        Also where the first segment begins there: the names of older segments may be back after a loss of power.
        """
        starts: dict[TopicPartition, int] = {
            log.topic_partition: log.log_start_offset for log in logs if log.log_start_offset
        }
        for failed in log_dir.failed.values():
            # No recovery point: all of it is checked when it is opened. Deleted records stay deleted.
            tp = failed.topic_partition
            start: int = log_dir.log_starts.get(tp, 0) if failed.log is None else failed.log.log_start_offset
            if start and tp not in self._pool.logs:
                starts[tp] = start
        return starts
