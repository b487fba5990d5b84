"""All logs of a node over its log directories: opening, placing, deleting, checkpoints, housekeeping."""

from __future__ import annotations

import asyncio
import errno
from collections.abc import Callable, Mapping, Sequence

import structlog

from kafkalite.config import BrokerConfig, TopicConfig, topic_config
from kafkalite.env.seams import Clock, Disk
from kafkalite.env.supervisor import Policy, Supervisor
from kafkalite.errors import ApiError, ConfigError, ErrorCode, StartupRefused, StorageError, api_error
from kafkalite.log import checkpoints
from kafkalite.log.cleaner import compact
from kafkalite.log.failures import Blame, blame
from kafkalite.log.handles import DEFAULT_CAPACITY
from kafkalite.log.judge import MIN_ROOM_BYTES, Judge
from kafkalite.log.loader import load_log, new_log, no_log
from kafkalite.log.log_dir import (
    DELETE_SUFFIX,
    FUTURE_SUFFIX,
    STRAY_SUFFIX,
    LogDir,
    partition_of,
    set_aside_name,
)
from kafkalite.log.moving import DiskMoves
from kafkalite.log.partition_log import PartitionLog
from kafkalite.model import Offset, TopicId, TopicPartition

_log = structlog.get_logger(__name__)

#: Logs opened per call of Disk.run_blocking, so that stopping need not wait for all of them.
_LOAD_CHUNK = 128
#: Logs that housekeeping looks at before it lets others run.
_HOUSEKEEPING_CHUNK = 64
_TICK_S = 1.0
#: fsyncs in flight at a clean shutdown.
_CLOSE_WORKERS = 8
#: Kafka's log.cleaner.backoff.ms.
_CLEANER_BACKOFF_S = 15.0
#: Locking and reading a directory that comes back.
_REOPEN_TIMEOUT_S = 15.0


class LogManager:
    """The logs of one node.

    A log with a storage error goes offline at once, alone: it leaves `all()` and `get`, `on_log_failed` is told. Then
    the judge finds out whether it is the whole disk; if so its directory goes offline (KIP-18): all its logs, its
    checkpoint files are left alone, `on_dir_failed` is told once. The process goes on with the others. `on_judged` is
    told when a verdict stands and what was lost can be made anew (`restart_refusal`).
    """

    def __init__(
        self,
        config: BrokerConfig,
        disk: Disk,
        clock: Clock,
        *,
        supervisor: Supervisor,
        on_dir_failed: Callable[[str, StorageError], None],
        on_log_failed: Callable[[TopicPartition, StorageError], None] = lambda tp, error: None,
        on_judged: Callable[[str], None] = lambda directory: None,
        hw_of: Callable[[TopicPartition], int] | None = None,
        handle_capacity: int = DEFAULT_CAPACITY,
    ) -> None:
        self._config = config
        self.producer_id_expiration_ms = config.producer_id_expiration_ms
        self._disk = disk
        self._clock = clock
        self._supervisor = supervisor
        self._on_dir_failed = on_dir_failed
        self._on_log_failed = on_log_failed
        self._on_judged = on_judged
        #: High watermark of a partition, for retention; may be set later. Without it nothing is deleted.
        self.hw_of = hw_of or self.high_watermark
        capacity = max(16, handle_capacity // len(config.log_dirs))
        self._dirs = {path: LogDir(disk, path, capacity) for path in config.log_dirs}
        for path in config.log_dirs:
            disk.separate(path)
        self._logs: dict[TopicPartition, PartitionLog] = {}
        #: Partitions that went offline, alone or with their directory -> that directory.
        self.offline_partitions: dict[TopicPartition, str] = {}
        #: ... and how large they were, in bytes.
        self._offline_bytes: dict[TopicPartition, int] = {}
        self._judge = Judge(
            disk,
            clock,
            supervisor,
            dir_failed=self.dir_failed,
            make_room=self._make_room,
            set_aside=self._set_failed_aside,
            on_judged=on_judged,
        )
        #: (monotonic due time in seconds, path, is a directory), to be removed.
        self._removals: list[tuple[float, str, bool]] = []
        #: Replicas on their way from one disk to another.
        self.moves = DiskMoves(self, config, disk, clock, supervisor)
        #: Told when a log has taken the place of another one; may be set later.
        self.on_exchanged: Callable[[PartitionLog, PartitionLog], None] = lambda old, new: None
        #: Directories of futures that were found -> their names.
        self._found_futures: dict[str, list[str]] = {}
        self._compacting: TopicPartition | None = None
        #: Replaced and set whenever a compaction ends.
        self._compacted = asyncio.Event()
        self._names_given = 0
        self._closed = False
        self._probe_interval_s = config.log_dir_probe_interval_ms / 1000
        #: Directories that are being opened again.
        self._returning: set[str] = set()

    # --- start ------------------------------------------------------------------------------------

    async def start(self, cluster_id: str, broker_id: int, topic_configs: Mapping[str, Mapping[str, str]]) -> None:
        """Lock and check the directories, open every log in them.

        Raises:
            StartupRefused: a directory is taken or somebody else's, or none of them works.
        """
        try:
            for log_dir in self._dirs.values():
                try:
                    log_dir.open(cluster_id, broker_id)
                except OSError as error:
                    self.dir_failed(self._error(log_dir, "opening", error))
        except StartupRefused:
            for log_dir in self._dirs.values():
                log_dir.release()
            raise
        self._mark_replaced()
        loads = [
            self._supervisor.spawn(f"load {log_dir.path}", self._load_dir(log_dir, topic_configs), Policy.ISOLATED)
            for log_dir in self._online()
        ]
        for load in loads:
            for log in await load:
                self._admit(log)
        if not self._online():
            for log_dir in self._dirs.values():
                log_dir.release()
            raise StartupRefused("log.dirs: none of them can be used")
        self._resume_moves()

    def _resume_moves(self) -> None:
        found, self._found_futures = self._found_futures, {}
        for log_dir in self._online():
            self.moves.resume(log_dir, found.get(log_dir.path, ()), self._logs)

    def _mark_replaced(self) -> None:
        """An empty directory beside others that are not: a disk was replaced, and what was on it is missing (F28)."""
        if all(log_dir.was_empty for log_dir in self._online()):
            return
        for log_dir in self._online():
            if log_dir.was_empty:
                try:
                    log_dir.mark_incomplete()
                except OSError as error:
                    self.dir_failed(self._error(log_dir, "marking", error))

    async def _load_dir(self, log_dir: LogDir, topic_configs: Mapping[str, Mapping[str, str]]) -> list[PartitionLog]:
        try:
            return await self._read_logs(log_dir, topic_configs)
        except OSError as error:
            self.dir_failed(self._error(log_dir, "loading", error))
        except StorageError as error:
            self.dir_failed(error)
        return []

    async def _read_logs(self, log_dir: LogDir, topic_configs: Mapping[str, Mapping[str, str]]) -> list[PartitionLog]:
        """Open every log in the directory. Raises OSError, StorageError."""
        names = self._disk.listdir(log_dir.path)
        found = [(name, tp) for name in names if (tp := partition_of(name)) is not None]
        for name in names:
            if name.endswith(DELETE_SUFFIX):
                self._remove_later(f"{log_dir.path}/{name}", 0, is_dir=True)
            elif name.endswith(STRAY_SUFFIX):
                self._remove_later(f"{log_dir.path}/{name}", self._config.stray_delete_delay_ms, is_dir=True)
        self._found_futures[log_dir.path] = [name for name in names if name.endswith(FUTURE_SUFFIX)]
        configs = {topic: self._topic_config(topic, overrides) for topic, overrides in topic_configs.items()}
        logs: list[PartitionLog] = []

        failed: dict[TopicPartition, OSError] = {}

        def load(chunk: list[tuple[str, TopicPartition]]) -> None:
            for name, tp in chunk:
                try:
                    log = load_log(
                        tp,
                        configs.get(tp.topic, self._config.topic),
                        disk=self._disk,
                        handles=log_dir.handles,
                        directory=log_dir.path,
                        path=f"{log_dir.path}/{name}",
                        now_ms=self._clock.wall_ms,
                        recovery_point=log_dir.recovery_points.get(tp, 0),
                        log_start_offset=log_dir.log_starts.get(tp, 0),
                        clean=log_dir.clean,
                    )
                except OSError as error:
                    failed[tp] = error
                else:
                    logs.append(log)

        for first in range(0, len(found), _LOAD_CHUNK):
            chunk = found[first : first + _LOAD_CHUNK]
            await self._disk.run_blocking(lambda chunk=chunk: load(chunk), log_dir.path)  # type: ignore[misc]
        if failed:
            await self._give_up(log_dir, failed)
        log_dir.unmark_clean()
        return logs

    async def _give_up(self, log_dir: LogDir, failed: Mapping[TopicPartition, OSError]) -> None:
        """Some logs cannot be opened. If the disk is sound, only these are lost. Raises OSError if it is not."""
        first = next(iter(failed.values()))
        if await self._judge.check(log_dir):
            raise first
        for tp, error in failed.items():
            _log.error("log.not_loaded", partition=str(tp), directory=log_dir.path, error=str(error))
            self.offline_partitions[tp] = log_dir.path
        paths = [f"{log_dir.path}/{tp}" for tp in sorted(failed)]
        await self._judge.off_loop(log_dir, lambda: self._set_failed_aside(log_dir, paths))

    def _topic_config(self, topic: str, overrides: Mapping[str, str]) -> TopicConfig:
        try:
            return topic_config(self._config.topic, overrides)
        except ConfigError as error:
            _log.error("topic.config_refused", topic=topic, error=str(error))
            return self._config.topic

    def _admit(self, log: PartitionLog) -> None:
        """Take a loaded log in. Of two copies (one disk was away for a while) the one that got further stays."""
        log.on_recovery_point_lowered = self._save_recovery_points_of
        other = self._logs.get(log.topic_partition)
        if other is None:
            self._put(log)
            return
        stays, goes = sorted(
            (log, other), key=lambda one: (one.latest_epoch, one.log_end_offset, one.directory), reverse=True
        )
        _log.error("log.twice", partition=str(log.topic_partition), kept=stays.path, stray=goes.path)
        self._take(log.topic_partition)
        self._put(stays)
        try:
            self._set_aside(goes, STRAY_SUFFIX, self._config.stray_delete_delay_ms)
        except StorageError as error:
            self.dir_failed(error)

    def _put(self, log: PartitionLog) -> None:
        self._logs[log.topic_partition] = log
        self._dirs[log.directory].log_count += 1

    def _take(self, topic_partition: TopicPartition) -> PartitionLog | None:
        log = self._logs.pop(topic_partition, None)
        if log is not None:
            self._dirs[log.directory].log_count -= 1
            self.moves.forget(topic_partition, f"the replica in {log.directory} is gone")
        return log

    # --- look-up ----------------------------------------------------------------------------------

    def get(self, topic_partition: TopicPartition) -> PartitionLog | None:
        return self._logs.get(topic_partition)

    def all(self) -> list[PartitionLog]:
        """Sorted by partition."""
        return [self._logs[tp] for tp in sorted(self._logs)]

    def high_watermark(self, topic_partition: TopicPartition) -> Offset:
        """As checkpointed, never beyond the log's end; 0 if it never was."""
        log = self._logs.get(topic_partition)
        if log is None:
            return Offset(0)
        saved = self._dirs[log.directory].high_watermarks.get(topic_partition, 0)
        return Offset(min(max(saved, log.log_start_offset), log.log_end_offset))

    def lost_committed(self, topic_partition: TopicPartition) -> bool:
        """Whether recovery cut the log below the high watermark it once knew: the replica must not count as in sync."""
        log = self._logs.get(topic_partition)
        if log is None:
            return False
        return self._dirs[log.directory].high_watermarks.get(topic_partition, 0) > log.log_end_offset

    @property
    def unclean_start(self) -> bool:
        """Whether any log was opened after an unclean shutdown (F14)."""
        return any(not log.clean_start for log in self._logs.values())

    def dirs(self) -> list[LogDir]:
        """All of them, as configured. For reading only."""
        return list(self._dirs.values())

    def healthy_dirs(self) -> list[str]:
        return [log_dir.path for log_dir in self._online()]

    def offline_dirs(self) -> list[str]:
        return [log_dir.path for log_dir in self._dirs.values() if not log_dir.online]

    def _online(self) -> list[LogDir]:
        return [log_dir for log_dir in self._dirs.values() if log_dir.online]

    # --- creation and removal ---------------------------------------------------------------------

    def create(
        self, topic_partition: TopicPartition, topic_id: TopicId, config: TopicConfig, *, directory: str | None = None
    ) -> PartitionLog:
        """A new, empty log, in the healthy directory with the most room for each log that is in it.

        A replica that went offline is placed elsewhere than where it was, if that is possible. A directory that
        refuses is suspected, and the next one tried.

        Args:
            directory: this one and no other.

        Raises:
            ApiError: KAFKA_STORAGE_ERROR when no directory is healthy. StorageError.
        """
        assert topic_partition not in self._logs
        refusal: StorageError | None = None
        for log_dir in self._by_preference(topic_partition):
            if directory is not None and log_dir.path != directory:
                continue
            try:
                return self._create_in(log_dir, topic_partition, topic_id, config)
            except OSError as error:
                refusal = self._error(log_dir, f"creating {topic_partition}", error)
                refusal.__cause__ = error
            except StorageError as error:
                refusal = error
            self._judge.suspect(log_dir, refusal)
        raise refusal or api_error(ErrorCode.KAFKA_STORAGE_ERROR, "no log directory is online")

    def _by_preference(self, topic_partition: TopicPartition) -> list[LogDir]:
        """Healthy directories, the best for this partition first."""
        online = self._online()
        if len(online) < 2:
            return online
        left = self.offline_partitions.get(topic_partition)
        room = {log_dir.path: self._free_bytes(log_dir) // (log_dir.log_count + 1) for log_dir in online}
        return sorted(online, key=lambda one: (one.path == left, one.is_full, -room[one.path]))

    def _free_bytes(self, log_dir: LogDir) -> int:
        try:
            return self._disk.free_bytes(log_dir.path)
        except OSError:
            return 0

    def _create_in(
        self, log_dir: LogDir, topic_partition: TopicPartition, topic_id: TopicId, config: TopicConfig
    ) -> PartitionLog:
        """Raises OSError, StorageError."""
        if not self._disk.exists(f"{log_dir.path}/{checkpoints.META_PROPERTIES}"):
            # Not to be made again: it may be the empty place where the disk was mounted.
            raise FileNotFoundError(errno.ENOENT, "the log directory has gone", log_dir.path)
        path = f"{log_dir.path}/{topic_partition}"
        if self._disk.exists(path):  # left over, whatever it is: a new log must not take its segments for its own
            aside = self.name_aside(log_dir.path, topic_partition, STRAY_SUFFIX)
            self._disk.rename(path, aside)
            self._remove_later(aside, self._config.stray_delete_delay_ms, is_dir=True)
        log = new_log(
            topic_partition, config, topic_id, disk=self._disk, handles=log_dir.handles, directory=log_dir.path,
            path=path, now_ms=self._clock.wall_ms,
        )  # fmt: skip
        log.on_recovery_point_lowered = self._save_recovery_points_of
        self._put(log)
        self._forget_offline(topic_partition)
        for known in (log_dir.high_watermarks, log_dir.recovery_points, log_dir.log_starts, log_dir.cleaned_to):
            known.pop(topic_partition, None)
        return log

    def _forget_offline(self, topic_partition: TopicPartition) -> None:
        self.offline_partitions.pop(topic_partition, None)
        self._offline_bytes.pop(topic_partition, None)

    def delete(self, topic_partition: TopicPartition) -> None:
        """Take the log out of service at once; its files go after file.delete.delay.ms. Raises StorageError."""
        log = self._take(topic_partition)
        self._forget_offline(topic_partition)
        if log is not None:
            self._set_aside(log, DELETE_SUFFIX, log.config.file_delete_delay_ms)

    def set_stray(self, topic_partition: TopicPartition) -> None:
        """As `delete`, but keep the files for stray.delete.delay.ms under a name that says so (F19). Raises StorageError."""
        log = self._take(topic_partition)
        if log is not None:
            self._set_aside(log, STRAY_SUFFIX, self._config.stray_delete_delay_ms)

    def _set_aside(self, log: PartitionLog, suffix: str, delay_ms: int) -> None:
        log.close()
        path = self.name_aside(log.directory, log.topic_partition, suffix)
        try:
            self._disk.rename(log.path, path)
        except OSError as error:
            failure = log.storage_error("setting the log aside", error)
            failure.__cause__ = error
            self._judge.suspect(self._dirs[log.directory], failure)
            raise failure from error
        self._remove_later(path, delay_ms, is_dir=True)

    def name_aside(self, directory: str, topic_partition: TopicPartition, suffix: str) -> str:
        self._names_given += 1
        unique = f"{self._clock.wall_ms():016x}{self._names_given:016x}"
        return f"{directory}/{set_aside_name(topic_partition, unique, suffix)}"

    def _remove_later(self, path: str, delay_ms: int, *, is_dir: bool) -> None:
        self._removals.append((self._clock.monotonic() + delay_ms / 1000, path, is_dir))

    # --- moves between disks (kafkalite.log.moving) --------------------------------------------------

    def dir_of(self, path: str) -> LogDir | None:
        return self._dirs.get(path)

    def discard(self, log: PartitionLog, delay_ms: int) -> None:
        """Take the directory of a log that is in no pool away; its files go after the delay."""
        log.close()
        try:
            if self._dirs[log.directory].online:
                self._set_aside(log, DELETE_SUFFIX, delay_ms)
        except StorageError as error:
            _log.error("log.not_set_aside", path=log.path, error=str(error))

    def discard_path(self, path: str) -> None:
        """Remove a directory soon."""
        if self._disk.exists(path):
            self._remove_later(path, 0, is_dir=True)

    async def compaction_over(self, topic_partition: TopicPartition) -> None:
        """Wait while the log is being compacted."""
        while self._compacting == topic_partition:
            await self._compacted.wait()

    def exchange(self, old: PartitionLog, new: PartitionLog) -> None:
        """`new` takes the name and the place of `old`. Raises StorageError: then nothing has changed."""
        tp = old.topic_partition
        assert self._logs.get(tp) is old
        before, after = self._dirs[old.directory], self._dirs[new.directory]
        path = f"{after.path}/{tp}"
        try:
            if self._disk.exists(path):  # left over: an earlier replica's
                aside = self.name_aside(after.path, tp, STRAY_SUFFIX)
                self._disk.rename(path, aside)
                self._remove_later(aside, self._config.stray_delete_delay_ms, is_dir=True)
        except OSError as error:
            raise new.storage_error("making room for the log", error) from error
        new.take_over(old)
        new.relocate(path)
        for known in (after.high_watermarks, after.recovery_points, after.log_starts, after.cleaned_to):
            known.pop(tp, None)
        if tp in before.high_watermarks:
            after.high_watermarks[tp] = before.high_watermarks[tp]
        before.log_count -= 1
        after.log_count += 1
        self._logs[tp] = new
        self.on_exchanged(old, new)
        old.close()
        self._write(after, checkpoints.HIGH_WATERMARKS, after.high_watermarks, durable=False)

    # --- failures ---------------------------------------------------------------------------------

    def _error(self, log_dir: LogDir, what: str, error: Exception) -> StorageError:
        return StorageError(f"{log_dir.path}: {what} failed: {error}", directory=log_dir.path, path=log_dir.path)

    def log_failed(self, error: StorageError) -> None:
        """A log cannot be used: it is out of the pools when this returns; what else that means is found out. Idempotent."""
        log_dir = self._dirs.get(error.directory)
        if log_dir is None or not log_dir.online:
            return
        tp = partition_of(error.path.rpartition("/")[2])
        log = self._logs.get(tp) if tp is not None else None
        if log is not None and tp is not None and log.path == error.path:
            self._lose(tp, log_dir)
            log_dir.failed[tp] = log.path
            _log.error("log.offline", partition=str(tp), path=log.path, error=str(error))
            self._on_log_failed(tp, error)
        self._judge.suspect(log_dir, error)

    def _lose(self, tp: TopicPartition, log_dir: LogDir) -> None:
        log = self._take(tp)
        assert log is not None
        self.offline_partitions[tp] = log_dir.path
        self._offline_bytes[tp] = log.size_bytes
        log.close()

    def dir_failed(self, error: StorageError) -> list[TopicPartition]:
        """Take the error's directory offline; the partitions that were in it. Idempotent."""
        log_dir = self._dirs.get(error.directory)
        if log_dir is None or not log_dir.online:
            return []
        self._disk.abandon(log_dir.path)
        lost = sorted(tp for tp, log in self._logs.items() if log.directory == log_dir.path)
        for tp in lost:
            self._lose(tp, log_dir)
        log_dir.go_offline(str(error), self._clock.wall_ms())
        self.moves.dir_failed(log_dir.path)
        self._removals = [entry for entry in self._removals if not entry[1].startswith(log_dir.path + "/")]
        log_dir.handles.close()
        _log.error("log_dir.offline", directory=log_dir.path, error=str(error), partitions=len(lost))
        self._on_dir_failed(log_dir.path, error)
        self._on_judged(log_dir.path)
        return lost

    def _file_failed(self, log_dir: LogDir, what: str, error: OSError) -> None:
        """A file of the directory itself: without it nothing in the directory is safe."""
        failure = self._error(log_dir, what, error)
        failure.__cause__ = error
        if blame(failure) is Blame.NOBODY:
            _log.error("log_dir.file_failed", directory=log_dir.path, error=str(failure))
        else:
            self.dir_failed(failure)

    async def _make_room(self, log_dir: LogDir) -> None:
        """Remove at once what was to be removed later. Raises OSError."""
        mine = [entry for entry in self._removals if entry[1].startswith(log_dir.path + "/")]
        self._removals = [entry for entry in self._removals if entry not in mine]
        for _, path, is_dir in mine:
            remove = self._disk.remove_tree if is_dir else self._disk.remove
            await self._judge.off_loop(log_dir, lambda remove=remove, path=path: remove(path))  # type: ignore[misc]

    def _set_failed_aside(self, log_dir: LogDir, failed: Sequence[str]) -> None:
        """Raises OSError. In a thread."""
        if failed:
            log_dir.mark_incomplete()
        for path in failed:
            tp = partition_of(path.rpartition("/")[2])
            assert tp is not None
            aside = self.name_aside(log_dir.path, tp, STRAY_SUFFIX)
            try:
                self._disk.rename(path, aside)
            except FileNotFoundError:
                continue  # somebody has removed it: that is what it failed of
            self._remove_later(aside, self._config.stray_delete_delay_ms, is_dir=True)

    def restart_refusal(self, topic_partition: TopicPartition) -> str:
        """Why a replica that went offline cannot be made anew now; "" if it can."""
        path = self.offline_partitions.get(topic_partition, "")
        lost = self._dirs.get(path)
        if lost is not None:
            if topic_partition in lost.failed or not lost.is_judged:
                return f"{path} is being checked"
            now = self._clock.monotonic()
            pause = lost.failures.not_before(now) - now
            if pause > 0:
                return f"{path} has failed {len(lost.failures.at)} times: pause of {pause:.0f} s"
        online = [log_dir for log_dir in self._online() if not log_dir.is_full]
        if not online:
            return "no healthy disk is left"
        needed = self._offline_bytes.get(topic_partition, 0)
        if all(self._free_bytes(log_dir) < needed + MIN_ROOM_BYTES for log_dir in online):
            return f"no healthy disk has room for {needed:,} bytes"
        return ""

    def unusable(self, topic_partition: TopicPartition, topic_id: TopicId, config: TopicConfig) -> PartitionLog:
        """What stands for a log that is on a dead disk: empty, and refuses everything. Nothing is written."""
        directory = self.offline_partitions.get(topic_partition) or self.may_miss_logs() or next(iter(self._dirs))
        log_dir = self._dirs[directory]
        self.offline_partitions[topic_partition] = directory
        return no_log(
            topic_partition, config, topic_id, disk=self._disk, handles=log_dir.handles, directory=directory,
            path=f"{directory}/{topic_partition}", now_ms=self._clock.wall_ms,
        )  # fmt: skip

    def _start_watch(self) -> None:
        """Probe every directory now and then; for ever."""
        for log_dir in self._dirs.values():
            self._supervisor.spawn(f"watch {log_dir.path}", self._judge.watch(log_dir, self._probe_interval_s))

    # --- disks that come back -----------------------------------------------------------------------

    async def bring_online(
        self, directory: str, cluster_id: str, broker_id: int, topic_configs: Mapping[str, Mapping[str, str]]
    ) -> int:
        """Take an offline directory into service again, with what is in it now; how many logs were found.

        A log that this node has elsewhere by now is set aside.

        Raises:
            ApiError: LOG_DIR_NOT_FOUND; KAFKA_STORAGE_ERROR when it still cannot be used, or is somebody else's.
        """
        before = self._dirs.get(directory)
        if before is None:
            raise api_error(ErrorCode.LOG_DIR_NOT_FOUND, f"{directory} is none of log.dirs")
        if before.online:
            return before.log_count
        if directory in self._returning:
            raise api_error(ErrorCode.KAFKA_STORAGE_ERROR, f"{directory} is being opened already")
        self._returning.add(directory)
        self._disk.separate(directory)
        log_dir = LogDir(self._disk, directory, before.handles.capacity)
        log_dir.failures = before.failures
        try:
            found = await self._open_again(before, log_dir, cluster_id, broker_id, topic_configs)
        except (OSError, StorageError, StartupRefused) as error:
            log_dir.release()
            raise api_error(ErrorCode.KAFKA_STORAGE_ERROR, f"{directory}: {error}") from error
        finally:
            self._returning.discard(directory)
        self._dirs[directory] = log_dir
        for log in found:
            self._forget_offline(log.topic_partition)
            log.on_recovery_point_lowered = self._save_recovery_points_of
            if log.topic_partition in self._logs:
                try:
                    self._set_aside(log, STRAY_SUFFIX, self._config.stray_delete_delay_ms)
                except StorageError as error:
                    _log.error("log.not_set_aside", path=log.path, error=str(error))
            else:
                self._put(log)
        self._resume_moves()
        self._supervisor.spawn(f"watch {directory}", self._judge.watch(log_dir, self._probe_interval_s))
        _log.warning("log_dir.online", directory=directory, logs=len(found), incomplete=log_dir.is_incomplete)
        return len(found)

    async def _open_again(
        self,
        before: LogDir,
        log_dir: LogDir,
        cluster_id: str,
        broker_id: int,
        topic_configs: Mapping[str, Mapping[str, str]],
    ) -> list[PartitionLog]:
        def reopen() -> None:
            before.release()
            log_dir.open(cluster_id, broker_id)
            if log_dir.was_empty:
                log_dir.mark_incomplete()

        async with asyncio.timeout(_REOPEN_TIMEOUT_S):
            await self._disk.run_blocking(reopen, log_dir.path)
        failure = await self._judge.check(log_dir)
        if failure:
            raise OSError(failure)
        return await self._read_logs(log_dir, topic_configs)

    def may_miss_logs(self) -> str:
        """A directory on which logs of this node may have been that are not to be had now; "" if there is none."""
        for log_dir in self._dirs.values():
            if not log_dir.online or log_dir.is_incomplete:
                return log_dir.path
        return ""

    def confirm_complete(self) -> None:
        """Every replica assigned to this node is here: directories that were empty have nothing left to explain."""
        for log_dir in self._online():
            if log_dir.is_incomplete:
                try:
                    log_dir.confirm_complete()
                except OSError as error:
                    self._file_failed(log_dir, "confirming the directory", error)

    # --- checkpoints ------------------------------------------------------------------------------

    def checkpoint_high_watermarks(self, high_watermarks: Mapping[TopicPartition, int]) -> None:
        """Save them, each in the directory of its log. Not synced: an old high watermark is safe, only late."""
        for tp, offset in high_watermarks.items():
            log = self._logs.get(tp)
            if log is not None:
                self._dirs[log.directory].high_watermarks[tp] = offset
        for log_dir in self._online():
            self._drop_foreign(log_dir, log_dir.high_watermarks)
            self._write(log_dir, checkpoints.HIGH_WATERMARKS, log_dir.high_watermarks, durable=False)

    def _drop_foreign(self, log_dir: LogDir, offsets: dict[TopicPartition, int]) -> None:
        for tp in [tp for tp in offsets if (log := self._logs.get(tp)) is None or log.directory != log_dir.path]:
            del offsets[tp]

    def _write(self, log_dir: LogDir, name: str, offsets: Mapping[TopicPartition, int], *, durable: bool) -> None:
        try:
            log_dir.write_offsets(name, offsets, durable=durable)
        except OSError as error:
            self._file_failed(log_dir, name, error)

    def _save_recovery_points_of(self, log: PartitionLog) -> None:
        """A recovery point went down and new records are about to be trusted: say so on disk first."""
        self._save_recovery_points(self._dirs[log.directory])

    def _logs_in(self, log_dir: LogDir) -> list[PartitionLog]:
        return [log for log in self._logs.values() if log.directory == log_dir.path]

    def _save_recovery_points(self, log_dir: LogDir) -> None:
        logs = self._logs_in(log_dir)
        self._write(
            log_dir,
            checkpoints.RECOVERY_POINTS,
            {log.topic_partition: log.recovery_point for log in logs},
            durable=True,
        )
        for log in logs:
            log.needs_checkpoint = False

    async def checkpoint_offsets(self) -> None:
        """Save recovery points and log starts, off the loop."""
        for log_dir in self._online():
            logs = self._logs_in(log_dir)
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
                await self._judge.off_loop(log_dir, save)
            except OSError as error:
                self._file_failed(log_dir, "saving offsets", error)

    # --- housekeeping -----------------------------------------------------------------------------

    async def run_housekeeping(self) -> None:
        """Retention, flushes, checkpoints, removals; for ever. Run it as a task of its own."""
        retention_s = self._config.log_retention_check_interval_ms / 1000
        checkpoint_s = self._config.log_flush_offset_checkpoint_interval_ms / 1000
        self._supervisor.spawn("log cleaner", self.run_cleaner())
        self._start_watch()
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
                await self.checkpoint_offsets()
            await self.removal_pass()

    async def _each_log(self, job: Callable[[PartitionLog], None]) -> None:
        """Do `job` for every log, letting others run now and then; a log with a storage error goes offline."""
        for number, log in enumerate(self.all()):
            if number % _HOUSEKEEPING_CHUNK == _HOUSEKEEPING_CHUNK - 1:
                await asyncio.sleep(0)
            if self._logs.get(log.topic_partition) is log:
                try:
                    job(log)
                except StorageError as error:
                    self.log_failed(error)

    async def retention_pass(self) -> int:
        """Delete old segments and forget silent producers; returns the number of files taken out of service."""
        now_ms = self._clock.wall_ms()
        removed = 0

        def look_at(log: PartitionLog) -> None:
            nonlocal removed
            for path in log.delete_old_segments(self.hw_of(log.topic_partition), now_ms):
                self._remove_later(path, log.config.file_delete_delay_ms, is_dir=False)
                removed += 1
            log.expire_producers(now_ms, self.producer_id_expiration_ms)

        await self._each_log(look_at)
        return removed

    async def flush_pass(self) -> None:
        """fsync what is due by flush.ms or flush.messages, and segments that have rolled."""
        now_ms = self._clock.wall_ms()
        # Every second over every log: nothing is sorted, nothing awaited for those that need nothing.
        for log in [log for log in self._logs.values() if log.has_rolled or log.is_flush_due(now_ms)]:
            if self._logs.get(log.topic_partition) is not log:
                continue
            log_dir = self._dirs[log.directory]
            try:
                if log.is_flush_due(now_ms):
                    await log_dir.unless_gone(log.flush())
                else:
                    await log_dir.unless_gone(log.flush_rolled())
            except StorageError as error:
                self.log_failed(error)
            except TimeoutError:
                continue  # the directory went offline meanwhile

    async def removal_pass(self) -> None:
        """Remove files and directories that were taken out of service long enough ago."""
        now = self._clock.monotonic()
        due = [entry for entry in self._removals if entry[0] <= now]
        self._removals = [entry for entry in self._removals if entry[0] > now]
        for _, path, is_dir in due:
            remove = self._disk.remove_tree if is_dir else self._disk.remove
            log_dir = next((one for one in self._online() if path.startswith(one.path + "/")), None)
            if log_dir is None:
                continue
            try:
                await self._judge.off_loop(log_dir, lambda remove=remove, path=path: remove(path))  # type: ignore[misc]
            except OSError as error:
                failure = self._error(log_dir, f"removing {path}", error)
                failure.__cause__ = error
                self._judge.suspect(log_dir, failure)

    async def run_cleaner(self) -> None:
        """Compaction, one log after the other; for ever. `run_housekeeping` starts it."""
        while True:
            await asyncio.sleep(_CLEANER_BACKOFF_S)
            await self.cleaning_pass()

    async def cleaning_pass(self) -> int:
        """Compact every log that is due; returns how many were."""
        cleaned = 0
        for log in [log for log in self.all() if "compact" in log.config.cleanup_policy]:
            tp = log.topic_partition
            if self._logs.get(tp) is not log or tp in self.moves:
                continue
            log_dir = self._dirs[log.directory]
            self._compacting = tp
            dirty = min(log_dir.cleaned_to.get(tp, 0), log.log_end_offset)
            try:
                reached = await log_dir.unless_gone(
                    compact(
                        log,
                        self._disk,
                        first_dirty_offset=dirty,
                        high_watermark=self.hw_of(tp),
                        now_ms=self._clock.wall_ms(),
                    )
                )
            except StorageError as error:
                self.log_failed(error)
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
                self._drop_foreign(log_dir, log_dir.cleaned_to)
                self._write(log_dir, checkpoints.CLEANER_OFFSETS, log_dir.cleaned_to, durable=False)
        return cleaned

    # --- the end ----------------------------------------------------------------------------------

    async def close(self, clean: bool = True, *, broker_epoch: int = -1) -> None:
        """Flush, checkpoint and leave the marker that makes the next start fast; without `clean` just let go."""
        if self._closed:
            return
        self._closed = True
        self.moves.close()
        if clean:
            await self._flush_all()
            await self.checkpoint_offsets()
            self.moves.settle()
        for log in self.all():
            log.close()
        for log_dir in self._online():
            if clean:
                self._drop_foreign(log_dir, log_dir.high_watermarks)
                self._write(log_dir, checkpoints.HIGH_WATERMARKS, log_dir.high_watermarks, durable=True)
            if clean and log_dir.online:
                try:
                    log_dir.mark_clean(broker_epoch)
                except OSError as error:
                    self.dir_failed(self._error(log_dir, "marking a clean shutdown", error))
        for log_dir in self._dirs.values():
            log_dir.release()

    async def _flush_all(self) -> None:
        """Flush every log, a few at a time: an fsync is mostly waiting."""
        logs = iter(self.all())

        async def work() -> None:
            for log in logs:
                log_dir = self._dirs[log.directory]
                try:
                    if log.is_dirty:
                        await log_dir.unless_gone(log.flush())
                    log.prepare_clean_close()
                except (StorageError, TimeoutError) as error:
                    # Not marked clean, hence no time for a verdict: the next start recovers it.
                    self.dir_failed(self._error(log_dir, "flushing at the end", error))

        for worker in [
            self._supervisor.spawn("flush at close", work(), Policy.ISOLATED) for _ in range(_CLOSE_WORKERS)
        ]:
            await worker
