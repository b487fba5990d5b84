"""The state of an active controller. Frozen; every decision returns a new one. Pure.

ZooKeeper is the truth (controller design, overview): `partitions` is what was last read or written there, and serves to find out which
partitions an event concerns and what was sent to the brokers. Decisions about a partition use its state znode
as read for that decision (controller design A.3.1).
"""

from __future__ import annotations

import dataclasses
from collections.abc import Callable, Collection, Iterator, Mapping
from dataclasses import field
from typing import TypeVar

from kafkalite.coordination.admin_znodes import NO_LIMITS, RequestLimits
from kafkalite.coordination.topic_znodes import ReassignmentProgress
from kafkalite.lazy_dataclass import dataclass
from kafkalite.model import (
    NO_LEADER_EPOCH,
    BrokerEpoch,
    BrokerId,
    BrokerInfo,
    ControllerEpoch,
    LeaderAndIsr,
    LeaderEpoch,
    Replicas,
    TopicId,
    TopicPartition,
)

_T = TypeVar("_T")


@dataclass(frozen=True, slots=True)
class Topic:
    """A topic, from its znode. `assignment`: partition -> AR, the preferred leader first."""

    topic_id: TopicId
    assignment: Mapping[int, Replicas]
    adding: Mapping[int, Replicas] = field(default_factory=dict)
    removing: Mapping[int, Replicas] = field(default_factory=dict)
    #: Partition -> its reassignment under way (KIP-435).
    moves: Mapping[int, ReassignmentProgress] = field(default_factory=dict)
    #: zkVersion of the topic's znode: what a change of it is based on.
    version: int = 0
    #: The transaction that created the znode (czxid): another one means that it was removed and put back.
    created: int = 0

    def with_partition(self, partition: int, replicas: Replicas, move: ReassignmentProgress | None) -> Topic:
        """The topic with another AR and move of one partition; KIP-455's maps follow from the move."""
        moves = {number: each for number, each in self.moves.items() if number != partition}
        adding = {number: each for number, each in self.adding.items() if number != partition}
        removing = {number: each for number, each in self.removing.items() if number != partition}
        if move is not None:
            moves[partition] = move
            coming = tuple(each for each in move.target if each not in move.origin)
            leaving = tuple(each for each in move.origin if each not in move.target)
            if coming:
                adding[partition] = coming
            if leaving:
                removing[partition] = leaving
        assignment = {**self.assignment, partition: replicas}
        return dataclasses.replace(self, assignment=assignment, adding=adding, removing=removing, moves=moves)

    def without_partition(self, partition: int) -> Topic:
        """The topic without one partition."""
        topic = self.with_partition(partition, (), None)
        rest = {number: each for number, each in topic.assignment.items() if number != partition}
        return dataclasses.replace(topic, assignment=rest)


@dataclass(frozen=True, slots=True)
class Deletion:
    """A topic on its way out. `waiting`: (partition, broker) whose files are not known to be gone yet.

    `removing` is set while its znodes are being removed, which is when no live broker has files within reach any more.
    `away`: those of `waiting` whose files may be on an offline disk of a live broker.
    """

    waiting: frozenset[tuple[int, BrokerId]]
    removing: bool = False
    away: frozenset[tuple[int, BrokerId]] = frozenset()


@dataclass(frozen=True, slots=True)
class EndedDeletion:
    """A deleted topic whose znodes may go. `leftover`: (partition, broker) whose files are still there, to be recorded under the topic's id."""

    topic: str
    topic_id: TopicId
    leftover: tuple[tuple[int, BrokerId], ...] = ()


@dataclass(frozen=True, slots=True)
class Removal:
    """A partition on its way out. `waiting`: brokers whose files are not known to be gone; None: still in the topic.

    `away`: live brokers with an offline disk that may have files of it.
    `draining`: its leader was commanded to accept no more records.
    """

    drain: bool = False
    waiting: frozenset[BrokerId] | None = None
    away: frozenset[BrokerId] = frozenset()
    draining: bool = False
    removing: bool = False


@dataclass(frozen=True, slots=True)
class Leftover:
    """A deleted topic's (partition, broker) pairs whose files may still exist (kafkalite.controller.decisions.leftovers).

    `away`: those of them that may be on an offline disk of a live broker.
    """

    topic: str
    waiting: frozenset[tuple[int, BrokerId]]
    away: frozenset[tuple[int, BrokerId]] = frozenset()


@dataclass(frozen=True, slots=True)
class Vanished:
    """The last states of a topic whose znode has vanished without a request (kafkalite.controller.decisions.vanished).

    Brokers with a larger epoch than `since` have registered later.
    """

    topic_id: TopicId
    states: Mapping[int, LeaderAndIsr]
    since: BrokerEpoch


@dataclass(frozen=True, slots=True)
class Elsewhere:
    """Where records of a partition may be of which no replica has one: ZooKeeper was restored from a time before its reassignment, or all its
    replicas have lost their disks. `holders`: live brokers with a log of it, and no replica. `silent`: replicas, and brokers that have
    started in this cluster once, that have not said whether they have one."""

    holders: tuple[BrokerId, ...] = ()
    silent: tuple[BrokerId, ...] = ()

    def awaited(self, replicas: Replicas) -> list[BrokerId]:
        """Brokers that have not said what they have, and whose logs would not count otherwise: a replica's counts when a leader is chosen."""
        return [each for each in self.silent if each not in replicas]


@dataclass(frozen=True, slots=True)
class ControllerState:
    """One elected epoch.

    Invariants: a topic in `deletions` has nothing in `partitions`; every key of `partitions` is a partition of a
    topic in `topics`; `shutting_down` is a subset of `brokers` and `suspects`.
    """

    broker_id: BrokerId
    epoch: ControllerEpoch
    brokers: Mapping[BrokerId, BrokerInfo] = field(default_factory=dict)
    shutting_down: frozenset[BrokerId] = frozenset()
    #: Registered, but silent: not in `brokers`. They keep what nobody else could lead.
    suspects: Mapping[BrokerId, BrokerInfo] = field(default_factory=dict)
    topics: Mapping[str, Topic] = field(default_factory=dict)
    partitions: Mapping[TopicPartition, LeaderAndIsr] = field(default_factory=dict)
    deletions: Mapping[str, Deletion] = field(default_factory=dict)
    #: Partition -> live brokers whose replica of it is on a dead disk.
    offline_replicas: Mapping[TopicPartition, frozenset[BrokerId]] = field(default_factory=dict)
    #: What /admin/reassign_partitions holds: its entries go when they are done.
    requested: Mapping[TopicPartition, Replicas] = field(default_factory=dict)
    throttles: Mapping[TopicPartition, int] = field(default_factory=dict)
    #: Partition -> brokers that refused to lead it because they may lack committed records -> in which leader epoch.
    doubts: Mapping[TopicPartition, Mapping[BrokerId, LeaderEpoch]] = field(default_factory=dict)
    #: Partition -> (the leader epoch whose leader was chosen though it may lack committed records, its PartitionState.accepts_loss).
    accepted_loss: Mapping[TopicPartition, tuple[LeaderEpoch, int]] = field(default_factory=dict)
    #: Partitions without a leader whose records may be elsewhere.
    elsewhere: Mapping[TopicPartition, Elsewhere] = field(default_factory=dict)
    #: Partition -> the leader epoch that its replicas know though its znode has an earlier one (vanished.py).
    later_epochs: Mapping[TopicPartition, LeaderEpoch] = field(default_factory=dict)
    #: What that request limits itself to, beside the cluster's limits.
    request_limits: RequestLimits = NO_LIMITS
    #: (partition, broker) whose files a step of a reassignment wanted gone, and which are.
    dropped: frozenset[tuple[TopicPartition, BrokerId]] = frozenset()
    #: ... and which may be on an offline disk of a live broker: they keep no move waiting.
    away: frozenset[tuple[TopicPartition, BrokerId]] = frozenset()
    removals: Mapping[TopicPartition, Removal] = field(default_factory=dict)
    leftovers: Mapping[TopicId, Leftover] = field(default_factory=dict)
    #: By name.
    vanished: Mapping[str, Vanished] = field(default_factory=dict)
    #: Whether the balancer is making the load even: it begins when a broker differs by more than the tolerance, and goes on below that.
    is_spreading: bool = False
    #: What the balancer last advised, and did not do itself: the number of moves.
    advised_moves: int = 0
    #: Replicas that a broker which is being drained cannot get rid of: partition -> the reason.
    stuck: Mapping[TopicPartition, str] = field(default_factory=dict)
    #: Path of a znode that holds what does not belong there -> the reason, in one line. Left alone, reported.
    malformed: Mapping[str, str] = field(default_factory=dict)

    def without_memory_of(self, is_gone: Callable[[TopicPartition], bool]) -> ControllerState:
        """Without what brokers have said of partitions that are gone: it is not about later ones of the same name (invariant F18)."""

        def rest(known: Mapping[TopicPartition, _T]) -> dict[TopicPartition, _T]:
            return {partition: each for partition, each in known.items() if not is_gone(partition)}

        return dataclasses.replace(
            self,
            offline_replicas=rest(self.offline_replicas),
            doubts=rest(self.doubts),
            accepted_loss=rest(self.accepted_loss),
            elsewhere=rest(self.elsewhere),
            later_epochs=rest(self.later_epochs),
        )

    def accepts_loss(self, partition: TopicPartition, now: LeaderAndIsr) -> int:
        """PartitionState.accepts_loss of the leader in this state."""
        leader_epoch, accepts_loss = self.accepted_loss.get(partition, (NO_LEADER_EPOCH, 0))
        return accepts_loss if leader_epoch == now.leader_epoch else 0

    def has_leader(self, partition: TopicPartition) -> bool:
        """Whether somebody leads it who lives, by a state that its replicas know of no later one than."""
        known = self.partitions.get(partition)
        return known is not None and known.leader in self.brokers and not self.is_put_back(partition, known)

    def is_put_back(self, partition: TopicPartition, known: LeaderAndIsr) -> bool:
        """Whether the state is an earlier one than the partition's replicas know."""
        return known.leader_epoch < self.later_epochs.get(partition, NO_LEADER_EPOCH)

    def replicas(self, topic_partition: TopicPartition) -> Replicas | None:
        """The AR; None if there is no such partition, or it is being deleted."""
        topic = self.topics.get(topic_partition.topic)
        if topic is None or topic_partition.topic in self.deletions:
            return None
        return topic.assignment.get(topic_partition.partition)

    def moves(self) -> Iterator[tuple[TopicPartition, ReassignmentProgress]]:
        """Every reassignment under way, by topic and number; not of topics and partitions on their way out."""
        for name in sorted(self.topics):
            if self.topics[name].moves and name not in self.deletions:
                for number in sorted(self.topics[name].moves):
                    partition = TopicPartition(name, number)
                    if partition not in self.removals:
                        yield partition, self.topics[name].moves[number]

    def assigned(self) -> Iterator[tuple[TopicPartition, Replicas]]:
        """Every partition that is not being deleted, with its AR; by topic, then number as the znode orders them."""
        for name in sorted(self.topics):
            if name not in self.deletions:
                for partition, replicas in self.topics[name].assignment.items():
                    yield TopicPartition(name, partition), replicas

    def live(self, topic_partition: TopicPartition) -> Collection[BrokerId]:
        """The brokers that can serve this partition: alive, and not with a dead disk under it."""
        offline = self.offline_replicas.get(topic_partition)
        return self.brokers.keys() - offline if offline else self.brokers.keys()

    def registered(self) -> Iterator[tuple[BrokerId, BrokerInfo]]:
        """All registered brokers, silent or not."""
        yield from self.brokers.items()
        yield from self.suspects.items()

    def has_broker(self, broker_id: BrokerId, broker_epoch: BrokerEpoch) -> bool:
        """Whether this broker epoch is the live one."""
        info = self.brokers.get(broker_id)
        return info is not None and info.broker_epoch == broker_epoch
