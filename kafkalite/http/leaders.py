"""What the leaders of many partitions say of them."""

from __future__ import annotations

from collections.abc import Iterable
from typing import TYPE_CHECKING, Protocol

from kafkalite.env.turns import with_pauses
from kafkalite.extension.messages.topics import DescribeReplicasRequest, DescribeReplicasResponse, ReplicaDescription
from kafkalite.model import BrokerId, TopicPartition

if TYPE_CHECKING:
    from kafkalite.replica.metadata_cache import MetadataCache
    from kafkalite.replica.peers import Peers

#: Partitions of one question: its answer must not keep the loop of either node for long.
_ASKED_AT_ONCE = 200


class Asking(Protocol):
    """What it needs of the node."""

    metadata: MetadataCache
    peers: Peers


async def ask_leaders(
    node: Asking, partitions: Iterable[TopicPartition], *, timeout_s: float
) -> dict[TopicPartition, ReplicaDescription]:
    """A part of them at a time, all leaders at once; partitions without a leader that answers are left out.

    `timeout_s`: for each question. A leader that does not answer one is not asked the next.
    """
    cache = node.metadata
    waiting: dict[BrokerId, list[TopicPartition]] = {}
    async for key in with_pauses(partitions):
        state = cache.partition(key)
        if state is not None and state.leader in cache.broker_epochs:
            waiting.setdefault(state.leader, []).append(key)
    found: dict[TopicPartition, ReplicaDescription] = {}
    while waiting:
        asked = {leader: keys[:_ASKED_AT_ONCE] for leader, keys in waiting.items()}
        questions = {
            # The topics are for nodes of an earlier version.
            leader: DescribeReplicasRequest(tuple(sorted({key.topic for key in keys})), tuple(keys))
            for leader, keys in sorted(asked.items())
        }
        answers = await node.peers.ask_nodes(questions, timeout_s=timeout_s)
        rest: dict[BrokerId, list[TopicPartition]] = {}
        for leader, answer in answers.items():
            if isinstance(answer, DescribeReplicasResponse):
                replicas = {
                    TopicPartition(each.topic, each.partition): each for each in answer.replicas if each.is_leader
                }
                found |= {key: replicas[key] for key in asked[leader] if key in replicas}
                if len(waiting[leader]) > _ASKED_AT_ONCE:
                    rest[leader] = waiting[leader][_ASKED_AT_ONCE:]
        waiting = rest
    return found
