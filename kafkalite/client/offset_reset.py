"""Where a group is to go on: the offsets that a reset would commit. Nothing is committed here."""

from __future__ import annotations

from collections.abc import Iterable, Mapping

from kafkalite.client.async_client import AsyncClient
from kafkalite.lazy_dataclass import dataclass
from kafkalite.model import EARLIEST_TIMESTAMP, LATEST_TIMESTAMP, TopicPartition

EARLIEST, LATEST, TIME, OFFSET, SHIFT = "earliest", "latest", "time", "offset", "shift"
PLACES = (EARLIEST, LATEST, TIME, OFFSET, SHIFT)


@dataclass(frozen=True, slots=True)
class Reset:
    """`place`: one of PLACES. `value`: ms since 1970 for a time, an offset, or by how many records to shift."""

    place: str
    value: int = 0


async def ends_of(
    client: AsyncClient, keys: Iterable[TopicPartition], timestamp: int, timeout_s: float | None = None
) -> dict[TopicPartition, int]:
    """Offsets for a timestamp; a partition that does not exist any more is left out. Raises ApiError, RpcError."""
    wanted = list(keys)
    if not wanted:
        return {}
    answer = await client.metadata({key.topic for key in wanted}, timeout_s=timeout_s)
    there = {TopicPartition(t.topic, p.partition) for t in answer.topics if not t.error for p in t.partitions}
    asked = {key: timestamp for key in wanted if key in there}
    if not asked:
        return {}
    return {key: int(each.offset) for key, each in (await client.list_offsets(asked, timeout_s=timeout_s)).items()}


async def new_offsets(
    client: AsyncClient,
    keys: Iterable[TopicPartition],
    committed: Mapping[TopicPartition, int],
    reset: Reset,
    timeout_s: float | None = None,
) -> dict[TopicPartition, int]:
    """The offset of each partition that exists, kept within its log. Raises ApiError, RpcError."""
    wanted = list(keys)
    first = await ends_of(client, wanted, EARLIEST_TIMESTAMP, timeout_s)
    last = await ends_of(client, wanted, LATEST_TIMESTAMP, timeout_s)
    at_time = await ends_of(client, wanted, reset.value, timeout_s) if reset.place == TIME else {}
    return place(reset, committed, first, last, at_time)


def place(
    reset: Reset,
    committed: Mapping[TopicPartition, int],
    first: Mapping[TopicPartition, int],
    last: Mapping[TopicPartition, int],
    at_time: Mapping[TopicPartition, int],
) -> dict[TopicPartition, int]:
    """Pure. `first`, `last`: of each log; `at_time`: the first offset from the time on, -1 if no record is as young."""
    found: dict[TopicPartition, int] = {}
    for key in sorted(first.keys() & last.keys()):  # a partition may be added between the two questions
        if reset.place == EARLIEST:
            wanted = first[key]
        elif reset.place == LATEST:
            wanted = last[key]
        elif reset.place == OFFSET:
            wanted = reset.value
        elif reset.place == SHIFT:
            wanted = committed.get(key, first[key]) + reset.value
        else:
            wanted = at_time[key] if at_time.get(key, -1) >= 0 else last[key]
        found[key] = min(max(wanted, first[key]), last[key])
    return found
