"""What a controller decides about: events. Pure data.

News from outside carries full snapshots, because watches fire once and coalesce. The end of an effect
(kafkalite.controller.decisions.effects) is an event, too (`StatesRead`, `StatesWritten`, `TopicsRemoved`); the shell handles those before any
further news (invariant F23).
"""

from __future__ import annotations

from collections.abc import Collection, Mapping
from dataclasses import field

from kafkalite.controller.decisions.balance_view import DiskRoom, PartitionLoad
from kafkalite.controller.decisions.eligible import LogEnd
from kafkalite.controller.decisions.state import Leftover, Topic, Vanished
from kafkalite.coordination.admin_znodes import NO_LIMITS, PartitionRemoval, RequestLimits
from kafkalite.lazy_dataclass import dataclass
from kafkalite.model import (
    BrokerEpoch,
    BrokerId,
    BrokerInfo,
    LeaderAndIsr,
    LeaderEpoch,
    Replicas,
    TopicId,
    TopicPartition,
)

#: No limit (Kafka's Int.MAX).
UNLIMITED = 2**31 - 1


# --- why partitions are looked at --------------------------------------------------------------------------------


@dataclass(frozen=True, slots=True)
class Claim:
    """What a replica of a partition knows, which is later than what ZooKeeper, or a command, said. `has_resigned`: it does not act as
    the leader any more. `is_epoch_only`: it has not led in this epoch, and only the epoch is certain."""

    state: LeaderAndIsr
    has_resigned: bool
    is_epoch_only: bool = False


@dataclass(frozen=True, slots=True)
class Repair:
    """Make the states agree with who is alive.

    `announce`: the list of brokers has changed; send it in any case. `bounced`: brokers that are alive, but have
    restarted since the states were last looked at. `claims`: of leaders that know a later state.
    """

    announce: bool = False
    bounced: frozenset[BrokerId] = frozenset()
    claims: Mapping[TopicPartition, Claim] = field(default_factory=dict)


@dataclass(frozen=True, slots=True)
class PreferredElection:
    """The request in /admin/preferred_replica_election, whose znode goes when it is done; version -1: nobody asked for it
    (kafkalite.controller.decisions.balance)."""

    version: int
    #: Where nobody in sync is alive, a replica that is not may lead; records can be lost.
    unclean: bool = False


@dataclass(frozen=True, slots=True)
class ControlledShutdown:
    """A broker is about to stop; `token` names the request that waits for the answer."""

    broker_id: BrokerId
    broker_epoch: BrokerEpoch
    token: int


@dataclass(frozen=True, slots=True)
class Restart:
    """Replicas on dead disks. `failed`: partition -> brokers; `requests`: the znodes that go when it is done."""

    failed: Mapping[TopicPartition, frozenset[BrokerId]]
    requests: tuple[str, ...] = ()


@dataclass(frozen=True, slots=True)
class ControllerElected:
    """The repairs at the beginning of an elected epoch; INIT commands follow, and carry their outcome too."""


@dataclass(frozen=True, slots=True)
class ReassignmentLimits:
    """KIP-435's three, cluster-wide, meant by their names (invariant C13): replicas added or dropped at once per partition,
    partitions under way at once, and leader movements among these."""

    replicas: int = UNLIMITED
    partitions: int = UNLIMITED
    leader_movements: int = UNLIMITED


@dataclass(frozen=True, slots=True)
class Advance:
    """Let reassignments go on. `min_insync`: min.insync.replicas by topic."""

    limits: ReassignmentLimits
    min_insync: Mapping[str, int]


@dataclass(frozen=True, slots=True)
class BeginDraining:
    """Make the leaders of these partitions, in a new epoch, refuse further records."""


Purpose = Restart | Repair | ControllerElected | PreferredElection | ControlledShutdown | Advance | BeginDraining


@dataclass(frozen=True, slots=True)
class TopicChange:
    """One transaction: a topic's znode (on top of `topic.version`) with the states of some partitions.

    `partitions`: those that it is about. `added`: requests in /admin/partitions_add that are carried out by it.
    `removed`: partitions that leave the topic by it, with the replicas they had.
    """

    name: str
    topic: Topic
    partitions: tuple[TopicPartition, ...]
    states: Mapping[TopicPartition, LeaderAndIsr] = field(default_factory=dict)
    added: tuple[TopicPartition, ...] = ()
    removed: Mapping[TopicPartition, PartitionRemoval] = field(default_factory=dict)


# --- events ------------------------------------------------------------------------------------------------------


@dataclass(frozen=True, slots=True)
class ClusterRead:
    """The first event of an elected epoch: everything that is in ZooKeeper (controller design D.3-9).

    `states` has the partitions that have a state znode; `deletions` what /admin/delete_topics asks for; `suspects` are
    registered, and nobody listens where they did.
    """

    brokers: Mapping[BrokerId, BrokerInfo]
    topics: Mapping[str, Topic]
    states: Mapping[TopicPartition, LeaderAndIsr]
    modified: Mapping[TopicPartition, int] = field(default_factory=dict)
    malformed: Mapping[str, str] = field(default_factory=dict)
    deletions: tuple[str, ...] = ()
    unclean_topics: frozenset[str] = frozenset()
    removals: Mapping[TopicPartition, PartitionRemoval] = field(default_factory=dict)
    suspects: Mapping[BrokerId, BrokerInfo] = field(default_factory=dict)
    leftovers: Mapping[TopicId, Leftover] = field(default_factory=dict)
    vanished: Mapping[str, Vanished] = field(default_factory=dict)
    #: min.insync.replicas by topic.
    min_insync: Mapping[str, int] = field(default_factory=dict)


@dataclass(frozen=True, slots=True)
class BrokersChanged:
    """All live brokers."""

    brokers: Mapping[BrokerId, BrokerInfo]


@dataclass(frozen=True, slots=True)
class BrokerSuspected:
    """A registered broker does not answer: its leaderships go to others that are in sync, now."""

    broker_id: BrokerId
    broker_epoch: BrokerEpoch
    reason: str


@dataclass(frozen=True, slots=True)
class BrokerCleared:
    """The suspicion was wrong, or is over."""

    broker_id: BrokerId
    broker_epoch: BrokerEpoch


@dataclass(frozen=True, slots=True)
class TopicsChanged:
    """All topics. `malformed`: path -> reason, of every topic znode that cannot be read."""

    topics: Mapping[str, Topic]
    malformed: Mapping[str, str] = field(default_factory=dict)


@dataclass(frozen=True, slots=True)
class DeletionsRequested:
    """The requests in and below /admin/delete_topics. `malformed`: why its data cannot be read; empty if it can."""

    topics: tuple[str, ...]
    malformed: str | None = None


@dataclass(frozen=True, slots=True)
class PreferredElectionRequested:
    """What /admin/preferred_replica_election holds. `version` -1: it is not there (any more)."""

    partitions: tuple[TopicPartition, ...]
    version: int
    malformed: str | None = None
    unclean: bool = False


@dataclass(frozen=True, slots=True)
class ReassignmentRequested:
    """What /admin/reassign_partitions holds: targets in order, none to call it off; throttles in bytes/s.

    `is_there` without targets: somebody has written a request of nothing.
    """

    targets: Mapping[TopicPartition, Replicas]
    throttles: Mapping[TopicPartition, int] = field(default_factory=dict)
    malformed: str | None = None
    limits: RequestLimits = NO_LIMITS
    is_there: bool = False


@dataclass(frozen=True, slots=True)
class MovesDue:
    """Something that reassignments wait for may have come: `limits` as they are now (a change acts on the next step)."""

    limits: ReassignmentLimits
    min_insync: Mapping[str, int]


@dataclass(frozen=True, slots=True)
class PartitionRequests:
    """All of /admin/partitions_add and /admin/partitions_remove; `malformed`: path -> reason."""

    adds: Mapping[TopicPartition, Replicas]
    removals: Mapping[TopicPartition, PartitionRemoval]
    malformed: Mapping[str, str] = field(default_factory=dict)


@dataclass(frozen=True, slots=True)
class PartitionsDrained:
    """Leaders say that nothing is left in these partitions, which take no more records."""

    partitions: tuple[TopicPartition, ...]


@dataclass(frozen=True, slots=True)
class RestartRequested:
    """One /restart_partitions/req-N. `made_at`: its czxid; `online`: the replicas are sound again."""

    name: str
    broker_id: BrokerId
    partitions: tuple[TopicPartition, ...]
    made_at: int
    online: bool = False


@dataclass(frozen=True, slots=True)
class RestartsRequested:
    """What waits under /restart_partitions. `malformed`: path -> reason, left alone."""

    requests: tuple[RestartRequested, ...]
    malformed: Mapping[str, str] = field(default_factory=dict)


@dataclass(frozen=True, slots=True)
class ReplicasFailed:
    """A broker has refused commands for these replicas: their disk is dead."""

    broker_id: BrokerId
    broker_epoch: BrokerEpoch
    partitions: tuple[TopicPartition, ...]


@dataclass(frozen=True, slots=True)
class ReplicasDoubtful:
    """A broker has refused to lead these: it knows that it may lack committed records, and that the controller does not."""

    broker_id: BrokerId
    broker_epoch: BrokerEpoch
    partitions: tuple[TopicPartition, ...]


@dataclass(frozen=True, slots=True)
class IsrsChanged:
    """Leaders say that they have changed these ISRs in ZooKeeper (invariant F7)."""

    partitions: tuple[TopicPartition, ...]
    claims: Mapping[TopicPartition, Claim] = field(default_factory=dict)


@dataclass(frozen=True, slots=True)
class ControlledShutdownReceived:
    broker_id: BrokerId
    broker_epoch: BrokerEpoch
    token: int


@dataclass(frozen=True, slots=True)
class ReplicasStopped:
    """A broker's answer to StopReplica: which replicas are gone from it, and which it could not remove.

    `topic_ids`: of `stopped`, one for one; a name can be another topic's by now. `away`: those of `stopped` whose files may also
    be in a directory of the broker that is offline.
    """

    broker_id: BrokerId
    broker_epoch: BrokerEpoch
    stopped: tuple[TopicPartition, ...]
    failed: tuple[TopicPartition, ...] = ()
    topic_ids: tuple[TopicId, ...] = ()
    away: frozenset[TopicPartition] = frozenset()


@dataclass(frozen=True, slots=True)
class InitialisationDue:
    """These broker epochs need all commands: the brokers have restarted, or their queue has overflowed."""

    brokers: Mapping[BrokerId, BrokerEpoch]
    cause: str


@dataclass(frozen=True, slots=True)
class Ticked:
    """Some time has passed: look again at what waits (deletions that failed, partitions that no notice named)."""


@dataclass(frozen=True, slots=True)
class BalancerSettings:
    """`balancer.*`, as they are now. `leader_percentage`: leader.imbalance.per.broker.percentage; None: leaders do not return by
    themselves."""

    mode: str = "advise"
    max_moves: int = 10
    throttle: int = 0
    tolerance: float = 0.10
    max_disk: float = 0.85
    leader_percentage: int | None = None


@dataclass(frozen=True, slots=True)
class WantedReplication:
    """What an internal topic should have: replicas, and `min_isr` once a replica may be missing. `min_insync`: its setting today."""

    replicas: int
    min_isr: int
    min_insync: int


@dataclass(frozen=True, slots=True)
class BalancerDue:
    """It is time to look at the balance, at brokers that are being drained, and at internal topics with few replicas.

    `closed`: brokers that take no new replicas, with their `broker.state`. `gone`: brokers that have replicas and have not been alive for
    `balancer.broker.timeout.ms`. `loads`, `room`: as the brokers reported last; a broker that has not answered is missing.
    """

    settings: BalancerSettings
    closed: Mapping[BrokerId, str] = field(default_factory=dict)
    gone: frozenset[BrokerId] = frozenset()
    loads: Mapping[TopicPartition, PartitionLoad] = field(default_factory=dict)
    room: Mapping[BrokerId, DiskRoom] = field(default_factory=dict)
    internal: Mapping[str, WantedReplication] = field(default_factory=dict)


@dataclass(frozen=True, slots=True)
class BalanceDue:
    """Time to look whether brokers lead what they should; `percentage` of their leaderships may be elsewhere."""

    percentage: int


@dataclass(frozen=True, slots=True)
class StatesRead:
    """State znodes as they are now. None: there is none.

    `modified`: the transaction (zxid) that wrote a state last; a broker whose epoch is larger has registered since.
    `malformed`: those that cannot be read, by partition. `min_insync`: min.insync.replicas by topic. `log_ends`: the
    log ends that replicas have reported, None if none was asked; `leading`: the latest leader epoch in which one of them says that it
    leads; `unanswered`: the brokers that were asked and did not answer; `doubtful`: those that say that theirs may lack committed records;
    `elsewhere`: logs of these partitions that other brokers have, and that are no replicas; `incomplete`: brokers that may have some on an offline
    disk; `known_brokers`: all that have ever started.
    `changed_topics`: of those `with_unknown_epochs`, the topics whose znodes are not those that the controller knows.
    """

    states: Mapping[TopicPartition, LeaderAndIsr | None]
    purpose: Purpose
    modified: Mapping[TopicPartition, int] = field(default_factory=dict)
    malformed: Mapping[TopicPartition, str] = field(default_factory=dict)
    unclean_topics: frozenset[str] = frozenset()
    chunk: int = 500
    min_insync: Mapping[str, int] = field(default_factory=dict)
    log_ends: Mapping[TopicPartition, Mapping[BrokerId, LogEnd]] | None = None
    leading: Mapping[TopicPartition, LeaderEpoch] = field(default_factory=dict)
    unanswered: frozenset[BrokerId] = frozenset()
    doubtful: Mapping[TopicPartition, Collection[BrokerId]] = field(default_factory=dict)
    elsewhere: Mapping[TopicPartition, Mapping[BrokerId, LogEnd]] = field(default_factory=dict)
    incomplete: frozenset[BrokerId] = frozenset()
    known_brokers: frozenset[BrokerId] = frozenset()
    changed_topics: tuple[str, ...] = ()


@dataclass(frozen=True, slots=True)
class StatesDue:
    """The state znodes of these partitions have to be read, now that their topics are known."""

    partitions: tuple[TopicPartition, ...]
    purpose: Purpose
    chunk: int


@dataclass(frozen=True, slots=True)
class StatesWritten:
    """`written` carries the new partition epochs; of `conflicts` it is only known that they have to be read again."""

    written: Mapping[TopicPartition, LeaderAndIsr]
    conflicts: tuple[TopicPartition, ...]
    purpose: Purpose
    chunk: int = 500


@dataclass(frozen=True, slots=True)
class TopicsWritten:
    """`written` carries the new versions; of the topics in `failed` it is only known that they have to be read again."""

    written: tuple[TopicChange, ...]
    failed: tuple[str, ...]


@dataclass(frozen=True, slots=True)
class PartitionsRemoved:
    """The znodes of `removed` are gone; those of `failed` are not: try again later."""

    removed: tuple[TopicPartition, ...]
    failed: tuple[TopicPartition, ...] = ()


@dataclass(frozen=True, slots=True)
class TopicsRemoved:
    """The znodes of the deleted topics `removed` are gone; those of `failed` are not: try again later."""

    removed: tuple[str, ...]
    failed: tuple[str, ...] = ()


Event = (
    ClusterRead
    | BrokersChanged
    | BrokerSuspected
    | BrokerCleared
    | TopicsChanged
    | DeletionsRequested
    | PreferredElectionRequested
    | RestartsRequested
    | ReplicasFailed
    | ReplicasDoubtful
    | ReassignmentRequested
    | MovesDue
    | PartitionRequests
    | PartitionsDrained
    | IsrsChanged
    | ControlledShutdownReceived
    | ReplicasStopped
    | InitialisationDue
    | Ticked
    | BalanceDue
    | BalancerDue
    | StatesDue
    | StatesRead
    | StatesWritten
    | TopicsWritten
    | PartitionsRemoved
    | TopicsRemoved
)
