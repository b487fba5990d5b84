"""Numbered records in partition 0 of the topic t, through the Python client."""

from __future__ import annotations

import asyncio

from kafkalite.client.async_client import AsyncClient
from kafkalite.client.consumer import EARLIEST, Consumer
from kafkalite.client.producer import Producer
from kafkalite.model import TopicPartition


async def write_numbers(client: AsyncClient, first: int, count: int, *, batch_bytes: int = 400) -> None:
    """Small batches, so that a log has many."""
    async with Producer(client, batch_bytes=batch_bytes) as producer:
        for number in range(first, first + count):
            await producer.send("t", None, b"%d" % number, partition=0)


async def read_numbers(client: AsyncClient, count: int) -> list[int]:
    """From the beginning, at least this number of records."""
    values: list[int] = []
    async with Consumer(client) as consumer, asyncio.timeout(150):
        consumer.assign({TopicPartition("t", 0): EARLIEST})
        while len(values) < count:
            values += [int(record.value or b"") for record in await consumer.poll(timeout_s=0.5)]
    return values
