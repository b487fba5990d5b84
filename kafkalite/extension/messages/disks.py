"""Log directories: what is on them, moves between them, disks that come back."""

from __future__ import annotations

from kafkalite.lazy_dataclass import dataclass
from kafkalite.model import BrokerId
from kafkalite.rpc.messages.base import Message, kind


@kind(80)
@dataclass(frozen=True, slots=True)
class DescribeDisksRequest(Message):
    """The log directories of THIS node (`admin disk list`)."""


@dataclass(frozen=True, slots=True)
class DiskDescription:
    """`state` online, full or offline; since when (wall ms) and why, if it is not online. Bytes are -1 if unknown."""

    path: str
    state: str
    total_bytes: int
    free_bytes: int
    partitions: int
    size_bytes: int
    since_ms: int = 0
    reason: str = ""
    #: Failures within the last hour.
    failures: int = 0
    #: Replicas that were on it and are offline now.
    offline_replicas: int = 0
    #: Directories that were set aside, and their bytes.
    strays: int = 0
    stray_bytes: int = 0
    #: It gets no new replicas (`cordoned.log.dirs`).
    is_cordoned: bool = False


@dataclass(frozen=True, slots=True)
class DiskMove:
    """A replica on its way between disks of one node. `state` waiting, copying, done or failed (`reason` says why);
    `lag`: offsets that are still to be copied; bytes as of now."""

    topic: str
    partition: int
    source: str
    target: str
    state: str
    copied_bytes: int
    size_bytes: int
    lag: int
    throttle: int = 0
    reason: str = ""


@dataclass(frozen=True, slots=True)
class StrayDescription:
    """A replica's directory that was set aside (`admin disk strays list`); since when (wall ms).

    `is_elsewhere`: its records are known to be in sync elsewhere, so that it is removed after the delay.
    """

    path: str
    topic: str
    partition: int
    size_bytes: int
    since_ms: int
    is_elsewhere: bool


@kind(81)
@dataclass(frozen=True, slots=True)
class DescribeDisksResponse(Message):
    """`moves`: those under way first, then those that are over, oldest first. `strays`: the first 1,000."""

    broker_id: BrokerId
    disks: tuple[DiskDescription, ...]
    moves: tuple[DiskMove, ...] = ()
    strays: tuple[StrayDescription, ...] = ()


@dataclass(frozen=True, slots=True)
class RequestedDiskMove:
    """`throttle` in bytes per second; 0: what the node's configuration says."""

    topic: str
    partition: int
    directory: str
    throttle: int = 0


@dataclass(frozen=True, slots=True)
class MoveReplicasRequest(Message):
    """Move replicas of THIS node to other log directories of it (`admin disk move`, Kafka's AlterReplicaLogDirs)."""

    moves: tuple[RequestedDiskMove, ...]


@dataclass(frozen=True, slots=True)
class DiskMoveResult:
    topic: str
    partition: int
    error: int
    message: str = ""


@dataclass(frozen=True, slots=True)
class MoveReplicasResponse(Message):
    """One result for each requested move, in their order. No error: the move is under way, or the replica is there."""

    results: tuple[DiskMoveResult, ...]


@dataclass(frozen=True, slots=True)
class DiskOnlineRequest(Message):
    """Take a log directory of THIS node into service again, after a swap or a repair (`admin disk online`)."""

    path: str


@dataclass(frozen=True, slots=True)
class DiskOnlineResponse(Message):
    """`logs`: how many partitions were found in it."""

    error: int
    message: str = ""
    logs: int = 0


@dataclass(frozen=True, slots=True)
class AlterStrayRequest(Message):
    """A request about a directory that THIS node has set aside (`admin disk strays`).

    `action`: "remove" it now, even if no other copy is known; or "restore" it as the log of a replica that is offline.
    """

    path: str
    action: str


@dataclass(frozen=True, slots=True)
class AlterStrayResponse(Message):
    error: int
    message: str = ""
