"""What a file error says: about this log, or about the disk? And how often a disk's replicas are recreated (KIP-18).

Nothing here retries a write: what a disk holds after a failed write or fsync is not known. Reads are tried twice where
they happen; EINTR never reaches us (PEP 475).
"""

from __future__ import annotations

import errno
from dataclasses import field
from enum import Enum

from kafkalite.env.own_time import OwnTime
from kafkalite.env.seams import Disk
from kafkalite.errors import StorageError
from kafkalite.lazy_dataclass import dataclass
from kafkalite.log.checkpoints import META_PROPERTIES

#: The probe's file, in the log directory itself.
PROBE = ".kafkalite-probe"
PROBE_DEADLINE_S = 1.0
_PATTERN = b"kafkalite probe\n" * 256

#: Maximum number of failures of one disk within an hour, with growing pauses between restarts; then the disk counts as dead.
MAX_FAILURES_PER_HOUR = 10
_HOUR_S = 3600.0
_PAUSE_S = 1.0
_PAUSE_MAX_S = 300.0


class FaultScope(Enum):
    """What an error number says about the cause: process, space, disk, or undetermined."""

    #: This process or the host ran out of something: the log stays in service, the operation is tried again later.
    SHORTAGE = "nobody"
    #: No room. What waits for its removal is removed at once; if that does not help, the disk goes offline.
    ROOM = "room"
    #: The disk, without a doubt.
    DISK = "disk"
    #: The probe finds it.
    UNSURE = "unsure"


_SCOPE_OF_ERRNO = {
    **dict.fromkeys((errno.EMFILE, errno.ENFILE, errno.ENOMEM, errno.EAGAIN, errno.EINTR), FaultScope.SHORTAGE),
    **dict.fromkeys((errno.ENOSPC, errno.EDQUOT), FaultScope.ROOM),
    **dict.fromkeys((errno.EROFS, errno.ENODEV, errno.ENXIO, errno.ENOTCONN, errno.EUCLEAN), FaultScope.DISK),
}


def is_shortage(error: BaseException | None) -> bool:
    """Whether the process or the host has run out of something, which proves nothing about any file."""
    return isinstance(error, OSError) and _SCOPE_OF_ERRNO.get(error.errno or 0) is FaultScope.SHORTAGE


def lacks_room(error: BaseException | None) -> bool:
    """Whether the disk, or a quota on it, is full."""
    return isinstance(error, OSError) and _SCOPE_OF_ERRNO.get(error.errno or 0) is FaultScope.ROOM


def fault_scope(error: StorageError) -> FaultScope:
    """By the error number of the OSError behind it."""
    cause = error.__cause__
    return _SCOPE_OF_ERRNO.get(cause.errno or 0, FaultScope.UNSURE) if isinstance(cause, OSError) else FaultScope.UNSURE


async def probe(
    disk: Disk, directory: str, own_time: OwnTime, deadline_s: float = PROBE_DEADLINE_S, busy_s: float = 0.0
) -> OSError | None:
    """Write, fsync and read a small file in the directory, if it is the one that was opened, off the loop; None if all went well.

    An error is tried a second time within the deadline; resource exhaustion (EMFILE, ENOMEM) does not count against the disk. A disk that does not answer by then is dead: TimeoutError.

    Args:
        own_time: for the deadline: a process that gets no processor says nothing of its disks.
        busy_s: a disk whose device completed operations within the deadline is busy, not dead, and has this time in all.
    """
    path, identity = f"{directory}/{PROBE}", f"{directory}/{META_PROPERTIES}"

    def attempt() -> None:
        # Not makedirs: a directory that somebody has removed must not come back as an empty one.
        if not disk.exists(identity):
            raise FileNotFoundError(errno.ENOENT, "this is not the directory that was opened", identity)
        disk.write_file_atomic(path, _PATTERN)
        if disk.read_file(path) != _PATTERN:
            raise OSError(errno.EIO, "the probe read other bytes than it wrote", path)

    def attempt_twice() -> None:
        try:
            attempt()
        except OSError:
            attempt()

    completed = disk.completed(directory)
    waited_s = deadline_s

    def more() -> float:
        nonlocal completed, waited_s
        before, completed = completed, disk.completed(directory)
        if before is None or completed == before or waited_s + deadline_s > busy_s:
            return 0.0
        waited_s += deadline_s
        return deadline_s

    try:
        async with own_time.timeout(deadline_s, more):
            await disk.run_blocking(attempt_twice, directory)
    except TimeoutError:
        return TimeoutError(errno.ETIMEDOUT, f"no answer within {waited_s:g} s", path)
    except OSError as error:
        # Where descriptors or memory have run out the disk was not asked.
        return None if _SCOPE_OF_ERRNO.get(error.errno or 0) is FaultScope.SHORTAGE else error
    return None


@dataclass(slots=True)
class FailureBudget:
    """One disk's failures within the last hour. Times are monotonic seconds."""

    at: list[float] = field(default_factory=list)

    def record(self, now: float) -> None:
        self.at = [*(each for each in self.at if now - each < _HOUR_S), now][-MAX_FAILURES_PER_HOUR - 1 :]

    def is_exhausted(self, now: float) -> bool:
        return sum(now - each < _HOUR_S for each in self.at) > MAX_FAILURES_PER_HOUR

    def not_before(self, now: float) -> float:
        """When replicas that this disk lost may be recreated: at once the first time, then after growing pauses."""
        recent = [each for each in self.at if now - each < _HOUR_S]
        if len(recent) < 2:
            return now
        return recent[-1] + min(_PAUSE_S * float(1 << (len(recent) - 2)), _PAUSE_MAX_S)
