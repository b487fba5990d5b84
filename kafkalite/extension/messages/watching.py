"""For people who watch: the cluster, its health, its history."""

from __future__ import annotations

from kafkalite.extension.messages.disks import DiskDescription
from kafkalite.lazy_dataclass import dataclass
from kafkalite.model import NO_OFFSET, BrokerId, ControllerEpoch, LeaderEpoch, Offset
from kafkalite.rpc.messages.base import Message, kind
from kafkalite.rpc.messages.control import Broker


@dataclass(frozen=True, slots=True)
class DescribeClusterRequest(Message):
    pass


@dataclass(frozen=True, slots=True)
class DescribeClusterResponse(Message):
    cluster_id: str
    controller_id: BrokerId
    controller_epoch: ControllerEpoch
    brokers: tuple[Broker, ...]


@kind(48)
@dataclass(frozen=True, slots=True)
class HealthRequest(Message):
    """Of very many problems of a kind a node lists only the first ones, and says how many more there are; those of `subjects` it lists in any case
    (they are among the others in the number, too)."""

    subjects: tuple[str, ...] = ()


@dataclass(frozen=True, slots=True)
class HealthProblem:
    """One thing that is wrong. `since_ms` wall time, 0 if it is not known; `what` a stable word such as partition.offline; `detail` for people.

    `count`: how many problems of its kind this one represents.
    """

    what: str
    since_ms: int
    detail: str
    subject: str = ""
    count: int = 1


@kind(49)
@dataclass(frozen=True, slots=True)
class HealthResponse(Message):
    """Problems that this node can see; ask every node for the whole picture."""

    broker_id: BrokerId
    problems: tuple[HealthProblem, ...]
    #: Of the broker itself: active, cordoned or draining.
    broker_state: str = "active"
    #: The longest turn over 20 ms of its event loop in the last five minutes that a request has caused; 0: none.
    longest_turn_ms: int = 0
    #: The request of this turn: API, client.id and user.
    longest_turn: str = ""


@kind(120)
@dataclass(frozen=True, slots=True)
class HistoryRequest(Message):
    """The events that THIS node remembers about some subjects: "topic-0" is a partition, "1" a broker, "" the controller."""

    subjects: tuple[str, ...]


@dataclass(frozen=True, slots=True)
class HistoryEvent:
    """`at_ms` wall time of the reporting node; `what` a stable noun.verb; `detail` for people.

    `is_earlier`: the node was restarted since.
    """

    subject: str
    at_ms: int
    what: str
    detail: str
    is_earlier: bool = False


@kind(121)
@dataclass(frozen=True, slots=True)
class HistoryResponse(Message):
    """Events, the oldest first. `started_ms`: when the node was started; earlier events are marked."""

    broker_id: BrokerId
    started_ms: int
    events: tuple[HistoryEvent, ...]


@dataclass(frozen=True, slots=True)
class StatusRequest(Message):
    """The whole cluster as any node sees it, one page of partitions at a time (status page, `kafkalite top`).

    `text` must be part of the name TOPIC-P; `topic` the whole name of the topic ("" any); `state` is "" (all),
    "troubled" (offline or not all in sync), "offline", "moving", "user" (without internal topics) or "internal"; `broker_id`
    -1 any, else a replica there. `topics_offset`, `topics_limit`: the page of topics, whose names contain `text`.
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
    #: active, cordoned, draining, or drained: it may be stopped.
    broker_state: str = "active"
    #: The URL of its console; empty: it has none, or is older than this field.
    http: str = ""
    #: The version of kafkalite that it runs; empty: it is older than this field.
    release: str = ""
    #: As in HealthResponse.
    longest_turn_ms: int = 0
    longest_turn: str = ""


@dataclass(frozen=True, slots=True)
class TopicStatus:
    topic: str
    partitions: int
    replication_factor: int
    offline: int
    troubled: int


@dataclass(frozen=True, slots=True)
class PartitionStatus:
    """Offsets are -1 where its leader did not report them. `lag`: records by which the slowest replica is behind."""

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
    """A reassignment. `eta_s` is -1 while unknown."""

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


@dataclass(frozen=True, slots=True)
class StatusResponse(Message):
    """`partitions_matched` of `partitions_total` match the request; `partitions` are those of the page."""

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
