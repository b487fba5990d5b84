"""Decides whether a log or its whole disk has failed (KIP-18), and probes disks to which nothing is written."""

from __future__ import annotations

import asyncio
import contextlib
from collections.abc import Sequence

from kafkalite.env.supervisor import Policy
from kafkalite.errors import StorageError
from kafkalite.log.dir_failures import DirFailures
from kafkalite.log.failures import FaultScope, fault_scope, is_shortage, probe
from kafkalite.log.log_dir import LogDir, partition_of
from kafkalite.log.pool import LogPool
from kafkalite.log.removals import Removals
from kafkalite.log.room import MIN_ROOM_BYTES
from kafkalite.telemetry.logs import get_logger

_log = get_logger(__name__)


class LogDirFailureHandler:
    """Examines every error once; one probe per directory at a time.

    Args:
        busy_s: the watch gives this time to a disk that is slow to answer but at work.
    """

    def __init__(
        self,
        pool: LogPool,
        failures: DirFailures,
        removals: Removals,
        *,
        busy_s: float,
    ) -> None:
        self._pool = pool
        self._disk = pool.disk
        self._clock = pool.clock
        self._own_time = pool.own_time
        self._supervisor = pool.supervisor
        self._busy_s = busy_s
        self._failures = failures
        self._removals = removals

    def report_error(self, log_dir: LogDir, error: StorageError) -> None:
        """An error found in the directory. Returns at once; the result follows within about two seconds."""
        if not log_dir.online:
            return
        if fault_scope(error) is FaultScope.DISK:
            self._fail_directory(log_dir, str(error), error)
            return
        log_dir.suspicions.append(error)
        if log_dir.is_examined:
            log_dir.is_examined = False
            self._supervisor.spawn(f"examine {log_dir.path}", self._examine_all(log_dir), Policy.ISOLATED)

    async def _examine_all(self, log_dir: LogDir) -> None:
        try:
            while log_dir.online and log_dir.suspicions:
                await self._examine(log_dir)
        finally:
            log_dir.is_examined = True
        if log_dir.online:
            self._pool.host.examined(log_dir.path)

    async def _examine(self, log_dir: LogDir) -> None:
        errors, log_dir.suspicions = log_dir.suspicions, []
        first = errors[0]
        kinds = {fault_scope(error) for error in errors}
        if kinds == {FaultScope.SHORTAGE}:
            reason = ""
        elif FaultScope.ROOM in kinds and not await self._freed_space(log_dir):
            reason = "no room is left"
        else:
            reason = await self.check(log_dir)
        if not log_dir.online:
            return
        now = self._clock.monotonic()
        if kinds != {FaultScope.SHORTAGE} and not (self._are_known(log_dir, errors) and not reason):
            log_dir.failures.record(now)
            if not reason and log_dir.failures.is_exhausted(now):
                reason = "its logs failed more than ten times within an hour"
        if not reason:
            try:
                await self._failures.reopen_failed(log_dir)
            except OSError as error:
                # Without descriptors nothing is said of the disk, and the logs stay where they are: the mark is written before
                # one of them is given up.
                if not is_shortage(error):
                    reason = f"a failed log cannot be recorded as missing: {error}"
        if not log_dir.online:
            return
        if reason:
            full = next((error.__cause__ for error in errors if fault_scope(error) is FaultScope.ROOM), None)
            self._fail_directory(log_dir, f"{reason} (first: {first})", full or first)
        else:
            kept = [failed.path for failed in log_dir.failed.values()]
            _log.warning("log_dir.sound", directory=log_dir.path, kept_offline=kept, error=str(first))

    def _are_known(self, log_dir: LogDir, errors: Sequence[StorageError]) -> bool:
        """Whether all errors are of logs that have failed before within the hour: one bad place proves nothing new about the disk."""
        names = [partition_of(error.path.rpartition("/")[2]) for error in errors if error.path != log_dir.path]
        return len(names) == len(errors) and all(tp in log_dir.reopened for tp in names)

    async def _freed_space(self, log_dir: LogDir) -> bool:
        try:
            await self._removals.make_room(log_dir)
            return self._disk.free_bytes(log_dir.path) >= MIN_ROOM_BYTES
        except OSError:
            return False

    async def check(self, log_dir: LogDir) -> str:
        """Why the directory cannot be used, by a probe; "" if it can."""
        found = await probe(self._disk, log_dir.path, self._own_time, busy_s=self._busy_s)
        return "" if found is None else f"the probe failed: {found}"

    def _fail_directory(self, log_dir: LogDir, reason: str, cause: BaseException | None) -> None:
        error = StorageError(f"{log_dir.path}: {reason}", directory=log_dir.path, path=log_dir.path)
        error.__cause__ = cause
        log_dir.failures.record(self._clock.monotonic())
        self._failures.dir_failed(error)

    # --- the watch ------------------------------------------------------------------------------

    async def watch(self, log_dir: LogDir, interval_s: float) -> None:
        """Probe the directory now and then while it is online: a disk that hangs is found before the loop writes to it.

        When it is offline, and nothing is under way on it, its lock is let go: the file system can be unmounted.
        """
        while log_dir.online or log_dir.is_locked:
            await asyncio.sleep(interval_s)
            if not log_dir.online:
                await self._let_go(log_dir)
            elif log_dir.is_examined:
                await self._probe(log_dir)

    async def _let_go(self, log_dir: LogDir) -> None:
        if self._disk.outcome(log_dir.path) is not None:
            with contextlib.suppress(OSError):
                await self._disk.run_blocking(log_dir.release, log_dir.path)

    async def _probe(self, log_dir: LogDir) -> None:
        found = await probe(self._disk, log_dir.path, self._own_time, busy_s=self._busy_s)
        if not log_dir.online or not log_dir.is_examined:
            return
        if found is not None:
            error = StorageError(
                f"{log_dir.path}: the probe failed: {found}", directory=log_dir.path, path=log_dir.path
            )
            error.__cause__ = found
            log_dir.is_full = fault_scope(error) is FaultScope.ROOM
            if fault_scope(error) not in (FaultScope.ROOM, FaultScope.SHORTAGE):  # a full disk can still be read
                self._fail_directory(log_dir, f"the probe failed: {found}", found)
        else:
            log_dir.is_full = False
