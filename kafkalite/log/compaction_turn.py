"""Which log is being compacted: moves wait for its end, and retention leaves it alone."""

from __future__ import annotations

import asyncio

from kafkalite.log.partition_log import PartitionLog
from kafkalite.model import TopicPartition


class CompactionTurn:
    """One log at a time."""

    def __init__(self) -> None:
        self.log: PartitionLog | None = None
        #: Replaced and set whenever a compaction ends.
        self._ended = asyncio.Event()

    def begin(self, log: PartitionLog) -> None:
        """The log is being compacted from now on."""
        self.log = log

    def end(self) -> None:
        """No log is."""
        self.log = None
        ended, self._ended = self._ended, asyncio.Event()
        ended.set()

    async def over(self, topic_partition: TopicPartition) -> None:
        """Wait while the partition's log is being compacted."""
        while self.log is not None and self.log.topic_partition == topic_partition:
            await self._ended.wait()
