"""Coordinators that have been replaced and do not know it yet."""

from __future__ import annotations

from typing import TYPE_CHECKING

from kafkalite.coordinators.internal_log import partition_of
from kafkalite.model import GROUP_TOPIC, TopicPartition

if TYPE_CHECKING:
    from kafkalite.testing.simulation.run import Simulation


def has_former_coordinator(simulation: Simulation, group: str) -> bool:
    """Whether more than one node takes itself for the group's coordinator. For a while, the former one answers from its memory: of offsets
    that were committed since, and of groups that came since, it does not know (ADR 15)."""
    count = len(simulation.assignment(GROUP_TOPIC))
    if not count:
        return False
    partition = TopicPartition(GROUP_TOPIC, partition_of(group, count))
    hosted = [each.node.replicas.hosted.get(partition) for each in simulation.nodes.values() if each.ready]
    return sum(each is not None and each.leader is not None for each in hosted) > 1
