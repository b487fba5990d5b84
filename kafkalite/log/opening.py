"""Log directories come into service with the logs that are in them: at the start, and disks that come back later."""

from __future__ import annotations

import asyncio
import contextlib
import errno
from collections.abc import Awaitable, Callable, Mapping, Sequence
from functools import partial
from typing import TypeVar

from kafkalite.config import BrokerConfig, TopicConfig, usable_topic_config
from kafkalite.env.supervisor import Policy
from kafkalite.errors import ErrorCode, StartupRefused, StorageError, api_error
from kafkalite.log.dir_failures import DirFailures
from kafkalite.log.failures import probe
from kafkalite.log.loader import ALL_SYNCED, LostBytes, load_log
from kafkalite.log.local_log import LogPlace
from kafkalite.log.log_dir import (
    DELETE_SUFFIX,
    FUTURE_SUFFIX,
    STRAY_SUFFIX,
    LogDir,
    dir_error,
    partition_of,
)
from kafkalite.log.log_dir_failure_handler import LogDirFailureHandler
from kafkalite.log.moving import DiskMoves
from kafkalite.log.partition_log import PartitionLog
from kafkalite.log.pool import LogPool
from kafkalite.log.removals import Removals
from kafkalite.log.reopening import Reopening
from kafkalite.log.returning import Awaited
from kafkalite.log.room import missing_room
from kafkalite.log.strays import StrayFiles
from kafkalite.model import NO_TOPIC_ID, TopicId, TopicPartition
from kafkalite.telemetry.logs import get_logger

_log = get_logger(__name__)
T = TypeVar("T")

#: Logs opened per call of Disk.run_blocking, so that stopping need not wait for all of them.
_LOAD_CHUNK = 128
#: Locking a directory and reading its own files; and the answer to a probe while its logs are read, which load the disk.
_REOPEN_TIMEOUT_S = 15.0


class Opening:
    """Opens directories; a log that cannot be opened is lost alone if its disk is sound."""

    def __init__(
        self,
        pool: LogPool,
        config: BrokerConfig,
        failure_handler: LogDirFailureHandler,
        removals: Removals,
        failures: DirFailures,
        moves: DiskMoves,
        reopening: Reopening,
    ) -> None:
        self._pool = pool
        self._config = config
        self._disk = pool.disk
        self._clock = pool.clock
        self._own_time = pool.own_time
        self._supervisor = pool.supervisor
        self._failure_handler = failure_handler
        self._removals = removals
        self._failures = failures
        self._moves = moves
        self._reopening = reopening
        self._probe_interval_s = config.log_dir_probe_interval_ms / 1000
        #: Directories of futures that were found -> their names.
        self._found_futures: dict[str, list[str]] = {}
        #: Every log was opened that can be.
        self.is_complete = False
        #: Directories that are being opened again.
        self._returning: set[str] = set()
        self._starts = 0

    async def start(
        self,
        cluster_id: str,
        broker_id: int,
        topic_configs: Mapping[str, Mapping[str, str]],
        topic_ids: Callable[[Sequence[str]], Awaitable[Mapping[str, TopicId]]] | None = None,
        starts: int = 0,
    ) -> None:
        """Lock and check the directories, open every log in them.

        Args:
            topic_ids: asked for topics of which there are logs with different ids: the ids now, of those that exist.
            starts: of this node that ZooKeeper knows, without this one.

        Raises:
            StartupRefused: a directory is taken or somebody else's, or none of them works.
        """
        self._starts = starts
        try:
            for log_dir in self._pool.dirs.values():
                try:
                    await self._in_time(log_dir, partial(log_dir.open, cluster_id, broker_id, starts))
                except OSError as error:
                    self._failures.dir_failed(dir_error(log_dir, "opening", error))
        except StartupRefused:
            for log_dir in self._pool.dirs.values():
                log_dir.release()
            raise
        loads = [
            self._supervisor.spawn(f"load {log_dir.path}", self._load_dir(log_dir, topic_configs), Policy.ISOLATED)
            for log_dir in self._pool.online()
        ]
        logs = [log for load in loads for log in await load]
        ids = {log.topic_partition: log.topic_id for log in logs}
        contested = sorted({log.topic_partition.topic for log in logs if ids[log.topic_partition] != log.topic_id})
        present = await topic_ids(contested) if contested and topic_ids is not None else {}
        for log in logs:
            self._admit(log, present.get(log.topic_partition.topic))
        if not self._pool.online():
            for log_dir in self._pool.dirs.values():
                log_dir.release()
            reasons = "; ".join(each.offline_reason for each in self._pool.dirs.values())
            raise StartupRefused(f"log.dirs: none of them can be used: {reasons}")
        self.is_complete = True
        self._resume_moves()

    def _resume_moves(self) -> None:
        for log_dir in self._pool.online():
            self._moves.resume(log_dir, self._found_futures.pop(log_dir.path, ()), self._pool.logs)

    async def _in_time(self, log_dir: LogDir, function: Callable[[], None]) -> None:
        """Run it in a thread. Raises OSError, also when a disk that hangs keeps it from returning."""
        try:
            async with self._own_time.timeout(_REOPEN_TIMEOUT_S):
                await self._disk.run_blocking(function, log_dir.path)
        except TimeoutError:
            raise TimeoutError(errno.ETIMEDOUT, f"no answer within {_REOPEN_TIMEOUT_S:g} s", log_dir.path) from None

    async def _while_it_answers(self, log_dir: LogDir, load: Awaitable[T]) -> T:
        """The outcome of `load`, which may take hours, but not on a disk that hangs. Raises OSError."""
        hung: list[OSError] = []

        async def guard(scope: asyncio.Timeout) -> None:
            while not hung:
                await asyncio.sleep(self._probe_interval_s)
                found = await probe(self._disk, log_dir.path, self._own_time, _REOPEN_TIMEOUT_S)
                if isinstance(found, TimeoutError):
                    hung.append(found)
            scope.reschedule(asyncio.get_running_loop().time())

        try:
            async with asyncio.timeout(None) as scope:
                watch = self._supervisor.spawn(f"guard {log_dir.path}", guard(scope), Policy.ISOLATED)
                try:
                    return await load
                finally:
                    watch.cancel()
        except TimeoutError as error:
            raise hung[0] if hung else error from None

    async def _load_dir(self, log_dir: LogDir, topic_configs: Mapping[str, Mapping[str, str]]) -> list[PartitionLog]:
        try:
            return await self._while_it_answers(log_dir, self._read_logs(log_dir, topic_configs))
        except OSError as error:
            self._failures.dir_failed(dir_error(log_dir, "loading", error))
        except StorageError as error:
            self._failures.dir_failed(error)
        return []

    async def _read_logs(self, log_dir: LogDir, topic_configs: Mapping[str, Mapping[str, str]]) -> list[PartitionLog]:
        """Open every log in the directory. Raises OSError, StorageError."""
        names = self._disk.listdir(log_dir.path)
        found = [(name, tp) for name in names if (tp := partition_of(name)) is not None]
        for name in names:
            if name.endswith(DELETE_SUFFIX):
                self._removals.later(f"{log_dir.path}/{name}", 0, is_dir=True)
        strays: list[tuple[str, StrayFiles]] = []
        await self._disk.run_blocking(
            lambda: strays.extend(self._removals.find_strays(log_dir.path, names)), log_dir.path
        )
        for stray in strays:
            self._removals.keep(*stray)
        self._found_futures[log_dir.path] = [name for name in names if name.endswith(FUTURE_SUFFIX)]
        # A log that the last shutdown did not list had failed, or was put there by hand since.
        closed = log_dir.recovery_points.keys() if log_dir.clean else frozenset[TopicPartition]()
        configs = {topic: usable_topic_config(self._config.topic, own) for topic, own in topic_configs.items()}
        logs: list[PartitionLog] = []
        doubts = log_dir.doubts
        failed: dict[TopicPartition, OSError] = {}

        def load(chunk: list[tuple[str, TopicPartition]]) -> None:
            for name, tp in chunk:
                if not log_dir.online:
                    return  # nobody waits for the rest any more: the disk did not answer for too long
                config = configs.get(tp.topic, self._config.topic)
                path = f"{log_dir.path}/{name}"
                lost = tp in doubts.lost_bytes  # the last time; the checkpoint does not list what was not opened
                try:
                    log = load_log(
                        tp,
                        config,
                        LogPlace(self._disk, log_dir.handles, log_dir.path, path, self._clock.wall_ms),
                        recovery_point=ALL_SYNCED if lost else log_dir.recovery_points.get(tp, 0),
                        log_start_offset=log_dir.log_starts.get(tp, 0),
                        clean=tp in closed,
                        # A disk that has lost what it said it had synced: that shows after a loss of power.
                        looks_at_ends=tp not in closed or doubts.has_rebooted,
                        before_cut=partial(doubts.before_cut, tp, config),
                    )
                except OSError as error:
                    failed[tp] = error
                    log_dir.handles.forget_below(path)  # another log may be made in this place
                else:
                    logs.append(log)

        for first in range(0, len(found), _LOAD_CHUNK):
            chunk = found[first : first + _LOAD_CHUNK]
            await self._disk.run_blocking(partial(load, chunk), log_dir.path)
        if failed:
            await self._give_up(log_dir, failed, configs)
        unread = {tp: configs.get(tp.topic, self._config.topic) for tp in failed}
        lost = {tp for tp, error in failed.items() if isinstance(error, LostBytes)}
        take = partial(doubts.take, saved=log_dir.recovery_points, closed=closed, unread=unread, lost_bytes=lost)
        await self._disk.run_blocking(lambda: take(logs, log_dir.high_watermarks), log_dir.path)
        log_dir.unmark_clean()
        return logs

    async def _give_up(
        self, log_dir: LogDir, failed: Mapping[TopicPartition, OSError], configs: Mapping[str, TopicConfig]
    ) -> None:
        """Some logs cannot be opened. If the disk is sound, only these stay out of service. Raises OSError if it is not."""
        first = next(iter(failed.values()))
        if await self._failure_handler.check(log_dir):
            raise first
        for tp, error in failed.items():
            _log.error("log.not_loaded", partition=str(tp), directory=log_dir.path, error=str(error))
            self._pool.offline_partitions[tp] = log_dir.path
            config = configs.get(tp.topic, self._config.topic)
            self._reopening.not_loaded(log_dir, tp, f"{log_dir.path}/{tp}", config, error)
        await log_dir.off_loop(log_dir.mark_incomplete)

    def _admit(self, log: PartitionLog, topic_id: TopicId | None) -> None:
        """Take a loaded log in. Of two copies (one disk was away for a while) the one that got further stays, unless it is of
        a former topic. `topic_id`: of the present one, if that was asked."""
        other = self._pool.logs.get(log.topic_partition)
        if other is None:
            self._pool.put(log)
            return
        stays, goes = sorted(
            (log, other), key=lambda one: (one.topic_id == topic_id, *one.extent, one.directory), reverse=True
        )
        _log.error("log.twice", partition=str(log.topic_partition), kept=stays.path, stray=goes.path)
        self._pool.take(log.topic_partition)
        self._pool.put(stays)
        try:
            self._removals.set_aside(goes, STRAY_SUFFIX, 0)
        except StorageError as error:
            self._failures.dir_failed(error)

    # --- disks that come back -----------------------------------------------------------------------

    async def bring_online(
        self, directory: str, cluster_id: str, broker_id: int, topic_configs: Mapping[str, Mapping[str, str]]
    ) -> int:
        """Take an offline directory into service again, with what is in it now; how many logs were found.

        A log that this node has elsewhere by now is set aside; or the other one, if that is less complete and gives way.

        Raises:
            ApiError: LOG_DIR_NOT_FOUND; KAFKA_STORAGE_ERROR when it still cannot be used, or is somebody else's.
        """
        before = self._pool.named(directory)
        directory = before.path
        if before.online:
            await self._reopening.check(before, is_requested=True)
            return before.log_count
        if directory in self._returning:
            raise api_error(ErrorCode.KAFKA_STORAGE_ERROR, f"{directory} is being opened already")
        self._returning.add(directory)
        self._disk.separate(directory)
        log_dir = LogDir(self._disk, directory, before.handles.capacity)
        log_dir.failures, log_dir.pauses = before.failures, before.pauses
        try:
            found = await self._open_again(before, log_dir, cluster_id, broker_id, topic_configs)
        except (OSError, StorageError, StartupRefused) as error:
            log_dir.online = False
            log_dir.release()
            self._removals.forget(log_dir)
            raise api_error(ErrorCode.KAFKA_STORAGE_ERROR, f"{directory}: {error}") from error
        finally:
            self._returning.discard(directory)
        self._pool.dirs[directory] = log_dir
        for log in found:
            if self._is_second(log):
                try:
                    self._removals.set_aside(log, STRAY_SUFFIX, 0)
                except StorageError as error:
                    _log.error("log.not_set_aside", path=log.path, error=str(error))
            else:
                self._removals.put_in_place(log)
        self._set_aside_replaced()
        self._resume_moves()
        self._supervisor.spawn(f"watch {directory}", self._failure_handler.watch(log_dir, self._probe_interval_s))
        _log.warning("log_dir.online", directory=directory, logs=len(found), incomplete=log_dir.is_incomplete)
        return len(found)

    def _is_second(self, log: PartitionLog) -> bool:
        """Whether this node has the partition elsewhere: in service, unless it may be older and gives way; failed, and at least as far, if
        that is known; on another disk that is offline, and further; or of a later topic."""
        tp = log.topic_partition
        if tp in self._pool.logs:
            return not self._pool.gives_way_to(log)
        failed = self._pool.failed(tp)
        if failed is not None and failed.log is None:
            return self._failures.failed_topic_id(tp) not in (NO_TOPIC_ID, log.topic_id)
        if failed is not None and failed.log is not None:
            return failed.log.topic_id != log.topic_id or failed.log.extent >= log.extent
        lost = self._pool.lost.get(tp)
        if lost is None or lost.directory == log.directory:
            return False
        return lost.topic_id != log.topic_id or lost.extent > log.extent

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
            try:
                log_dir.open(cluster_id, broker_id, self._starts)
            finally:
                if not log_dir.online:  # too late: nobody waits for it any more
                    log_dir.release()

        await self._in_time(log_dir, reopen)
        failure = await self._failure_handler.check(log_dir)
        if failure:
            raise OSError(failure)
        found = await self._while_it_answers(log_dir, self._read_logs(log_dir, topic_configs))
        shorter = [log for log in found if self._has_lost_records(log) or self._is_unread_elsewhere(log)]
        if shorter:
            # Durable before they change, as at the start.
            log_dir.doubts.logs.update(log.topic_partition for log in shorter)
            await log_dir.off_loop(partial(log_dir.doubts.save, durable=True))
        return found

    def _is_unread_elsewhere(self, log: PartitionLog) -> bool:
        """Whether another copy could never be opened: it may have more."""
        failed = self._pool.failed(log.topic_partition)
        return log.topic_partition not in self._pool.logs and failed is not None and failed.log is None

    def _has_lost_records(self, log: PartitionLog) -> bool:
        """Whether the log went further when its disk went offline."""
        lost = self._pool.lost.get(log.topic_partition)
        if lost is None or (lost.directory, lost.topic_id) != (log.directory, log.topic_id):
            return False
        # With log.flush.before.ack what is acknowledged is on the disk.
        return lost.extent > log.extent and not log.config.log_flush_before_ack

    @property
    def start_number(self) -> int:
        """Of this start of the node; every directory in use has it."""
        return self._starts + 1

    def may_miss_logs(self) -> str:
        """A directory on which logs of this node may have been that are not to be had now; "" if there is none."""
        for log_dir in self._pool.dirs.values():
            if not log_dir.online or log_dir.is_incomplete or log_dir.failed:
                return log_dir.path
        return ""

    def may_have_newer(self, log: PartitionLog) -> bool:
        """Whether another directory may have a newer copy of a log: it is not there, was replaced, or could not open it."""
        return any(
            not each.online or (each.is_incomplete and not each.failed) or log.topic_partition in each.failed
            for each in self._pool.dirs.values()
            if each.path != log.directory
        )

    def holds_nothing(self) -> bool:
        """Whether this node has no log at all, and nothing proves that it should not: it is new, or has lost every disk."""
        there = self._pool.logs or self._pool.unreadable()
        return not there and all(log_dir.is_incomplete for log_dir in self._pool.online())

    def confirm_complete(self) -> None:
        """Every replica assigned to this node is here: directories that were empty have nothing left to explain."""
        for log_dir in self._pool.online():
            if log_dir.is_incomplete:
                try:
                    log_dir.confirm_complete()
                except OSError as error:
                    self._failures.file_failed(log_dir, "confirming the directory", error)

    def start_watch(self) -> None:
        """Probe every directory now and then; for ever."""
        for log_dir in self._pool.dirs.values():
            self._supervisor.spawn(
                f"watch {log_dir.path}", self._failure_handler.watch(log_dir, self._probe_interval_s)
            )

    async def ready_to_return(self) -> list[tuple[str, Awaited]]:
        """(path, what it waited for) of offline directories that can return now. Each is checked from time to time."""
        found: list[tuple[str, Awaited]] = []
        for log_dir in list(self._pool.dirs.values()):
            now = self._clock.monotonic()
            is_offline = not log_dir.online and log_dir.path not in self._returning
            if not is_offline or log_dir.awaited is Awaited.OPERATOR or now < log_dir.pauses.next_check:
                continue
            log_dir.pauses.checked(now)
            is_ready = self._has_room if log_dir.awaited is Awaited.ROOM else self._answers
            if await is_ready(log_dir):
                found.append((log_dir.path, log_dir.awaited))
        return found

    async def _has_room(self, log_dir: LogDir) -> bool:
        try:
            log_dir.missing_room = await missing_room(self._disk, log_dir.path, self._own_time)
        except TimeoutError:
            log_dir.awaited = Awaited.ANSWER
            return False
        except OSError:  # no thread could be started
            return False
        return not log_dir.missing_room

    async def _answers(self, log_dir: LogDir) -> bool:
        """All that was begun on it has ended without an error, so that no late write meets the logs that are opened again."""
        found = self._disk.outcome(log_dir.path)
        if found is None:
            return False
        if found.failed or log_dir.failures.is_exhausted(self._clock.monotonic()):
            log_dir.awaited = Awaited.OPERATOR
            return False
        return await probe(self._disk, log_dir.path, self._own_time) is None

    def reopen_failed(self) -> None:
        """Check failed logs again when they are due, in a task of its own (kafkalite.log.reopening)."""
        self._set_aside_replaced()
        if self._reopening.is_due():
            self._supervisor.spawn("logs.reopen", self._reopen_failed(), Policy.ISOLATED)

    def _set_aside_replaced(self) -> None:
        """Failed logs whose partitions came back with another disk, unless that log may be older."""
        for log_dir in self._pool.online():
            for tp in [
                tp
                for tp, failed in log_dir.failed.items()
                if tp in self._pool.logs and not self._pool.host.gives_way(tp) and not failed.is_under_check
            ]:
                with contextlib.suppress(StorageError):  # it was reported
                    self._failures.take_failed_away(tp, STRAY_SUFFIX)

    async def _reopen_failed(self) -> None:
        for log_dir in self._pool.online():
            if log_dir.failed and await self._reopening.check(log_dir):
                self._pool.host.examined(log_dir.path)
