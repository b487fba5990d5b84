"""Log starts become durable before anybody hears of them, so that deleted records stay deleted (DeleteRecords).

Kafka saves them once a minute: if all replicas die within that minute, the records are back. Here the leader answers, and
a follower reports its log start, when the checkpoint file has it. All partitions of a log directory share one save.
"""

from __future__ import annotations

import asyncio

from kafkalite.env.supervisor import Supervisor
from kafkalite.log.log_manager import LogManager
from kafkalite.replica.hosted import HostedPartitions
from kafkalite.replica.partition import Partition

#: The pause after a save that found no descriptor or no memory.
_PAUSE_S = 0.5


class LogStarts:
    """Saves log starts, with one task for each log directory."""

    def __init__(self, logs: LogManager, supervisor: Supervisor, hosted: HostedPartitions) -> None:
        self._logs = logs
        self._supervisor = supervisor
        self._hosted = hosted
        #: Log directory -> the partitions to be saved; a task is at work on each directory in it.
        self._waiting: dict[str, dict[Partition, None]] = {}

    def save(self, partition: Partition) -> None:
        """Make the log start durable soon, unless it is."""
        if partition.log.durable_start_offset >= partition.log.log_start_offset:
            return
        directory = partition.log.directory
        waiting = self._waiting.get(directory)
        if waiting is None:
            waiting = self._waiting[directory] = {}
            self._supervisor.spawn(f"replica.log_starts[{directory}]", self._run(directory, waiting))
        waiting[partition] = None

    async def _run(self, directory: str, waiting: dict[Partition, None]) -> None:
        try:
            while waiting:
                partition = next(iter(waiting))
                del waiting[partition]
                log = partition.log
                if await self._logs.offsets.save_log_start(log):
                    self._hosted.start_saved(partition)
                elif partition.log is not log:
                    self.save(partition)  # it has moved to another disk meanwhile
                elif self._logs.get(partition.topic_partition) is log:
                    waiting[partition] = None
                    await asyncio.sleep(_PAUSE_S)
        finally:
            del self._waiting[directory]
