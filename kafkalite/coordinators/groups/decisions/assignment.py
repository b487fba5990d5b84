"""Target assignments of consumer groups: what an assignor gets and returns (KIP-848). Pure.

An assignor is a generator. It yields now and then, so that the caller can let others run between two pieces: 2,000
partitions and 1,000 members take longer than the loop may be held.
"""

from __future__ import annotations

from collections.abc import Callable, Generator, Mapping
from dataclasses import field

from kafkalite.coordinators.groups.decisions.members import Assignment
from kafkalite.lazy_dataclass import dataclass
from kafkalite.model import TopicId

#: Steps of an assignor between two yields: about a millisecond.
PIECE = 1_000

NewTargets = dict[str, Assignment]
Steps = Generator[None, None, NewTargets]


@dataclass(frozen=True, slots=True)
class AssignedTopic:
    """A topic; `racks`: of each partition those with a replica, empty if racks are not known."""

    topic_id: TopicId
    name: str
    partitions: int
    racks: tuple[frozenset[str], ...] = ()


@dataclass(frozen=True, slots=True)
class AssignedMember:
    """A member; `topics` subscribed to, `target`: what it was assigned last."""

    member_id: str
    instance_id: str | None
    rack_id: str | None
    topics: frozenset[TopicId]
    target: Assignment = field(default_factory=dict)

    @property
    def rank(self) -> tuple[bool, str]:
        """Members in this order: a static one keeps its place when it is restarted."""
        return self.instance_id is None, self.instance_id or self.member_id


@dataclass(frozen=True, slots=True)
class AssignmentInput:
    """`members` in the order of their ranks; all topics that any of them subscribes to."""

    members: tuple[AssignedMember, ...]
    topics: Mapping[TopicId, AssignedTopic]

    def by_name(self) -> list[AssignedTopic]:
        return sorted(self.topics.values(), key=lambda topic: topic.name)


Assignor = Callable[[AssignmentInput], Steps]
