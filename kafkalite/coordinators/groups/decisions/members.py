"""What a consumer group consists of (KIP-848), and the records that change it. Values only. Streams groups and share groups have
their members and their targets in records of the same kinds.

Epochs are Kafka's: the group's counts changes of subscriptions or topics, the target's is the group epoch that the target
assignment was made for, a member's is the target epoch that it has reached.
"""

from __future__ import annotations

from collections.abc import Iterable, Mapping
from dataclasses import field
from enum import IntEnum
from typing import Any, ClassVar, Generic, NamedTuple, TypeVar

from kafkalite.coordinators.append_sizes import RECORD_BYTES, fitting
from kafkalite.lazy_dataclass import dataclass
from kafkalite.model import ProducerId, TopicId

#: Member epochs that a client sends: to join, to leave, to leave for a while (a static member).
JOIN_EPOCH, LEAVE_EPOCH, LEAVE_FOR_A_WHILE_EPOCH = 0, -1, -2

#: Topic -> its partitions.
Assignment = Mapping[TopicId, frozenset[int]]
#: Topic -> partition -> the member epoch in which the member got it (KIP-1251).
Held = Mapping[TopicId, Mapping[int, int]]


T = TypeVar("T")


@dataclass(frozen=True, slots=True)
class EpochMember:
    """A member of a group whose coordinator assigns, whatever it assigns. `state` is one of the protocol's."""

    #: The states of a member that is at its target, and of one that has to give up something and has not said yet that it did.
    STABLE: ClassVar[IntEnum]
    UNREVOKED: ClassVar[IntEnum]

    member_id: str
    instance_id: str | None = None
    rack_id: str | None = None
    client_id: str = ""
    client_host: str = ""
    rebalance_timeout_ms: int = -1
    epoch: int = 0
    previous_epoch: int = 0
    state: Any = None
    assigned: Any = None
    revoking: Any = None

    def is_reconciled_to(self, target_epoch: int) -> bool:
        return self.state is self.STABLE and self.epoch == target_epoch

    @property
    def must_revoke(self) -> bool:
        """Whether it has to give up something within its rebalance timeout."""
        return self.state is self.UNREVOKED


class Committer(NamedTuple):
    """The sender of an offset commit. Generation -1: a client that assigns partitions itself, or an administrator.

    generation: or the member epoch. producer: id and epoch, if this is part of a transaction. knows_epochs: the request's version has
    a member epoch, and its client the error of a wrong one.
    """

    group_id: str
    member_id: str = ""
    instance_id: str | None = None
    generation: int = -1
    producer: tuple[ProducerId, int] | None = None
    knows_epochs: bool = False


M = TypeVar("M")


@dataclass(frozen=True, slots=True)
class EpochHeartbeat:
    """What a heartbeat of every such member says. None (`rebalance_timeout_ms` -1): as before."""

    member_id: str
    epoch: int
    instance_id: str | None = None
    rack_id: str | None = None
    rebalance_timeout_ms: int = -1
    client_id: str = ""
    client_host: str = ""
    #: Whose memory the member takes (`security.fair_room.user_of`).
    user: str = ""


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
class ConsumerMember(EpochMember):
    """One member. `topics` are sorted; `regex` "": none; `classic` None: it speaks the consumer protocol."""

    STABLE: ClassVar = MemberState.STABLE
    UNREVOKED: ClassVar = MemberState.UNREVOKED_PARTITIONS

    state: MemberState = MemberState.STABLE
    assigned: Held = field(default_factory=dict)
    revoking: Held = field(default_factory=dict)
    topics: tuple[str, ...] = ()
    regex: str = ""
    assignor: str | None = None
    classic: ClassicProtocols | None = None

    @property
    def must_revoke(self) -> bool:
        """A member of the classic protocol has another deadline: it has to join again."""
        return self.classic is None and self.state is self.UNREVOKED


@dataclass(frozen=True, slots=True)
class ResolvedRegex:
    """The topics that a regular expression matched. `version` counts its resolutions; `at_ms` is wall time."""

    topics: tuple[str, ...]
    version: int
    at_ms: int


# --- records: what is written to __consumer_offsets, in this order, and what changes a group ---


@dataclass(frozen=True, slots=True)
class MemberMetadata(Generic[M]):
    """All of a member but its assignment; `member` None: it is gone."""

    member_id: str
    member: M | None


@dataclass(frozen=True, slots=True)
class GroupEpoch:
    """`epoch` None: the group is gone. `metadata_hash`: of the topics that it subscribes to."""

    epoch: int | None
    metadata_hash: int = 0


@dataclass(frozen=True, slots=True)
class TargetMember(Generic[T]):
    """A member's target; None: it is gone."""

    member_id: str
    target: T | None


@dataclass(frozen=True, slots=True)
class TargetEpoch:
    """The target assignment of this epoch is complete; None: the group is gone."""

    epoch: int | None
    at_ms: int = 0


@dataclass(frozen=True, slots=True)
class CurrentAssignment(Generic[M]):
    """What a member has: the assignment fields of `member`, its epochs and state; None: it is gone."""

    member_id: str
    member: M | None


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
    MemberMetadata[ConsumerMember]
    | GroupEpoch
    | TargetMember[Assignment]
    | TargetEpoch
    | CurrentAssignment[ConsumerMember]
    | RegexTopics
    | ClassicTombstone
    | OldMetadataTombstone
)
#: What groups of every such protocol have records for.
MemberRecord = MemberMetadata[Any] | TargetMember[Any] | TargetEpoch | CurrentAssignment[Any]


def removal(member_id: str) -> list[MemberRecord]:
    """The records after which a member does not exist any more."""
    return [CurrentAssignment(member_id, None), TargetMember(member_id, None), MemberMetadata(member_id, None)]


def removed_together(group_id: str, member_ids: Iterable[str]) -> int:
    """How many of these members one append may remove, one at least: the sessions of thousands end in one moment."""
    group_bytes = len(group_id.encode())
    return fitting(3 * (group_bytes + len(member_id.encode()) + RECORD_BYTES) for member_id in member_ids)


def members_gone(members: Iterable[str], targets: Iterable[str]) -> list[MemberRecord]:
    """The records after which a group has no members and no target. `targets`: the members that have one."""
    names = list(members)
    return [
        *(CurrentAssignment[Any](name, None) for name in names),
        *(TargetMember[Any](name, None) for name in dict.fromkeys([*targets, *names])),
        TargetEpoch(None),
        *(MemberMetadata[Any](name, None) for name in names),
    ]
