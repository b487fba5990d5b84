"""DeleteRecords: partitions begin later."""

from __future__ import annotations

from collections.abc import Mapping

from kafkalite.client.async_client import AsyncClient
from kafkalite.errors import error_code
from kafkalite.model import BrokerId, TopicPartition
from kafkalite.protocol import wire


async def delete_before(
    client: AsyncClient,
    wanted: Mapping[TopicPartition, int],
    leaders: Mapping[TopicPartition, int],
    timeout_s: float | None = None,
) -> dict[TopicPartition, str]:
    """Delete the records before an offset, by partition. All are of one topic.

    Args:
        leaders: of each partition; below 0: it has none.
    Returns:
        What went wrong, by partition. Raises ApiError, RpcError: a leader does not answer.
    """
    request, patience_s = wire.DeleteRecordsRequest, client.patience_s(timeout_s)
    errors: dict[TopicPartition, str] = {}
    by_leader: dict[int, list[TopicPartition]] = {}
    for key in sorted(wanted):
        by_leader.setdefault(leaders[key], []).append(key)
    for leader, keys in sorted(by_leader.items()):
        if leader < 0:
            errors |= dict.fromkeys(keys, "it has no leader")
            continue
        partitions = [request.DeleteRecordsPartition(key.partition, wanted[key]) for key in keys]
        message = request([request.DeleteRecordsTopic(keys[0].topic, partitions)], int(patience_s * 1000))
        answer = await client.call_node(BrokerId(leader), message, timeout_s=patience_s + 5)
        for each in answer.topics[0].partitions:
            if each.error_code:
                errors[TopicPartition(keys[0].topic, each.partition_index)] = error_code(each.error_code).name
    return errors
