"""Logs on their way out: renamed at once (-delete, -stray), their files removed later, or now when room is short (F19)."""

from __future__ import annotations

from collections.abc import Callable

from kafkalite.env.seams import Clock, Disk
from kafkalite.errors import StorageError
from kafkalite.log.log_dir import DELETE_SUFFIX, LogDir, dir_error, set_aside_name
from kafkalite.log.partition_log import PartitionLog
from kafkalite.log.pool import LogPool
from kafkalite.model import TopicId, TopicPartition
from kafkalite.telemetry.logs import get_logger

_log = get_logger(__name__)


class Removals:
    """What is to be removed and when.

    Args:
        suspect: told when a directory refuses.
    """

    def __init__(
        self, pool: LogPool, disk: Disk, clock: Clock, *, suspect: Callable[[LogDir, StorageError], None]
    ) -> None:
        self._pool = pool
        self._disk = disk
        self._clock = clock
        self._suspect = suspect
        #: (monotonic due time in seconds, path, is a directory), to be removed.
        self._removals: list[tuple[float, str, bool]] = []
        self._names_given = 0
        #: Directories in which logs were set aside: a loss of power may still bring them back under their names.
        self._unsynced: dict[str, None] = {}

    def set_aside(self, log: PartitionLog, suffix: str, delay_ms: int | None) -> None:
        """Rename the log's directory; its files go after the delay, without one never. Raises StorageError."""
        log.close()
        path = self.name_aside(log.directory, log.topic_partition, suffix)
        try:
            self._disk.rename(log.path, path)
        except OSError as error:
            failure = log.storage_error("setting the log aside", error)
            failure.__cause__ = error
            self._suspect(self._pool.dirs[log.directory], failure)
            raise failure from error
        self._unsynced[log.directory] = None
        if delay_ms is None:
            self._pool.dirs[log.directory].kept[path] = (log.topic_partition, log.topic_id)
        else:
            self.later(path, delay_ms, is_dir=True)

    def drop_kept(self, topic_partition: TopicPartition, topic_id: TopicId | None) -> None:
        """What is kept of this topic's partition is not wanted any more: its deletion was ordered. None: of any id."""
        for log_dir in self._pool.online():
            for path in [
                path for path, of in log_dir.kept.items() if of[0] == topic_partition and topic_id in (None, of[1])
            ]:
                del log_dir.kept[path]
                self.later(path, 0, is_dir=True)

    async def sync(self) -> bool:
        """What was set aside stays so through a loss of power; False if that cannot be said of a directory in service."""
        all_synced = True
        for path in list(self._unsynced):
            log_dir = self._pool.dirs[path]
            del self._unsynced[path]
            if not log_dir.online:
                continue  # what comes back with its disk is judged then
            try:
                await log_dir.off_loop(lambda path=path: self._disk.sync_dir(path))  # type: ignore[misc]
            except OSError as error:
                if not log_dir.online:
                    continue
                self._unsynced[path] = None
                all_synced = False
                failure = dir_error(log_dir, "syncing the names of removed logs", error)
                failure.__cause__ = error
                self._suspect(log_dir, failure)
        return all_synced

    def name_aside(self, directory: str, topic_partition: TopicPartition, suffix: str) -> str:
        self._names_given += 1
        unique = f"{self._clock.wall_ms():016x}{self._names_given:016x}"
        return f"{directory}/{set_aside_name(topic_partition, unique, suffix)}"

    def later(self, path: str, delay_ms: int, *, is_dir: bool) -> None:
        self._removals.append((self._clock.monotonic() + delay_ms / 1000, path, is_dir))

    def discard(self, log: PartitionLog, delay_ms: int, suffix: str = DELETE_SUFFIX) -> None:
        """Take the directory of a log that is in no pool away; its files go after the delay."""
        log.close()
        try:
            if self._pool.dirs[log.directory].online:
                self.set_aside(log, suffix, delay_ms)
        except StorageError as error:
            _log.error("log.not_set_aside", path=log.path, error=str(error))

    def discard_path(self, path: str) -> None:
        """See `LogManager.discard_path`."""
        if self._disk.exists(path):
            self.later(path, 0, is_dir=True)

    async def run_due(self) -> None:
        """Remove files and directories that were taken out of service long enough ago."""
        now = self._clock.monotonic()
        due = [entry for entry in self._removals if entry[0] <= now]
        self._removals = [entry for entry in self._removals if entry[0] > now]
        for _, path, is_dir in due:
            remove = self._disk.remove_tree if is_dir else self._disk.remove
            log_dir = next((one for one in self._pool.online() if path.startswith(one.path + "/")), None)
            if log_dir is None:
                continue
            try:
                await log_dir.off_loop(lambda remove=remove, path=path: remove(path))  # type: ignore[misc]
            except OSError as error:
                failure = dir_error(log_dir, f"removing {path}", error)
                failure.__cause__ = error
                self._suspect(log_dir, failure)

    async def make_room(self, log_dir: LogDir) -> None:
        """Remove at once what was to be removed later. Raises OSError."""
        mine = [entry for entry in self._removals if entry[1].startswith(log_dir.path + "/")]
        self._removals = [entry for entry in self._removals if entry not in mine]
        for _, path, is_dir in mine:
            remove = self._disk.remove_tree if is_dir else self._disk.remove
            await log_dir.off_loop(lambda remove=remove, path=path: remove(path))  # type: ignore[misc]

    def forget(self, log_dir: LogDir) -> None:
        """Nothing more is removed there: the directory is offline."""
        self._removals = [entry for entry in self._removals if not entry[1].startswith(log_dir.path + "/")]
