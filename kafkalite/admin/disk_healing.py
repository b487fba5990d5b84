"""Self-healing of disks: asks the controller to remove offline replicas from the ISR, then recreates them (KIP-18).

Requests go through /restart_partitions/req-N, one znode for all that is due at that moment, so that they survive any
crash of the controller. A request whose outcome is unknown is repeated: a second one does no harm.
"""

from __future__ import annotations

import asyncio
import contextlib
from collections.abc import Awaitable, Callable

from kafkalite.coordination import admin_znodes, paths
from kafkalite.coordination.coordinator import CoordinatorError
from kafkalite.coordination.session import SessionKeeper
from kafkalite.env.supervisor import Policy, Supervisor
from kafkalite.errors import ApiError
from kafkalite.extension.messages.watching import HealthProblem
from kafkalite.log.log_manager import LogManager
from kafkalite.log.returning import Awaited
from kafkalite.log.strays import Stray
from kafkalite.model import BrokerId, TopicPartition
from kafkalite.replica.replica_manager import ReplicaManager
from kafkalite.telemetry.logs import get_logger
from kafkalite.wording import number_of

_log = get_logger(__name__)

#: Partitions of one request: a znode is far from its megabyte then.
MAX_PARTITIONS = 2_000
_RETRY_S = 0.2
#: Interval at which offline replicas are checked: pauses that are over, disks that are back.
_LOOK_S = 1.0
#: ZooKeeper's answer about logs that came back with a disk; then it is asked again at the next look.
_CLASSIFY_TIMEOUT_S = 5.0
#: Delay before an unanswered request is repeated; it doubles each time.
_ASK_AGAIN_S = 10.0
_ASK_AGAIN_MAX_S = 300.0


class ReplicaSelfHealing:
    """`report` takes in what is offline; two tasks do the rest.

    Args:
        now: monotonic seconds.
    """

    def __init__(
        self,
        session: SessionKeeper,
        broker_id: BrokerId,
        now: Callable[[], float],
    ) -> None:
        self._session = session
        self._broker_id = broker_id
        self._now = now
        #: Requests to send: False for offline, True for online again.
        self._due: dict[TopicPartition, bool] = {}
        self._wake = asyncio.Event()
        self._heal = asyncio.Event()
        #: A disk is back, and its logs have not been classified yet.
        self._is_back = False
        #: Offline replica -> (when to ask again, the pause before that).
        self._again: dict[TopicPartition, tuple[float, float]] = {}
        self.requests = 0

    def report(self, topic_partition: TopicPartition, *, online: bool) -> None:
        """Report a replica to the controller, soon."""
        self._due[topic_partition] = online
        self._wake.set()

    def schedule(self) -> None:
        """Something has changed for offline replicas (a role, a disk that is back)."""
        self._heal.set()

    def disk_is_back(self) -> None:
        """A directory came into service again: what was on it is taken up, or set aside if it belongs elsewhere by now."""
        self._is_back = True
        self.schedule()

    # --- requests -------------------------------------------------------------------------------

    async def run_requests(self, replicas: ReplicaManager) -> None:
        """Write what is due; for ever."""
        while True:
            await self._wake.wait()
            self._wake.clear()
            while self._due:
                coordinator = await self._session.wait()
                online = next(iter(self._due.values()))
                batch = [
                    tp for tp, each in self._due.items() if each is online and _is_true(replicas, tp, online=online)
                ]
                stale = [tp for tp, each in self._due.items() if each is online and tp not in batch]
                for tp in stale:
                    del self._due[tp]
                batch = sorted(batch)[:MAX_PARTITIONS]
                if not batch:
                    continue
                request = admin_znodes.RestartRequest(self._broker_id, tuple(batch), online)
                try:
                    path, _ = await coordinator.create(
                        paths.RESTART_REQUEST_PREFIX, admin_znodes.encode_restart_request(request), sequential=True
                    )
                except CoordinatorError as error:
                    _log.info("restart_request.retried", error=repr(error), partitions=len(batch))
                    await asyncio.sleep(_RETRY_S)
                    continue
                self.requests += 1
                _log.warning("restart_request.written", path=path, partitions=len(batch), online=online)
                for tp in batch:
                    if self._due.get(tp) is online:
                        del self._due[tp]

    # --- disks that return ----------------------------------------------------------------------

    async def run_returns(
        self, logs: LogManager, bring_online: Callable[[str], Awaitable[str]], supervisor: Supervisor
    ) -> None:
        """Bring directories that were full into service when there is room, and those that hung when they answer; runs for ever.

        Args:
            bring_online: as an operator would; returns why it could not, or "".
        """

        async def bring_back(path: str) -> None:
            refusal = await bring_online(path)
            if refusal:
                _log.error("log_dir.still_offline", directory=path, error=refusal)

        while True:
            await asyncio.sleep(_LOOK_S)
            for path, awaited in await logs.opening.ready_to_return():
                _log.warning(f"log_dir.{awaited.name.lower()}_again", directory=path)
                # Recovery may take hours, and the other disks do not wait for it.
                supervisor.spawn(f"return {path}", bring_back(path), Policy.ISOLATED)

    # --- recreating -----------------------------------------------------------------------------

    async def run(self, replicas: ReplicaManager, logs: LogManager) -> None:
        """Look at offline replicas now and then; for ever."""
        while True:
            try:
                async with asyncio.timeout(_LOOK_S):
                    await self._heal.wait()
            except TimeoutError:
                pass
            self._heal.clear()
            logs.opening.reopen_failed()  # also of replicas that have an older copy elsewhere
            if replicas.offline():
                with contextlib.suppress(ApiError):  # too many commands are waiting: at the next look
                    await replicas.commands.retry_offline()
            if self._is_back or replicas.strays.needs_classification:
                await self._set_aside_strays(replicas)
            self._ask_again(replicas)

    async def _set_aside_strays(self, replicas: ReplicaManager) -> None:
        """Any number of replicas of a disk that is back may belong to other nodes now; of those in service only few."""
        coordinator = self._session.current
        if coordinator is None:
            return
        was_back, self._is_back = self._is_back, False
        try:
            async with asyncio.timeout(_CLASSIFY_TIMEOUT_S):
                is_examined = await replicas.session_roles.set_aside_strays(coordinator, is_guarded=not was_back)
        except (ApiError, CoordinatorError, TimeoutError) as error:
            _log.info("logs.decided_later", error=repr(error))
            is_examined = False
        self._is_back = self._is_back or (was_back and not is_examined)

    def _ask_again(self, replicas: ReplicaManager) -> None:
        now = self._now()
        before, self._again = self._again, {}
        for partition in replicas.offline():
            key = partition.topic_partition
            due, pause = before.get(key, (now + _ASK_AGAIN_S, _ASK_AGAIN_S))
            if now >= due:
                pause = min(pause * 2, _ASK_AGAIN_MAX_S)
                due = now + pause
                replicas.offline_replicas.ask_again(partition)
            self._again[key] = (due, pause)


def _is_true(replicas: ReplicaManager, topic_partition: TopicPartition, *, online: bool) -> bool:
    """Whether the notice still holds."""
    partition = replicas.hosted.get(topic_partition)
    return partition is not None and (partition.storage_error is None) is online


def disk_problems(logs: LogManager) -> tuple[HealthProblem, ...]:
    """Dead and full disks, with the time and the reason; strays that are kept after their delay."""
    problems = []
    held = _held_by_strays(logs)
    for log_dir in logs.pool.dirs.values():
        if not log_dir.online:
            since_ms, detail = log_dir.offline_since_ms, log_dir.describe_offline()
            if log_dir.awaited is Awaited.ROOM:
                problems.append(HealthProblem("disk.full", since_ms, detail, log_dir.path))
            else:
                problems.append(HealthProblem("disk.offline", since_ms, detail, log_dir.path))
        elif log_dir.is_full:
            detail = f"{log_dir.path}: no room is left"
            if log_dir.path in held:
                count, size = held[log_dir.path]
                detail += f"; {number_of(count, 'directory')} set aside (-stray), with {size:,} bytes"
            problems.append(HealthProblem("disk.full", 0, detail, log_dir.path))
    overdue: dict[str, list[Stray]] = {}
    for stray in logs.removals.overdue():
        overdue.setdefault(stray.directory, []).append(stray)
    for path, kept in sorted(overdue.items()):
        size = sum(stray.size_bytes for stray in kept)
        detail = (
            f"{path}: {number_of(len(kept), 'directory')} set aside, with {size:,} bytes; no other copy of their records is "
            f"known, the first is {kept[0].name}"
        )
        problems.append(HealthProblem("disk.strays", min(stray.since_ms for stray in kept), detail, path))
    return tuple(problems)


def _held_by_strays(logs: LogManager) -> dict[str, tuple[int, int]]:
    """Directory -> how many were set aside in it, and their bytes."""
    held: dict[str, tuple[int, int]] = {}
    for stray in logs.removals.strays():
        count, size = held.get(stray.directory, (0, 0))
        held[stray.directory] = (count + 1, size + stray.size_bytes)
    return held
