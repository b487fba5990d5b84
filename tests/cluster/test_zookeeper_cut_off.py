"""A ZooKeeper server that is cut off from its ensemble goes on answering for a while: its word is not the ensemble's."""

from __future__ import annotations

import asyncio
import contextlib
from collections.abc import AsyncIterator, Iterator
from pathlib import Path

import pytest

from kafkalite.coordination.embedded import EmbeddedZooKeeper, cache_directory, free_port
from kafkalite.env.real import real_env
from tests.support.accepting import accepting

pytestmark = [pytest.mark.cluster, pytest.mark.zookeeper]

#: syncLimit is 5 ticks; a session may be as short as 2.
_TICK_MS = 2_000


class Wire:
    """A TCP connection between servers that can be cut silently."""

    def __init__(self, port: int) -> None:
        self._upstream = port
        self._passes = asyncio.Event()
        self._passes.set()
        self._tasks: set[asyncio.Task[None]] = set()
        self.port = 0

    @contextlib.asynccontextmanager
    async def listening(self) -> AsyncIterator[Wire]:
        async with accepting(self._accepted) as self.port:
            yield self
            for task in self._tasks:
                task.cancel()
            await asyncio.gather(*self._tasks, return_exceptions=True)

    def cut(self) -> None:
        self._passes.clear()

    def _accepted(self, reader: asyncio.StreamReader, writer: asyncio.StreamWriter) -> None:
        task = asyncio.get_running_loop().create_task(self._forward(reader, writer))
        self._tasks.add(task)
        task.add_done_callback(self._tasks.discard)

    async def _forward(self, reader: asyncio.StreamReader, writer: asyncio.StreamWriter) -> None:
        up_reader, up_writer = await asyncio.open_connection("127.0.0.1", self._upstream)
        try:
            async with asyncio.TaskGroup() as group:
                group.create_task(self._copy(reader, up_writer))
                group.create_task(self._copy(up_reader, writer))
        except* OSError:
            pass
        finally:
            writer.close()
            up_writer.close()

    async def _copy(self, reader: asyncio.StreamReader, writer: asyncio.StreamWriter) -> None:
        while data := await reader.read(65_536):
            await self._passes.wait()
            writer.write(data)


@contextlib.contextmanager
def server(directory: Path, number: int, members: list[str]) -> Iterator[EmbeddedZooKeeper]:
    made = EmbeddedZooKeeper(
        directory / f"zk{number}",
        my_id=number,
        members=members,
        class_cache=cache_directory(),
        max_heap_mb=64,
        tick_ms=_TICK_MS,
    )
    made.launch()
    try:
        yield made
    finally:
        made.kill()


async def until_says(server: EmbeddedZooKeeper, *words: str) -> None:
    async with asyncio.timeout(150):
        while True:
            told = await asyncio.to_thread(server.command, "srvr")
            if any(word in told for word in words):
                return
            await asyncio.sleep(0.1)


async def test_no_lease_outlives_the_session_behind_a_server_that_is_cut_off(tmp_path: Path) -> None:
    """A lease that is counted from any answer went on for up to syncLimit ticks after the session had been given away."""
    quorum = [free_port("127.0.0.1") for _ in range(3)]
    election = [free_port("127.0.0.1") for _ in range(3)]
    members = [f"127.0.0.1:{one}:{other}" for one, other in zip(quorum, election, strict=True)]
    async with contextlib.AsyncExitStack() as stack:
        wires = [await stack.enter_async_context(Wire(port).listening()) for port in quorum[:2]]
        first = stack.enter_context(server(tmp_path, 1, members))
        second = stack.enter_context(server(tmp_path, 2, members))
        for each in (first, second):
            await until_says(each, "Mode: leader", "Mode: follower")
        behind = [f"127.0.0.1:{wire.port}:{port}" for wire, port in zip(wires, election, strict=False)]
        third = stack.enter_context(server(tmp_path, 3, [*behind, members[2]]))
        await until_says(third, "Mode: follower")

        env = real_env()
        zk = await env.connect_coordinator(third.connect, 2 * _TICK_MS)
        stack.push_async_callback(zk.close)
        eye = await env.connect_coordinator(first.connect, 10 * _TICK_MS)
        stack.push_async_callback(eye.close)
        await zk.create("/held", ephemeral=True)
        least = zk.lease_left()
        async with asyncio.timeout(60):
            for _ in range(40):  # two sessions long
                await asyncio.sleep(_TICK_MS / 1000 / 10)
                least = min(least, zk.lease_left())
        assert least > 0.1 * zk.timeout_s, "a lease is always left while all is well"

        gone = asyncio.Event()
        assert await eye.exists("/held", gone.set) is not None
        for wire in wires:
            wire.cut()
        async with asyncio.timeout(60):
            await gone.wait()
        assert zk.lease_left() <= 0
        assert "Mode: follower" in await asyncio.to_thread(third.command, "srvr"), (
            "it serves as if nothing had happened"
        )
