"""Between the controller and the brokers: commands, and the brokers' reports."""

from __future__ import annotations

from kafkalite.lazy_dataclass import dataclass
from kafkalite.model import (
    ELR_FEATURE,
    NO_TOPIC_ID,
    PROTOCOLS,
    TRANSACTION_FEATURE,
    BrokerEpoch,
    BrokerId,
    BrokerInfo,
    ControllerEpoch,
    Endpoint,
    LeaderEpoch,
    ListenerAddress,
    PartitionEpoch,
    TopicId,
)
from kafkalite.rpc.messages.base import Message, kind


@dataclass(frozen=True, slots=True)
class Broker:
    """A live broker. `transaction_version`, `elr_version`: the highest transaction.version (KIP-890) and
    eligible.leader.replicas.version (KIP-966) that it knows. `listeners`: its Kafka listeners; none: they are not known
    (an older controller), `kafka_host` and `kafka_port` are the only one."""

    broker_id: BrokerId
    broker_epoch: BrokerEpoch
    kafka_host: str
    kafka_port: int
    rpc_host: str
    rpc_port: int
    rack: str | None = None
    transaction_version: int = 0
    elr_version: int = 0
    listeners: tuple[ListenerAddress, ...] = ()
    #: Feature -> the highest level that it knows. Controllers before this field name two features above.
    features: tuple[tuple[str, int], ...] = ()
    #: The URL of its console, http://host:port; empty: it has none, or it or the controller is older than this field.
    http: str = ""
    #: The version of kafkalite that it runs; empty: it or the controller is older than this field.
    release: str = ""

    @classmethod
    def registered(cls, info: BrokerInfo) -> Broker:
        """As its registration says."""
        return cls(
            info.broker_id,
            info.broker_epoch,
            info.kafka.host,
            info.kafka.port,
            info.rpc.host,
            info.rpc.port,
            info.rack,
            info.transaction_version,
            int(info.keeps_elr),
            info.listeners,
            info.features,
            info.http,
            info.release,
        )

    def feature_level(self, name: str) -> int:
        """The highest level of a feature that it knows; 0: it does not know the feature."""
        older = {TRANSACTION_FEATURE: self.transaction_version, ELR_FEATURE: self.elr_version}
        return dict(self.features).get(name, older.get(name, 0))

    def kafka_on(self, listener: str) -> Endpoint | None:
        """Where clients of this Kafka listener connect; None: the broker has no listener of this name.

        A single listener is named like its protocol, which changes node by node while a cluster goes over to security
        (`security.transition`). So a broker's only listener with such a name stands for any other such name.
        """
        if not self.listeners:
            return Endpoint(self.kafka_host, self.kafka_port)
        for each in self.listeners:
            if each.listener == listener:
                return Endpoint(each.host, each.port)
        only = self.listeners[0]
        if len(self.listeners) == 1 and only.listener in PROTOCOLS and listener in PROTOCOLS:
            return Endpoint(only.host, only.port)
        return None


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
    #: Eligible leader replicas, and the last known ones (KIP-966).
    elr: tuple[BrokerId, ...] = ()
    last_known_elr: tuple[BrokerId, ...] = ()
    #: ACCEPTS_LOSS: the leader was chosen although it may lack committed records. 0: it must not lead then. -1: unknown (an older
    #: controller). BEGINS_EMPTY: it leads even if its log is on a disk that is lost.
    accepts_loss: int = -1


@dataclass(frozen=True, slots=True)
class PartitionError:
    topic: str
    partition: int
    error: int


@kind(10)
@dataclass(frozen=True, slots=True)
class LeaderAndIsrRequest(Message):
    """Become leader or follower of these partitions.

    `broker_epoch` is the receiver's, as the controller knows it: a different one means that the command is for an earlier process of
    the broker. `is_init`: this is everything the broker should host; local replicas
    that are not named are stray.
    """

    controller_id: BrokerId
    controller_epoch: ControllerEpoch
    broker_epoch: BrokerEpoch
    is_init: bool
    partitions: tuple[PartitionState, ...]
    brokers: tuple[Broker, ...]
    ack_timeout_ms: int = 30_000
    cause: str = ""


@kind(11)
@dataclass(frozen=True, slots=True)
class LeaderAndIsrResponse(Message):
    """`error` is for the whole (STALE_CONTROLLER_EPOCH, STALE_BROKER_EPOCH); `partitions` lists refusals only."""

    error: int
    partitions: tuple[PartitionError, ...] = ()


#: StopPartition.partition, with delete_files: all replicas of a topic that has vanished from ZooKeeper.
ALL_OF_A_VANISHED_TOPIC = -1
#: PartitionState.accepts_loss; BEGINS_EMPTY: an administrator gives up what the leader's log has, which is on a disk that is lost.
ACCEPTS_LOSS, BEGINS_EMPTY = 1, 2


@dataclass(frozen=True, slots=True)
class StopPartition:
    """Leader epoch -2 without delete_files: the topic's znode has vanished; its replicas are kept, and not served."""

    topic: str
    partition: int
    topic_id: TopicId
    #: Commands older than the replica's leader epoch are refused; -2 (deletion of the topic) passes always.
    leader_epoch: LeaderEpoch
    delete_files: bool


@kind(12)
@dataclass(frozen=True, slots=True)
class StopReplicaRequest(Message):
    """Stop hosting these partitions, deleting their files or not."""

    controller_id: BrokerId
    controller_epoch: ControllerEpoch
    broker_epoch: BrokerEpoch
    partitions: tuple[StopPartition, ...]
    ack_timeout_ms: int = 30_000
    cause: str = ""


@kind(13)
@dataclass(frozen=True, slots=True)
class StopReplicaResponse(Message):
    """`partitions`: what was refused. `away`: (topic, partition) of which everything within reach was deleted, but a directory of
    the broker is offline and may have files of it."""

    error: int
    partitions: tuple[PartitionError, ...] = ()
    away: tuple[tuple[str, int], ...] = ()


@kind(14)
@dataclass(frozen=True, slots=True)
class UpdateMetadataRequest(Message):
    """Metadata for clients. `brokers` is always complete; `partitions` are changes, or all if `is_full`."""

    controller_id: BrokerId
    controller_epoch: ControllerEpoch
    broker_epoch: BrokerEpoch
    is_full: bool
    brokers: tuple[Broker, ...]
    partitions: tuple[PartitionState, ...]
    deleted_topics: tuple[str, ...] = ()
    cause: str = ""
    deleted_partitions: tuple[tuple[str, int], ...] = ()


@kind(15)
@dataclass(frozen=True, slots=True)
class UpdateMetadataResponse(Message):
    """`controller_epoch`: the latest that the broker follows, with STALE_CONTROLLER_EPOCH."""

    error: int
    controller_epoch: ControllerEpoch = ControllerEpoch(-1)


@dataclass(frozen=True, slots=True)
class IsrChange:
    topic: str
    partition: int
    leader_epoch: LeaderEpoch
    isr: tuple[BrokerId, ...]
    partition_epoch: PartitionEpoch
    #: The partition is read-only, and nothing is left in it.
    is_drained: bool = False
    #: With `is_ahead`: of which topic this is.
    topic_id: TopicId = NO_TOPIC_ID
    #: ZooKeeper, or a command, has an earlier state than this one, which the leader knows.
    is_ahead: bool = False
    #: ... and the sender does not act as the leader any more.
    has_resigned: bool = False
    #: ... and does not lead in it: only the leader epoch is certain, from the sender's log or from an earlier command.
    is_epoch_only: bool = False


@kind(16)
@dataclass(frozen=True, slots=True)
class IsrChangedRequest(Message):
    """The leader HAS changed these ISRs in ZooKeeper: one notice for many partitions."""

    broker_id: BrokerId
    broker_epoch: BrokerEpoch
    partitions: tuple[IsrChange, ...]


@kind(17)
@dataclass(frozen=True, slots=True)
class IsrChangedResponse(Message):
    error: int


@kind(18)
@dataclass(frozen=True, slots=True)
class ControlledShutdownRequest(Message):
    """Move all leaderships away from the sending broker. It repeats this until none remains or controlled.shutdown.max.wait.ms is over."""

    broker_id: BrokerId
    broker_epoch: BrokerEpoch


@kind(19)
@dataclass(frozen=True, slots=True)
class ControlledShutdownResponse(Message):
    """`is_last`: every live broker is stopping, so nobody will take over what remains."""

    error: int
    remaining: tuple[PartitionError, ...] = ()
    is_last: bool = False
