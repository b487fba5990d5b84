"""The groups of one partition of `__consumer_offsets`, as a coordinator keeps them."""

from __future__ import annotations

import asyncio
from collections import Counter
from collections.abc import Callable
from dataclasses import field
from typing import Any, Generic, TypeVar

from kafkalite.coordinators.committed import WrittenPartition
from kafkalite.coordinators.groups.decisions.assigned_heartbeats import Outcome
from kafkalite.coordinators.groups.decisions.classic.group import Group
from kafkalite.coordinators.groups.decisions.classic.members import GroupState
from kafkalite.coordinators.groups.decisions.consumer.group import ConsumerGroup
from kafkalite.coordinators.groups.decisions.consumer.heartbeats import ConsumerOutcome
from kafkalite.coordinators.groups.decisions.members import Assignment
from kafkalite.coordinators.groups.decisions.share.group import SharedTopics, ShareGroup
from kafkalite.coordinators.groups.decisions.streams.endpoints import EndpointPartitions
from kafkalite.coordinators.groups.decisions.streams.group import StreamsGroup
from kafkalite.coordinators.groups.decisions.streams.heartbeats import StreamsOutcome
from kafkalite.coordinators.groups.decisions.streams.members import TaskSets
from kafkalite.coordinators.groups.decisions.streams.topology import Configured
from kafkalite.coordinators.groups.offsets import GroupOffsets
from kafkalite.coordinators.shares.persistence import ShareKey
from kafkalite.errors import ApiError, ErrorCode
from kafkalite.lazy_dataclass import dataclass
from kafkalite.model import LeaderEpoch, Offset, ProducerId, TopicId

T = TypeVar("T")
OutcomeT = TypeVar("OutcomeT", bound=Outcome[Any, Any])


@dataclass(frozen=True, slots=True)
class WaitingMember(Generic[T, OutcomeT]):
    """A request whose answer needs the target assignment of `epoch`, or a later one.

    `owned`: what the member says that it has. `done` gets what became of the request, or why nothing did.
    """

    member_id: str
    epoch: int
    owned: T | None
    done: Callable[[ApiError | None, OutcomeT | None], None]


@dataclass(slots=True)
class AssignedRuntime(Generic[T, OutcomeT]):
    """What a coordinator keeps beside the state of a group whose members own what they are assigned."""

    waiting: list[WaitingMember[T, OutcomeT]] = field(default_factory=list)
    #: Where in the log the last record of the group ends, and how many appends are under way.
    written_to: Offset = Offset(0)
    appending: int = 0
    #: Called when the log is replicated up to an offset, or will not be.
    uncommitted: list[tuple[Offset, Callable[[ErrorCode], None]]] = field(default_factory=list)
    is_working: bool = False
    #: The version of the topics that the group was compared with, and when (ms, monotonic).
    topics_version: int = -1
    compared_ms: int = 0


@dataclass(slots=True)
class Matching:
    """How far a regular expression has been matched with these names."""

    names: tuple[str, ...]
    looked_at: int = 0
    found: list[str] = field(default_factory=list)

    @property
    def is_complete(self) -> bool:
        return self.looked_at >= len(self.names)


@dataclass(slots=True)
class ConsumerRuntime(AssignedRuntime[Assignment, ConsumerOutcome]):
    """Of a consumer group."""

    #: Regular expression -> what its members may see, and the host that sent it.
    visible: dict[str, tuple[Callable[[str], bool], str]] = field(default_factory=dict)
    #: Regular expressions that are being matched; one that takes long goes on in the next round.
    matching: dict[str, Matching] = field(default_factory=dict)
    #: The names that the expressions were matched with, and when.
    matched_names: tuple[str, ...] | None = None
    matched_ms: int = 0


@dataclass(slots=True)
class StreamsRuntime(AssignedRuntime[TaskSets, StreamsOutcome]):
    """Of a streams group."""

    #: Why internal topics could not be created.
    creation: str = ""
    #: What each endpoint serves, and in which endpoint epoch of which configured topology.
    endpoints: tuple[tuple[int, Configured | None], tuple[EndpointPartitions, ...]] | None = None


@dataclass(slots=True)
class ShareRuntime:
    """What a coordinator keeps of a share group beside its state (see AssignedRuntime). `begun` is set, and replaced, when
    the states of its partitions were initialized as far as they could be; `rested` when any work on its states has ended.
    `leaving`: partitions that were removed from their topics, whose states are being deleted."""

    topics_version: int = -1
    compared_ms: int = 0
    #: When this node last made a target of the group (monotonic, ms).
    assigned_ms: int = -(2**62)
    is_assigning: bool = False
    is_initializing: bool = False
    #: Topics whose states are being deleted now. One whose deletion has failed is not among them.
    being_deleted: set[TopicId] = field(default_factory=set)
    #: Requests that are setting start offsets.
    altering: int = 0
    #: Deletions of states that have begun.
    deletions: int = 0
    leaving: SharedTopics = field(default_factory=dict)
    #: Beginnings of states that are under way. A state is deleted after them: one that began later would stay for good.
    beginning: Counter[ShareKey] = field(default_factory=Counter)
    #: Partitions that had yet to begin when the group was loaded. A state that is there may be that of a removed partition, with the
    #: epoch of its leader, if the coordinator before this one ended before it was deleted: it is deleted first, by one task at a time.
    doubtful: dict[TopicId, set[int]] = field(default_factory=dict)
    doubts: asyncio.Lock = field(default_factory=asyncio.Lock)
    #: What waits for share coordinators; given up when the group is unloaded (`is_over`).
    asking: set[asyncio.Task[Any]] = field(default_factory=set)
    is_over: bool = False
    begun: asyncio.Event = field(default_factory=asyncio.Event)
    rested: asyncio.Event = field(default_factory=asyncio.Event)

    @property
    def is_busy(self) -> bool:
        """Whether states are begun, set or deleted now."""
        return self.is_initializing or bool(self.being_deleted or self.altering)

    def rest(self) -> None:
        """Some work on states has ended."""
        before, self.rested = self.rested, asyncio.Event()
        before.set()


@dataclass(slots=True)
class GroupEntry:
    """One group and its offsets. `consumer`: it is a consumer group (KIP-848), and `group` is an empty one; `streams`: the
    same for a streams group (KIP-1071).

    `scheduled_ms` is the earliest tick that is due for it.
    """

    partition: GroupPartition
    group: Group
    offsets: GroupOffsets = field(default_factory=GroupOffsets)
    scheduled_ms: int | None = None
    consumer: ConsumerGroup | None = None
    runtime: ConsumerRuntime = field(default_factory=ConsumerRuntime)
    streams: StreamsGroup | None = None
    streams_runtime: StreamsRuntime = field(default_factory=StreamsRuntime)
    #: Whose memory its members take, where they have no user of their own: that of the one that said something last.
    user: str = ""
    #: It is a share group (KIP-932).
    share: ShareGroup | None = None
    share_runtime: ShareRuntime = field(default_factory=ShareRuntime)

    @property
    def newer(self) -> ConsumerGroup | StreamsGroup | ShareGroup | None:
        """The group, if it is not a classic one."""
        return self.consumer or self.streams or self.share

    @property
    def is_empty(self) -> bool:
        """No members, and not dead."""
        newer = self.newer
        return self.group.state is GroupState.EMPTY if newer is None else not newer.members and not newer.is_dead

    @property
    def is_new(self) -> bool:
        """Nothing is known of it: it may become a group of any type."""
        return (
            self.newer is None
            and self.group.state is GroupState.EMPTY
            and not self.group.generation
            and not self.group.pending_members
            and self.offsets.is_empty()
        )

    @property
    def is_listed(self) -> bool:
        """Whether the group exists for clients. One whose last offset was deleted still does, as in Kafka."""
        return not self.is_new or self.offsets.was_used

    def drop_newer(self) -> None:
        """The end of the group is written, if it is a consumer or streams group: only its offsets are left."""
        if self.consumer is not None:
            self.consumer.is_dead = True
            self.consumer, self.runtime = None, ConsumerRuntime()
        if self.streams is not None:
            self.streams.is_dead = True
            self.streams, self.streams_runtime = None, StreamsRuntime()

    def forget_if_unused(self) -> None:
        """The request that it was made for has failed: it is as if there had been none."""
        if not self.is_listed:
            self.partition.entries.pop(self.group.group_id, None)

    @property
    def member_count(self) -> int:
        return len((self.newer or self.group).members)

    @property
    def is_dead(self) -> bool:
        newer = self.newer
        return self.group.state is GroupState.DEAD if newer is None else newer.is_dead


@dataclass(slots=True)
class GroupPartition:
    """The groups of one partition of `__consumer_offsets`."""

    index: int
    leader_epoch: LeaderEpoch
    entries: dict[str, GroupEntry] = field(default_factory=dict)
    #: Producer with an open transaction -> groups it committed offsets for.
    transactions: dict[ProducerId, dict[str, None]] = field(default_factory=dict)
    #: While it is loaded: the last record of each committed offset in the piece that is read (key -> value, offset of the record).
    unsettled: dict[bytes, tuple[bytes, Offset]] = field(default_factory=dict)
    #: Sweeps that it was loaded at (`removal`), 2 at most.
    sweeps: int = 0
    #: What its share groups have written.
    written: WrittenPartition = field(default_factory=WrittenPartition)
