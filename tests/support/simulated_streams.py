"""A server and a client that talk over the simulated network with unmodified asyncio streams."""

from __future__ import annotations

import asyncio
import random
from collections.abc import Callable, Coroutine
from typing import Any

from kafkalite.testing.simulated.loop import SimLoop
from kafkalite.testing.simulated.network import SimNetwork
from kafkalite.testing.simulated.process import SimProcess

Streams = tuple[asyncio.StreamReader, asyncio.StreamWriter]


class World:
    """A server on host `s` and a client on host `c`, each a process."""

    def __init__(self, seed: int = 1, **options: Any) -> None:
        self.loop = SimLoop()  # type: ignore[abstract]
        self.network = SimNetwork(self.loop, random.Random(seed), **options)
        self.server, self.client = self.loop.process("s"), self.loop.process("c")

    def run(self, main: Coroutine[Any, Any, Any]) -> Any:
        try:
            return self.loop.run_until_complete(main)
        finally:
            self.loop.close()

    async def serve(self, handler: Callable[..., Coroutine[Any, Any, None]], process: SimProcess | None = None) -> int:
        async def listen() -> int:
            return (await self.network.of("s").listen("s", 0, handler)).port

        return await self.loop.start(process or self.server, listen(), "listen")

    async def dial(self, port: int) -> Streams:
        return await self.loop.start(self.client, self.network.of("c").dial("s", port), "dial")


def in_world(test: Callable[[World], Coroutine[Any, Any, None]]) -> Callable[[], None]:
    """A test that runs in a world of its own, in virtual time."""

    def run() -> None:
        world = World()
        world.run(test(world))

    return run


async def echo(reader: asyncio.StreamReader, writer: asyncio.StreamWriter) -> None:
    while data := await reader.read(1 << 20):
        writer.write(data)
        await writer.drain()
