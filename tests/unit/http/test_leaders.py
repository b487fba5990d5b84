"""What the leaders of many partitions are asked, a part at a time."""

from __future__ import annotations

from types import SimpleNamespace
from typing import Any

from kafkalite.extension.messages.topics import DescribeReplicasResponse
from kafkalite.http.leaders import ask_leaders
from kafkalite.model import TopicPartition
from kafkalite.rpc.answers import RpcTimeout


async def test_no_answer_is_about_more_than_a_part_and_who_is_silent_is_asked_once() -> None:
    """The console's list of topics asked every node for all replicas of its topics at once: 4,000 held the loop for 15 to 27 ms."""
    leaders = {TopicPartition("t", number): 1 + number % 2 for number in range(900)}
    leaders |= {TopicPartition("dead", 0): 3, TopicPartition("moved", 0): 1}
    questions: list[tuple[int, int]] = []

    async def ask_nodes(asked: dict[int, Any], *, timeout_s: float) -> dict[int, Any]:
        questions.extend((node, len(question.partitions)) for node, question in asked.items())
        answers: dict[int, Any] = {}
        for node, question in asked.items():
            replicas = tuple(
                SimpleNamespace(topic=topic, partition=number, is_leader=topic != "moved")
                for topic, number in (*question.partitions, ("more", 0))
            )
            answers[node] = RpcTimeout("silent") if node == 2 else DescribeReplicasResponse(node, 1, replicas)  # type: ignore[arg-type]
        return answers

    node: Any = SimpleNamespace(
        metadata=SimpleNamespace(
            partition=lambda key: SimpleNamespace(leader=leaders[key]) if key in leaders else None,
            broker_epochs={1: 1, 2: 1},
        ),
        peers=SimpleNamespace(ask_nodes=ask_nodes),
    )
    found = await ask_leaders(node, [*leaders, TopicPartition("gone", 0)], timeout_s=1.0)
    assert questions == [(1, 200), (2, 200), (1, 200), (1, 51)]
    assert set(found) == {key for key, leader in leaders.items() if leader == 1 and key.topic == "t"}
