"""`kafkalite consume --group`: a member of a consumer group."""

from __future__ import annotations

import asyncio
import signal
import sys
from collections.abc import Callable

from kafkalite.client.admin.groups import Groups
from kafkalite.client.async_client import AsyncClient
from kafkalite.client.consumer import ConsumedRecord, Consumer
from kafkalite.client.membership import Membership
from kafkalite.model import TopicPartition
from kafkalite_cli.records.to_the_end import ToTheEnd

#: Interval at which printed records are committed; they are also committed before the partitions move to another member.
COMMIT_S = 1.0


async def consume_in_group(
    client: AsyncClient,
    group: str,
    topic: str,
    start: str,
    maximum: int | None,
    timeout_s: float,
    show: Callable[[ConsumedRecord], bytes],
    *,
    exit_at_end: bool,
    read_committed: bool,
    wanted: Callable[[ConsumedRecord], bool] | None = None,
) -> None:
    """Until SIGINT, `maximum` records, or the ends that stood when a share was given. Raises ApiError, RpcError."""
    member = Membership(client, Groups(client), group, [topic])
    left = sys.maxsize if maximum is None else maximum
    stopped = asyncio.Event()
    asyncio.get_running_loop().add_signal_handler(signal.SIGINT, stopped.set)
    try:
        while left > 0 and not stopped.is_set():
            await member.join()
            async with Consumer(client, read_committed=read_committed) as consumer:
                left, at_end = await _share(
                    client, consumer, member, start, left, timeout_s, show, stopped, wanted, exit_at_end=exit_at_end
                )
            if at_end:
                return
    finally:
        await member.leave()


async def _share(
    client: AsyncClient,
    consumer: Consumer,
    member: Membership,
    start: str,
    left: int,
    timeout_s: float,
    show: Callable[[ConsumedRecord], bytes],
    stopped: asyncio.Event,
    wanted: Callable[[ConsumedRecord], bool] | None,
    *,
    exit_at_end: bool,
) -> tuple[int, bool]:
    """One generation: (records still wanted, whether the end was reached)."""
    keys = member.partitions
    committed = await member.committed()
    consumer.assign({key: committed.get(key, start) for key in keys})
    end = await ToTheEnd.of(client, consumer, list(keys), timeout_s) if exit_at_end else None
    printed: dict[TopicPartition, int] = {}
    due = client.now() + COMMIT_S
    out = sys.stdout.buffer
    while left > 0 and not stopped.is_set() and not member.is_stale.is_set():
        for record in await consumer.poll(max_records=min(left, 5000), timeout_s=0.2):
            if wanted is None or wanted(record):
                out.write(show(record))
                left -= 1
            printed[TopicPartition(record.topic, record.partition)] = record.offset + 1
            if not left:
                break
        out.flush()
        at_end = end is not None and end.is_reached()
        if printed and (at_end or client.now() >= due):
            if not await member.commit(printed):
                return left, False
            printed.clear()
            due = client.now() + COMMIT_S
        if at_end:
            return left, True
    if printed:
        await member.commit(printed)
    return left, False
