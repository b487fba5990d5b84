"""Creating a log: which directory gets it, and what is left over there from an earlier one."""

from __future__ import annotations

import contextlib
import errno
from collections.abc import Collection

from kafkalite.config import TopicConfig
from kafkalite.errors import StorageError
from kafkalite.log import checkpoints
from kafkalite.log.dir_failures import DirFailures
from kafkalite.log.loader import new_log
from kafkalite.log.local_log import LogPlace
from kafkalite.log.log_dir import STRAY_SUFFIX, LogDir, dir_error
from kafkalite.log.log_dir_failure_handler import LogDirFailureHandler
from kafkalite.log.partition_log import PartitionLog
from kafkalite.log.pool import LogPool
from kafkalite.model import TopicId, TopicPartition


class Placing:
    """New logs of a node."""

    def __init__(
        self,
        pool: LogPool,
        failure_handler: LogDirFailureHandler,
        failures: DirFailures,
    ) -> None:
        self._pool = pool
        self._disk = pool.disk
        self._clock = pool.clock
        self._failure_handler = failure_handler
        self._failures = failures
        #: Put in doubt everywhere, because nobody knows yet which directory gets them.
        self._ahead: set[TopicPartition] = set()

    def doubt_ahead(self, topic_partitions: Collection[TopicPartition]) -> None:
        """Logs that are missing, and that `create` is about to recreate, in doubt: one write of each directory for all of them. Where that
        fails, `create` tries it again, and reports it. On the loop."""
        missing = [tp for tp in topic_partitions if tp not in self._pool.logs]
        for log_dir in self._pool.online() if missing else ():
            log_dir.doubts.logs.update(missing)
            log_dir.doubts.remade.update(tp for tp in missing if self._pool.is_away(tp))
            with contextlib.suppress(OSError):
                log_dir.doubts.save(durable=True)
        self._ahead.update(missing)

    def forget_ahead(self) -> None:
        """The logs of `doubt_ahead` are made, or are not made now: each is in doubt where it is, and nowhere else. Saved with the next list."""
        for tp in self._ahead:
            log = self._pool.logs.get(tp)
            for log_dir in self._pool.online():
                is_here = log is not None and log.directory == log_dir.path
                if not is_here and tp not in log_dir.failed:
                    log_dir.doubts.forget(tp)
        self._ahead.clear()

    def create(
        self,
        topic_partition: TopicPartition,
        topic_id: TopicId,
        config: TopicConfig,
        *,
        directory: str | None = None,
        is_doubtful: bool = False,
    ) -> PartitionLog:
        """A new, empty log, in the healthy directory with the most room for each log that is in it.

        A replica that went offline is placed elsewhere than where it was, if that is possible. A directory that
        refuses is suspected, and the next one tried.

        Args:
            directory: this one and no other.
            is_doubtful: it takes the place of a log that is missing (ADR 16). That is durable before the new one is there: a process that
                dies in between would find an empty log that nobody doubts.

        Raises:
            StorageError: also when no directory is healthy. The replica is offline then, and begins when one is back.
        """
        assert topic_partition not in self._pool.logs
        self._failures.take_failed_away(topic_partition, STRAY_SUFFIX)
        for log_dir in self._pool.dirs.values():
            log_dir.doubts.forget(topic_partition)
        refusal: StorageError | None = None
        for log_dir in self._by_preference(topic_partition):
            if directory is not None and log_dir.path != directory:
                continue
            try:
                if self._pool.is_away(topic_partition):
                    log_dir.doubts.remade.add(topic_partition)
                if is_doubtful:
                    log_dir.doubts.logs.add(topic_partition)
                    log_dir.doubts.save(durable=True)
                return self._create_in(log_dir, topic_partition, topic_id, config)
            except OSError as error:
                refusal = dir_error(log_dir, f"creating {topic_partition}", error)
                refusal.__cause__ = error
            except StorageError as error:
                refusal = error
            self._failure_handler.report_error(log_dir, refusal)
        first = next(iter(self._pool.dirs))
        raise refusal or StorageError(f"creating {topic_partition}: no log directory is online", directory=first)

    def _by_preference(self, topic_partition: TopicPartition) -> list[LogDir]:
        """Healthy directories, the best for this partition first."""
        online = self._pool.online()
        if len(online) < 2:
            return online
        left = self._pool.offline_partitions.get(topic_partition)
        room = {log_dir.path: log_dir.free_bytes() // (log_dir.log_count + 1) for log_dir in online}
        # One that is cordoned is better than none: the controller assigned the replica here before it knew.
        return sorted(
            online, key=lambda one: (one.path in self._pool.cordoned, one.path == left, one.is_full, -room[one.path])
        )

    def _create_in(
        self, log_dir: LogDir, topic_partition: TopicPartition, topic_id: TopicId, config: TopicConfig
    ) -> PartitionLog:
        """Raises OSError, StorageError."""
        if not self._disk.exists(f"{log_dir.path}/{checkpoints.META_PROPERTIES}"):
            # Not to be recreated: it may be the empty place where the disk was mounted.
            raise FileNotFoundError(errno.ENOENT, "the log directory is missing", log_dir.path)
        path = f"{log_dir.path}/{topic_partition}"
        if not self._disk.make_dir(path):
            self._failures.set_leftover_aside(log_dir, topic_partition)  # a new log must not use its segments
            self._disk.makedirs(path)
        place = LogPlace(self._disk, log_dir.handles, log_dir.path, path, self._clock.wall_ms)
        log = new_log(topic_partition, config, topic_id, place)
        if topic_partition in log_dir.recovery_points:
            # It is an earlier replica's. The first roll writes this one's before anything relies on it.
            log.needs_checkpoint = True
            log_dir.checkpoints_version += 1
        elif log_dir.saving.locked():
            log_dir.checkpoints_version += 1
        self._pool.put(log)
        self._pool.forget_offline(topic_partition)
        for known in (log_dir.high_watermarks, log_dir.recovery_points, log_dir.cleaned_to):
            known.pop(topic_partition, None)
        return log
