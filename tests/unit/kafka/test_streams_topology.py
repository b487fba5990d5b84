"""How many partitions the repartition topics of a streams group have. Source: RepartitionTopics and CopartitionedTopicsEnforcer of Kafka 4.4."""

from __future__ import annotations

import pytest

from kafkalite.coordinators.groups.decisions.streams.topology import (
    CopartitionGroup,
    InternalTopic,
    Status,
    Subtopology,
    Topology,
    configure,
)
from kafkalite.errors import ErrorCode
from tests.support.calls import calls
from tests.support.failing import fails_with

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
    with fails_with(ErrorCode.STREAMS_INVALID_TOPOLOGY):
        configure(Topology(1, circle), {})


@pytest.mark.parametrize(
    ("sources", "repartition", "partitions", "detail"),
    [
        (
            ("a", "b"),
            (),
            {"a": 2, "b": 3},
            "Following topics do not have the same number of partitions: [{a=2, b=3}]",
        ),
        (
            ("a",),
            (InternalTopic("x", 2),),
            {"a": 6},
            "Number of partitions [2] of repartition topic [x] doesn't match number of partitions [6] of the source topic.",
        ),
        (
            (),
            (InternalTopic("x", 2), InternalTopic("y", 3)),
            {},
            "Following topics do not have the same number of partitions: [{x=2, y=3}]",
        ),
    ],
)
def test_numbers_that_do_not_fit_are_named_as_by_kafka(
    sources: tuple[str, ...], repartition: tuple[InternalTopic, ...], partitions: dict[str, int], detail: str
) -> None:
    """Kafka Streams ends with this text (KStreamRepartitionIntegrationTest)."""
    together = CopartitionGroup(tuple(range(len(sources))), repartition_source_topics=tuple(range(len(repartition))))
    only = Subtopology("0", sources, repartition_sources=repartition, copartition_groups=(together,))
    assert configure(Topology(1, (only,)), partitions).problem == (Status.INCORRECTLY_PARTITIONED_TOPICS, detail)


def test_repartition_topics_take_the_number_of_the_one_that_has_its_own() -> None:
    together = CopartitionGroup(repartition_source_topics=(0, 1))
    first = Subtopology(
        "0",
        repartition_sources=(InternalTopic("x", 2), InternalTopic("y")),
        copartition_groups=(together,),
    )
    second = Subtopology("1", ("in",), repartition_sinks=("y",))
    assert sizes(Topology(1, (first, second)), **{"in": 7}) == {"x": 2, "y": 2}


def chain(length: int) -> Topology:
    """Each subtopology reads what the next one writes: by their order nothing is known of any but the last one."""
    parts = [
        Subtopology(
            f"{length - place:06}",
            repartition_sinks=(f"t{place + 1}",),
            repartition_sources=(InternalTopic(f"t{place}", 0 if place else 3),),
        )
        for place in range(length)
    ]
    return Topology(1, tuple(reversed(parts)))


def test_a_long_chain_costs_as_much_as_its_parts() -> None:
    """A member with the right to read its own group held the loop for seconds with it."""
    assert set(sizes(chain(100)).values()) == {3}
    assert calls(lambda: configure(chain(1_000), {})) < 12 * calls(lambda: configure(chain(100), {}))


def test_tasks_read_a_limited_number_of_partitions() -> None:
    """A subtopology of a few bytes has as many tasks as its topic has partitions; the same topic may be named many times."""
    many = Topology(1, tuple(Subtopology(str(number), ("in",)) for number in range(1_000)))
    assert configure(many, {"in": 100}).is_ready
    for topology in (many, Topology(1, (Subtopology("0", ("in",) * 1_000),))):
        problem = configure(topology, {"in": 101}).problem
        assert problem is not None
        assert problem[0] is Status.INCORRECTLY_PARTITIONED_TOPICS
        assert "more than 100000 partitions" in problem[1]
