"""A transactional producer, and a reader of what it has committed."""

from __future__ import annotations

import asyncio
from typing import Any

from kafkalite.errors import ErrorCode
from kafkalite.protocol import wire
from kafkalite.record.reader import read_records

from .conftest import FrameClient, batch, fetch, produce
from .coordinator_requests import TRANSACTIONS, coordinator


class Producer:
    """A transactional producer, request by request."""

    def __init__(self, client: FrameClient, name: str = "x") -> None:
        self.client = client
        self.name = name
        self.sequence = 0

    async def start(self, version: int = 4, **fields: Any) -> int:
        await coordinator(self.client, self.name, TRANSACTIONS)
        async with asyncio.timeout(150):
            while True:
                answer = await self.client.ask(wire.InitProducerIdRequest(self.name, 60_000, **fields), version)
                if answer.error_code != ErrorCode.CONCURRENT_TRANSACTIONS:
                    break
                await asyncio.sleep(0.01)
        self.id, self.epoch, self.sequence = answer.producer_id, answer.producer_epoch, 0
        return int(answer.error_code)

    async def add(self, topic: str = "t", version: int = 3) -> int:
        """Repeated while the transaction before has no markers."""
        while True:
            code = await self.add_once(topic, version)
            if code != ErrorCode.CONCURRENT_TRANSACTIONS:
                return code

    async def add_once(self, topic: str = "t", version: int = 3) -> int:
        request = wire.AddPartitionsToTxnRequest
        topics = [request.AddPartitionsToTxnTopic(topic, [0])]
        one = request.AddPartitionsToTxnTransaction(self.name, self.id, self.epoch, verify_only=False, topics=topics)
        message = request(
            transactions=[one],
            v3_and_below_transactional_id=self.name,
            v3_and_below_producer_id=self.id,
            v3_and_below_producer_epoch=self.epoch,
            v3_and_below_topics=topics,
        )
        answer = await self.client.ask(message, version)
        results = (
            answer.results_by_transaction[0].topic_results if version >= 4 else answer.results_by_topic_v3_and_below
        )
        return int(results[0].results_by_partition[0].partition_error_code)

    async def send(self, value: bytes) -> int:
        records = batch(
            value, producer_id=self.id, producer_epoch=self.epoch, base_sequence=self.sequence, transactional=True
        )
        self.sequence += 1
        answer = await self.client.ask(produce("t", (0, records), transactional_id=self.name), 9)
        return int(answer.responses[0].partition_responses[0].error_code)

    async def end(self, *, committed: bool, version: int = 3) -> int:
        answer = await self.client.ask(wire.EndTxnRequest(self.name, self.id, self.epoch, committed), version)
        return int(answer.error_code)


async def visible(client: FrameClient) -> tuple[list[bytes | None], list[tuple[int, int]], int]:
    """What a read_committed reader gets: values below the last stable offset, aborted transactions, that offset."""
    answer = await client.ask(fetch("t", isolation_level=1), 11)
    [part] = answer.responses[0].partitions
    values = [record.value for record in read_records(part.records)]
    aborted = [(each.producer_id, each.first_offset) for each in part.aborted_transactions]
    return values, aborted, part.last_stable_offset
