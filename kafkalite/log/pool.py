"""The logs of a node that are in service, those that went offline, and the log directories both belong to; and the seams."""

from __future__ import annotations

from collections.abc import Iterable
from os.path import normpath
from typing import NamedTuple, Protocol

from kafkalite.config import cordoned_among
from kafkalite.env.own_time import OwnTime
from kafkalite.env.seams import Clock, Disk
from kafkalite.env.supervisor import Supervisor
from kafkalite.errors import ErrorCode, StorageError, api_error
from kafkalite.log.compaction_turn import CompactionTurn
from kafkalite.log.host import LogHost
from kafkalite.log.log_dir import FailedLog, LogDir
from kafkalite.log.partition_log import PartitionLog
from kafkalite.model import TopicId, TopicPartition


class PoolEvents(Protocol):
    """Receives what happens to the logs and their directories, among the parts of the log manager."""

    def log_put(self, log: PartitionLog) -> None:
        """It has come into service."""

    def log_taken(self, topic_partition: TopicPartition, reason: str) -> None:
        """It has left service: deleted, or set aside."""

    def log_lost(self, topic_partition: TopicPartition, reason: str) -> None:
        """It has gone offline."""

    def dir_lost(self, path: str) -> None:
        """A directory has gone offline, after its logs."""

    def error_found(self, log_dir: LogDir, error: StorageError) -> None:
        """Something failed in the directory, and it is not known whether the whole disk has."""


class LostLog(NamedTuple):
    """What a log had when it went offline."""

    directory: str
    topic_id: TopicId
    extent: tuple[int, int]
    size_bytes: int


class LogPool:
    """What the parts of the log manager share. Does no I/O."""

    def __init__(
        self, dirs: list[LogDir], *, disk: Disk, clock: Clock, own_time: OwnTime, supervisor: Supervisor
    ) -> None:
        self.disk = disk
        self.clock = clock
        self.own_time = own_time
        self.supervisor = supervisor
        self.compaction = CompactionTurn()
        #: By path, as configured; a directory that comes back is replaced by a new one.
        self.dirs = {log_dir.path: log_dir for log_dir in dirs}
        self.logs: dict[TopicPartition, PartitionLog] = {}
        #: Paths of directories that get no new replicas.
        self.cordoned: frozenset[str] = frozenset()
        #: Partitions that went offline, alone or with their directory -> that directory.
        self.offline_partitions: dict[TopicPartition, str] = {}
        #: ... and what they had.
        self.lost: dict[TopicPartition, LostLog] = {}
        #: Both are set before anything happens (`LogManager`).
        self.events: PoolEvents
        self.host: LogHost

    def named(self, directory: str) -> LogDir:
        """`directory` as people write it, also with a slash at its end. Raises ApiError LOG_DIR_NOT_FOUND."""
        wanted = normpath(directory)
        for path, log_dir in self.dirs.items():
            if normpath(path) == wanted:
                return log_dir
        known = ", ".join(sorted(self.dirs))
        raise api_error(ErrorCode.LOG_DIR_NOT_FOUND, f"{directory} is not one of log.dirs, which are {known}")

    def online(self) -> list[LogDir]:
        return [log_dir for log_dir in self.dirs.values() if log_dir.online]

    def cordon(self, cordoned: str) -> None:
        """See `cordoned.log.dirs`."""
        self.cordoned = cordoned_among(self.dirs, cordoned)

    @property
    def is_cordoned(self) -> bool:
        """Whether no directory takes new replicas."""
        return len(self.cordoned) == len(self.dirs)

    @property
    def has_offline_dir(self) -> bool:
        """Whether a configured directory is offline: nobody knows which logs are in it."""
        return not all(log_dir.online for log_dir in self.dirs.values())

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
        self.events.log_put(log)

    def take(self, topic_partition: TopicPartition) -> PartitionLog | None:
        log = self._remove(topic_partition)
        if log is not None:
            self.events.log_taken(topic_partition, f"the replica in {log.directory} is gone")
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
        self.events.log_put(new)

    def lose(self, tp: TopicPartition, log_dir: LogDir) -> None:
        """The log goes offline."""
        log = self._remove(tp)
        assert log is not None
        self.events.log_lost(tp, f"the replica in {log.directory} is lost")
        self.offline_partitions[tp] = log_dir.path
        self.lost[tp] = LostLog(log.directory, log.topic_id, log.extent, log.size_bytes)
        log.close()

    def forget_offline(self, topic_partition: TopicPartition) -> None:
        self.offline_partitions.pop(topic_partition, None)
        self.lost.pop(topic_partition, None)

    def failed(self, topic_partition: TopicPartition) -> FailedLog | None:
        """A log that is out of service while its directory is online; its files are kept where they are."""
        found = (log_dir.failed.get(topic_partition) for log_dir in self.online())
        return next((failed for failed in found if failed is not None), None)

    # --- doubts (kafkalite.log.doubts) --------------------------------------------------------------

    @property
    def lost_power(self) -> bool:
        """Whether the host may have been without power since these directories were last in use, or one of them is an old copy."""
        return any(log_dir.doubts.lost_power or log_dir.doubts.is_behind for log_dir in self.dirs.values())

    @property
    def unclean_start(self) -> bool:
        """Whether any log was opened after an unclean shutdown (invariant F14)."""
        return any(not log.clean_start for log in self.logs.values())

    def doubtful(self) -> list[TopicPartition]:
        """Logs that may lack committed records (kafkalite.log.doubts), sorted; also those that nobody can read now."""
        return sorted({*self.unreadable(), *(tp for tp in self.logs if self.is_doubtful(tp))})

    def unreadable(self) -> set[TopicPartition]:
        """Partitions without a log in service whose log is there, or may be on a directory that is offline."""
        failed = {tp for log_dir in self.online() for tp in log_dir.failed}
        away = {tp for tp in self.offline_partitions if self.is_away(tp)}
        return {tp for tp in failed | away if tp not in self.logs}

    def expect(self, partitions: Iterable[TopicPartition]) -> None:
        """These logs are not here. They may be on a directory that was offline before it was read."""
        away = next((path for path, each in self.dirs.items() if not each.online), "")
        if away:
            for tp in partitions:
                self.offline_partitions.setdefault(tp, away)

    def is_away(self, topic_partition: TopicPartition) -> bool:
        """Whether its log is, or may be, on a directory that is offline."""
        path = self.offline_partitions.get(topic_partition, "")
        return path in self.dirs and not self.dirs[path].online

    def may_have_more(self, topic_partition: TopicPartition) -> bool:
        """Whether a directory that is offline may have more than the log that is in service: that was recreated while it was away, and has not
        caught up with a leader since."""
        log = self.logs.get(topic_partition)
        if log is None or all(log_dir.online for log_dir in self.dirs.values()):
            return False
        doubts = self.dirs[log.directory].doubts
        return topic_partition in doubts.logs and topic_partition in doubts.remade

    def is_nowhere(self, topic_partition: TopicPartition) -> bool:
        """Whether no directory has its log, as far as is known: it is on none that is offline."""
        is_here = topic_partition in self.logs or self.failed(topic_partition) is not None
        return not is_here and not self.is_away(topic_partition)

    def is_gone(self, topic_partition: TopicPartition) -> bool:
        """Whether the directory in which a log was expected is back, and does not have it."""
        return topic_partition in self.offline_partitions and self.is_nowhere(topic_partition)

    def gives_way_to(self, log: PartitionLog) -> bool:
        """Whether the log of its partition that is in service is less complete, and gives way."""
        other = self.logs[log.topic_partition]
        is_better = log.topic_id == other.topic_id and log.extent > other.extent
        return is_better and self.host.gives_way(log.topic_partition)

    def is_doubtful(self, topic_partition: TopicPartition) -> bool:
        log = self.logs.get(topic_partition)
        return log is not None and topic_partition in self.dirs[log.directory].doubts.logs

    def is_older_copy(self, topic_partition: TopicPartition) -> bool:
        """Whether the log is in doubt because its directory was put back from an earlier time."""
        log = self.logs.get(topic_partition)
        return (
            self.is_doubtful(topic_partition)
            and log is not None
            and topic_partition in self.dirs[log.directory].doubts.older
        )

    def was_here(self, topic_partition: TopicPartition) -> bool:
        """Whether its log was in service, and not in doubt, before the host lost its power."""
        log = self.logs.get(topic_partition)
        return log is not None and topic_partition in self.dirs[log.directory].doubts.were_here

    def doubt(self, topic_partition: TopicPartition, *, is_doubtful: bool) -> None:
        """Record that a log may lack committed records, or that it has caught up. Saved with the high watermarks."""
        log = self.logs.get(topic_partition)
        if log is not None:
            doubts = self.dirs[log.directory].doubts
            if is_doubtful:
                doubts.logs.add(topic_partition)
                doubts.were_here.discard(topic_partition)
            else:
                doubts.forget(topic_partition)
