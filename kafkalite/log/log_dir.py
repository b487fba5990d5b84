"""One log directory (one disk): its lock, its identity, its checkpoint files, the partitions found in it."""

from __future__ import annotations

import asyncio
import re
from collections.abc import Awaitable, Callable, Mapping
from typing import TYPE_CHECKING, TypeVar

from kafkalite.env.seams import Disk
from kafkalite.errors import StartupRefused, StorageError
from kafkalite.lazy_dataclass import dataclass
from kafkalite.log import checkpoints
from kafkalite.log.doubts import UncertainEnds
from kafkalite.log.failures import FailureBudget
from kafkalite.log.handles import HandleCache
from kafkalite.log.returning import Awaited, ReturnPauses
from kafkalite.model import TopicPartition
from kafkalite.telemetry.logs import get_logger

if TYPE_CHECKING:
    from kafkalite.config import TopicConfig
    from kafkalite.log.partition_log import PartitionLog

_log = get_logger(__name__)
T = TypeVar("T")

DELETE_SUFFIX, STRAY_SUFFIX, FUTURE_SUFFIX = "-delete", "-stray", "-future"
_PARTITION = re.compile(r"^([A-Za-z0-9._-]{1,249})-(\d{1,9})$")
NAME_MAX = 255


def partition_of(name: str) -> TopicPartition | None:
    """The partition whose directory has this name; None for other names."""
    found = _PARTITION.match(name)
    return TopicPartition(found[1], int(found[2])) if found else None


def set_aside_name(topic_partition: TopicPartition, unique: str, suffix: str) -> str:
    """Kafka's name for a directory on its way out or in: <topic>-<partition>.<32 hex digits>-delete, not over 255 bytes."""
    tail = f"-{topic_partition.partition}.{unique}{suffix}"
    return topic_partition.topic[: NAME_MAX - len(tail)] + tail


def dir_error(log_dir: LogDir, what: str, error: Exception) -> StorageError:
    """An error of the directory itself."""
    failure = StorageError(f"{log_dir.path}: {what} failed: {error}", directory=log_dir.path, path=log_dir.path)
    failure.__cause__ = error
    return failure


@dataclass(slots=True, eq=False)
class FailedLog:
    """A log that is out of service, in a directory that is online. Its files are where they were."""

    topic_partition: TopicPartition
    path: str
    config: TopicConfig
    #: The log; None if it could not be opened at the start.
    log: PartitionLog | None
    #: Why it is out of service, or why the last check failed.
    reason: str
    is_shortage: bool
    #: Monotonic seconds.
    next_check: float
    checks: int = 0
    #: A check is under way: no other code may touch its directory.
    is_under_check: bool = False
    #: Whether a check has ended since it failed.
    is_examined: bool = False

    @property
    def size_bytes(self) -> int:
        return 0 if self.log is None else self.log.size_bytes

    @property
    def needs_operator(self) -> bool:
        """Only a restart or an operator opens it again."""
        log = self.log
        return log is not None and (log.damaged_at is not None or log.sync_failed)


class LogDir:
    """A log directory that is locked and identified; `online` until the first storage error in it."""

    def __init__(self, disk: Disk, path: str, handle_capacity: int) -> None:
        self._disk = disk
        self.path = path
        self.online = True
        self.handles = HandleCache(disk, handle_capacity)
        #: Whether the last shutdown was clean.
        self.clean = False
        self.high_watermarks: dict[TopicPartition, int] = {}
        self.recovery_points: dict[TopicPartition, int] = {}
        #: As in the file.
        self.log_starts: dict[TopicPartition, int] = {}
        #: First offset that compaction has not been over yet.
        self.cleaned_to: dict[TopicPartition, int] = {}
        #: Why, and since when (wall ms), it is offline.
        self.offline_reason = ""
        self.offline_since_ms = 0
        #: Logs that have failed while the directory is online, until they are opened again or set aside.
        self.failed: dict[TopicPartition, FailedLog] = {}
        #: When (monotonic seconds) such logs were opened again, within the last hour.
        self.reopened: dict[TopicPartition, list[float]] = {}
        #: Errors that were not examined yet, and whether none is being examined.
        self.suspicions: list[StorageError] = []
        self.is_examined = True
        self.failures = FailureBudget()
        #: The last probe found no room; what is there can be read.
        self.is_full = False
        #: What it waits for while it is offline, and when it is checked.
        self.awaited = Awaited.OPERATOR
        #: What the last check found missing, of one that waits for room.
        self.missing_room = ""
        self.pauses = ReturnPauses()
        #: Those that wait for the disk; cut short when the directory goes offline.
        self._waiting: dict[asyncio.Timeout, None] = {}
        #: Logs in it that are in service.
        self.log_count = 0
        #: Logs may be missing: it was empty when it came, or a log was given up. Until all that the node should have is
        #: there (again).
        self.is_incomplete = False
        #: Grows when the loop itself writes recovery points or log starts.
        self.checkpoints_version = 0
        #: One save of offsets at a time; the number of saves requested, and the number of these that are done.
        self.saving = asyncio.Lock()
        self.saves_wanted = self.saves_done = 0
        #: Logs in it that may lack committed records.
        self.doubts = UncertainEnds(disk, path)
        self._release: Callable[[], None] | None = None

    async def unless_gone(self, work: Awaitable[T]) -> T:
        """The outcome of `work`; OSError as soon as the directory is offline, so that nobody waits for a dead disk."""
        async with asyncio.timeout(None) as scope:
            self._waiting[scope] = None
            try:
                return await work
            finally:
                del self._waiting[scope]

    async def off_loop(self, function: Callable[[], object]) -> None:
        """Run it in a thread. Raises OSError; also as soon as the directory is offline, whatever the thread does."""
        await self.unless_gone(self._disk.run_blocking(function, self.path))

    def free_bytes(self) -> int:
        """0 if unknown."""
        try:
            return self._disk.free_bytes(self.path)
        except OSError:
            return 0

    def go_offline(self, reason: str, now_ms: int) -> None:
        """No operation on it from now on, but for those under way in threads."""
        self.online = False
        self.offline_reason, self.offline_since_ms, self.missing_room = reason, now_ms, ""
        self.suspicions.clear()
        self.failed.clear()
        for scope in self._waiting:
            if not scope.expired():
                scope.reschedule(asyncio.get_running_loop().time())

    def describe_offline(self) -> str:
        """For health and lists of disks: why it is offline, and when it returns."""
        return self.awaited.describe(self.offline_reason, self.missing_room)

    def _file(self, name: str) -> str:
        return f"{self.path}/{name}"

    def open(self, cluster_id: str, broker_id: int, starts: int) -> None:
        """Make it, lock it, check whose it is, read the checkpoints.

        Args:
            starts: of this node, before this one (kafkalite.log.doubts).

        Raises:
            StartupRefused: another process has it, or it is another cluster's or another broker's. OSError.
        """
        self._disk.makedirs(self.path)
        try:
            self._release = self._disk.lock(self._file(checkpoints.LOCK))
        except BlockingIOError:
            raise StartupRefused(f"log.dirs: {self.path} is in use by another process") from None
        meta = self._file(checkpoints.META_PROPERTIES)
        is_new = not self._disk.exists(meta)
        if self._disk.exists(meta):
            try:
                found_cluster, found_broker = checkpoints.decode_meta_properties(self._disk.read_file(meta))
            except checkpoints.MalformedCheckpoint as error:
                raise StartupRefused(f"log.dirs: {meta} is damaged: {error}") from None
            if found_cluster != cluster_id:
                raise StartupRefused(
                    f"log.dirs: {self.path} belongs to cluster {found_cluster}, this is cluster {cluster_id}"
                )
            if found_broker != broker_id:
                raise StartupRefused(
                    f"log.dirs: {self.path} belongs to broker {found_broker}, this is broker {broker_id}"
                )
        else:
            # It may have taken the place of another: that is for ZooKeeper to say (ReplicaManager.find_missing_logs). First,
            # so that a crash between the two does not leave a directory that looks used.
            self.mark_incomplete()
            self._disk.write_file_atomic(meta, checkpoints.encode_meta_properties(cluster_id, broker_id))
        self.is_incomplete = self._disk.exists(self._file(checkpoints.INCOMPLETE))
        self.clean = self._disk.exists(self._file(checkpoints.CLEAN_SHUTDOWN))
        self.doubts.open(clean=self.clean, is_new=is_new, starts=starts)
        # The marker of a clean stop is that of an earlier process.
        self.clean = self.clean and not self.doubts.is_behind
        self.high_watermarks = self._read_offsets(checkpoints.HIGH_WATERMARKS)
        self.recovery_points = self._read_offsets(checkpoints.RECOVERY_POINTS)
        self.log_starts = self._read_offsets(checkpoints.LOG_STARTS)
        self.cleaned_to = self._read_offsets(checkpoints.CLEANER_OFFSETS)

    def _read_offsets(self, name: str) -> dict[TopicPartition, int]:
        """A damaged checkpoint counts as missing: high watermarks are found again, recovery checks more."""
        if not self._disk.exists(self._file(name)):
            return {}
        try:
            return checkpoints.decode_offsets(self._disk.read_file(self._file(name)))
        except checkpoints.MalformedCheckpoint as error:
            _log.error("checkpoint.damaged", file=self._file(name), error=str(error))
            return {}

    def write_offsets(self, name: str, offsets: Mapping[TopicPartition, int], *, durable: bool) -> None:
        """Raises OSError."""
        self._disk.write_file_atomic(self._file(name), checkpoints.encode_offsets(offsets), durable=durable)

    def publish(self, name: str, final: str) -> None:
        """A checkpoint that was written under another name takes the place of its file; `sync` makes that durable. Raises OSError."""
        self._disk.rename(self._file(name), self._file(final))

    def sync(self) -> None:
        """Make the directory's names durable. Raises OSError."""
        self._disk.sync_dir(self.path)

    def unmark_clean(self) -> None:
        """From here on only a clean shutdown makes it clean again. Raises OSError."""
        if self._disk.exists(self._file(checkpoints.CLEAN_SHUTDOWN)):
            self._disk.remove(self._file(checkpoints.CLEAN_SHUTDOWN))
            self._disk.sync_dir(self.path)

    def mark_incomplete(self) -> None:
        """Called before a log is given up: the next start must not take the missing log for a new one. Raises OSError."""
        if not self.is_incomplete:
            self._disk.write_file_atomic(self._file(checkpoints.INCOMPLETE), b"")
            self.is_incomplete = True

    def confirm_complete(self) -> None:
        """Record that this node has every replica that it should have. Raises OSError."""
        self._disk.remove(self._file(checkpoints.INCOMPLETE))
        self.is_incomplete = False

    def mark_clean(self, broker_epoch: int) -> None:
        """Raises OSError."""
        self._disk.write_file_atomic(
            self._file(checkpoints.CLEAN_SHUTDOWN), checkpoints.encode_clean_shutdown(broker_epoch)
        )

    @property
    def is_locked(self) -> bool:
        return self._release is not None

    def release(self) -> None:
        """Let another process have it."""
        self.handles.close()
        if self._release is not None:
            release, self._release = self._release, None
            release()
