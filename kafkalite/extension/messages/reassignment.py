"""Reassignments and elections."""

from __future__ import annotations

from kafkalite.lazy_dataclass import dataclass
from kafkalite.model import BrokerId
from kafkalite.rpc.messages.base import Message


@dataclass(frozen=True, slots=True)
class WantedReassignment:
    """`replicas` None cancels the partition's reassignment. `throttle` in bytes/s, 0 none."""

    topic: str
    partition: int
    replicas: tuple[BrokerId, ...] | None
    throttle: int = 0


@dataclass(frozen=True, slots=True)
class PartitionResult:
    topic: str
    partition: int
    error: int
    message: str = ""


@dataclass(frozen=True, slots=True)
class AlterReassignmentsRequest(Message):
    """Start, replace or cancel reassignments.

    `is_atomic`: if one partition is refused, nothing is started. Without `may_replace`, a partition that is being reassigned is
    refused.
    """

    partitions: tuple[WantedReassignment, ...]
    timeout_ms: int = 30_000
    allow_replication_factor_change: bool = True
    is_atomic: bool = False
    may_replace: bool = True
    #: Replicas at once per partition, partitions under way, leaders that move; 0 none. They hold beside the cluster's own
    #: limits until the request is done, and replace those of a request that is under way.
    limits: tuple[int, int, int] = (0, 0, 0)


@dataclass(frozen=True, slots=True)
class AlterReassignmentsResponse(Message):
    error: int
    message: str = ""
    partitions: tuple[PartitionResult, ...] = ()


@dataclass(frozen=True, slots=True)
class ListReassignmentsRequest(Message):
    """(topic, partition) pairs; None: all."""

    partitions: tuple[tuple[str, int], ...] | None = None


@dataclass(frozen=True, slots=True)
class Reassignment:
    """One that is under way or waits for its turn.

    `replicas` now, `target` in the end, `origin` before. `step` (KIP-435's current batch): the replicas after the
    step under way, empty between steps; `dropping`: replicas whose files are being removed.
    """

    topic: str
    partition: int
    replicas: tuple[BrokerId, ...]
    target: tuple[BrokerId, ...]
    origin: tuple[BrokerId, ...]
    step: tuple[BrokerId, ...] = ()
    dropping: tuple[BrokerId, ...] = ()
    isr: tuple[BrokerId, ...] = ()
    leader: BrokerId = BrokerId(-1)
    throttle: int = 0


@dataclass(frozen=True, slots=True)
class ListReassignmentsResponse(Message):
    """The whole plan; entries with a `step` or `dropping` are the current batch."""

    error: int
    message: str = ""
    reassignments: tuple[Reassignment, ...] = ()


@dataclass(frozen=True, slots=True)
class ElectLeadersRequest:
    """Elect preferred leaders, or with `unclean` any live replica if no in-sync one is alive. None: all partitions that need it."""

    partitions: tuple[tuple[str, int], ...] | None
    unclean: bool = False
    timeout_ms: int = 30_000


@dataclass(frozen=True, slots=True)
class ElectLeadersResponse:
    """If all partitions were requested, those that needed no election are left out."""

    error: int
    message: str = ""
    partitions: tuple[PartitionResult, ...] = ()
