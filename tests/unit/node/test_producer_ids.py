"""Producer ids are there before they are asked for."""

from __future__ import annotations

import asyncio

from kafkalite.coordination.coordinator import NotSentError
from kafkalite.coordinators.producer_ids import SPARE_BLOCKS, ProducerIds


class Blocks:
    def __init__(self) -> None:
        self.reserved = 0
        self.is_away = False
        self.changed = asyncio.Event()

    async def reserve(self) -> tuple[int, int]:
        self.changed.set()
        if self.is_away:
            raise NotSentError("ZooKeeper is away")
        self.reserved += 1
        return self.reserved * 10, 10


async def test_blocks_are_reserved_before_they_are_needed_and_each_id_is_given_out_once() -> None:
    blocks = Blocks()
    ids = ProducerIds(blocks.reserve)
    task = asyncio.create_task(ids.run())
    while blocks.reserved < SPARE_BLOCKS:
        await asyncio.sleep(0)
    blocks.is_away = True
    spare = [await ids.block() for _ in range(SPARE_BLOCKS)]
    taken = [number for first, count in spare for number in range(first, first + count)]
    assert len(set(taken)) == len(taken)
    blocks.is_away = False
    blocks.changed.clear()
    await blocks.changed.wait()
    first, count = await ids.block()
    assert not set(range(first, first + count)) & set(taken)
    task.cancel()
    await asyncio.wait([task])
