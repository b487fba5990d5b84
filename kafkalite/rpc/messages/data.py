"""Clients' records: produce, fetch, offsets, metadata."""

from __future__ import annotations

from kafkalite.lazy_dataclass import dataclass
from kafkalite.model import NO_LEADER_EPOCH, NO_OFFSET, BrokerId, LeaderEpoch, Offset, ProducerId, TopicId
from kafkalite.rpc.messages.base import Message, kind
from kafkalite.rpc.messages.control import Broker


@dataclass(frozen=True, slots=True)
class ProducePartition:
    topic: str
    partition: int
    records_size: int


@kind(30)
@dataclass(frozen=True, slots=True)
class ProduceRequest(Message):
    """Body: one or more RecordBatch v2 per partition. `acks` 0 (no response is sent), 1 or -1."""

    acks: int
    timeout_ms: int
    partitions: tuple[ProducePartition, ...]
    transactional_id: str | None = None


@dataclass(frozen=True, slots=True)
class ProducedPartition:
    topic: str
    partition: int
    error: int
    base_offset: Offset
    log_append_time_ms: int = -1
    log_start_offset: Offset = NO_OFFSET
    message: str = ""


@kind(31)
@dataclass(frozen=True, slots=True)
class ProduceResponse(Message):
    """`throttle_ms`: a quota is exceeded; nothing more is read from the connection for this time."""

    partitions: tuple[ProducedPartition, ...]
    throttle_ms: int = 0


@dataclass(frozen=True, slots=True)
class FetchPartition:
    topic: str
    partition: int
    fetch_offset: Offset
    max_bytes: int
    current_leader_epoch: LeaderEpoch = NO_LEADER_EPOCH


@kind(32)
@dataclass(frozen=True, slots=True)
class FetchRequest(Message):
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


@kind(33)
@dataclass(frozen=True, slots=True)
class FetchResponse(Message):
    """Body: record batches. The first batch may begin below `fetch_offset`. `throttle_ms` as for ProduceResponse."""

    partitions: tuple[FetchedPartition, ...]
    throttle_ms: int = 0


@dataclass(frozen=True, slots=True)
class ListOffsetsPartition:
    """`timestamp` ms since 1970, or LATEST_TIMESTAMP, EARLIEST_TIMESTAMP, MAX_TIMESTAMP."""

    topic: str
    partition: int
    timestamp: int
    current_leader_epoch: LeaderEpoch = NO_LEADER_EPOCH


@kind(34)
@dataclass(frozen=True, slots=True)
class ListOffsetsRequest(Message):
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


@kind(35)
@dataclass(frozen=True, slots=True)
class ListOffsetsResponse(Message):
    partitions: tuple[ListedOffset, ...]


@kind(36)
@dataclass(frozen=True, slots=True)
class MetadataRequest(Message):
    """`topics` None asks for all."""

    topics: tuple[str, ...] | None
    allow_auto_create: bool = False


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


@kind(37)
@dataclass(frozen=True, slots=True)
class MetadataResponse(Message):
    cluster_id: str
    controller_id: BrokerId
    brokers: tuple[Broker, ...]
    topics: tuple[TopicMetadata, ...]


@kind(38)
@dataclass(frozen=True, slots=True)
class InitProducerIdRequest(Message):
    transactional_id: str | None = None
    transaction_timeout_ms: int = 60_000
    producer_id: ProducerId = ProducerId(-1)
    producer_epoch: int = -1
    #: For a transaction of a group: the decision that is to commit it.
    group_owner: str = ""
    group_version: int = -1


@kind(39)
@dataclass(frozen=True, slots=True)
class InitProducerIdResponse(Message):
    """`is_decided`: the group has that decision already, no producer was made (id -1): write nothing."""

    error: int
    producer_id: ProducerId
    producer_epoch: int
    is_decided: bool = False
    message: str = ""
