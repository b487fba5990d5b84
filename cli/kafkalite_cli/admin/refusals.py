"""Raises errors in the responses of nodes, and what a verb names that is not there; `main` prints them in one line."""

from __future__ import annotations

from collections.abc import Collection, Iterable

from kafkalite.client.admin.refusals import refuse
from kafkalite.client.async_client import AsyncClient
from kafkalite.errors import ApiError, ErrorCode, KafkaliteError, api_error, error_code
from kafkalite.extension.messages.balancing import DescribeBalanceRequest, DescribeBalanceResponse
from kafkalite.model import BrokerId, TopicPartition
from kafkalite.partition_values import PartitionMetadata, TopicMetadata
from kafkalite.wording import number_of

_FORBIDDEN = frozenset({ErrorCode.CLUSTER_AUTHORIZATION_FAILED, ErrorCode.TOPIC_AUTHORIZATION_FAILED})


def raise_for_topic(topic: TopicMetadata) -> None:
    """Raise what metadata says of a topic, if it is an error."""
    code = error_code(topic.error)
    if code is ErrorCode.UNKNOWN_TOPIC_OR_PARTITION:
        raise api_error(code, f"there is no topic {topic.topic!r}")
    if code is ErrorCode.INVALID_TOPIC_EXCEPTION:
        raise api_error(code, f"{topic.topic!r} is not a topic's name")
    refuse(topic.error, f"{topic.topic}: {code.name}")


def refuse_forbidden(answers: Iterable[object]) -> None:
    """Raise the first answer that says that we may not ask: that is no trouble of the node that said so."""
    for answer in answers:
        if isinstance(answer, ApiError) and answer.code in _FORBIDDEN:
            raise answer


async def known_partitions(
    client: AsyncClient, keys: Collection[TopicPartition]
) -> dict[TopicPartition, PartitionMetadata]:
    """What metadata says of these. Raises ApiError: there is no such topic, or it has no such partition."""
    topics = (await client.metadata(sorted({each.topic for each in keys}))).topics if keys else ()
    for topic in topics:
        raise_for_topic(topic)
    found = {TopicPartition(topic.topic, each.partition): each for topic in topics for each in topic.partitions}
    counts = {topic.topic: number_of(len(topic.partitions), "partition") for topic in topics}
    for each in keys:
        if each not in found:
            reason = f"there is no partition {each}: the topic has {counts[each.topic]}"
            raise api_error(ErrorCode.UNKNOWN_TOPIC_OR_PARTITION, reason)
    return {each: found[each] for each in keys}


async def refuse_unknown_broker(client: AsyncClient, broker_id: int) -> None:
    """Raise if the broker is not alive, has no replicas and is neither cordoned nor drained: `broker list` does not show it."""
    await client.metadata(())
    if broker_id in client.view.brokers:
        return
    asked = DescribeBalanceRequest(0, refresh=True)
    try:
        known = (await client.request(asked, DescribeBalanceResponse)).brokers
    except KafkaliteError:  # no controller, or no right to ask it: what the caller asks next says more
        return
    if BrokerId(broker_id) not in (each.broker_id for each in known):
        names = ", ".join(str(each.broker_id) for each in known)
        raise api_error(ErrorCode.BROKER_ID_NOT_REGISTERED, f"there is no broker {broker_id}: the brokers are {names}")
