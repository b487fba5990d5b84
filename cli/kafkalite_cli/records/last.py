"""`consume --last`: the last records of all partitions together."""

from __future__ import annotations

from collections.abc import Sequence

from kafkalite.client.async_client import AsyncClient
from kafkalite.client.consumed import ConsumedRecord
from kafkalite.client.consumer import Consumer
from kafkalite.model import TopicPartition
from kafkalite_cli.records.to_the_end import ToTheEnd

#: Where offsets hold no records any more (compacted, aborted, markers of transactions), the next look goes back this many times further.
_FURTHER = 8


async def last_records(
    client: AsyncClient, consumer: Consumer, keys: Sequence[TopicPartition], count: int
) -> list[ConsumedRecord]:
    """Up to `count` records that are there now, in the order of their timestamps. Raises ApiError, RpcError.

    Of each partition as many are read, or all: any of them may be among the last.
    """
    begins = await client.beginning_offsets(keys)
    ends = await client.end_offsets(keys, isolation=consumer.isolation)
    found = dict.fromkeys(keys, 0)
    kept: list[ConsumedRecord] = []
    reach = count
    while ends and not consumer.closed:
        starts = {key: max(begins[key], end - reach) for key, end in ends.items()}
        consumer.assign(starts)
        until = ToTheEnd(client, consumer, ends)
        while not consumer.closed and not until.is_reached():
            for record in await consumer.poll(max_records=5_000, timeout_s=0.1):
                key = TopicPartition(record.topic, record.partition)
                if until.is_before(key, record.offset):
                    found[key] += 1
                    kept.append(record)
            if len(kept) > 2 * count + 5_000:
                kept = _last(kept, count)
        ends = {key: at for key, at in starts.items() if found[key] < count and at > begins[key]}
        reach *= _FURTHER
    return _last(kept, count)


def _last(records: list[ConsumedRecord], count: int) -> list[ConsumedRecord]:
    return sorted(records, key=lambda each: (each.timestamp, each.topic, each.partition, each.offset))[-count:]
