"""What a streams group consists of (KIP-1071), and the records that change it. Values only.

A task is a subtopology and a partition number. A member has a task in one of three roles: it processes it (active), it keeps a
copy of its state (standby), or it builds such a copy because it will process the task next (warm-up).
"""

from __future__ import annotations

from collections.abc import Iterable, Iterator, Mapping
from dataclasses import field
from enum import IntEnum
from typing import ClassVar

from kafkalite.coordinators.groups.decisions.members import (
    CurrentAssignment,
    EpochMember,
    MemberMetadata,
    TargetEpoch,
    TargetMember,
)
from kafkalite.coordinators.groups.decisions.streams.topology import Topology
from kafkalite.lazy_dataclass import dataclass

#: Subtopology and partition.
Task = tuple[str, int]
NO_TASKS: frozenset[Task] = frozenset()


class StreamsMemberState(IntEnum):
    """How far a member is on its way to its target. Values are those of Kafka's records."""

    STABLE = 1
    #: It has to give up tasks, and has not said yet that it did.
    UNREVOKED_TASKS = 2
    #: It waits for tasks that other members have not given up yet.
    UNRELEASED_TASKS = 3
    #: Written by a newer coordinator.
    UNKNOWN = 127


@dataclass(frozen=True, slots=True)
class TaskSets:
    """Tasks by role."""

    active: frozenset[Task] = NO_TASKS
    standby: frozenset[Task] = NO_TASKS
    warmup: frozenset[Task] = NO_TASKS

    def __iter__(self) -> Iterator[frozenset[Task]]:
        return iter((self.active, self.standby, self.warmup))

    def __bool__(self) -> bool:
        return bool(self.active or self.standby or self.warmup)

    @property
    def all(self) -> frozenset[Task]:
        return self.active | self.standby | self.warmup

    def __and__(self, other: TaskSets) -> TaskSets:
        return TaskSets(*(mine & theirs for mine, theirs in zip(self, other, strict=True)))

    def __or__(self, other: TaskSets) -> TaskSets:
        return TaskSets(*(mine | theirs for mine, theirs in zip(self, other, strict=True)))

    def __sub__(self, other: TaskSets) -> TaskSets:
        return TaskSets(*(mine - theirs for mine, theirs in zip(self, other, strict=True)))

    def is_part_of(self, other: TaskSets) -> bool:
        return all(mine <= theirs for mine, theirs in zip(self, other, strict=True))


NOTHING = TaskSets()


@dataclass(frozen=True, slots=True)
class StreamsMember(EpochMember):
    """One member. `since`: the member epoch in which it got each active task that it has or has to give up.

    `endpoint`: host and port of its interactive queries. `tags` are sorted.
    """

    STABLE: ClassVar = StreamsMemberState.STABLE
    UNREVOKED: ClassVar = StreamsMemberState.UNREVOKED_TASKS

    state: StreamsMemberState = StreamsMemberState.STABLE
    assigned: TaskSets = NOTHING
    revoking: TaskSets = NOTHING
    topology_epoch: int = 0
    process_id: str = ""
    endpoint: tuple[str, int] | None = None
    tags: tuple[tuple[str, str], ...] = ()
    since: Mapping[Task, int] = field(default_factory=dict)


def by_subtopology(tasks: Iterable[Task]) -> dict[str, list[int]]:
    """Subtopology -> partitions, both sorted."""
    found: dict[str, list[int]] = {}
    for subtopology, partition in sorted(tasks):
        found.setdefault(subtopology, []).append(partition)
    return found


# --- records, beside those that streams groups have in common with consumer groups ---


@dataclass(frozen=True, slots=True)
class StreamsGroupMetadata:
    """`epoch` None: the group is gone.

    metadata_hash: of the topics that it needs. validated_epoch: the topology epoch for which all topics are as they must be, or
    -1. settings: those that the assignment depends on.
    """

    epoch: int | None
    metadata_hash: int = 0
    validated_epoch: int = -1
    settings: tuple[tuple[str, str], ...] = ()


@dataclass(frozen=True, slots=True)
class StreamsTopologyRecord:
    """`topology` None: the group is gone."""

    topology: Topology | None


StreamsRecord = (
    MemberMetadata[StreamsMember]
    | StreamsGroupMetadata
    | StreamsTopologyRecord
    | TargetMember[TaskSets]
    | TargetEpoch
    | CurrentAssignment[StreamsMember]
)
