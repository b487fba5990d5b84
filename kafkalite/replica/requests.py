"""What the listener asks of the partitions of a node, and what they return: offsets, metadata. Plain values."""

from __future__ import annotations

from kafkalite.env.fair_queue import Owner
from kafkalite.lazy_dataclass import dataclass
from kafkalite.model import NO_LEADER_EPOCH, BrokerId, LeaderEpoch
from kafkalite.partition_values import (
    ListedOffset,
    TopicMetadata,
)
from kafkalite.rpc.messages.control import Broker


@dataclass(frozen=True, slots=True)
class ListOffsetsPartition:
    """`timestamp` ms since 1970, or LATEST_TIMESTAMP, EARLIEST_TIMESTAMP, MAX_TIMESTAMP."""

    topic: str
    partition: int
    timestamp: int
    current_leader_epoch: LeaderEpoch = NO_LEADER_EPOCH


@dataclass(frozen=True, slots=True)
class ListOffsetsRequest:
    """`reader`: whose turn look-ups by timestamp take."""

    partitions: tuple[ListOffsetsPartition, ...]
    isolation: int = 0
    reader: Owner = ("", "")


@dataclass(frozen=True, slots=True)
class ListOffsetsResponse:
    partitions: tuple[ListedOffset, ...]


@dataclass(frozen=True, slots=True)
class MetadataResponse:
    cluster_id: str
    controller_id: BrokerId
    brokers: tuple[Broker, ...]
    topics: tuple[TopicMetadata, ...]
