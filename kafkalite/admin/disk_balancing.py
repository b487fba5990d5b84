"""The disks of this node share its replicas (balancer.mode=on): a few are moved at a time, while they are in use (kafkalite.log.moving)."""

from __future__ import annotations

import asyncio
from collections.abc import Callable

from kafkalite.admin.decisions.disk_balance import DiskShare, choose_disk_moves
from kafkalite.config import BrokerConfig
from kafkalite.env.seams import Disk
from kafkalite.errors import ApiError
from kafkalite.log.log_manager import LogManager
from kafkalite.model import NO_TOPIC_ID
from kafkalite.telemetry.history import History
from kafkalite.telemetry.logs import get_logger

_log = get_logger(__name__)

#: Replicas on their way at once. More would not be faster: the disks are the limit.
MAX_MOVES = 2
#: A shorter balancer.interval.ms counts after this time at the latest.
_CHECK_S = 60.0


class DiskBalancing:
    """One per node.

    Args:
        config: as it is now: balancer.mode, interval, tolerance, max.disk, throttle.
        history: of the replicas here, for `admin why`.
    """

    def __init__(self, config: Callable[[], BrokerConfig], logs: LogManager, disk: Disk, history: History) -> None:
        self._config = config
        self._logs = logs
        self._disk = disk
        self._history = history

    async def run(self) -> None:
        """Check at every interval, for ever."""
        while True:
            waited_s = 0.0
            while (left_s := self._config().balancer_interval_ms / 1000 - waited_s) > 0:
                await asyncio.sleep(min(left_s, _CHECK_S))
                waited_s += _CHECK_S
            self.check()

    def check(self) -> None:
        """Begin moves if the disks are uneven and nothing is on its way between them."""
        config = self._config()
        if config.balancer_mode != "on" or len(config.log_dirs) < 2 or any(True for _ in self._logs.moves.under_way()):
            return
        disks = {
            log_dir.path: share
            for log_dir in self._logs.pool.dirs.values()
            if log_dir.online
            and not log_dir.is_full
            and log_dir.path not in self._logs.pool.cordoned
            and (share := self._share(log_dir.path)) is not None
        }
        replicas = {log.topic_partition: (log.directory, log.size_bytes) for log in self._logs.all()}
        for chosen in choose_disk_moves(
            disks,
            replicas,
            tolerance=config.balancer_tolerance_percent / 100,
            max_disk=config.balancer_max_disk_percent / 100,
            limit=MAX_MOVES,
        ):
            try:
                self._logs.moves.start(chosen.partition, chosen.target, config.balancer_throttle_bytes_per_second)
            except ApiError as error:
                _log.info("disk.not_balanced", partition=str(chosen.partition), error=str(error))
                return
            _log.info("disk.balanced", partition=str(chosen.partition), target=chosen.target, reason=chosen.reason)
            detail = f"{chosen.source} -> {chosen.target}: {chosen.reason}"
            log = self._logs.get(chosen.partition)
            topic_id = NO_TOPIC_ID if log is None else log.topic_id
            self._history.record(str(chosen.partition), "balancer.disk", detail, topic_id=topic_id)
            self._history.record("balancer", "balancer.disk", f"{chosen.partition}: {detail}")

    def _share(self, path: str) -> DiskShare | None:
        try:
            return DiskShare(self._disk.total_bytes(path), self._disk.free_bytes(path))
        except OSError:
            return None
