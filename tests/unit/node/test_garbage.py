"""What requests leave behind is freed by reference counts: buffers of megabytes must not wait for the collector of cycles.

It runs rarely in a node. Replies to followers once kept themselves alive until then: appends and reads had to fetch fresh
pages all the time (40 % more processor time per byte), and the collection that freed them stopped the loop for 0.1 s.
"""

from __future__ import annotations

import gc
from collections import Counter

from kafkalite.client.async_client import AsyncClient
from kafkalite.client.consumer import EARLIEST, Consumer
from kafkalite.client.producer import Producer
from kafkalite.extension.messages.topics import NewTopic
from kafkalite.testing.cluster import cluster

RECORDS = 200


def unreachable() -> Counter[str]:
    """The node's objects that only the collector of cycles frees, by type."""
    gc.set_debug(gc.DEBUG_SAVEALL)
    gc.collect()
    gc.set_debug(0)
    found = Counter(f"{type(each).__module__}.{type(each).__qualname__}" for each in gc.garbage)
    gc.garbage.clear()
    return Counter(
        {
            name: count
            for name, count in found.items()
            if name.startswith("kafkalite.") and not name.startswith("kafkalite.client.")
        }
    )


async def test_replicated_and_fetched_records_leave_no_cycles_behind() -> None:
    async with cluster(3) as running, AsyncClient.connect(running.bootstrap) as client:
        await client.create_topics([NewTopic("t", 1, 3)])
        async with Producer(client) as producer, Consumer(client) as consumer:
            await consumer.assign_topics(["t"], EARLIEST)
            await producer.send("t", None, b"the first makes the connections")
            await producer.flush()
            seen = len(await consumer.poll(timeout_s=150))
            gc.collect()
            gc.disable()
            try:
                for _ in range(RECORDS):
                    await producer.send("t", None, b"x" * 1000)
                    await producer.flush()
                while seen <= RECORDS:
                    seen += len(await consumer.poll(timeout_s=150))
                found = unreachable()
            finally:
                gc.enable()
    # A few belong to what ends in any run (a connection, a timer); what each request leaves is there 200 times.
    assert all(count < RECORDS / 4 for count in found.values()), found
