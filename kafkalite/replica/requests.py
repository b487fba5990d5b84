"""What the listener asks of the partitions of a node, and what they return: records, offsets, metadata. Plain values."""

from __future__ import annotations

from kafkalite.lazy_dataclass import dataclass
from kafkalite.model import NO_LEADER_EPOCH, NO_OFFSET, BrokerId, LeaderEpoch, Offset, ProducerId, TopicId
from kafkalite.rpc.messages.control import Broker


@dataclass(frozen=True, slots=True)
class ProducedPartition:
    topic: str
    partition: int
    error: int
    base_offset: Offset
    log_append_time_ms: int = -1
    log_start_offset: Offset = NO_OFFSET
    message: str = ""


@dataclass(frozen=True, slots=True)
class FetchPartition:
    topic: str
    partition: int
    fetch_offset: Offset
    max_bytes: int
    current_leader_epoch: LeaderEpoch = NO_LEADER_EPOCH


@dataclass(frozen=True, slots=True)
class FetchRequest:
    """Long poll by a consumer. `isolation` 0 reads up to the high watermark, 1 up to the last stable offset."""

    max_wait_ms: int
    min_bytes: int
    max_bytes: int
    partitions: tuple[FetchPartition, ...]
    isolation: int = 0


@dataclass(frozen=True, slots=True)
class AbortedTransaction:
    producer_id: ProducerId
    first_offset: Offset


@dataclass(frozen=True, slots=True)
class FetchedPartition:
    topic: str
    partition: int
    error: int
    high_watermark: Offset
    last_stable_offset: Offset
    log_start_offset: Offset
    records_size: int
    aborted: tuple[AbortedTransaction, ...] = ()


@dataclass(frozen=True, slots=True)
class ListOffsetsPartition:
    """`timestamp` ms since 1970, or LATEST_TIMESTAMP, EARLIEST_TIMESTAMP, MAX_TIMESTAMP."""

    topic: str
    partition: int
    timestamp: int
    current_leader_epoch: LeaderEpoch = NO_LEADER_EPOCH


@dataclass(frozen=True, slots=True)
class ListOffsetsRequest:
    partitions: tuple[ListOffsetsPartition, ...]
    isolation: int = 0


@dataclass(frozen=True, slots=True)
class ListedOffset:
    topic: str
    partition: int
    error: int
    timestamp: int
    offset: Offset
    leader_epoch: LeaderEpoch = NO_LEADER_EPOCH


@dataclass(frozen=True, slots=True)
class ListOffsetsResponse:
    partitions: tuple[ListedOffset, ...]


@dataclass(frozen=True, slots=True)
class PartitionMetadata:
    partition: int
    error: int
    leader: BrokerId
    leader_epoch: LeaderEpoch
    replicas: tuple[BrokerId, ...]
    isr: tuple[BrokerId, ...]
    #: Eligible leader replicas, and the last known ones (KIP-966).
    elr: tuple[BrokerId, ...] = ()
    last_known_elr: tuple[BrokerId, ...] = ()
    #: Of the replicas, those that a reassignment is adding (KIP-455).
    adding: tuple[BrokerId, ...] = ()


@dataclass(frozen=True, slots=True)
class TopicMetadata:
    topic: str
    error: int
    topic_id: TopicId
    partitions: tuple[PartitionMetadata, ...]


@dataclass(frozen=True, slots=True)
class MetadataResponse:
    cluster_id: str
    controller_id: BrokerId
    brokers: tuple[Broker, ...]
    topics: tuple[TopicMetadata, ...]
