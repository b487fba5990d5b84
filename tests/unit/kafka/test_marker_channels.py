"""The connections over which nodes bring each other transaction markers, on real sockets."""

from __future__ import annotations

import asyncio
import socket
import struct
from collections.abc import Callable
from types import SimpleNamespace

import pytest
import uvloop

from kafkalite.env.streams import open_stream
from kafkalite.kafka.transactions.markers import Marker, _Channel
from kafkalite.model import ProducerId, TopicPartition


@pytest.mark.parametrize("make_loop", [asyncio.new_event_loop, uvloop.new_event_loop], ids=["asyncio", "uvloop"])
def test_a_connection_that_was_reset_while_idle_is_left(make_loop: Callable[[], asyncio.AbstractEventLoop]) -> None:
    """Nobody could be told of the end of a transaction any more, on that node, until this one restarted."""

    async def main() -> None:
        dialled = []

        async def accept(reader: asyncio.StreamReader, writer: asyncio.StreamWriter) -> None:
            writer.get_extra_info("socket").setsockopt(socket.SOL_SOCKET, socket.SO_LINGER, struct.pack("ii", 1, 0))
            writer.transport.abort()

        async def dial(host: str, port: int) -> tuple[asyncio.StreamReader, asyncio.StreamWriter, float]:
            dialled.append(await open_stream(host, port, 4096))
            async with asyncio.timeout(30):
                while not dialled[-1][1].transport.is_closing():
                    await asyncio.sleep(0.001)
            return *dialled[-1], float("inf")

        async with await asyncio.start_server(accept, "127.0.0.1", 0) as server:
            tasks = []
            services = SimpleNamespace(
                clock=SimpleNamespace(monotonic=asyncio.get_running_loop().time),
                dial_kafka=dial,
                supervisor=SimpleNamespace(spawn=lambda name, work, policy: tasks.append(asyncio.ensure_future(work))),
            )
            channel = _Channel(services, server.sockets[0].getsockname())  # type: ignore[arg-type]
            marker = Marker(ProducerId(1), 0, True, 0, (TopicPartition("t", 0),))
            for _ in range(2):
                with pytest.raises(OSError):
                    await channel.send(marker)
            assert len(dialled) == 2
            await asyncio.gather(*tasks)

    with asyncio.Runner(loop_factory=make_loop) as runner:
        runner.run(main())
