"""A log or a whole log directory goes offline, and when its replicas can be recreated (KIP-18).

Who decides whether it is the log or the disk: kafkalite.log.log_dir_failure_handler; by what: kafkalite.log.failures.
"""

from __future__ import annotations

import errno

from kafkalite.config import TopicConfig
from kafkalite.errors import ErrorCode, LogClosed, StorageError, api_error
from kafkalite.log.failures import FaultScope, fault_scope
from kafkalite.log.log_dir import STRAY_SUFFIX, LogDir, dir_error, partition_of
from kafkalite.log.pool import LogPool
from kafkalite.log.removals import Removals
from kafkalite.log.reopening import Reopening
from kafkalite.log.returning import Awaited
from kafkalite.log.room import MIN_ROOM_BYTES
from kafkalite.log.strays import LOST_BYTES, Stray, StrayFiles, describe_stray
from kafkalite.model import NO_LEADER_EPOCH, NO_TOPIC_ID, TopicId, TopicPartition
from kafkalite.telemetry.logs import get_logger
from kafkalite.telemetry.repeats import Repeats

_log = get_logger(__name__)


class DirFailures:
    """What happens to a log with a storage error, and to a directory that is given up."""

    def __init__(
        self,
        pool: LogPool,
        removals: Removals,
        reopening: Reopening,
    ) -> None:
        self._pool = pool
        self._disk = pool.disk
        self._clock = pool.clock
        self._removals = removals
        self._reopening = reopening
        self._repeats = Repeats(pool.clock.monotonic)

    def log_failed(self, error: StorageError, *, is_certain: bool = True) -> None:
        """A log cannot be used: it is out of the pools when this returns; the disk is checked later. Idempotent.

        Args:
            is_certain: False: an unchanged log stays in service if only descriptors or memory were missing.
        """
        log_dir = self._pool.dirs.get(error.directory)
        if log_dir is None or not log_dir.online or isinstance(error, LogClosed):
            return
        tp = partition_of(error.path.rpartition("/")[2])
        log = self._pool.logs.get(tp) if tp is not None else None
        if log is not None and tp is not None and log.path == error.path:
            if not is_certain and fault_scope(error) is FaultScope.SHORTAGE and not log.is_failed:
                suppressed = self._repeats.admit(log_dir.path)
                if suppressed is not None:
                    _log.warning("log.operation_failed", partition=str(tp), error=str(error), suppressed=suppressed)
                return
            self._pool.lose(tp, log_dir)
            self._reopening.failed(log_dir, log, error)
            _log.error("log.offline", partition=str(tp), path=log.path, error=str(error))
            self._pool.host.log_failed(tp, error)
        self._pool.events.error_found(log_dir, error)

    def dir_failed(self, error: StorageError) -> list[TopicPartition]:
        """Take the error's directory offline; the partitions that were in it. Idempotent."""
        log_dir = self._pool.dirs.get(error.directory)
        if log_dir is None or not log_dir.online:
            return []
        self._disk.abandon(log_dir.path)
        lost = sorted(tp for tp, log in self._pool.logs.items() if log.directory == log_dir.path)
        for tp in lost:
            self._pool.lose(tp, log_dir)
        log_dir.go_offline(str(error), self._clock.wall_ms())
        log_dir.awaited = Awaited.after(error)
        if log_dir.awaited is not Awaited.OPERATOR:
            log_dir.pauses.went_offline(self._clock.monotonic())
        self._pool.events.dir_lost(log_dir.path)
        self._removals.forget(log_dir)
        log_dir.handles.close()
        _log.error("log_dir.offline", directory=log_dir.path, error=str(error), partitions=len(lost))
        self._pool.host.dir_failed(error)
        self._pool.host.examined(log_dir.path)
        return lost

    def file_failed(self, log_dir: LogDir, what: str, error: OSError) -> None:
        """A file of the directory itself cannot be written: without it nothing in the directory is safe.

        A failure of the process proves nothing about the disk; a missing file may have been removed by mistake.
        """
        failure = dir_error(log_dir, what, error)
        failure.__cause__ = error
        if fault_scope(failure) is FaultScope.SHORTAGE:
            _log.error("log_dir.file_failed", directory=log_dir.path, error=str(failure))
        elif error.errno == errno.ENOENT:
            self._pool.events.error_found(log_dir, failure)
        else:
            self.dir_failed(failure)

    async def reopen_failed(self, log_dir: LogDir) -> None:
        """Open the failed logs of a sound directory again, if they are sound. Raises OSError."""
        await self._reopening.check(log_dir)
        if log_dir.online and log_dir.failed:
            await log_dir.off_loop(log_dir.mark_incomplete)

    def failed_topic_id(self, topic_partition: TopicPartition) -> TopicId | None:
        """The id of the topic of a failed log, NO_TOPIC_ID if that is not known; None if there is no such log."""
        failed = self._pool.failed(topic_partition)
        if failed is None:
            return None
        return describe_stray(self._disk, failed.path).topic_id if failed.log is None else failed.log.topic_id

    def take_failed_away(self, topic_partition: TopicPartition, suffix: str, delay_ms: int = 0) -> TopicId | None:
        """Rename the failed log's directory; returns the id of its topic, None if there is no such log.

        The replica is about to be recreated, or its partition is deleted, by a command. Raises StorageError.
        """
        failed = self._pool.failed(topic_partition)
        if failed is None:
            return None
        log_dir = self._pool.dirs[failed.path.rpartition("/")[0]]
        mark = LOST_BYTES if topic_partition in log_dir.doubts.lost_bytes else ""
        aside = self._removals.name_aside(log_dir.path, topic_partition, suffix, mark=mark)
        try:
            if failed.is_under_check:
                raise BlockingIOError(errno.EWOULDBLOCK, "it is being checked", failed.path)
            log_dir.mark_incomplete()
            self._disk.rename(failed.path, aside)
        except FileNotFoundError:
            aside = ""  # it was removed by hand
        except OSError as error:
            failure = dir_error(log_dir, f"setting {failed.path} aside", error)
            failure.__cause__ = error
            self._pool.events.error_found(log_dir, failure)
            raise failure from error
        del log_dir.failed[topic_partition]
        files = StrayFiles(NO_TOPIC_ID, failed.size_bytes, NO_LEADER_EPOCH)
        if failed.log is not None:
            lost = failed.log
            files = StrayFiles(lost.topic_id, failed.size_bytes, lost.latest_epoch, lost.log_end_offset)
        elif aside:
            files = describe_stray(self._disk, aside)
        if aside and suffix == STRAY_SUFFIX:
            self._removals.keep(aside, files)
        elif aside:
            self._removals.later(aside, delay_ms, is_dir=True)
        return files.topic_id

    async def restore(self, stray: Stray, topic_partition: TopicPartition, config: TopicConfig) -> None:
        """A directory that was set aside becomes the partition's log again, unchanged.

        Raises:
            ApiError: KAFKA_STORAGE_ERROR; the partition has a log, or this one cannot be opened.
        """
        self.put_back(stray, topic_partition, config)
        log_dir = self._pool.dirs[stray.directory]
        path = f"{log_dir.path}/{topic_partition}"
        if topic_partition not in await self._reopening.check(log_dir, is_requested=True, only=topic_partition):
            failed = log_dir.failed.get(topic_partition)
            reason = "the directory went offline" if failed is None else failed.reason
            raise api_error(ErrorCode.KAFKA_STORAGE_ERROR, f"{path} is in place, but cannot be opened: {reason}")

    def put_back(self, stray: Stray, topic_partition: TopicPartition, config: TopicConfig) -> None:
        """As `restore`; the log is offline until it is opened, soon. Raises ApiError KAFKA_STORAGE_ERROR: the partition has a log."""
        log_dir = self._pool.dirs[stray.directory]
        doubts = log_dir.doubts
        known = self._pool.failed(topic_partition)
        path = f"{log_dir.path}/{topic_partition}"
        try:
            if topic_partition in self._pool.logs or known is not None or self._disk.exists(path):
                text = f"{topic_partition} has a log here" if known is None else f"its own log is in {known.path}"
                raise api_error(ErrorCode.KAFKA_STORAGE_ERROR, text)
            # It may end before the log that the replica had, and tombstones may have gone since (ADR 76). Its name does not say so any more: the next
            # process has to know, if this one dies before the log is opened.
            for marks in (doubts.logs, doubts.older, *((doubts.lost_bytes,) if stray.has_lost_bytes else ())):
                marks.add(topic_partition)
            doubts.save(durable=False)
            self._disk.rename(stray.path, path)
        except OSError as error:
            doubts.forget(topic_partition)
            raise api_error(ErrorCode.KAFKA_STORAGE_ERROR, f"{stray.path}: {error}") from error
        self._removals.forget_stray(stray)
        cause = FileNotFoundError(errno.ENOENT, "restored, not opened yet", path)
        self._reopening.not_loaded(log_dir, topic_partition, path, config, cause)
        log_dir.recovery_points.pop(topic_partition, None)  # of the log that was here last
        self._pool.offline_partitions[topic_partition] = log_dir.path
        _log.warning("stray.restored", path=stray.path, partition=str(topic_partition))

    def set_leftover_aside(self, log_dir: LogDir, topic_partition: TopicPartition) -> None:
        """Rename an unknown directory that has the name of a log about to be made. It is kept. Raises OSError."""
        path = f"{log_dir.path}/{topic_partition}"
        if self._disk.exists(path):
            aside = self._removals.name_aside(log_dir.path, topic_partition, STRAY_SUFFIX)
            self._disk.rename(path, aside)
            self._removals.keep(aside, describe_stray(self._disk, aside))

    def restart_refusal(self, topic_partition: TopicPartition) -> str:
        """Why a replica that went offline cannot be recreated now; "" if it can."""
        path = self._pool.offline_partitions.get(topic_partition, "")
        lost = self._pool.dirs.get(path)
        if lost is not None:
            failed = lost.failed.get(topic_partition)
            if not lost.is_examined or (failed is not None and (failed.is_under_check or not failed.is_examined)):
                return f"{path} is being checked"
            if failed is not None and failed.is_shortage:
                return f"{failed.path} is opened again when there are descriptors and memory for it ({failed.reason})"
            now = self._clock.monotonic()
            pause = lost.failures.not_before(now) - now
            if pause > 0:
                return f"{path} has failed {len(lost.failures.at)} times: pause of {pause:.0f} s"
        online = [log_dir for log_dir in self._pool.online() if not log_dir.is_full]
        if not online:
            return "no healthy disk is left"
        had = self._pool.lost.get(topic_partition)
        needed = 0 if had is None else had.size_bytes
        if all(log_dir.free_bytes() < needed + MIN_ROOM_BYTES for log_dir in online):
            return f"no healthy disk has room for {needed:,} bytes"
        return ""
