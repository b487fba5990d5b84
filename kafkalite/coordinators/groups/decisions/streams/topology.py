"""The topology of a streams group against the topics that exist: how many tasks there are, which topics are missing. Pure.

Source: KIP-1071. A subtopology has as many tasks as its source topics have partitions at most. A repartition topic without a
number of its own has as many partitions as the topics that are read where it is written. A changelog has one per task.
"""

from __future__ import annotations

from collections.abc import Iterable, Mapping
from enum import IntEnum
from heapq import heappop, heappush

from kafkalite.errors import ErrorCode, api_error
from kafkalite.lazy_dataclass import dataclass

#: Names in one message; the others are counted.
_SHOWN = 3
#: Partitions that the tasks of one group read. Subtopologies of a few bytes may all read one topic with many partitions.
MAX_INPUTS = 100_000


class Status(IntEnum):
    """What a heartbeat's response says about the group; values are those on the wire."""

    STALE_TOPOLOGY = 0
    MISSING_SOURCE_TOPICS = 1
    INCORRECTLY_PARTITIONED_TOPICS = 2
    MISSING_INTERNAL_TOPICS = 3
    SHUTDOWN_APPLICATION = 4
    ASSIGNMENT_DELAYED = 5


@dataclass(frozen=True, slots=True)
class InternalTopic:
    """A topic that the broker creates. `partitions` 0: it follows from the topology; `replication_factor` 0: the default."""

    name: str
    partitions: int = 0
    replication_factor: int = 0
    configs: tuple[tuple[str, str], ...] = ()


@dataclass(frozen=True, slots=True)
class CopartitionGroup:
    """Topics of a subtopology that must have equally many partitions, by their places in its lists."""

    source_topics: tuple[int, ...] = ()
    source_regexes: tuple[int, ...] = ()
    repartition_source_topics: tuple[int, ...] = ()


@dataclass(frozen=True, slots=True)
class Subtopology:
    subtopology_id: str
    source_topics: tuple[str, ...] = ()
    source_regexes: tuple[str, ...] = ()
    changelogs: tuple[InternalTopic, ...] = ()
    repartition_sinks: tuple[str, ...] = ()
    repartition_sources: tuple[InternalTopic, ...] = ()
    copartition_groups: tuple[CopartitionGroup, ...] = ()

    @property
    def inputs(self) -> tuple[str, ...]:
        """All topics that it reads."""
        return (*self.source_topics, *(topic.name for topic in self.repartition_sources))

    def copartitioned(self) -> list[set[str]]:
        """The names of the topics of each copartition group."""
        return [
            {self.source_topics[index] for index in group.source_topics}
            | {self.repartition_sources[index].name for index in group.repartition_source_topics}
            for group in self.copartition_groups
        ]


@dataclass(frozen=True, slots=True)
class Topology:
    """As a member has sent it; subtopologies are sorted by their ids."""

    epoch: int
    subtopologies: tuple[Subtopology, ...] = ()

    def required_topics(self) -> set[str]:
        """All topics that it reads or keeps state in."""
        return {
            name for each in self.subtopologies for name in (*each.inputs, *(topic.name for topic in each.changelogs))
        }

    def named_topics(self) -> set[str]:
        """All topics that it names."""
        return self.required_topics() | {name for each in self.subtopologies for name in each.repartition_sinks}


@dataclass(frozen=True, slots=True)
class ConfiguredSubtopology:
    """`tasks`: how many it has. The internal topics have their numbers of partitions."""

    subtopology_id: str
    tasks: int
    source_topics: tuple[str, ...]
    repartition_sinks: tuple[str, ...]
    repartition_sources: tuple[InternalTopic, ...]
    changelogs: tuple[InternalTopic, ...]

    @property
    def is_stateful(self) -> bool:
        return bool(self.changelogs)


@dataclass(frozen=True, slots=True)
class Configured:
    """A topology as it can run now.

    subtopologies: empty if the topics do not fit. to_create: internal topics that are missing. problem: why it cannot run.
    """

    topology_epoch: int
    subtopologies: tuple[ConfiguredSubtopology, ...] = ()
    to_create: tuple[InternalTopic, ...] = ()
    problem: tuple[Status, str] | None = None
    #: Topic -> partitions, of the topics that its tasks read.
    partitions: tuple[tuple[str, int], ...] = ()

    @property
    def is_ready(self) -> bool:
        return self.problem is None


class _Unfit(Exception):
    def __init__(self, status: Status, text: str) -> None:
        super().__init__(text)
        self.status = status


def check(topology: Topology) -> None:
    """Whether its parts fit each other. Raises ApiError STREAMS_INVALID_TOPOLOGY; INVALID_REQUEST for what Kafka 4.4 does not take yet."""
    if any(each.source_regexes for each in topology.subtopologies):
        raise api_error(ErrorCode.INVALID_REQUEST, "Regular expressions for source topics are not supported yet.")
    seen: set[str] = set()
    for each in topology.subtopologies:
        if each.subtopology_id in seen:
            raise _invalid(f"Subtopology {each.subtopology_id} is there twice.")
        seen.add(each.subtopology_id)
        if any(group.source_regexes for group in each.copartition_groups):
            raise _invalid("Regular expressions for source topics are not supported by the group coordinator.")
        if not each.inputs:
            raise _invalid(f"Subtopology {each.subtopology_id} has no source topics.")
        for group in each.copartition_groups:
            if not all(0 <= index < len(each.source_topics) for index in group.source_topics) or not all(
                0 <= index < len(each.repartition_sources) for index in group.repartition_source_topics
            ):
                raise _invalid(
                    f"A copartition group of subtopology {each.subtopology_id} names topics that are not there."
                )
    written = {name for each in topology.subtopologies for name in each.repartition_sinks}
    for each in topology.subtopologies:
        for topic in each.repartition_sources:
            if not topic.partitions and topic.name not in written:
                raise _invalid(f"Nothing writes the repartition topic {topic.name}, which has no number of partitions.")


def _invalid(text: str) -> Exception:
    return api_error(ErrorCode.STREAMS_INVALID_TOPOLOGY, text)


def configure(topology: Topology, existing: Mapping[str, int]) -> Configured:
    """The topology with these topics (name -> partitions).

    Raises ApiError STREAMS_INVALID_TOPOLOGY: no topics could make it run.
    """
    try:
        return _configured(topology, existing)
    except _Unfit as unfit:
        return Configured(topology.epoch, problem=(unfit.status, str(unfit)))


def _configured(topology: Topology, existing: Mapping[str, int]) -> Configured:
    missing = {name for each in topology.subtopologies for name in each.source_topics if name not in existing}
    if missing:
        raise _Unfit(Status.MISSING_SOURCE_TOPICS, f"Missing source topics: {shown(missing)}")
    counts = _partition_counts(topology, existing)
    subtopologies = []
    inputs = 0
    wanted: dict[str, InternalTopic] = {}
    for each in sorted(topology.subtopologies, key=lambda each: each.subtopology_id):
        tasks = max(counts[name] for name in each.inputs)
        inputs += tasks * len(each.inputs)
        if inputs > MAX_INPUTS:
            text = f"The tasks of the topology would read more than {MAX_INPUTS} partitions"
            raise _Unfit(Status.INCORRECTLY_PARTITIONED_TOPICS, text)
        repartition = tuple(_sized(topic, counts[topic.name]) for topic in each.repartition_sources)
        changelogs = tuple(_sized(topic, tasks) for topic in each.changelogs)
        wanted.update((topic.name, topic) for topic in (*repartition, *changelogs))
        subtopologies.append(
            ConfiguredSubtopology(
                each.subtopology_id, tasks, each.source_topics, each.repartition_sinks, repartition, changelogs
            )
        )
    for name, topic in sorted(wanted.items()):
        if existing.get(name, topic.partitions) != topic.partitions:
            text = f"Existing topic {name} has different number of partitions: expected {topic.partitions}, found {existing[name]}"
            raise _Unfit(Status.INCORRECTLY_PARTITIONED_TOPICS, text)
    to_create = tuple(topic for name, topic in sorted(wanted.items()) if name not in existing)
    problem = None
    if to_create:
        names = shown(topic.name for topic in to_create)
        problem = (Status.MISSING_INTERNAL_TOPICS, f"Internal topics are missing: {names}")
    read = sorted({name for each in topology.subtopologies for name in each.inputs})
    sizes = tuple((name, counts[name]) for name in read)
    return Configured(topology.epoch, tuple(subtopologies), to_create, problem, sizes)


def _sized(topic: InternalTopic, partitions: int) -> InternalTopic:
    return InternalTopic(topic.name, partitions, topic.replication_factor, topic.configs)


def _partition_counts(topology: Topology, existing: Mapping[str, int]) -> dict[str, int]:
    """Of all topics that are read. Raises _Unfit, ApiError."""
    fixed = {
        topic.name: topic.partitions
        for each in topology.subtopologies
        for topic in each.repartition_sources
        if topic.partitions
    }
    open_topics = [
        topic.name for each in topology.subtopologies for topic in each.repartition_sources if not topic.partitions
    ]
    counts = {name: existing[name] for each in topology.subtopologies for name in each.source_topics} | fixed
    _follow(topology, counts)
    if missing := [name for name in dict.fromkeys(open_topics) if name not in counts]:
        raise _invalid(f"The number of partitions of {shown(missing)} does not follow from the topology.")
    _copartition(topology, counts, set(fixed), set(open_topics) - set(fixed))
    return counts


def _follow(topology: Topology, counts: dict[str, int]) -> None:
    """What is written has as many partitions as what is known of the inputs.

    A repartition topic may be read where another one is written, also in a circle (joins by a foreign key): what is known of the
    inputs decides, in the order of the subtopologies, round after round until nothing new follows. As in Kafka's RepartitionTopics;
    but a subtopology is looked at once, when something that it reads is known, and not in every round.
    """
    readers: dict[str, list[int]] = {}
    for place, each in enumerate(topology.subtopologies):
        for name in each.inputs:
            readers.setdefault(name, []).append(place)
    #: (round, place), the next one first.
    due = [(0, place) for place in sorted({place for name in counts for place in readers.get(name, ())})]
    seen = {place for _, place in due}
    while due:
        number, place = heappop(due)
        each = topology.subtopologies[place]
        count = max(counts[name] for name in each.inputs if name in counts)
        for name in each.repartition_sinks:
            if name in counts:
                continue
            counts[name] = count
            for reader in readers.get(name, ()):
                if reader not in seen:
                    seen.add(reader)
                    heappush(due, (number if reader > place else number + 1, reader))


def _copartition(topology: Topology, counts: dict[str, int], fixed: set[str], flexible: set[str]) -> None:
    """Give copartitioned repartition topics without a number of their own that of the others. Raises _Unfit.

    The texts are those of Kafka's CopartitionedTopicsEnforcer: Kafka Streams shows them to its users.
    """
    for each in topology.subtopologies:
        for group in each.copartitioned():
            sources = group - fixed - flexible
            deciding = sources or group & fixed
            if len({counts[name] for name in deciding}) > 1:
                sizes = ", ".join(f"{name}={counts[name]}" for name in sorted(sources or group))
                raise _Unfit(
                    Status.INCORRECTLY_PARTITIONED_TOPICS,
                    f"Following topics do not have the same number of partitions: [{{{sizes}}}]",
                )
            size = max((counts[name] for name in deciding or group), default=0)
            for name in sorted(group & fixed):
                if counts[name] != size:
                    raise _Unfit(
                        Status.INCORRECTLY_PARTITIONED_TOPICS,
                        f"Number of partitions [{counts[name]}] of repartition topic [{name}] doesn't match number of"
                        f" partitions [{size}] of the source topic.",
                    )
            counts.update(dict.fromkeys(group & flexible, size))


def shown(names: Iterable[str], most: int = _SHOWN) -> str:
    """The first ones, and how many others there are."""
    ordered = sorted(names)
    more = f" and {len(ordered) - most} more" if len(ordered) > most else ""
    return ", ".join(ordered[:most]) + more
