"""What nodes and native clients say to each other.

Each message is a frozen dataclass, packed by msgpack as an array of its fields in order (nested ones
likewise). Evolution is append-only: a new field goes to the end and has a default; a reader fills fields
that an older peer did not send and ignores those that it does not know. Kinds are never reused; a request
has an even kind, its response the next odd one.

Record bytes are not in the messages: they travel in the frame's body, in the order of the partitions, and
each partition entry tells how many of the body's bytes are its own (`records_size`).

Deadlines are in milliseconds from receipt. Error codes are Kafka's (`kafkalite.errors.ErrorCode`).
"""

from __future__ import annotations

from collections.abc import Callable
from dataclasses import dataclass, field
from typing import ClassVar, TypeVar

from kafkalite.model import (
    NO_BROKER_EPOCH,
    NO_LEADER_EPOCH,
    NO_OFFSET,
    NO_TOPIC_ID,
    BrokerEpoch,
    BrokerId,
    ControllerEpoch,
    LeaderEpoch,
    Offset,
    PartitionEpoch,
    ProducerId,
    TopicId,
)

#: Highest message version this software speaks; negotiated by Hello as the lower of the two sides.
PROTOCOL_VERSION = 1
MIN_PROTOCOL_VERSION = 1


class Message:
    """Base of all messages that stand alone in a frame."""

    __slots__ = ()
    kind: ClassVar[int]


M = TypeVar("M", bound=type[Message])
by_kind: dict[int, type[Message]] = {}


def _kind(number: int) -> Callable[[M], M]:
    def register(cls: M) -> M:
        owner = by_kind.setdefault(number, cls)
        assert owner is cls, f"{cls.__name__} reuses kind {number} of {owner.__name__}"
        cls.kind = number
        return cls

    return register


def response_kind(request: type[Message]) -> int:
    """The kind of the answer to a request."""
    return request.kind + 1


# --- every connection ----------------------------------------------------------------------------


@_kind(1)
@dataclass(frozen=True, slots=True)
class ErrorResponse(Message):
    """Answers any request that could not be handled as a whole (unknown kind, no permission, a bug)."""

    error: int
    message: str = ""


@_kind(2)
@dataclass(frozen=True, slots=True)
class HelloRequest(Message):
    """The first frame on a connection. `node_id` -1 is a client; a client may leave `cluster_id` empty."""

    cluster_id: str
    node_id: BrokerId
    broker_epoch: BrokerEpoch
    min_version: int = MIN_PROTOCOL_VERSION
    max_version: int = PROTOCOL_VERSION
    client_id: str = ""


@_kind(3)
@dataclass(frozen=True, slots=True)
class HelloResponse(Message):
    """`error` INCONSISTENT_CLUSTER_ID or UNSUPPORTED_VERSION: the server closes the connection after it."""

    error: int
    message: str
    cluster_id: str
    node_id: BrokerId
    broker_epoch: BrokerEpoch
    version: int = PROTOCOL_VERSION


@_kind(4)
@dataclass(frozen=True, slots=True)
class SaslAuthenticateRequest(Message):
    """Before the hello, where the listener asks for it: the next message of a SASL exchange (RFC 4616, RFC 5802).

    `mechanism` must be the same throughout.
    """

    mechanism: str
    data: str = field(repr=False)


@_kind(5)
@dataclass(frozen=True, slots=True)
class SaslAuthenticateResponse(Message):
    """The server's next message. After an `error` the server closes the connection; once `is_complete`, say hello."""

    error: int
    message: str
    data: str = field(repr=False)
    is_complete: bool = False


# --- controller -> broker ------------------------------------------------------------------------


@dataclass(frozen=True, slots=True)
class Broker:
    """A live broker."""

    broker_id: BrokerId
    broker_epoch: BrokerEpoch
    kafka_host: str
    kafka_port: int
    rpc_host: str
    rpc_port: int
    rack: str | None = None


@dataclass(frozen=True, slots=True)
class PartitionState:
    """One partition's state and assignment. `replicas` is the AR in order, the preferred leader first."""

    topic: str
    partition: int
    topic_id: TopicId
    controller_epoch: ControllerEpoch
    leader: BrokerId
    leader_epoch: LeaderEpoch
    isr: tuple[BrokerId, ...]
    partition_epoch: PartitionEpoch
    replicas: tuple[BrokerId, ...]
    adding_replicas: tuple[BrokerId, ...] = ()
    removing_replicas: tuple[BrokerId, ...] = ()
    is_new: bool = False
    #: Bytes/s that the leader gives to replicas which a reassignment adds and which are not in sync yet; 0: no limit.
    throttle: int = 0
    #: The partition is about to be removed: the leader takes no more records.
    is_read_only: bool = False


@dataclass(frozen=True, slots=True)
class PartitionError:
    topic: str
    partition: int
    error: int


@_kind(10)
@dataclass(frozen=True, slots=True)
class LeaderAndIsrRequest(Message):
    """Become leader or follower of these partitions (V3 section C).

    `broker_epoch` is the receiver's, as the controller knows it: another one means the command is for an
    earlier life of the broker (F5). `is_init`: this is everything the broker should host; local replicas
    that are not named are stray (F19).
    """

    controller_id: BrokerId
    controller_epoch: ControllerEpoch
    broker_epoch: BrokerEpoch
    is_init: bool
    partitions: tuple[PartitionState, ...]
    brokers: tuple[Broker, ...]
    ack_timeout_ms: int = 30_000
    cause: str = ""


@_kind(11)
@dataclass(frozen=True, slots=True)
class LeaderAndIsrResponse(Message):
    """`error` is for the whole (STALE_CONTROLLER_EPOCH, STALE_BROKER_EPOCH); `partitions` lists refusals only."""

    error: int
    partitions: tuple[PartitionError, ...] = ()


@dataclass(frozen=True, slots=True)
class StopPartition:
    topic: str
    partition: int
    topic_id: TopicId
    #: Commands older than the replica's leader epoch are refused; -2 (deletion of the topic) passes always.
    leader_epoch: LeaderEpoch
    delete_files: bool


@_kind(12)
@dataclass(frozen=True, slots=True)
class StopReplicaRequest(Message):
    """Stop hosting these partitions, deleting their files or not."""

    controller_id: BrokerId
    controller_epoch: ControllerEpoch
    broker_epoch: BrokerEpoch
    partitions: tuple[StopPartition, ...]
    ack_timeout_ms: int = 30_000
    cause: str = ""


@_kind(13)
@dataclass(frozen=True, slots=True)
class StopReplicaResponse(Message):
    error: int
    partitions: tuple[PartitionError, ...] = ()


@_kind(14)
@dataclass(frozen=True, slots=True)
class UpdateMetadataRequest(Message):
    """What clients may be told. `brokers` is always complete; `partitions` are changes, or all if `is_full`."""

    controller_id: BrokerId
    controller_epoch: ControllerEpoch
    broker_epoch: BrokerEpoch
    is_full: bool
    brokers: tuple[Broker, ...]
    partitions: tuple[PartitionState, ...]
    deleted_topics: tuple[str, ...] = ()
    cause: str = ""
    deleted_partitions: tuple[tuple[str, int], ...] = ()


@_kind(15)
@dataclass(frozen=True, slots=True)
class UpdateMetadataResponse(Message):
    error: int


# --- broker -> controller ------------------------------------------------------------------------


@dataclass(frozen=True, slots=True)
class IsrChange:
    topic: str
    partition: int
    leader_epoch: LeaderEpoch
    isr: tuple[BrokerId, ...]
    partition_epoch: PartitionEpoch
    #: The partition is read-only, and nothing is left in it.
    is_drained: bool = False


@_kind(16)
@dataclass(frozen=True, slots=True)
class IsrChangedRequest(Message):
    """The leader HAS changed these ISRs in ZooKeeper (F7): one notice for many partitions."""

    broker_id: BrokerId
    broker_epoch: BrokerEpoch
    partitions: tuple[IsrChange, ...]


@_kind(17)
@dataclass(frozen=True, slots=True)
class IsrChangedResponse(Message):
    error: int


@_kind(18)
@dataclass(frozen=True, slots=True)
class ControlledShutdownRequest(Message):
    """Move leadership off me; asked again until nothing remains or the broker's patience ends."""

    broker_id: BrokerId
    broker_epoch: BrokerEpoch


@_kind(19)
@dataclass(frozen=True, slots=True)
class ControlledShutdownResponse(Message):
    error: int
    remaining: tuple[PartitionError, ...] = ()


# --- replication ---------------------------------------------------------------------------------


@dataclass(frozen=True, slots=True)
class ReplicaFetchPartition:
    """`fetch_offset` is the follower's LEO: everything below it is in its log (and synced, if flush=ack)."""

    topic: str
    partition: int
    topic_id: TopicId
    leader_epoch: LeaderEpoch
    fetch_offset: Offset
    #: Epoch of the follower's last batch, -1 for an empty log: the leader answers where the logs part (F1, F2).
    last_fetched_epoch: LeaderEpoch
    log_start_offset: Offset
    max_bytes: int


@_kind(20)
@dataclass(frozen=True, slots=True)
class ReplicaFetchRequest(Message):
    """Follower -> leader, long poll. Incremental sessions (KIP-227): within a session only partitions whose
    entry changed since the last request are sent. `session_id` 0 with `session_epoch` 0 opens one; epoch is
    the last one plus 1 for each further request."""

    replica_id: BrokerId
    broker_epoch: BrokerEpoch
    max_wait_ms: int
    min_bytes: int
    max_bytes: int
    session_id: int
    session_epoch: int
    partitions: tuple[ReplicaFetchPartition, ...]
    forgotten: tuple[tuple[str, int], ...] = ()


@dataclass(frozen=True, slots=True)
class ReplicaFetchedPartition:
    topic: str
    partition: int
    error: int
    high_watermark: Offset
    log_start_offset: Offset
    records_size: int
    #: Set when the logs part: truncate to min(own end of `diverging_epoch`, `diverging_end_offset`), ask again.
    diverging_epoch: LeaderEpoch = NO_LEADER_EPOCH
    diverging_end_offset: Offset = NO_OFFSET


@_kind(21)
@dataclass(frozen=True, slots=True)
class ReplicaFetchResponse(Message):
    """Body: record batches. Within a session, partitions with nothing new are left out."""

    error: int
    session_id: int
    partitions: tuple[ReplicaFetchedPartition, ...]


@_kind(22)
@dataclass(frozen=True, slots=True)
class ReplicaFetchWake(Message):
    """Follower -> leader, one way: answer the fetch that waits in this session now; the next one brings changes.

    So a partition that is added while the follower is in a long poll does not wait for the poll's end.
    """

    session_id: int


# --- client data ---------------------------------------------------------------------------------


@dataclass(frozen=True, slots=True)
class ProducePartition:
    topic: str
    partition: int
    records_size: int


@_kind(30)
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


@_kind(31)
@dataclass(frozen=True, slots=True)
class ProduceResponse(Message):
    """`throttle_ms`: a quota is exceeded; nothing more is read from the connection for so long."""

    partitions: tuple[ProducedPartition, ...]
    throttle_ms: int = 0


@dataclass(frozen=True, slots=True)
class FetchPartition:
    topic: str
    partition: int
    fetch_offset: Offset
    max_bytes: int
    current_leader_epoch: LeaderEpoch = NO_LEADER_EPOCH


@_kind(32)
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


@_kind(33)
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


@_kind(34)
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


@_kind(35)
@dataclass(frozen=True, slots=True)
class ListOffsetsResponse(Message):
    partitions: tuple[ListedOffset, ...]


@_kind(36)
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


@dataclass(frozen=True, slots=True)
class TopicMetadata:
    topic: str
    error: int
    topic_id: TopicId
    partitions: tuple[PartitionMetadata, ...]


@_kind(37)
@dataclass(frozen=True, slots=True)
class MetadataResponse(Message):
    cluster_id: str
    controller_id: BrokerId
    brokers: tuple[Broker, ...]
    topics: tuple[TopicMetadata, ...]


@_kind(38)
@dataclass(frozen=True, slots=True)
class InitProducerIdRequest(Message):
    transactional_id: str | None = None
    transaction_timeout_ms: int = 60_000
    producer_id: ProducerId = ProducerId(-1)
    producer_epoch: int = -1
    #: For a transaction of a group: the decision that is to commit it.
    group_owner: str = ""
    group_version: int = -1


@_kind(39)
@dataclass(frozen=True, slots=True)
class InitProducerIdResponse(Message):
    """`is_decided`: the group has that decision already, no producer was made (id -1): write nothing."""

    error: int
    producer_id: ProducerId
    producer_epoch: int
    is_decided: bool = False
    message: str = ""


# --- transactions, asked of their coordinator (NOT_COORDINATOR: find it again) -------------------


@_kind(70)
@dataclass(frozen=True, slots=True)
class FindCoordinatorRequest(Message):
    """Which node coordinates a transactional id, a transaction group or a consumer group; any node answers."""

    key: str
    is_consumer_group: bool = False


@_kind(71)
@dataclass(frozen=True, slots=True)
class FindCoordinatorResponse(Message):
    error: int
    node_id: BrokerId = BrokerId(-1)
    message: str = ""


@_kind(72)
@dataclass(frozen=True, slots=True)
class AddPartitionsToTxnRequest(Message):
    """Before the first records for these (topic, partition) in a transaction. All or nothing; safe to repeat."""

    transactional_id: str
    producer_id: ProducerId
    producer_epoch: int
    partitions: tuple[tuple[str, int], ...]


@_kind(73)
@dataclass(frozen=True, slots=True)
class AddPartitionsToTxnResponse(Message):
    error: int
    message: str = ""


@dataclass(frozen=True, slots=True)
class TransactionMember:
    """A transaction of a group, under the producer that has opened it."""

    transactional_id: str
    producer_id: ProducerId
    producer_epoch: int


@_kind(74)
@dataclass(frozen=True, slots=True)
class EndTxnGroupRequest(Message):
    """Decide a version of a group: commit exactly `members`, all or none, and abort what else the group has open.

    Repeated, or asked for a version that is decided, it commits nothing more; those of `members` that are still open
    are aborted. Without `is_commit`: abort `members` where they are open and not decided.
    `wait_ms`: how long to wait until readers see the outcome; the answer comes at the latest then.
    """

    group: str
    owner: str
    version: int
    members: tuple[TransactionMember, ...]
    is_commit: bool
    wait_ms: int = 0


@_kind(75)
@dataclass(frozen=True, slots=True)
class EndTxnGroupResponse(Message):
    """`was_decided`: by an earlier request. `is_complete`: every partition has its end-of-transaction marker."""

    error: int
    was_decided: bool = False
    is_complete: bool = False
    message: str = ""


# --- admin: one per verb of the command line -----------------------------------------------------


@dataclass(frozen=True, slots=True)
class NewTopic:
    """Either counts (-1: the broker's default) or `assignment` (partition -> replicas). `placement` "shifted" or "mod"."""

    topic: str
    partitions: int = -1
    replication_factor: int = -1
    assignment: dict[int, tuple[BrokerId, ...]] | None = None
    placement: str = "shifted"
    configs: dict[str, str] | None = None


@_kind(40)
@dataclass(frozen=True, slots=True)
class CreateTopicsRequest(Message):
    """Any node takes it, validates it and writes the znodes; the controller reacts to its watch."""

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


@_kind(41)
@dataclass(frozen=True, slots=True)
class CreateTopicsResponse(Message):
    topics: tuple[TopicResult, ...]


@_kind(42)
@dataclass(frozen=True, slots=True)
class DeleteTopicsRequest(Message):
    topics: tuple[str, ...]
    timeout_ms: int = 30_000


@_kind(43)
@dataclass(frozen=True, slots=True)
class DeleteTopicsResponse(Message):
    topics: tuple[TopicResult, ...]


@_kind(44)
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


@_kind(45)
@dataclass(frozen=True, slots=True)
class DescribeReplicasResponse(Message):
    broker_id: BrokerId
    broker_epoch: BrokerEpoch
    replicas: tuple[ReplicaDescription, ...]


@_kind(80)
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


@_kind(81)
@dataclass(frozen=True, slots=True)
class DescribeDisksResponse(Message):
    """`moves`: those under way first, then those that are over, oldest first."""

    broker_id: BrokerId
    disks: tuple[DiskDescription, ...]
    moves: tuple[DiskMove, ...] = ()


@dataclass(frozen=True, slots=True)
class DiskMoveOrder:
    """`throttle` in bytes per second; 0: what the node's configuration says."""

    topic: str
    partition: int
    directory: str
    throttle: int = 0


@_kind(84)
@dataclass(frozen=True, slots=True)
class MoveReplicasRequest(Message):
    """Move replicas of THIS node to other log directories of it (`admin disk move`, Kafka's AlterReplicaLogDirs)."""

    moves: tuple[DiskMoveOrder, ...]


@dataclass(frozen=True, slots=True)
class DiskMoveResult:
    topic: str
    partition: int
    error: int
    message: str = ""


@_kind(85)
@dataclass(frozen=True, slots=True)
class MoveReplicasResponse(Message):
    """One result for each order, in their order. No error: the move is under way, or the replica is there."""

    results: tuple[DiskMoveResult, ...]


@_kind(82)
@dataclass(frozen=True, slots=True)
class DiskOnlineRequest(Message):
    """Take a log directory of THIS node into service again, after a swap or a repair (`admin disk online`)."""

    path: str


@_kind(83)
@dataclass(frozen=True, slots=True)
class DiskOnlineResponse(Message):
    """`logs`: how many partitions were found in it."""

    error: int
    message: str = ""
    logs: int = 0


@_kind(86)
@dataclass(frozen=True, slots=True)
class CommittedOffsetsRequest(Message):
    """What have the consumer groups that THIS node coordinates committed for these partitions (topic, number)?"""

    partitions: tuple[tuple[str, int], ...]


@dataclass(frozen=True, slots=True)
class GroupsOffset:
    """`lowest` of the offsets that `groups` groups have committed; unstable while a transaction may change one."""

    topic: str
    partition: int
    lowest: int
    groups: int
    is_unstable: bool = False


@_kind(87)
@dataclass(frozen=True, slots=True)
class CommittedOffsetsResponse(Message):
    """`coordinated`: the partitions of __consumer_offsets whose groups are all known here now."""

    coordinated: tuple[int, ...]
    offsets: tuple[GroupsOffset, ...]


@_kind(46)
@dataclass(frozen=True, slots=True)
class DescribeClusterRequest(Message):
    pass


@_kind(47)
@dataclass(frozen=True, slots=True)
class DescribeClusterResponse(Message):
    cluster_id: str
    controller_id: BrokerId
    controller_epoch: ControllerEpoch
    brokers: tuple[Broker, ...]


@_kind(48)
@dataclass(frozen=True, slots=True)
class HealthRequest(Message):
    pass


@dataclass(frozen=True, slots=True)
class HealthProblem:
    """One thing that is wrong. `since_ms` wall time; `what` a stable word such as partition.offline; `detail` for people.

    `count`: for how many like it this one stands.
    """

    what: str
    since_ms: int
    detail: str
    subject: str = ""
    count: int = 1


@_kind(49)
@dataclass(frozen=True, slots=True)
class HealthResponse(Message):
    """Problems that this node can see; ask every node for the whole picture."""

    broker_id: BrokerId
    problems: tuple[HealthProblem, ...]


@dataclass(frozen=True, slots=True)
class NewPartitions:
    """Partitions until there are `count` of them; `assignment` has the replicas of each new one, or is empty."""

    topic: str
    count: int
    assignment: tuple[tuple[BrokerId, ...], ...] = ()


@_kind(50)
@dataclass(frozen=True, slots=True)
class AddPartitionsRequest(Message):
    """Add partitions to topics; safe to repeat, because `count` is what there is to be in the end."""

    topics: tuple[NewPartitions, ...]
    timeout_ms: int = 30_000
    validate_only: bool = False


@_kind(51)
@dataclass(frozen=True, slots=True)
class AddPartitionsResponse(Message):
    topics: tuple[TopicResult, ...]


@_kind(52)
@dataclass(frozen=True, slots=True)
class RemovePartitionsRequest(Message):
    """Remove the last partitions of a topic until `count` remain; with `drain` only when nothing is left in them."""

    topic: str
    count: int
    drain: bool = False
    timeout_ms: int = 30_000


@_kind(53)
@dataclass(frozen=True, slots=True)
class RemovePartitionsResponse(Message):
    """`is_done` False: the order stands and goes on (records to drain, a dead replica to return)."""

    error: int
    message: str = ""
    partitions: tuple[int, ...] = ()
    is_done: bool = False


@dataclass(frozen=True, slots=True)
class WantedReassignment:
    """`replicas` None calls the partition's reassignment off. `throttle` in bytes/s, 0 none."""

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


@_kind(54)
@dataclass(frozen=True, slots=True)
class AlterReassignmentsRequest(Message):
    """Order, replace or call off reassignments.

    `is_atomic`: one bad partition, and nothing is ordered. Not `may_replace`: a partition that is being reassigned is
    refused.
    """

    partitions: tuple[WantedReassignment, ...]
    timeout_ms: int = 30_000
    allow_replication_factor_change: bool = True
    is_atomic: bool = False
    may_replace: bool = True
    #: Replicas at once per partition, partitions under way, leaders that move; 0 none. They hold beside the cluster's own
    #: limits until the order is done, and replace those of an order that is under way.
    limits: tuple[int, int, int] = (0, 0, 0)


@_kind(55)
@dataclass(frozen=True, slots=True)
class AlterReassignmentsResponse(Message):
    error: int
    message: str = ""
    partitions: tuple[PartitionResult, ...] = ()


@_kind(56)
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


@_kind(57)
@dataclass(frozen=True, slots=True)
class ListReassignmentsResponse(Message):
    """The whole plan; entries with a `step` or `dropping` are the current batch."""

    error: int
    message: str = ""
    reassignments: tuple[Reassignment, ...] = ()


@_kind(58)
@dataclass(frozen=True, slots=True)
class ElectLeadersRequest(Message):
    """Preferred leaders, or with `unclean` whoever is alive where nobody in sync is. None: all partitions that need it."""

    partitions: tuple[tuple[str, int], ...] | None
    unclean: bool = False
    timeout_ms: int = 30_000


@_kind(59)
@dataclass(frozen=True, slots=True)
class ElectLeadersResponse(Message):
    """With all partitions asked for, those that needed no election are left out."""

    error: int
    message: str = ""
    partitions: tuple[PartitionResult, ...] = ()


@_kind(60)
@dataclass(frozen=True, slots=True)
class DescribeConfigsRequest(Message):
    """The dynamic settings of a topic ("topics", name), a broker ("brokers", id) or the cluster ("brokers", "<default>")."""

    entity_type: str
    entity_name: str


@_kind(61)
@dataclass(frozen=True, slots=True)
class DescribeConfigsResponse(Message):
    """`settings` are the entity's own; `effective` all that hold for it, as text."""

    error: int
    message: str = ""
    settings: dict[str, str] | None = None
    effective: dict[str, str] | None = None


@_kind(62)
@dataclass(frozen=True, slots=True)
class AlterConfigsRequest(Message):
    entity_type: str
    entity_name: str
    changes: dict[str, str]
    deletions: tuple[str, ...] = ()


@_kind(63)
@dataclass(frozen=True, slots=True)
class AlterConfigsResponse(Message):
    """`settings`: the entity's own afterwards."""

    error: int
    message: str = ""
    settings: dict[str, str] | None = None


# --- liveness --------------------------------------------------------------------------------------


@_kind(64)
@dataclass(frozen=True, slots=True)
class HeartbeatRequest(Message):
    """Are you there? Asked by the controller of brokers, and by brokers of the controller."""


@_kind(65)
@dataclass(frozen=True, slots=True)
class HeartbeatResponse(Message):
    pass


# --- security ---------------------------------------------------------------------------------------


@dataclass(frozen=True, slots=True)
class AclBinding:
    """One entry of one pattern; numbers are Kafka's (ResourceType, PatternType, AclOperation, AclPermissionType)."""

    resource_type: int
    name: str
    pattern_type: int
    principal: str
    host: str
    operation: int
    permission: int


@dataclass(frozen=True, slots=True)
class AclFilter:
    """None and ANY (1) match whatever; pattern type MATCH (2) asks for the patterns that cover a resource `name`."""

    resource_type: int = 1
    name: str | None = None
    pattern_type: int = 1
    principal: str | None = None
    host: str | None = None
    operation: int = 1
    permission: int = 1


@_kind(140)
@dataclass(frozen=True, slots=True)
class DescribeAclsRequest(Message):
    filter: AclFilter


@_kind(141)
@dataclass(frozen=True, slots=True)
class DescribeAclsResponse(Message):
    error: int
    message: str = ""
    acls: tuple[AclBinding, ...] = ()


@_kind(142)
@dataclass(frozen=True, slots=True)
class AlterAclsRequest(Message):
    """Add these, or remove what the filters match (first). Safe to repeat."""

    additions: tuple[AclBinding, ...] = ()
    removals: tuple[AclFilter, ...] = ()


@_kind(143)
@dataclass(frozen=True, slots=True)
class AlterAclsResponse(Message):
    """`error` is the first there was; `removed` what the filters have removed."""

    error: int
    message: str = ""
    removed: tuple[AclBinding, ...] = ()


@dataclass(frozen=True, slots=True)
class QuotaEntity:
    """A user, a client id, or a user's client. None: whatever; "": those who have no limit of their own."""

    user: str | None = None
    client_id: str | None = None


@dataclass(frozen=True, slots=True)
class QuotaEntry:
    """`limits`: producer_byte_rate, consumer_byte_rate (bytes/s), request_percentage (of one core), each as text."""

    entity: QuotaEntity
    limits: dict[str, str]


@_kind(144)
@dataclass(frozen=True, slots=True)
class DescribeQuotasRequest(Message):
    """Everything that is set."""


@_kind(145)
@dataclass(frozen=True, slots=True)
class DescribeQuotasResponse(Message):
    error: int
    message: str = ""
    entries: tuple[QuotaEntry, ...] = ()


@_kind(146)
@dataclass(frozen=True, slots=True)
class AlterQuotasRequest(Message):
    entity: QuotaEntity
    limits: dict[str, str]
    deletions: tuple[str, ...] = ()


@_kind(147)
@dataclass(frozen=True, slots=True)
class AlterQuotasResponse(Message):
    error: int
    message: str = ""


# --- consumer groups -------------------------------------------------------------------------------


@_kind(124)
@dataclass(frozen=True, slots=True)
class ListGroupsRequest(Message):
    """The consumer groups that THIS node coordinates."""


@dataclass(frozen=True, slots=True)
class ListedGroup:
    group: str
    state: str
    protocol_type: str
    members: int


@_kind(125)
@dataclass(frozen=True, slots=True)
class ListGroupsResponse(Message):
    error: int
    message: str = ""
    groups: tuple[ListedGroup, ...] = ()


@_kind(126)
@dataclass(frozen=True, slots=True)
class DescribeGroupRequest(Message):
    """One group, of the node that coordinates it."""

    group: str


@dataclass(frozen=True, slots=True)
class GroupMember:
    """`partitions`: what it is assigned, if the group's protocol is that of consumers."""

    member_id: str
    instance_id: str
    client_id: str
    client_host: str
    partitions: tuple[tuple[str, int], ...] = ()


@dataclass(frozen=True, slots=True)
class GroupOffset:
    """`offset`: the next record to read."""

    topic: str
    partition: int
    offset: Offset
    leader_epoch: int = -1
    metadata: str = ""
    commit_ms: int = -1


@_kind(127)
@dataclass(frozen=True, slots=True)
class DescribeGroupResponse(Message):
    """`state` Dead: there is no such group."""

    error: int
    message: str = ""
    state: str = ""
    protocol_type: str = ""
    protocol: str = ""
    generation: int = -1
    members: tuple[GroupMember, ...] = ()
    offsets: tuple[GroupOffset, ...] = ()


@_kind(128)
@dataclass(frozen=True, slots=True)
class DeleteGroupRequest(Message):
    """A group without members, with its offsets; of the node that coordinates it."""

    group: str


@_kind(129)
@dataclass(frozen=True, slots=True)
class DeleteGroupResponse(Message):
    error: int
    message: str = ""


@_kind(130)
@dataclass(frozen=True, slots=True)
class CommitOffsetsRequest(Message):
    """Set offsets of a group, and forget those of `deletions`; as a member, or with generation -1 of a group without any."""

    group: str
    offsets: tuple[GroupOffset, ...]
    member_id: str = ""
    generation: int = -1
    deletions: tuple[tuple[str, int], ...] = ()


@_kind(131)
@dataclass(frozen=True, slots=True)
class CommitOffsetsResponse(Message):
    """`partitions` lists refusals only."""

    error: int
    message: str = ""
    partitions: tuple[PartitionError, ...] = ()


@_kind(132)
@dataclass(frozen=True, slots=True)
class JoinGroupRequest(Message):
    """Take part in a group of consumers; answered when the round is over. `member_id` is empty the first time."""

    group: str
    member_id: str
    topics: tuple[str, ...]
    session_timeout_ms: int
    rebalance_timeout_ms: int


@dataclass(frozen=True, slots=True)
class Subscription:
    member_id: str
    topics: tuple[str, ...]


@_kind(133)
@dataclass(frozen=True, slots=True)
class JoinGroupResponse(Message):
    """`members` is for the leader of the group only: it shares the partitions out and sends them with its sync."""

    error: int
    message: str = ""
    member_id: str = ""
    generation: int = -1
    leader: str = ""
    members: tuple[Subscription, ...] = ()


@dataclass(frozen=True, slots=True)
class Assignment:
    member_id: str
    partitions: tuple[tuple[str, int], ...]


@_kind(134)
@dataclass(frozen=True, slots=True)
class SyncGroupRequest(Message):
    """Ask for one's share; the leader brings everybody's."""

    group: str
    member_id: str
    generation: int
    assignments: tuple[Assignment, ...] = ()


@_kind(135)
@dataclass(frozen=True, slots=True)
class SyncGroupResponse(Message):
    error: int
    message: str = ""
    partitions: tuple[tuple[str, int], ...] = ()


@_kind(136)
@dataclass(frozen=True, slots=True)
class GroupHeartbeatRequest(Message):
    """`is_leaving`: the member goes; the others share its partitions out at once."""

    group: str
    member_id: str
    generation: int
    is_leaving: bool = False


@_kind(137)
@dataclass(frozen=True, slots=True)
class GroupHeartbeatResponse(Message):
    """REBALANCE_IN_PROGRESS: join again."""

    error: int
    message: str = ""


# --- for people who watch ----------------------------------------------------------------------------


@_kind(120)
@dataclass(frozen=True, slots=True)
class HistoryRequest(Message):
    """What THIS node remembers of some subjects: "topic-0" a partition, "1" a broker, "" the controller's office."""

    subjects: tuple[str, ...]


@dataclass(frozen=True, slots=True)
class HistoryEvent:
    """`at_ms` wall time of the node that tells; `what` a stable noun.verb; `detail` for people."""

    subject: str
    at_ms: int
    what: str
    detail: str


@_kind(121)
@dataclass(frozen=True, slots=True)
class HistoryResponse(Message):
    """The oldest first. `started_ms`: nothing from before that is remembered."""

    broker_id: BrokerId
    started_ms: int
    events: tuple[HistoryEvent, ...]


@_kind(122)
@dataclass(frozen=True, slots=True)
class StatusRequest(Message):
    """The whole cluster as any node can tell it, one page of partitions at a time (status page, `kafkalite top`).

    `text` must be part of the name TOPIC-P; `topic` the whole name of the topic ("" any); `state` is "" (all),
    "troubled" (offline or not all in sync), "offline", "moving" or "internal"; `broker_id` -1 any, else a replica there.
    `topics_offset`, `topics_limit`: the page of topics, whose names contain `text`.
    """

    text: str = ""
    topic: str = ""
    state: str = ""
    broker_id: BrokerId = BrokerId(-1)
    offset: int = 0
    limit: int = 50
    topics_offset: int = 0
    topics_limit: int = 50


@dataclass(frozen=True, slots=True)
class BrokerStatus:
    """`error`: why it did not answer; then its problems and disks are not known."""

    broker_id: BrokerId
    kafka: str
    rpc: str
    rack: str
    leaders: int
    replicas: int
    #: Partitions with a replica here that is not in sync.
    out_of_sync: int
    disks: tuple[DiskDescription, ...] = ()
    problems: tuple[HealthProblem, ...] = ()
    error: str = ""


@dataclass(frozen=True, slots=True)
class TopicStatus:
    topic: str
    partitions: int
    replication_factor: int
    offline: int
    troubled: int


@dataclass(frozen=True, slots=True)
class PartitionStatus:
    """Offsets are -1 where its leader did not tell. `lag`: records by which the slowest replica is behind."""

    topic: str
    partition: int
    leader: BrokerId
    leader_epoch: LeaderEpoch
    isr: tuple[BrokerId, ...]
    replicas: tuple[BrokerId, ...]
    adding_replicas: tuple[BrokerId, ...] = ()
    high_watermark: Offset = NO_OFFSET
    log_start_offset: Offset = NO_OFFSET
    log_end_offset: Offset = NO_OFFSET
    size_bytes: int = -1
    lag: int = -1


@dataclass(frozen=True, slots=True)
class MoveStatus:
    """A reassignment. `eta_s` -1 while that cannot be told."""

    topic: str
    partition: int
    replicas: tuple[BrokerId, ...]
    target: tuple[BrokerId, ...]
    is_under_way: bool
    done_bytes: int
    total_bytes: int
    bytes_per_s: int
    eta_s: int
    throttle: int = 0


@_kind(123)
@dataclass(frozen=True, slots=True)
class StatusResponse(Message):
    """`partitions_matched` of `partitions_total` fit the question; `partitions` are those of the page."""

    error: int
    message: str
    broker_id: BrokerId
    is_live: bool
    at_ms: int
    cluster_id: str
    controller_id: BrokerId
    controller_epoch: ControllerEpoch
    brokers: tuple[BrokerStatus, ...] = ()
    topics: tuple[TopicStatus, ...] = ()
    topics_total: int = 0
    topics_matched: int = 0
    partitions: tuple[PartitionStatus, ...] = ()
    partitions_total: int = 0
    partitions_matched: int = 0
    partitions_offline: int = 0
    partitions_troubled: int = 0
    moves: tuple[MoveStatus, ...] = ()
    moves_total: int = 0


__all__ = ["NO_BROKER_EPOCH", "PROTOCOL_VERSION", "Message", "by_kind", "response_kind"]


# --- users ---------------------------------------------------------------------------------------


@dataclass(frozen=True, slots=True)
class UserDescription:
    """A user that has SCRAM credentials: mechanism -> iterations."""

    name: str
    mechanisms: dict[str, int]


@_kind(160)
@dataclass(frozen=True, slots=True)
class DescribeUsersRequest(Message):
    """Who has SCRAM credentials. No names: everybody."""

    names: tuple[str, ...] = ()


@_kind(161)
@dataclass(frozen=True, slots=True)
class DescribeUsersResponse(Message):
    error: int
    message: str
    users: tuple[UserDescription, ...] = ()


@_kind(162)
@dataclass(frozen=True, slots=True)
class AlterUserRequest(Message):
    """Set a user's credentials; "" deletes. A credential is Kafka's text (salt, keys, iterations), never a password."""

    name: str
    credentials: dict[str, str] = field(repr=False)


@_kind(163)
@dataclass(frozen=True, slots=True)
class AlterUserResponse(Message):
    error: int
    message: str
