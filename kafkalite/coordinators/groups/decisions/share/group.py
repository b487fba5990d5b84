"""The state of a share group (KIP-932). It changes by records only, live as on loading, and by the time. Pure.

EMPTY     no members
STABLE    some
DEAD      deleted, or unloaded

Members own nothing: several of them may have the same partition, whose leader gives each record to one of them. So a
member is at its target at once. A partition is assigned when the share coordinator has begun a state for it.
"""

from __future__ import annotations

from collections.abc import Iterable, Mapping
from dataclasses import field, replace
from enum import Enum

from kafkalite.coordinators.groups.decisions.assigned_group import TargetedGroup
from kafkalite.coordinators.groups.decisions.members import (
    Assignment,
    CurrentAssignment,
    GroupEpoch,
    MemberMetadata,
    TargetEpoch,
    TargetMember,
    members_gone,
)
from kafkalite.lazy_dataclass import dataclass
from kafkalite.model import TopicId


class ShareGroupState(Enum):
    """Values are Kafka's names on the wire."""

    EMPTY = "Empty"
    STABLE = "Stable"
    DEAD = "Dead"


@dataclass(frozen=True, slots=True)
class ShareMember:
    """One member. `topics` are sorted."""

    member_id: str
    rack_id: str | None = None
    client_id: str = ""
    client_host: str = ""
    topics: tuple[str, ...] = ()
    epoch: int = 0
    previous_epoch: int = 0
    assigned: Assignment = field(default_factory=dict)


@dataclass(frozen=True, slots=True)
class SharedTopic:
    """A topic with partitions that have a state at the share coordinator, or will have one soon."""

    name: str
    partitions: frozenset[int]


SharedTopics = Mapping[TopicId, SharedTopic]


# --- records, beside those that share groups have in common with consumer groups ---


@dataclass(frozen=True, slots=True)
class PartitionsWithState:
    """Of which partitions there is a state, or may be one: a partition is here from before its state begins until it is deleted.

    `initializing`: a state may be there, or not. `deleting`: topics whose states are being deleted, with their names; their
    partitions are among `initializing` (records of versions up to 2026-11 do not have them).
    """

    initializing: SharedTopics = field(default_factory=dict)
    initialized: SharedTopics = field(default_factory=dict)
    deleting: Mapping[TopicId, str] = field(default_factory=dict)


@dataclass(frozen=True, slots=True)
class NoSharedPartitions:
    """The group is gone."""


ShareRecord = (
    MemberMetadata[ShareMember]
    | GroupEpoch
    | TargetMember[Assignment]
    | TargetEpoch
    | CurrentAssignment[ShareMember]
    | PartitionsWithState
    | NoSharedPartitions
)


@dataclass(slots=True)
class ShareGroup(TargetedGroup[ShareMember, Assignment]):
    """See the module. `deadlines`: until when a heartbeat of a member is expected (ms of the monotonic clock)."""

    shared: PartitionsWithState = field(default_factory=PartitionsWithState)
    deadlines: dict[str, int] = field(default_factory=dict)

    def apply(self, record: ShareRecord) -> None:
        """Take what a record says."""
        match record:
            case MemberMetadata(member_id, None):
                self.members.pop(member_id, None)
                self.targets.pop(member_id, None)
                self.deadlines.pop(member_id, None)
            case MemberMetadata(member_id, member) if member is not None:
                known = self.members.get(member_id) or ShareMember(member_id)
                self.members[member_id] = replace(
                    member, epoch=known.epoch, previous_epoch=known.previous_epoch, assigned=known.assigned
                )
            case GroupEpoch(epoch, metadata_hash):
                self.apply_epoch(epoch, metadata_hash)
            case TargetMember() | TargetEpoch():
                self.apply_target(record)
            case CurrentAssignment(member_id, current):
                self._set_assigned(member_id, current)
            case PartitionsWithState():
                self.shared = record
            case _:
                self.shared = PartitionsWithState()

    def _set_assigned(self, member_id: str, current: ShareMember | None) -> None:
        known = self.members.get(member_id)
        if current is None and known is None:
            return
        current = current or ShareMember(member_id)
        self.members[member_id] = replace(
            known or current, epoch=current.epoch, previous_epoch=current.previous_epoch, assigned=current.assigned
        )

    @property
    def state(self) -> ShareGroupState:
        if self.is_dead:
            return ShareGroupState.DEAD
        return ShareGroupState.STABLE if self.members else ShareGroupState.EMPTY

    def next_deadline(self) -> int | None:
        """When the group must be asked for `overdue` at the latest; None: never."""
        return min(self.deadlines.values(), default=None)

    def overdue(self, now: int) -> list[ShareMember]:
        """Members whose sessions have expired."""
        late = [member_id for member_id, deadline in self.deadlines.items() if deadline <= now]
        return [self.members[member_id] for member_id in late if member_id in self.members]


def joined(some: SharedTopics, more: SharedTopics) -> dict[TopicId, SharedTopic]:
    """All partitions of both."""
    found = dict(some)
    for topic_id, topic in more.items():
        known = found.get(topic_id)
        found[topic_id] = topic if known is None else SharedTopic(topic.name, known.partitions | topic.partitions)
    return found


def without(some: SharedTopics, others: Mapping[TopicId, frozenset[int]]) -> dict[TopicId, SharedTopic]:
    """`some` without these partitions."""
    found: dict[TopicId, SharedTopic] = {}
    for topic_id, topic in some.items():
        gone = others.get(topic_id)
        left = topic.partitions if gone is None else topic.partitions - gone
        if left:
            found[topic_id] = topic if gone is None else SharedTopic(topic.name, left)
    return found


def only(some: SharedTopics, these: Mapping[TopicId, frozenset[int]]) -> dict[TopicId, SharedTopic]:
    """What `some` has of these partitions."""
    found = {key: SharedTopic(each.name, each.partitions & these.get(key, frozenset())) for key, each in some.items()}
    return {key: each for key, each in found.items() if each.partitions}


def partitions_of(topics: SharedTopics) -> dict[TopicId, frozenset[int]]:
    return {topic_id: topic.partitions for topic_id, topic in topics.items()}


def deletion_begun(shared: PartitionsWithState, topic_ids: Iterable[TopicId]) -> PartitionsWithState:
    """`shared` after the deletion of the states of these topics has begun: the next coordinator has to know the partitions, too."""
    gone = set(topic_ids)
    doomed = {key: each for key, each in joined(shared.initializing, shared.initialized).items() if key in gone}
    return PartitionsWithState(
        joined(shared.initializing, doomed),
        {key: each for key, each in shared.initialized.items() if key not in gone},
        {**shared.deleting, **{key: doomed[key].name for key in sorted(doomed)}},
    )


def tombstones(group: ShareGroup) -> list[ShareRecord]:
    """The records after which the group does not exist any more."""
    return [*members_gone(group.members, group.targets), NoSharedPartitions(), GroupEpoch(None)]
