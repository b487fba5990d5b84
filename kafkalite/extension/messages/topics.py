"""Topics and partitions: one request per verb of the command line."""

from __future__ import annotations

from kafkalite.lazy_dataclass import dataclass
from kafkalite.model import NO_OFFSET, NO_TOPIC_ID, BrokerEpoch, BrokerId, LeaderEpoch, Offset, PartitionEpoch, TopicId
from kafkalite.rpc.messages.base import Message, kind


@dataclass(frozen=True, slots=True)
class NewTopic:
    """Either counts (-1: the broker's default) or `assignment` (partition -> replicas). `placement` "shifted" or "mod"."""

    topic: str
    partitions: int = -1
    replication_factor: int = -1
    assignment: dict[int, tuple[BrokerId, ...]] | None = None
    placement: str = "shifted"
    configs: dict[str, str] | None = None


@dataclass(frozen=True, slots=True)
class CreateTopicsRequest(Message):
    """Any node accepts it, validates it and writes the znodes; the controller reacts to its watch."""

    topics: tuple[NewTopic, ...]
    timeout_ms: int = 30_000
    validate_only: bool = False


@dataclass(frozen=True, slots=True)
class TopicResult:
    topic: str
    error: int
    message: str = ""
    topic_id: TopicId = NO_TOPIC_ID
    partitions: int = -1
    replication_factor: int = -1


@dataclass(frozen=True, slots=True)
class CreateTopicsResponse(Message):
    topics: tuple[TopicResult, ...]


@dataclass(frozen=True, slots=True)
class DeleteTopicsRequest(Message):
    """`vanished`: also topics that have vanished from ZooKeeper and of which brokers keep replicas (`topic.vanished`)."""

    topics: tuple[str, ...]
    timeout_ms: int = 30_000
    vanished: bool = False


@dataclass(frozen=True, slots=True)
class DeleteTopicsResponse(Message):
    topics: tuple[TopicResult, ...]


@kind(44)
@dataclass(frozen=True, slots=True)
class DescribeReplicasRequest(Message):
    """What THIS node knows of the partitions it hosts (`admin describe --internal`). Empty: all.

    `partitions`, if there are any, narrows it down to those (an older node answers with all of `topics`).
    """

    topics: tuple[str, ...] = ()
    partitions: tuple[tuple[str, int], ...] = ()


@dataclass(frozen=True, slots=True)
class ReplicaProgress:
    """A follower as its leader sees it."""

    broker_id: BrokerId
    log_end_offset: Offset
    #: Milliseconds since it was last caught up; -1 never.
    caught_up_ms_ago: int


@dataclass(frozen=True, slots=True)
class ReplicaDescription:
    topic: str
    partition: int
    topic_id: TopicId
    is_leader: bool
    leader: BrokerId
    leader_epoch: LeaderEpoch
    isr: tuple[BrokerId, ...]
    replicas: tuple[BrokerId, ...]
    partition_epoch: PartitionEpoch
    high_watermark: Offset
    log_start_offset: Offset
    log_end_offset: Offset
    size_bytes: int
    directory: str
    followers: tuple[ReplicaProgress, ...] = ()
    error: int = 0
    #: Readers of committed transactions stop here; -1: unknown.
    last_stable_offset: Offset = NO_OFFSET
    #: The age of its earliest open transaction, as seen by this node; -1: none is open.
    open_transaction_ms: int = -1
    #: Eligible leader replicas, as this node knows.
    elr: tuple[BrokerId, ...] = ()
    #: Its log may lack committed records; it does not lead while a replica with them may come back.
    is_doubtful: bool = False
    #: It accepts no more records, because the partition is being drained (remove-partitions --drain).
    is_read_only: bool = False


@kind(45)
@dataclass(frozen=True, slots=True)
class DescribeReplicasResponse(Message):
    broker_id: BrokerId
    broker_epoch: BrokerEpoch
    replicas: tuple[ReplicaDescription, ...]


@dataclass(frozen=True, slots=True)
class NewPartitions:
    """Partitions until there are `count` of them; `assignment` has the replicas of each new one. None: they are placed."""

    topic: str
    count: int
    assignment: tuple[tuple[BrokerId, ...], ...] | None = None


@dataclass(frozen=True, slots=True)
class AddPartitionsRequest:
    """Add partitions to topics. `count` is the total number that is wanted, so the request can be repeated."""

    topics: tuple[NewPartitions, ...]
    timeout_ms: int = 30_000
    validate_only: bool = False


@dataclass(frozen=True, slots=True)
class AddPartitionsResponse:
    topics: tuple[TopicResult, ...]


@dataclass(frozen=True, slots=True)
class RemovePartitionsRequest(Message):
    """Remove the last partitions of a topic until `count` remain; with `drain` only when nothing is left in them.

    `before`: how many there are, as the sender knows. Then the request can be repeated, and partitions that have come since
    are not removed. -1: whatever there is.
    """

    topic: str
    count: int
    drain: bool = False
    timeout_ms: int = 30_000
    before: int = -1


@dataclass(frozen=True, slots=True)
class RemovePartitionsResponse(Message):
    """`is_done` False: the request is stored and goes on (records to drain, a dead replica to return)."""

    error: int
    message: str = ""
    partitions: tuple[int, ...] = ()
    is_done: bool = False
