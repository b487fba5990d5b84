"""How many partitions the repartition topics of a streams group have. Source: RepartitionTopics and CopartitionedTopicsEnforcer of Kafka 4.4."""

from __future__ import annotations

import pytest

from kafkalite.coordinators.groups.decisions.streams.topology import (
    CopartitionGroup,
    InternalTopic,
    Subtopology,
    Topology,
    configure,
)
from kafkalite.errors import ApiError, ErrorCode

TOGETHER = (CopartitionGroup(source_topics=(0,), repartition_source_topics=(0,)),)


def sizes(topology: Topology, **existing: int) -> dict[str, int]:
    return {topic.name: topic.partitions for topic in configure(topology, existing).to_create}


def test_a_join_by_a_foreign_key_is_a_circle() -> None:
    """Each side reads what the other one writes; a topic has as many partitions as the table that it is read with."""
    left = Subtopology(
        "0",
        ("comments",),
        repartition_sinks=("registration",),
        repartition_sources=(InternalTopic("response"),),
        copartition_groups=TOGETHER,
    )
    right = Subtopology(
        "1",
        ("articles",),
        repartition_sinks=("response",),
        repartition_sources=(InternalTopic("registration"),),
        copartition_groups=TOGETHER,
    )
    assert sizes(Topology(1, (left, right)), comments=5, articles=3) == {"registration": 3, "response": 5}


def test_what_is_known_of_the_inputs_decides() -> None:
    """In the order of the subtopologies, as with Kafka: a group that comes from there has its topics already."""
    first = Subtopology("0", ("few",), repartition_sinks=("y",), repartition_sources=(InternalTopic("x"),))
    second = Subtopology("1", ("many",), repartition_sinks=("x",))
    third = Subtopology("2", repartition_sources=(InternalTopic("y"),))
    assert sizes(Topology(1, (first, second, third)), few=2, many=10) == {"x": 10, "y": 2}


def test_a_circle_without_any_source_is_refused() -> None:
    circle = tuple(
        Subtopology(name, repartition_sinks=(other,), repartition_sources=(InternalTopic(name),))
        for name, other in (("x", "y"), ("y", "x"))
    )
    with pytest.raises(ApiError) as refused:
        configure(Topology(1, circle), {})
    assert refused.value.code is ErrorCode.STREAMS_INVALID_TOPOLOGY
