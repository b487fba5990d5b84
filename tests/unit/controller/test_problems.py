"""What the controller reports of internal topics that were created when there were fewer brokers."""

from __future__ import annotations

import pytest

from kafkalite.controller.decisions.problems import find_problems
from kafkalite.controller.decisions.state import ControllerState, Topic
from kafkalite.model import GROUP_TOPIC, BrokerEpoch, BrokerId, BrokerInfo, ControllerEpoch, Endpoint, TopicId

WANTED = {GROUP_TOPIC: 3}


def _state(brokers: int, *replicas: tuple[int, ...]) -> ControllerState:
    where = Endpoint("h", 1)
    live = {
        BrokerId(number): BrokerInfo(BrokerId(number), BrokerEpoch(1), where, where) for number in range(1, brokers + 1)
    }
    assignment = {number: tuple(map(BrokerId, each)) for number, each in enumerate(replicas)}
    topics = {GROUP_TOPIC: Topic(TopicId("a"), assignment)} if replicas else {}
    return ControllerState(BrokerId(1), ControllerEpoch(1), brokers=live, topics=topics)


@pytest.mark.parametrize(
    ("state", "is_reported"),
    [
        (_state(3), False),  # not created yet
        (_state(1, (1,)), False),  # there are no more brokers
        (_state(3, (1,), (1, 2, 3)), True),
        (_state(2, (1,)), True),
        (_state(3, (1, 2, 3)), False),
        (_state(5, (1, 2, 3), (3, 4, 5)), False),
    ],
)
def test_an_internal_topic_with_few_replicas(state: ControllerState, *, is_reported: bool) -> None:
    found = [subject for what, subject, _ in find_problems(state, {}, WANTED) if what == "topic.few_replicas"]
    assert found == ([GROUP_TOPIC] if is_reported else [])
