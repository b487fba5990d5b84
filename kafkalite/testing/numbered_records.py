"""Numbered records: written with acks=all, tallied by what became of them, read back and compared."""

from __future__ import annotations

import asyncio
import time
from collections import Counter
from collections.abc import AsyncIterator
from dataclasses import dataclass, field
from functools import partial
from typing import Any

from kafkalite.client.async_client import AsyncClient
from kafkalite.client.consumer import Consumer
from kafkalite.client.producer import Producer
from kafkalite.model import TopicPartition
from kafkalite.testing.processes import ProcessCluster

TOPIC = "chaos"


@dataclass
class Tally:
    """What was sent and what came of it."""

    #: (partition, offset) of each acknowledged record, by its number.
    acked: dict[int, tuple[int, int]] = field(default_factory=dict)
    failed: set[int] = field(default_factory=set)
    #: Longest silence between two acknowledgements, seconds.
    longest_silence_s: float = 0.0
    faults: Counter[str] = field(default_factory=Counter)
    #: How many were acknowledged when each fault was done.
    acked_at_fault: list[int] = field(default_factory=list)


@dataclass
class Census:
    """What a reader found in the end."""

    read: int
    lost: list[int]
    duplicates: list[int]
    #: Pairs of numbers that stand in the wrong order within a partition.
    disordered: list[tuple[int, int]]
    #: Acknowledged at one offset, found at another.
    moved: list[int]

    @property
    def clean(self) -> bool:
        return not (self.lost or self.duplicates or self.disordered or self.moved)


async def produce(cluster: ProcessCluster, tally: Tally, enough: asyncio.Event, *, rate: float) -> None:
    """Numbered records, `rate` a second, until `enough`; returns when each has its answer."""
    async with AsyncClient.connect(cluster.bootstrap) as client:
        producer = Producer(client, acks="all", idempotent=True, linger_ms=5, delivery_timeout_ms=120_000)
        last = time.monotonic()

        def done(number: int, future: asyncio.Future[Any]) -> None:
            nonlocal last
            now = time.monotonic()
            if future.cancelled() or future.exception() is not None:
                tally.failed.add(number)
                return
            tally.longest_silence_s = max(tally.longest_silence_s, now - last)
            last = now
            metadata = future.result()
            tally.acked[number] = (metadata.partition, metadata.offset)

        number = 0
        began = time.monotonic()
        while not enough.is_set():
            due = int((time.monotonic() - began) * rate)
            while number < due:
                future = await producer.send(TOPIC, b"key-%d" % (number % 97), b"%d" % number)
                future.add_done_callback(partial(done, number))
                number += 1
            await asyncio.sleep(0.01)
        await producer.flush()
        await producer.close()


async def read_all(
    cluster: ProcessCluster, topic: str
) -> AsyncIterator[tuple[TopicPartition, int, bytes | None, bytes | None]]:
    """(partition, offset, key, value) of every committed record, up to the ends as they are at the beginning."""
    async with AsyncClient.connect(cluster.bootstrap) as client, Consumer(client) as consumer:
        count = await client.known_topic(topic)
        partitions = [TopicPartition(topic, number) for number in range(count)]
        ends = await client.end_offsets(partitions)
        consumer.assign(dict.fromkeys((tp for tp in partitions if ends[tp] > 0), "earliest"))
        left = {tp for tp in partitions if ends[tp] > 0}
        while left:
            for record in await consumer.poll(max_records=5_000, timeout_s=30.0):
                tp = TopicPartition(record.topic, record.partition)
                if record.offset < ends[tp]:
                    yield tp, record.offset, record.key, record.value
                if record.offset >= ends[tp] - 1:
                    left.discard(tp)


async def census(cluster: ProcessCluster, tally: Tally) -> Census:
    """Read every partition from its beginning to its end and compare with the tally."""
    seen: dict[int, tuple[int, int]] = {}
    duplicates: list[int] = []
    disordered: list[tuple[int, int]] = []
    read = 0
    last_of_key: dict[tuple[int, bytes], int] = {}
    async for tp, offset, key, value in read_all(cluster, TOPIC):
        read += 1
        number = int(value or b"-1")
        if number in seen:
            duplicates.append(number)
        seen[number] = (tp.partition, offset)
        before = last_of_key.get((tp.partition, key or b""), -1)
        if before > number:
            disordered.append((before, number))
        last_of_key[tp.partition, key or b""] = number
    lost = [number for number in tally.acked if number not in seen]
    moved = [number for number, where in tally.acked.items() if number in seen and seen[number] != where]
    return Census(read, lost, duplicates, disordered, moved)
