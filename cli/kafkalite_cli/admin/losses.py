"""What a verb that destroys records would destroy: for the question that it asks, and for --dry-run."""

from __future__ import annotations

from collections.abc import Collection, Mapping

from kafkalite.client.async_client import AsyncClient
from kafkalite.errors import ErrorCode, api_error, error_code
from kafkalite.model import TopicPartition
from kafkalite.wording import number_of
from kafkalite_cli.output import Output

#: Records in a partition; -1: it has no leader that could say so.
Counts = Mapping[TopicPartition, int]


async def record_counts(client: AsyncClient, topic: str, partitions: Collection[int] | None) -> Counts:
    """Of these partitions (None: all) of a topic. Raises ApiError if there is no such topic."""
    metadata = (await client.metadata([topic])).topics[0]
    if error_code(metadata.error) is ErrorCode.UNKNOWN_TOPIC_OR_PARTITION:
        raise api_error(ErrorCode.UNKNOWN_TOPIC_OR_PARTITION, f"there is no topic {topic!r}")
    keys = {
        TopicPartition(topic, each.partition): each.leader
        for each in metadata.partitions
        if partitions is None or each.partition in partitions
    }
    led = [key for key, leader in keys.items() if leader >= 0]
    begins = await client.beginning_offsets(led)
    ends = await client.end_offsets(led)
    return {key: ends[key] - begins[key] if key in ends else -1 for key in sorted(keys)}


def counted(found: Counts) -> str:
    """ "3 partitions and 1,200 records"."""
    known = sum(count for count in found.values() if count > 0)
    unknown = sum(count < 0 for count in found.values())
    more = f" (not counting {unknown} without a leader)" if unknown else ""
    return f"{number_of(len(found), 'partition')} and {number_of(known, 'record')}{more}"


def report_counts(found: Counts, out: Output) -> None:
    """For --dry-run."""
    if out.as_json:
        rows = [{"topic": key.topic, "partition": key.partition, "records": count} for key, count in found.items()]
        out.value({"deleted": False, "partitions": rows})
        return
    out.table(("partition", "records"), [(str(key), "unknown" if count < 0 else count) for key, count in found.items()])
    out.value(None, f"\n{counted(found)} would be deleted")
