"""What a consumer group consists of (KIP-848), and the records that change it. Values only.

Epochs are Kafka's: the group's counts changes of subscriptions or topics, the target's is the group epoch that the target
assignment was made for, a member's is the target epoch that it has reached.
"""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import field
from enum import IntEnum

from kafkalite.lazy_dataclass import dataclass
from kafkalite.model import TopicId

#: Member epochs that a client sends: to join, to leave, to leave for a while (a static member).
JOIN_EPOCH, LEAVE_EPOCH, LEAVE_FOR_A_WHILE_EPOCH = 0, -1, -2

#: Topic -> its partitions.
Assignment = Mapping[TopicId, frozenset[int]]
#: Topic -> partition -> the member epoch in which the member got it (KIP-1251).
Held = Mapping[TopicId, Mapping[int, int]]


class MemberState(IntEnum):
    """How far a member is on its way to its target. Values are those of Kafka's records."""

    STABLE = 0
    #: It has to give up partitions, and has not said yet that it did.
    UNREVOKED_PARTITIONS = 1
    #: It waits for partitions that other members have not given up yet.
    UNRELEASED_PARTITIONS = 2
    #: Written by a newer coordinator.
    UNKNOWN = 127


@dataclass(frozen=True, slots=True)
class ClassicProtocols:
    """Of a member that speaks the classic protocol: what it said when it joined. Names with their metadata."""

    session_timeout_ms: int
    protocols: tuple[tuple[str, bytes], ...]


@dataclass(frozen=True, slots=True)
class ConsumerMember:
    """One member. `topics` are sorted; `regex` "": none; `classic` None: it speaks the consumer protocol."""

    member_id: str
    instance_id: str | None = None
    rack_id: str | None = None
    client_id: str = ""
    client_host: str = ""
    topics: tuple[str, ...] = ()
    regex: str = ""
    rebalance_timeout_ms: int = -1
    assignor: str | None = None
    classic: ClassicProtocols | None = None
    epoch: int = 0
    previous_epoch: int = 0
    state: MemberState = MemberState.STABLE
    assigned: Held = field(default_factory=dict)
    revoking: Held = field(default_factory=dict)

    def is_reconciled_to(self, target_epoch: int) -> bool:
        return self.state is MemberState.STABLE and self.epoch == target_epoch


@dataclass(frozen=True, slots=True)
class ResolvedRegex:
    """The topics that a regular expression matched. `version` counts its resolutions; `at_ms` is wall time."""

    topics: tuple[str, ...]
    version: int
    at_ms: int


# --- records: what is written to __consumer_offsets, in this order, and what changes a group ---


@dataclass(frozen=True, slots=True)
class MemberMetadata:
    """All of a member but its assignment; `member` None: it is gone."""

    member_id: str
    member: ConsumerMember | None


@dataclass(frozen=True, slots=True)
class GroupEpoch:
    """`epoch` None: the group is gone. `metadata_hash`: of the topics that it subscribes to."""

    epoch: int | None
    metadata_hash: int = 0


@dataclass(frozen=True, slots=True)
class TargetMember:
    """A member's target; None: it is gone."""

    member_id: str
    target: Assignment | None


@dataclass(frozen=True, slots=True)
class TargetEpoch:
    """The target assignment of this epoch is complete; None: the group is gone."""

    epoch: int | None
    at_ms: int = 0


@dataclass(frozen=True, slots=True)
class CurrentAssignment:
    """What a member has: the assignment fields of `member`; None: it is gone."""

    member_id: str
    member: ConsumerMember | None


@dataclass(frozen=True, slots=True)
class RegexTopics:
    """What a regular expression matched; None: no member has it any more."""

    regex: str
    resolved: ResolvedRegex | None


@dataclass(frozen=True, slots=True)
class ClassicTombstone:
    """The classic group of this name is gone."""


@dataclass(frozen=True, slots=True)
class OldMetadataTombstone:
    """A record of Kafka before 4.1 that has no use any more."""


Record = (
    MemberMetadata
    | GroupEpoch
    | TargetMember
    | TargetEpoch
    | CurrentAssignment
    | RegexTopics
    | ClassicTombstone
    | OldMetadataTombstone
)
