"""Logs on their way out: renamed at once (-delete, -stray), their files removed later, or now when room is short.

Logs that were deleted on request (-delete) are removed after a delay. Logs that were set aside (-stray) are removed after a
delay, too, but only when their records are known to be in sync elsewhere, or on request: they may be the last copy.
"""

from __future__ import annotations

import contextlib
from collections.abc import Sequence
from functools import partial

from kafkalite.errors import StorageError
from kafkalite.log.failures import is_shortage
from kafkalite.log.log_dir import DELETE_SUFFIX, STRAY_SUFFIX, LogDir, dir_error, set_aside_name
from kafkalite.log.partition_log import PartitionLog
from kafkalite.log.pool import LogPool
from kafkalite.log.strays import LATER, LOST_BYTES, REQUESTED, Stray, StrayFiles, describe_stray, mark_of, parse_name
from kafkalite.model import NO_LEADER_EPOCH, NO_TOPIC_ID, TopicId, TopicPartition
from kafkalite.telemetry.logs import get_logger

_log = get_logger(__name__)

#: Until a removal is tried again for which descriptors or memory were short.
_SHORTAGE_PAUSE_MS = 10_000


class Removals:
    """What is to be removed and when.

    Args:
        stray_delay_ms: the shortest time for which a stray is kept.
    """

    def __init__(
        self,
        pool: LogPool,
        *,
        stray_delay_ms: int,
    ) -> None:
        self._stray_delay_ms = stray_delay_ms
        #: By path.
        self._strays: dict[str, Stray] = {}
        self._pool = pool
        self._disk = pool.disk
        self._clock = pool.clock
        #: (monotonic due time in seconds, path, is a directory), to be removed.
        self._removals: list[tuple[float, str, bool]] = []
        self._names_given = 0
        #: Directories in which logs were set aside: a loss of power may still bring them back under their names.
        self._unsynced: dict[str, None] = {}

    def set_aside(self, log: PartitionLog, suffix: str, delay_ms: int, *, is_later: bool = False) -> None:
        """Rename the log's directory. Raises StorageError.

        Args:
            delay_ms: until its files are removed; strays have their own rules.
            is_later: see Stray.
        """
        log.close()
        path = self.name_aside(log.directory, log.topic_partition, suffix, mark=LATER if is_later else "")
        try:
            self._disk.rename(log.path, path)
        except OSError as error:
            failure = log.storage_error("setting the log aside", error)
            failure.__cause__ = error
            self._pool.events.error_found(self._pool.dirs[log.directory], failure)
            raise failure from error
        self._unsynced[log.directory] = None
        if suffix == STRAY_SUFFIX:
            is_unfinished = log.copying_in != NO_LEADER_EPOCH
            files = StrayFiles(log.topic_id, log.size_bytes, log.latest_epoch, log.log_end_offset, is_unfinished)
            self.keep(path, files)
            if is_unfinished:
                # The most complete one is enough: a leader that changes again and again would fill the disk.
                strays = self.of(log.topic_partition, log.topic_id)
                for stray in [each for each in strays if each.is_unfinished and not each.is_later][1:]:
                    self.remove_stray(stray)
        else:
            self.later(path, delay_ms, is_dir=True)

    def put_in_place(self, log: PartitionLog) -> None:
        """A log comes into service. One that gives way to it (`LogPool.gives_way_to`) is set aside."""
        tp = log.topic_partition
        self._pool.forget_offline(tp)
        older = self._pool.take(tp)
        self._pool.put(log)
        if older is None:
            return
        _log.error("log.twice", partition=str(tp), kept=log.path, stray=older.path)
        self._pool.dirs[older.directory].doubts.forget(tp)
        self._pool.host.replaced(older, log)
        with contextlib.suppress(StorageError):  # it was reported
            self.set_aside(older, STRAY_SUFFIX, 0)

    async def sync(self) -> bool:
        """What was set aside stays so through a loss of power; False if that cannot be said of a directory in service."""
        all_synced = True
        for path in list(self._unsynced):
            log_dir = self._pool.dirs[path]
            del self._unsynced[path]
            if not log_dir.online:
                continue  # logs that come back with their disk are classified then
            try:
                await log_dir.off_loop(partial(self._disk.sync_dir, path))
            except OSError as error:
                if not log_dir.online:
                    continue
                self._unsynced[path] = None
                all_synced = False
                failure = dir_error(log_dir, "syncing the names of removed logs", error)
                failure.__cause__ = error
                self._pool.events.error_found(log_dir, failure)
        return all_synced

    def name_aside(
        self,
        directory: str,
        topic_partition: TopicPartition,
        suffix: str,
        *,
        mark: str = "",
        since_ms: int | None = None,
    ) -> str:
        self._names_given += 1
        at = self._clock.wall_ms() if since_ms is None else since_ms
        unique = f"{at:016x}{mark or '00000000'}{self._names_given:08x}"
        return f"{directory}/{set_aside_name(topic_partition, unique, suffix)}"

    def later(self, path: str, delay_ms: int, *, is_dir: bool) -> None:
        self._removals.append((self._clock.monotonic() + delay_ms / 1000, path, is_dir))

    def discard(self, log: PartitionLog, delay_ms: int, suffix: str = DELETE_SUFFIX) -> None:
        """Take the directory of a log that is in no pool away; its files go after the delay. Never raises: what stays is
        removed at the start. With STRAY_SUFFIX it is kept as a stray: it may have what is lost elsewhere."""
        log.close()
        try:
            if self._pool.dirs[log.directory].online:
                self.set_aside(log, suffix, delay_ms)
        except StorageError as error:
            _log.error("log.not_set_aside", path=log.path, error=str(error))

    def discard_path(self, path: str) -> None:
        """Remove a directory soon, if it is there."""
        self.later(path, 0, is_dir=True)

    async def run_due(self) -> None:
        """Remove files and directories that were taken out of service long enough ago. What is on a disk that is being
        opened again waits until it is in service."""
        now = self._clock.monotonic()
        online = self._pool.online()
        here = {log_dir.path for log_dir in online}
        for stray in [stray for stray in self._strays.values() if stray.due <= now and self._may_go(stray)]:
            if stray.directory in here:
                self.remove_stray(stray)
        due: list[tuple[LogDir, tuple[float, str, bool]]] = []
        waiting: list[tuple[float, str, bool]] = []
        for entry in self._removals:
            at, path, _ = entry
            log_dir = next((one for one in online if path.startswith(one.path + "/")), None) if at <= now else None
            if log_dir is None:
                waiting.append(entry)
            else:
                due.append((log_dir, entry))
        self._removals = waiting
        for log_dir, entry in due:
            if not log_dir.online:
                continue
            try:
                await self._remove(log_dir, entry)
            except OSError as error:
                _, path, is_dir = entry
                if log_dir.online and is_shortage(error):
                    self.later(path, _SHORTAGE_PAUSE_MS, is_dir=is_dir)
                failure = dir_error(log_dir, f"removing {path}", error)
                failure.__cause__ = error
                self._pool.events.error_found(log_dir, failure)

    async def make_room(self, log_dir: LogDir) -> None:
        """Remove at once what was to be removed later, and strays whose records are elsewhere. Raises OSError."""
        self._let_strays_go(log_dir)
        mine = [entry for entry in self._removals if entry[1].startswith(log_dir.path + "/")]
        self._removals = [entry for entry in self._removals if entry not in mine]
        try:
            while mine:
                await self._remove(log_dir, mine[0])
                mine.pop(0)
        finally:
            if log_dir.online:
                self._removals += mine

    def remove_next(self, log_dir: LogDir) -> bool:
        """Remove one of those that `make_room` removes, on the loop: without room for a small file the directory would go offline.

        Raises OSError.

        Returns:
            False if there is none.
        """
        if not any(path.startswith(log_dir.path + "/") for _, path, _ in self._removals):
            self._let_strays_go(log_dir)
        entry = next((each for each in self._removals if each[1].startswith(log_dir.path + "/")), None)
        if entry is None:
            return False
        _, path, is_dir = entry
        (self._disk.remove_tree if is_dir else self._disk.remove)(path)
        self._removals.remove(entry)
        return True

    async def _remove(self, log_dir: LogDir, removal: tuple[float, str, bool]) -> None:
        """Raises OSError."""
        _, path, is_dir = removal
        remove = self._disk.remove_tree if is_dir else self._disk.remove
        await log_dir.off_loop(lambda: remove(path))

    def forget(self, log_dir: LogDir) -> None:
        """Nothing more is removed there: the directory is offline."""
        self._removals = [entry for entry in self._removals if not entry[1].startswith(log_dir.path + "/")]
        self._strays = {path: stray for path, stray in self._strays.items() if stray.directory != log_dir.path}

    # --- strays ---------------------------------------------------------------------------------

    def strays(self) -> list[Stray]:
        """All that were set aside, in directories that are online; sorted by path."""
        return [self._strays[path] for path in sorted(self._strays)]

    def of(self, topic_partition: TopicPartition, topic_id: TopicId) -> list[Stray]:
        """Those of this very topic's partition that were not to be deleted, the most complete one first. None without a topic id: they may be another
        topic's."""
        found = [
            stray
            for stray in self.strays()
            if stray.topic_id == topic_id != NO_TOPIC_ID
            and stray.is_of(topic_partition, topic_id)
            and not stray.is_requested
        ]
        return sorted(found, key=lambda stray: stray.extent, reverse=True)

    def overdue(self) -> list[Stray]:
        """Those that are kept although their delay is over: no other copy is known."""
        now = self._clock.monotonic()
        return [stray for stray in self.strays() if stray.due <= now and not self._may_go(stray)]

    def keep(self, path: str, files: StrayFiles) -> None:
        """A directory has been set aside, or was found so."""
        directory, _, name = path.rpartition("/")
        found = parse_name(name)
        now_ms, now = self._clock.wall_ms(), self._clock.monotonic()
        tp, since_ms = found if found is not None else (TopicPartition(name, -1), now_ms)
        since_ms = min(since_ms, now_ms)  # a name of Kafka's has no time in it
        due = now + max(0, since_ms + self._stray_delay_ms - now_ms) / 1000
        mark = mark_of(name)
        self._strays[path] = Stray(
            directory, name, tp, files.topic_id, since_ms, files.size_bytes, due, is_requested=mark == REQUESTED,
            latest_epoch=files.latest_epoch, log_end_offset=files.log_end_offset, is_unfinished=files.is_unfinished,
            is_later=mark == LATER, has_lost_bytes=mark == LOST_BYTES,
        )  # fmt: skip

    def find_strays(self, directory: str, names: Sequence[str]) -> list[tuple[str, StrayFiles]]:
        """The facts that `keep` needs about the strays among `names`. In a thread."""
        paths = [f"{directory}/{name}" for name in names if name.endswith(STRAY_SUFFIX)]
        return [(path, describe_stray(self._disk, path)) for path in paths]

    def deletion_requested(self, topic_partition: TopicPartition, topic_id: TopicId) -> None:
        """The partition is deleted here on request: its strays are removed when their delay is over. Raises StorageError."""
        for stray in self.strays():
            if not stray.is_requested and stray.is_of(topic_partition, topic_id):
                self._mark_requested(stray)

    def _mark_requested(self, stray: Stray) -> None:
        """By its name, durably after `sync`."""
        path = self.name_aside(
            stray.directory, stray.topic_partition, STRAY_SUFFIX, mark=REQUESTED, since_ms=stray.since_ms
        )
        log_dir = self._pool.dirs[stray.directory]
        try:
            self._disk.rename(stray.path, path)
        except OSError as error:
            failure = dir_error(log_dir, f"renaming {stray.path}", error)
            self._pool.events.error_found(log_dir, failure)
            raise failure from error
        self._unsynced[stray.directory] = None
        del self._strays[stray.path]
        files = StrayFiles(
            stray.topic_id, stray.size_bytes, stray.latest_epoch, stray.log_end_offset, stray.is_unfinished
        )
        self.keep(path, files)

    def forget_stray(self, stray: Stray) -> None:
        """It is not a stray any more."""
        self._strays.pop(stray.path, None)

    def _may_go(self, stray: Stray) -> bool:
        return stray.is_requested or self._pool.host.is_elsewhere(stray)

    def _let_strays_go(self, log_dir: LogDir) -> None:
        for stray in [one for one in self._strays.values() if one.directory == log_dir.path and self._may_go(one)]:
            self.remove_stray(stray)

    def remove_stray(self, stray: Stray) -> None:
        """Its files go soon."""
        del self._strays[stray.path]
        _log.warning("stray.removed", path=stray.path, bytes=stray.size_bytes, ordered=stray.is_requested)
        self.later(stray.path, 0, is_dir=True)
