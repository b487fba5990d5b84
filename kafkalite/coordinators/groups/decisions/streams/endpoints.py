"""Which partitions each endpoint of interactive queries serves (KIP-535, KIP-1071). Pure."""

from __future__ import annotations

from collections.abc import Iterable

from kafkalite.coordinators.groups.decisions.streams.group import StreamsGroup
from kafkalite.coordinators.groups.decisions.streams.members import Task
from kafkalite.lazy_dataclass import dataclass

#: Topic -> its partitions.
Served = dict[str, list[int]]


@dataclass(frozen=True, slots=True)
class EndpointPartitions:
    """One member with an endpoint: the partitions that its active tasks read, and those of its other tasks."""

    endpoint: tuple[str, int]
    active: Served
    standby: Served


def served(group: StreamsGroup) -> list[EndpointPartitions]:
    """One entry for each member that has an endpoint."""
    configured = group.configured
    if configured is None:
        return []
    sizes = dict(configured.partitions)
    inputs = {
        each.subtopology_id: [*each.source_topics, *(topic.name for topic in each.repartition_sources)]
        for each in configured.subtopologies
    }

    def partitions(tasks: Iterable[Task]) -> Served:
        found: Served = {}
        for subtopology, number in sorted(tasks):
            for topic in inputs.get(subtopology, ()):
                if number < sizes.get(topic, 0):
                    found.setdefault(topic, []).append(number)
        return found

    return [
        EndpointPartitions(
            member.endpoint,
            partitions(member.assigned.active),
            partitions(member.assigned.standby | member.assigned.warmup),
        )
        for _, member in sorted(group.members.items())
        if member.endpoint is not None
    ]
