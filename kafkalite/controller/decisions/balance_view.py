"""What the balancer decides on, and what it decides. Pure data."""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import field

from kafkalite.lazy_dataclass import dataclass
from kafkalite.model import BrokerId, Replicas, TopicPartition


@dataclass(frozen=True, slots=True)
class PartitionLoad:
    """Of one replica: bytes on the disk; bytes/s that producers write; bytes/s that consumers read from its leader."""

    size_bytes: int = 0
    in_rate: float = 0.0
    out_rate: float = 0.0


@dataclass(frozen=True, slots=True)
class DiskRoom:
    """Of all disks of a broker that are in use, together."""

    total_bytes: int
    free_bytes: int


@dataclass(frozen=True, slots=True)
class Goals:
    """`tolerance`: share of the mean by which a broker may differ. `max_disk`: share of a broker's disks that may be used.

    `mends`: separate replicas that share a rack, and relieve disks that are too full. `is_spread`: make the load even. Without both, only
    what has to leave a broker is moved.
    """

    tolerance: float = 0.10
    max_disk: float = 0.85
    mends: bool = True
    is_spread: bool = True


@dataclass(frozen=True, slots=True)
class BalanceView:
    """What is decided on.

    assignment: of every partition, what it has when its present move is over.
    racks: of every live broker.
    closed: live brokers that take no new replicas. leaving: broker (alive or not) -> why it should hold nothing.
    fixed: partitions that are left alone: they are being moved or removed, or have no leader.
    """

    assignment: Mapping[TopicPartition, Replicas]
    racks: Mapping[BrokerId, str | None]
    closed: frozenset[BrokerId] = frozenset()
    leaving: Mapping[BrokerId, str] = field(default_factory=dict)
    loads: Mapping[TopicPartition, PartitionLoad] = field(default_factory=dict)
    room: Mapping[BrokerId, DiskRoom] = field(default_factory=dict)
    fixed: frozenset[TopicPartition] = frozenset()


@dataclass(frozen=True, slots=True)
class BalanceMove:
    """`goal`: internal, drain, rack, disk, replicas, leaders, bytes or rate. `reason`: for people. `copied_bytes`: 0 if only the order changes."""

    partition: TopicPartition
    target: Replicas
    goal: str
    reason: str
    copied_bytes: int
