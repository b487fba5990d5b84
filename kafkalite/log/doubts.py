"""Logs that may lack committed records: their host has lost its power, bytes are missing, or an old copy was put back (ADR 16).

A process that is killed loses nothing: what it wrote is in the kernel's memory. So an id of that memory is kept in every log
directory: it changes with each boot, and with each mount of the file system. If it has changed at a start, and there is no
marker of a clean stop, the kernel's memory was lost. A doubt survives restarts until the replica has caught up with a leader.

The marker says nothing about what came after it: a snapshot of a node that was stopped has it, too. So every start has a number, which
is in ZooKeeper and in every log directory that the start used; and so has every clean stop: a snapshot may be of the running node.
A directory with a smaller one than ZooKeeper's is an old copy, or was away.
"""

from __future__ import annotations

from collections.abc import Container, Mapping, Sequence, Set

from kafkalite.config import TopicConfig
from kafkalite.env.seams import Disk
from kafkalite.log import checkpoints
from kafkalite.log.partition_log import PartitionLog
from kafkalite.model import TopicPartition
from kafkalite.telemetry.logs import get_logger

_log = get_logger(__name__)

#: Why a log is in doubt, in the file; and what is added where synced bytes are missing, too.
_ENDS_EARLY, _OLDER, _REMADE = range(3)
_LOST_BYTES = 3


class UncertainEnds:
    """The doubts of one log directory. All methods that touch the disk raise OSError."""

    def __init__(self, disk: Disk, directory: str) -> None:
        self._disk = disk
        self._directory = directory
        self._path = f"{directory}/{checkpoints.DOUBTFUL}"
        self._boot = f"{directory}/{checkpoints.BOOT}"
        self._starts_path = f"{directory}/{checkpoints.STARTS}"
        self.logs: set[TopicPartition] = set()
        #: Those of them that are older copies.
        self.older: set[TopicPartition] = set()
        #: Those of them that were made while a directory was offline which may have more: this node does not know how far its logs go.
        self.remade: set[TopicPartition] = set()
        #: Those of them that have lost what was synced, and are not opened for that: nothing may be cut from what is left.
        self.lost_bytes: set[TopicPartition] = set()
        #: As in the file: 1 for an older copy, 2 for one that was recreated, 3 more for lost bytes. None: the list of an earlier process cannot be read, and any log may have been in it.
        self._saved: Mapping[TopicPartition, int] | None = {}
        #: The host may have been without power, or the file system unmounted, since the directory was last in use; and there is no marker
        #: of a clean stop.
        self.has_rebooted = self.lost_power = False
        #: Logs that were in service, and not in doubt, before the host lost its power: they are no empty ones in the place of a log that is gone.
        self.were_here: set[TopicPartition] = set()
        #: The node has run without this directory, or with a newer one in its place.
        self.is_behind = False
        self._starts = 0
        #: What puts all logs in doubt (a loss of power, an older copy) is found again by the next start.
        self._is_decided = False

    def open(self, *, clean: bool, is_new: bool, starts: int) -> None:
        """Read the files of an earlier process. `starts`: how many of this node ZooKeeper knows, without this one."""
        self.logs, self.older, self.remade, self.lost_bytes = set(), set(), set(), set()
        self._saved, self._is_decided = {}, False
        if self._disk.exists(self._path):
            try:
                self._saved = checkpoints.decode_offsets(self._disk.read_file(self._path))
                self.logs = set(self._saved)
                self.older = {tp for tp, why in self._saved.items() if why % _LOST_BYTES == _OLDER}
                self.remade = {tp for tp, why in self._saved.items() if why % _LOST_BYTES == _REMADE}
                self.lost_bytes = {tp for tp, why in self._saved.items() if why >= _LOST_BYTES}
            except checkpoints.MalformedCheckpoint as error:
                _log.error("checkpoint.damaged", file=self._path, error=str(error))
                self._saved = None
        boot = self._disk.page_cache_id(self._directory)
        before = self._disk.read_file(self._boot) if self._disk.exists(self._boot) else b""
        self.has_rebooted = not is_new and (not boot or before != boot.encode())
        self.lost_power = self.has_rebooted and not clean
        self._starts = starts
        # An empty directory is no copy; what it lacks is reported as missing.
        self.is_behind = self._last_start() < starts and (not is_new or self._disk.exists(self._starts_path))
        if self.is_behind:
            _log.warning("log_dir.behind", directory=self._directory, start=self._last_start(), last_start=starts)

    def forget(self, topic_partition: TopicPartition) -> None:
        """Its log is not in doubt, or not here any more."""
        for known in (self.logs, self.older, self.remade, self.lost_bytes, self.were_here):
            known.discard(topic_partition)

    def take_over(self, topic_partition: TopicPartition, other: UncertainEnds) -> None:
        """The log moves here from another directory."""
        for known, there in ((self.logs, other.logs), (self.older, other.older), (self.remade, other.remade)):
            if topic_partition in there:
                known.add(topic_partition)

    def _last_start(self) -> int:
        there = self._disk.exists(self._starts_path)
        return checkpoints.decode_starts(self._disk.read_file(self._starts_path)) if there else 0

    def before_cut(self, topic_partition: TopicPartition, config: TopicConfig, *, has_dropped: bool) -> None:
        """Recovery is about to cut this log. If the process dies after that, the next one finds a whole log. In a thread."""
        is_flushed = config.log_flush_before_ack
        is_found_again = not self._is_decided and (self.is_behind or (self.lost_power and not is_flushed))
        if (has_dropped or not is_flushed) and not is_found_again and self._saved is not None:
            self.logs.add(topic_partition)
            self.save(durable=True)

    def take(
        self,
        logs: Sequence[PartitionLog],
        high_watermarks: Mapping[TopicPartition, int],
        *,
        saved: Mapping[TopicPartition, int],
        closed: Container[TopicPartition],
        unread: Mapping[TopicPartition, TopicConfig],
        lost_bytes: Set[TopicPartition] = frozenset(),
    ) -> None:
        """Decide about the logs that were loaded, and make the outcome durable before the first of them changes.

        Args:
            saved: the recovery points; one is saved only while its log is in service.
            closed: what a clean stop has flushed; not a log that had failed before.
            unread: what could not be opened, and may be later: the power was lost for these, too.
            lost_bytes: those of them that have lost what was synced.
        """
        found = {**unread, **{log.topic_partition: log.config for log in logs}}
        there = found.keys()
        if self.has_rebooted and not self.is_behind and (doubted := self._saved) is not None:
            self.were_here = {tp for log in logs if (tp := log.topic_partition) in saved and tp not in doubted}
        if self.has_rebooted:
            self.logs.update(tp for tp in there if tp not in closed and not found[tp].log_flush_before_ack)
            # All below was on the disk. (Or the log was cut, or made, a moment before: then the doubt is a wait for nothing.)
            self.logs.update(tp for log in logs if saved.get(tp := log.topic_partition, 0) > log.log_end_offset)
        self.logs.update(log.topic_partition for log in logs if lacks_bytes(log, high_watermarks))
        if self.is_behind or self._saved is None:
            self.logs |= there
        if self.is_behind:
            self.older |= there
        self.lost_bytes = (self.lost_bytes & unread.keys()) | lost_bytes
        self.logs |= self.lost_bytes
        self.logs &= there
        self.save(durable=True)
        boot = self._disk.page_cache_id(self._directory)
        if boot and (not self._disk.exists(self._boot) or self._disk.read_file(self._boot) != boot.encode()):
            self._disk.write_file_atomic(self._boot, boot.encode())
        # ZooKeeper hears of this start afterwards: a node that dies in between is not behind.
        if self._last_start() != self._starts + 1:
            self._disk.write_file_atomic(self._starts_path, checkpoints.encode_starts(self._starts + 1))
        self._is_decided = True
        if self.logs:
            _log.warning(
                "logs.doubtful", file=self._path, logs=len(self.logs), lost_power=self.lost_power, behind=self.is_behind
            )

    def end(self, number: int) -> None:
        """The node stops in order, and this directory is used no more: `number` is that of the stop, which ZooKeeper has already."""
        self._disk.write_file_atomic(self._starts_path, checkpoints.encode_starts(number))

    def save(self, *, durable: bool) -> None:
        """Write them if they have changed. A doubt that is over may stay in the file for a while, which is safe."""
        logs = {
            tp: (_REMADE if tp in self.remade else _OLDER if tp in self.older else _ENDS_EARLY)
            + (_LOST_BYTES if tp in self.lost_bytes else 0)
            for tp in frozenset(self.logs)
        }
        if logs != self._saved:
            self._disk.write_file_atomic(self._path, checkpoints.encode_offsets(logs), durable=durable)
            self._saved = logs


def lacks_bytes(log: PartitionLog, high_watermarks: Mapping[TopicPartition, int]) -> bool:
    """Whether a log that was opened is shorter than it was, as far as that can be seen."""
    if high_watermarks.get(log.topic_partition, 0) > log.log_end_offset:
        return True
    # With log.flush.before.ack all acknowledged records were on the disk, and what is torn is the end of the log. If there are records
    # in segments behind that, it may be a disk that has lost what it said it had.
    return log.has_dropped or (log.was_cut and not log.config.log_flush_before_ack)
