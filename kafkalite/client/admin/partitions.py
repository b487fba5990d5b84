"""Requests about partitions: add them, elect their leaders. Every function raises ApiError and RpcError."""

from __future__ import annotations

from collections.abc import Iterable, Sequence

from kafkalite.client.admin.refusals import refuse
from kafkalite.client.async_client import AsyncClient
from kafkalite.errors import ErrorCode, api_error
from kafkalite.lazy_dataclass import dataclass
from kafkalite.model import BrokerId, TopicPartition
from kafkalite.protocol import wire

#: The broker's own time to answer is within the client's.
_MARGIN_S = 5.0
_PREFERRED, _UNCLEAN = 0, 1


@dataclass(frozen=True, slots=True)
class ElectionResult:
    """`error` ELECTION_NOT_NEEDED: the leader is the one that was wanted."""

    topic: str
    partition: int
    error: int
    message: str = ""


async def partition_count(client: AsyncClient, topic: str, *, timeout_s: float | None = None) -> int:
    """How many partitions a topic has."""
    answer = await client.metadata([topic], timeout_s=timeout_s)
    for found in answer.topics:
        if found.topic == topic and not found.error:
            return len(found.partitions)
    raise api_error(ErrorCode.UNKNOWN_TOPIC_OR_PARTITION, f"there is no topic {topic!r}")


async def add_partitions(
    client: AsyncClient,
    topic: str,
    count: int,
    assignment: Sequence[Sequence[BrokerId]] = (),
    *,
    timeout_s: float | None = None,
) -> None:
    """Add partitions until there are `count`; `assignment` has the replicas of each new one, or is empty."""
    request, patience_s = wire.CreatePartitionsRequest, client.patience_s(timeout_s)
    assignments = [request.CreatePartitionsAssignment(list(each)) for each in assignment] or None
    message = request(
        [request.CreatePartitionsTopic(topic, count, assignments)], int(patience_s * 1000), validate_only=False
    )
    flow = client.routing.to_controller(
        message, patience_s + _MARGIN_S, lambda each: [r.error_code for r in each.results]
    )
    answer, was_asked_before = await client.run(flow)
    result = answer.results[0]
    may_be_done = was_asked_before and result.error_code == ErrorCode.INVALID_PARTITIONS
    if may_be_done and await partition_count(client, topic, timeout_s=timeout_s) == count:
        return  # an earlier try, whose response was lost, has added them
    refuse(result.error_code, f"{topic}: {result.error_message or ErrorCode(result.error_code).name}")


async def elect_leaders(
    client: AsyncClient,
    partitions: Iterable[TopicPartition] | None,
    *,
    unclean: bool = False,
    timeout_s: float | None = None,
) -> list[ElectionResult]:
    """Elect the preferred leaders of partitions (None: of all that need it; those that do not are left out).

    Args:
        unclean: any live replica, where no replica in sync is alive.
    """
    request, patience_s = wire.ElectLeadersRequest, client.patience_s(timeout_s)
    topics = None
    if partitions is not None:
        by_topic: dict[str, list[int]] = {}
        for topic, number in dict.fromkeys(partitions):
            by_topic.setdefault(topic, []).append(number)
        topics = [request.TopicPartitions(topic, numbers) for topic, numbers in by_topic.items()]
    message = request(_UNCLEAN if unclean else _PREFERRED, topics, int(patience_s * 1000))
    answer = await client.call_controller(message, lambda each: (each.error_code,), timeout_s=patience_s + _MARGIN_S)
    is_late = answer.error_code == ErrorCode.REQUEST_TIMED_OUT
    refuse(answer.error_code, "the election was not held in time, and may be held later" if is_late else "")
    return sorted(
        (
            ElectionResult(topic.topic, each.partition_id, each.error_code, each.error_message or "")
            for topic in answer.replica_election_results
            for each in topic.partition_result
        ),
        key=lambda each: (each.topic, each.partition),
    )
