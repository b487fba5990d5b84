"""What is known of partitions, and what they return: records, offsets, leaders. Plain values of clients and nodes alike."""

from __future__ import annotations

from collections.abc import Callable
from functools import partial
from typing import NamedTuple

from kafkalite.lazy_dataclass import dataclass
from kafkalite.model import NO_LEADER, NO_LEADER_EPOCH, NO_OFFSET, BrokerId, LeaderEpoch, Offset, ProducerId, TopicId


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
    #: The replica from which the consumer should read instead (KIP-392); NO_LEADER: here.
    preferred: BrokerId = NO_LEADER


@dataclass(frozen=True, slots=True)
class ListedOffset:
    """`timestamp` (ms) -1: none was asked for. `offset` -1: no record is that late."""

    topic: str
    partition: int
    error: int
    timestamp: int
    offset: Offset
    leader_epoch: LeaderEpoch = NO_LEADER_EPOCH


class ProducedPartition(NamedTuple):
    """`base_offset` -1: not known. `log_append_time_ms` -1: records keep their own timestamps."""

    topic: str
    partition: int
    error: int
    base_offset: Offset
    log_append_time_ms: int = -1
    log_start_offset: Offset = NO_OFFSET
    message: str = ""
    #: Records that are wrong: (number within the batch, why). Empty with an error: the whole batch is.
    record_errors: tuple[tuple[int, str], ...] = ()


#: From all fields, in order; without the call of Python code that `ProducedPartition(...)` is.
new_produced: Callable[[tuple[object, ...]], ProducedPartition] = partial(tuple.__new__, ProducedPartition)


class CurrentLeader(NamedTuple):
    """The leader of a partition, and its address on the listener that the client uses (KIP-951)."""

    broker_id: BrokerId
    leader_epoch: LeaderEpoch
    host: str
    port: int
    rack: str | None


@dataclass(frozen=True, slots=True)
class PartitionMetadata:
    """A client has `elr`, `last_known_elr` and `adding` from `describe_topics` only."""

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
