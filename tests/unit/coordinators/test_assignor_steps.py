"""The server-side assignors of consumer groups do their work in small steps."""

from __future__ import annotations

from kafkalite.coordinators.groups.decisions.assignment import AssignedMember, AssignedTopic, AssignmentInput
from kafkalite.coordinators.groups.decisions.consumer.assignors import uniform
from kafkalite.model import TopicId


def test_a_large_topic_of_members_with_different_topics_is_shared_out_in_steps() -> None:
    """With racks, each partition may cost a heap of all members: 1,000 members and 10,000 partitions held the loop for 230 ms."""
    racks = tuple(frozenset({f"r{number % 6}"}) for number in range(2_000))
    large = AssignedTopic(TopicId("large"), "large", 2_000, racks)
    small = AssignedTopic(TopicId("small"), "small", 1, racks[:1])
    topics = {each.topic_id: each for each in (large, small)}
    members = tuple(
        AssignedMember(
            f"m{number:03}", None, f"r{number % 5}", frozenset(topics) if number % 2 else frozenset({large.topic_id})
        )
        for number in range(300)
    )
    steps = sum(1 for _ in uniform(AssignmentInput(members, topics)))
    assert steps >= 2_000 / 50
