"""The field's nouns: ids, epochs, offsets, partitions. Imported by everything, imports nothing of ours.

Offsets are counted in records. An "end offset" is exclusive: the next offset to be written.
"""

from __future__ import annotations

from collections.abc import Callable, Iterable, Sequence
from functools import partial
from typing import NamedTuple, NewType

from kafkalite.lazy_dataclass import dataclass

#: Bytes as they come from the network and the disk, not copied.
Buffer = bytes | bytearray | memoryview

BrokerId = NewType("BrokerId", int)
#: czxid of the broker's registration znode; a restarted broker has a larger one (KIP-380).
BrokerEpoch = NewType("BrokerEpoch", int)
ControllerEpoch = NewType("ControllerEpoch", int)
LeaderEpoch = NewType("LeaderEpoch", int)
#: zkVersion of the partition's state znode.
PartitionEpoch = NewType("PartitionEpoch", int)
Offset = NewType("Offset", int)
ProducerId = NewType("ProducerId", int)
#: A UUID in Kafka's text form: URL-safe base64 without padding, 22 characters (KIP-516).
TopicId = NewType("TopicId", str)

#: The replicas of a partition in the order of preference: the first one should lead.
Replicas = tuple[BrokerId, ...]

NO_LEADER = BrokerId(-1)
NO_BROKER_EPOCH = BrokerEpoch(-1)
NO_LEADER_EPOCH = LeaderEpoch(-1)
#: In StopReplica: passes whatever the replica's own epoch is, the partition is deleted (KIP-570, Kafka's LeaderAndIsr.EpochDuringDelete).
EPOCH_DURING_DELETE = LeaderEpoch(-2)
NO_TOPIC_ID = TopicId("")
NO_OFFSET = Offset(-1)
NO_PRODUCER_ID = ProducerId(-1)

#: Special timestamps of ListOffsets (Kafka protocol).
LATEST_TIMESTAMP = -1
EARLIEST_TIMESTAMP = -2
MAX_TIMESTAMP = -3


class TopicPartition(NamedTuple):
    """One partition of one topic; orders by topic, then number."""

    topic: str
    partition: int

    def __str__(self) -> str:
        return f"{self.topic}-{self.partition}"


#: From topic and number; without the call of Python code that `TopicPartition(...)` is, for what is done with each request.
new_topic_partition: Callable[[tuple[str, int]], TopicPartition] = partial(tuple.__new__, TopicPartition)


def numbers_by_topic(partitions: Iterable[TopicPartition]) -> dict[str, list[int]]:
    """Topic -> the numbers of its partitions; both in the order in which they come."""
    topics: dict[str, list[int]] = {}
    for topic, number in partitions:
        topics.setdefault(topic, []).append(number)
    return topics


#: Of a topic, in characters: a log directory is named by it, a dash and a number.
MAX_NAME_LENGTH = 249

#: Topics that hold the cluster's own state. Which partition a group or a transactional id belongs to is its hash modulo their number.
GROUP_TOPIC = "__consumer_offsets"
TRANSACTION_TOPIC = "__transaction_state"
#: State of share groups (KIP-932): which records are delivered.
SHARE_TOPIC = "__share_group_state"
#: The schema registry's, with Confluent's name.
SCHEMA_TOPIC = "_schemas"
INTERNAL_TOPICS = frozenset({GROUP_TOPIC, TRANSACTION_TOPIC, SHARE_TOPIC, SCHEMA_TOPIC})
#: The feature of KIP-890, and the highest version of it that this code knows.
TRANSACTION_FEATURE = "transaction.version"
TRANSACTION_VERSION = 2
#: The feature of KIP-966 (eligible leader replicas), likewise.
ELR_FEATURE = "eligible.leader.replicas.version"
ELR_VERSION = 1

#: Kafka's names: TLS or not, SASL or not. (Here because clients need them without the configuration of a broker.)
PROTOCOLS = ("PLAINTEXT", "SSL", "SASL_PLAINTEXT", "SASL_SSL")
SASL_MECHANISMS = ("PLAIN", "SCRAM-SHA-256", "SCRAM-SHA-512")
#: Those that a listener can offer: nodes and our own client have no tokens.
LISTENER_MECHANISMS = (*SASL_MECHANISMS, "OAUTHBEARER")


@dataclass(frozen=True, slots=True)
class LeaderAndIsr:
    """The durable state of a partition: the value of its state znode plus that znode's version.

    Invariants: `leader` is in `isr` unless it is NO_LEADER; `isr` is never empty (the last
    in-sync replica stays in it when it dies, so that it alone may lead again);
    no member of `elr` is in `isr`; while `elr` has a member, the high watermark stands still (ADR 16).
    """

    leader: BrokerId
    leader_epoch: LeaderEpoch
    isr: tuple[BrokerId, ...]
    controller_epoch: ControllerEpoch
    partition_epoch: PartitionEpoch
    #: Eligible leader replicas (KIP-966): outside the ISR, and they have every committed record.
    elr: tuple[BrokerId, ...] = ()
    #: Replicas that were in the ISR or the ELR after the ISR fell below min.insync.replicas, and may have lost records since.
    last_known_elr: tuple[BrokerId, ...] = ()


def is_under_replicated(replicas: Sequence[BrokerId], isr: Sequence[BrokerId], adding: Sequence[BrokerId]) -> bool:
    """Whether fewer are in sync than the partition has replicas, without those that a reassignment is adding (KIP-455)."""
    return len(isr) < sum(replica not in adding for replica in replicas)


@dataclass(frozen=True, slots=True)
class Endpoint:
    """Where something listens."""

    host: str
    port: int

    def __str__(self) -> str:
        host = f"[{self.host}]" if ":" in self.host else self.host
        return f"{host}:{self.port}"


@dataclass(frozen=True, slots=True)
class ListenerAddress:
    """Where clients of one Kafka listener connect to a broker."""

    listener: str
    host: str
    port: int

    def __str__(self) -> str:
        return f"{self.listener}://{Endpoint(self.host, self.port)}"


@dataclass(frozen=True, slots=True)
class BrokerInfo:
    """A live broker, from its registration znode."""

    broker_id: BrokerId
    broker_epoch: BrokerEpoch
    #: Of one of the Kafka listeners, for readers that know one only.
    kafka: Endpoint
    rpc: Endpoint
    rack: str | None = None
    #: It registered without a single log: it is in sync with nothing that was written before.
    is_empty: bool = False
    #: It registered as a member of these partitions' ISRs, and without their logs.
    missing: frozenset[TopicPartition] = frozenset()
    #: Partitions whose logs may lack committed records: its host lost power, or bytes are gone.
    doubtful: frozenset[TopicPartition] = frozenset()
    #: Its code keeps the high watermark still while the state znode has eligible leader replicas.
    keeps_elr: bool = False
    #: The highest transaction.version that it knows (KIP-890).
    transaction_version: int = 0
    #: Its Kafka listeners; none: it has not named them, `kafka` is the only one.
    listeners: tuple[ListenerAddress, ...] = ()
    #: Feature -> the highest level that it knows (`kafkalite.features`).
    features: tuple[tuple[str, int], ...] = ()
    #: The URL of its console, http://host:port; empty: it has none, or does not name it.
    http: str = ""
    #: All its log directories are cordoned: it takes no new replicas (KIP-1066).
    is_cordoned: bool = False
    #: The version of kafkalite that it runs; empty: it does not name it.
    release: str = ""

    @property
    def may_lack_records(self) -> bool:
        """Whether it has lost, or may have lost, committed records of any partition before it registered."""
        return self.is_empty or bool(self.missing) or bool(self.doubtful)

    def lacks(self, partition: TopicPartition) -> bool:
        """Whether it has lost what it had of a partition that was written to before it registered."""
        return self.is_empty or partition in self.missing

    def doubts(self, partition: TopicPartition) -> bool:
        """Whether it has lost, or may have lost, committed records of a partition before it registered."""
        return self.lacks(partition) or partition in self.doubtful
