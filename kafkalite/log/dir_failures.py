"""A log or a whole log directory goes offline, and when what it held can be made anew (KIP-18).

Who decides whether it is the log or the disk: kafkalite.log.judge; by what: kafkalite.log.failures.
"""

from __future__ import annotations

from collections.abc import Callable, Sequence

from kafkalite.config import BrokerConfig
from kafkalite.env.seams import Clock, Disk
from kafkalite.errors import StorageError
from kafkalite.log.failures import Blame, blame
from kafkalite.log.judge import MIN_ROOM_BYTES
from kafkalite.log.log_dir import STRAY_SUFFIX, LogDir, dir_error, partition_of
from kafkalite.log.pool import LogPool
from kafkalite.log.removals import Removals
from kafkalite.model import TopicPartition
from kafkalite.telemetry.logs import get_logger

_log = get_logger(__name__)


class DirFailures:
    """What happens to a log with a storage error, and to a directory that is given up.

    Args:
        suspect: the judge's ear, for errors of which it is not known yet whose they are.
        on_dir_failed, on_log_failed, on_judged: see `LogManager`.
        end_moves: no replica moves to this directory any more.
    """

    def __init__(
        self,
        pool: LogPool,
        config: BrokerConfig,
        disk: Disk,
        clock: Clock,
        removals: Removals,
        *,
        suspect: Callable[[LogDir, StorageError], None],
        on_dir_failed: Callable[[str, StorageError], None],
        on_log_failed: Callable[[TopicPartition, StorageError], None],
        on_judged: Callable[[str], None],
        end_moves: Callable[[str], None],
    ) -> None:
        self._pool = pool
        self._config = config
        self._disk = disk
        self._clock = clock
        self._removals = removals
        self._suspect = suspect
        self._on_dir_failed = on_dir_failed
        self._on_log_failed = on_log_failed
        self._on_judged = on_judged
        self._end_moves = end_moves

    def log_failed(self, error: StorageError) -> None:
        """A log cannot be used: it is out of the pools when this returns; what else that means is found out. Idempotent."""
        log_dir = self._pool.dirs.get(error.directory)
        if log_dir is None or not log_dir.online:
            return
        tp = partition_of(error.path.rpartition("/")[2])
        log = self._pool.logs.get(tp) if tp is not None else None
        if log is not None and tp is not None and log.path == error.path:
            self._pool.lose(tp, log_dir)
            log_dir.failed[tp] = log.path
            _log.error("log.offline", partition=str(tp), path=log.path, error=str(error))
            self._on_log_failed(tp, error)
        self._suspect(log_dir, error)

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
        self._end_moves(log_dir.path)
        self._removals.forget(log_dir)
        log_dir.handles.close()
        _log.error("log_dir.offline", directory=log_dir.path, error=str(error), partitions=len(lost))
        self._on_dir_failed(log_dir.path, error)
        self._on_judged(log_dir.path)
        return lost

    def file_failed(self, log_dir: LogDir, what: str, error: OSError) -> None:
        """A file of the directory itself cannot be written: is it the disk? A failure of the process says nothing of it."""
        failure = dir_error(log_dir, what, error)
        failure.__cause__ = error
        if blame(failure) is Blame.NOBODY:
            _log.error("log_dir.file_failed", directory=log_dir.path, error=str(failure))
        else:
            self._suspect(log_dir, failure)

    def set_failed_aside(self, log_dir: LogDir, failed: Sequence[str]) -> None:
        """Raises OSError. In a thread."""
        if failed:
            log_dir.mark_incomplete()
        for path in failed:
            tp = partition_of(path.rpartition("/")[2])
            assert tp is not None
            aside = self._removals.name_aside(log_dir.path, tp, STRAY_SUFFIX)
            try:
                self._disk.rename(path, aside)
            except FileNotFoundError:
                continue  # somebody has removed it: that is what it failed of
            self._removals.later(aside, self._config.stray_delete_delay_ms, is_dir=True)

    def restart_refusal(self, topic_partition: TopicPartition) -> str:
        """See `LogManager.restart_refusal`."""
        path = self._pool.offline_partitions.get(topic_partition, "")
        lost = self._pool.dirs.get(path)
        if lost is not None:
            if topic_partition in lost.failed or not lost.is_judged:
                return f"{path} is being checked"
            now = self._clock.monotonic()
            pause = lost.failures.not_before(now) - now
            if pause > 0:
                return f"{path} has failed {len(lost.failures.at)} times: pause of {pause:.0f} s"
        online = [log_dir for log_dir in self._pool.online() if not log_dir.is_full]
        if not online:
            return "no healthy disk is left"
        needed = self._pool.offline_bytes.get(topic_partition, 0)
        if all(log_dir.free_bytes() < needed + MIN_ROOM_BYTES for log_dir in online):
            return f"no healthy disk has room for {needed:,} bytes"
        return ""
