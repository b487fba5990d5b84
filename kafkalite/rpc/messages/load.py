"""What a node reports to the controller's balancer."""

from __future__ import annotations

from kafkalite.lazy_dataclass import dataclass
from kafkalite.model import BrokerEpoch, BrokerId
from kafkalite.rpc.messages.base import Message, kind


@kind(130)
@dataclass(frozen=True, slots=True)
class LoadRequest(Message):
    """The load of THIS node: its disks, and the partitions that it leads."""


@dataclass(frozen=True, slots=True)
class LedPartition:
    """`size_bytes` of the leader's log. Counters since the replica was opened: bytes that were appended, and bytes that consumers have
    fetched; a smaller value than before means that it was opened again."""

    topic: str
    partition: int
    size_bytes: int
    appended_bytes: int
    fetched_bytes: int


@kind(131)
@dataclass(frozen=True, slots=True)
class LoadResponse(Message):
    """`total_bytes`, `free_bytes` of the disks in use together; -1 if unknown."""

    broker_id: BrokerId
    broker_epoch: BrokerEpoch
    total_bytes: int
    free_bytes: int
    led: tuple[LedPartition, ...] = ()
