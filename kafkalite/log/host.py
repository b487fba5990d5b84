"""What the logs of a node ask of the node, and what they report to it."""

from __future__ import annotations

from typing import Protocol

from kafkalite.errors import StorageError
from kafkalite.log.partition_log import PartitionLog
from kafkalite.log.strays import Stray
from kafkalite.model import TopicPartition


class LogHost(Protocol):
    """All methods return at once and do not raise. A subclass need not hear of everything: an event does nothing by default."""

    def high_watermark(self, topic_partition: TopicPartition) -> int:
        """Retention and compaction never go beyond it."""

    def all_in_sync(self, topic_partition: TopicPartition) -> bool:
        """Whether every replica of the partition is in sync, as far as the node knows. Compaction removes no tombstone while one is not: that
        replica may have the record that it deletes, and would never get the tombstone (ADR 76)."""

    def is_elsewhere(self, stray: Stray) -> bool:
        """Whether the records of a log that was set aside are known to be in sync elsewhere."""

    def log_failed(self, topic_partition: TopicPartition, error: StorageError) -> None:
        """A log went offline, alone."""
        return

    def producers_dropped(self, topic_partition: TopicPartition, count: int) -> None:
        """A log has forgotten idempotent producers, outside of an append, to keep within a limit."""
        return

    def dir_failed(self, error: StorageError) -> None:
        """The error's directory went offline with all its logs; called once (KIP-18)."""
        return

    def examined(self, directory: str) -> None:
        """It is known whether the log or the disk has failed: lost replicas may be recreated (`DirFailures.restart_refusal`)."""
        return

    def gives_way(self, topic_partition: TopicPartition) -> bool:
        """Whether the log in service may lack committed records, and neither serves nor copies: a more complete one may take its place."""

    def replaced(self, old: PartitionLog, new: PartitionLog) -> None:
        """`new`, which is more complete, has taken the place of `old`, which gave way."""
        return

    def exchanged(self, old: PartitionLog, new: PartitionLog) -> None:
        """A log has moved to another disk: `new` has taken the place of `old`."""
        return
