"""What the simulation's administrator of share groups says of deliveries."""

from __future__ import annotations

from types import SimpleNamespace
from typing import Any

from kafkalite.testing.simulation.plan import draw
from kafkalite.testing.simulation.workloads.administered import ShareCourse
from kafkalite.testing.simulation.workloads.shares import LeaderTerms


def test_an_answer_that_is_late_is_of_the_topic_before() -> None:
    """The deletion of the topic was not answered, so the next one had another name, which the node had never led."""
    simulation: Any = SimpleNamespace(plan=draw(1), shares=SimpleNamespace())
    terms = simulation.shares.terms = LeaderTerms(simulation)
    terms._leaders["shared1-1", 0] = "node3"
    course, delivered = ShareCourse(simulation, 1), list[Any]()
    course.shares = SimpleNamespace(deliver=lambda *arguments: delivered.append(arguments))  # type: ignore[assignment]
    course._names, course.topic = {"aa": "shared1-1", "bb": "shared1-2"}, "shared1-2"
    course.members[0].delivered(("aa", 0), 5, b"", 1, 7.0, "node3")
    assert delivered == [(("aa", 0), 5, 1, 7.0)]
