"""The logs of a node that are in service, those that went offline, and the log directories both belong to."""

from __future__ import annotations

from collections.abc import Callable

from kafkalite.log.log_dir import LogDir
from kafkalite.log.partition_log import PartitionLog
from kafkalite.model import TopicPartition


class LogPool:
    """What the parts of the log manager share. Does no I/O."""

    def __init__(self, dirs: list[LogDir]) -> None:
        #: By path, as configured; a directory that comes back is replaced by a new one.
        self.dirs = {log_dir.path: log_dir for log_dir in dirs}
        self.logs: dict[TopicPartition, PartitionLog] = {}
        #: Partitions that went offline, alone or with their directory -> that directory.
        self.offline_partitions: dict[TopicPartition, str] = {}
        #: ... and how large they were, in bytes.
        self.offline_bytes: dict[TopicPartition, int] = {}
        #: Told, with the reason, when a log has left the pool; set later.
        self.on_taken: Callable[[TopicPartition, str], None] = lambda tp, reason: None
        #: ... or has come into it.
        self.on_put: Callable[[PartitionLog], None] = lambda log: None
        #: ... or was lost by it.
        self.on_lost: Callable[[TopicPartition, str], None] = lambda tp, reason: None

    def online(self) -> list[LogDir]:
        return [log_dir for log_dir in self.dirs.values() if log_dir.online]

    def all(self) -> list[PartitionLog]:
        """Sorted by partition."""
        return [self.logs[tp] for tp in sorted(self.logs)]

    def logs_in(self, log_dir: LogDir) -> list[PartitionLog]:
        return [log for log in self.logs.values() if log.directory == log_dir.path]

    def holds(self, log: PartitionLog) -> bool:
        """Whether this very log is in service."""
        return self.logs.get(log.topic_partition) is log

    def put(self, log: PartitionLog) -> None:
        self.logs[log.topic_partition] = log
        self.dirs[log.directory].log_count += 1
        self.on_put(log)

    def take(self, topic_partition: TopicPartition) -> PartitionLog | None:
        log = self._remove(topic_partition)
        if log is not None:
            self.on_taken(topic_partition, f"the replica in {log.directory} is gone")
        return log

    def _remove(self, topic_partition: TopicPartition) -> PartitionLog | None:
        log = self.logs.pop(topic_partition, None)
        if log is not None:
            self.dirs[log.directory].log_count -= 1
        return log

    def swap(self, old: PartitionLog, new: PartitionLog) -> None:
        """`new` is in service in the place of `old`."""
        self.dirs[old.directory].log_count -= 1
        self.dirs[new.directory].log_count += 1
        self.logs[old.topic_partition] = new
        self.on_put(new)

    def lose(self, tp: TopicPartition, log_dir: LogDir) -> None:
        """The log goes offline."""
        log = self._remove(tp)
        assert log is not None
        self.on_lost(tp, f"the replica in {log.directory} is lost")
        self.offline_partitions[tp] = log_dir.path
        self.offline_bytes[tp] = log.size_bytes
        log.close()

    def forget_offline(self, topic_partition: TopicPartition) -> None:
        self.offline_partitions.pop(topic_partition, None)
        self.offline_bytes.pop(topic_partition, None)
