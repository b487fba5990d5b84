"""What the clients' methods return. Plain values; no I/O."""

from __future__ import annotations

from kafkalite.lazy_dataclass import dataclass
from kafkalite.model import (
    NO_LEADER_EPOCH,
    NO_OFFSET,
    BrokerId,
    Endpoint,
    LeaderEpoch,
    Offset,
    ProducerId,
    TopicId,
)


@dataclass(frozen=True, slots=True)
class Broker:
    """A live broker, and where its listener is that we may use."""

    broker_id: BrokerId
    host: str
    port: int
    rack: str | None = None

    @property
    def endpoint(self) -> Endpoint:
        return Endpoint(self.host, self.port)


@dataclass(frozen=True, slots=True)
class PartitionMetadata:
    """`elr`, `last_known_elr` (KIP-966) and `adding` (KIP-455): only `describe_topics` fills them."""

    partition: int
    error: int
    leader: BrokerId
    leader_epoch: LeaderEpoch
    replicas: tuple[BrokerId, ...]
    isr: tuple[BrokerId, ...]
    elr: tuple[BrokerId, ...] = ()
    last_known_elr: tuple[BrokerId, ...] = ()
    adding: tuple[BrokerId, ...] = ()


@dataclass(frozen=True, slots=True)
class TopicMetadata:
    topic: str
    error: int
    topic_id: TopicId
    partitions: tuple[PartitionMetadata, ...]


@dataclass(frozen=True, slots=True)
class Metadata:
    """The cluster as one broker sees it."""

    cluster_id: str
    controller_id: BrokerId
    brokers: tuple[Broker, ...]
    topics: tuple[TopicMetadata, ...]


@dataclass(frozen=True, slots=True)
class ListedOffset:
    """`timestamp` (ms) -1: none was asked for. `offset` -1: no record is that late."""

    topic: str
    partition: int
    error: int
    timestamp: int
    offset: Offset
    leader_epoch: LeaderEpoch = NO_LEADER_EPOCH


@dataclass(frozen=True, slots=True)
class AbortedTransaction:
    producer_id: ProducerId
    first_offset: Offset


@dataclass(frozen=True, slots=True)
class FetchedPartition:
    """`aborted`: of transactions that reach into the records (isolation 1)."""

    topic: str
    partition: int
    error: int
    high_watermark: Offset
    last_stable_offset: Offset
    log_start_offset: Offset
    records_size: int
    aborted: tuple[AbortedTransaction, ...] = ()


@dataclass(frozen=True, slots=True)
class ProducedPartition:
    """`base_offset` -1: not known. `log_append_time_ms` -1: records keep their own timestamps."""

    topic: str
    partition: int
    error: int
    base_offset: Offset
    log_append_time_ms: int = -1
    log_start_offset: Offset = NO_OFFSET
    message: str = ""
