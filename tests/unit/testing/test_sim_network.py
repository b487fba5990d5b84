"""Unmodified asyncio streams over the simulated network, and what partitions and full windows do to them."""

from __future__ import annotations

import asyncio
import random
from typing import Any

import pytest

from kafkalite.testing.simulated.network import Link
from kafkalite.testing.simulated.transport import WINDOW_BYTES
from tests.support.simulated_streams import World, echo, in_world


@in_world
async def test_bytes_arrive_in_order_and_time_passes(world: World) -> None:
    reader, writer = await world.dial(await world.serve(echo))
    block = random.Random(5).randbytes(3 * WINDOW_BYTES)
    started = world.loop.now_ns
    for start in range(0, len(block), 100_000):
        writer.write(block[start : start + 100_000])
    assert await reader.readexactly(len(block)) == block
    assert world.loop.now_ns - started > len(block) * 1_000_000_000 // Link().bytes_per_s
    writer.write_eof()
    assert await reader.read() == b""
    writer.close()
    await writer.wait_closed()


def test_large_writes_arrive_in_pieces_of_any_size() -> None:
    world = World()
    sizes: list[int] = []

    async def handler(reader: asyncio.StreamReader, writer: asyncio.StreamWriter) -> None:
        while data := await reader.read(1 << 20):
            sizes.append(len(data))

    async def main() -> None:
        _, writer = await world.dial(await world.serve(handler))
        for _ in range(2_000):
            writer.write(b"x" * 100)
            await asyncio.sleep(0.001)
        await asyncio.sleep(1)

    world.run(main())
    assert sum(sizes) == 200_000
    assert min(sizes) < 100, "some segment is cut in two"
    assert max(sizes) > 100, "some are merged"


@in_world
async def test_refused_when_nobody_listens_and_unknown_hosts(world: World) -> None:
    world.network.host("s")
    with pytest.raises(ConnectionRefusedError):
        await world.dial(1)
    with pytest.raises(OSError, match="no such host"):
        await world.network.of("c").dial("elsewhere", 1)
    with pytest.raises(OSError, match="not an address"):
        await world.network.of("c").listen("s", 0, echo)
    port = await world.serve(echo)
    with pytest.raises(OSError, match="in use"):
        await world.network.of("s").listen("localhost", port, echo)


@in_world
async def test_a_partition_is_silence_and_loses_nothing(world: World) -> None:
    reader, writer = await world.dial(await world.serve(echo))
    heal = world.network.partition(["s"], ["c"])
    writer.write(b"hello")
    with pytest.raises(TimeoutError):
        async with asyncio.timeout(30):
            await reader.read(1)
    heal()
    assert await reader.readexactly(5) == b"hello"


@in_world
async def test_one_way_partition(world: World) -> None:
    """The request gets there; the answer does not get back."""
    got: list[bytes] = []

    async def handler(reader: asyncio.StreamReader, writer: asyncio.StreamWriter) -> None:
        got.append(await reader.readexactly(2))
        writer.write(b"ok")
        await writer.drain()

    reader, writer = await world.dial(await world.serve(handler))
    world.network.block("s", "c")
    writer.write(b"hi")
    await asyncio.sleep(5)
    assert got == [b"hi"]
    with pytest.raises(TimeoutError):
        async with asyncio.timeout(5):
            await reader.readexactly(1)
    world.network.unblock("s", "c")
    assert await reader.readexactly(2) == b"ok"
    assert await reader.read() == b"", "the FIN came through after all, too"


@in_world
async def test_blocks_are_counted(world: World) -> None:
    port = await world.serve(echo)
    first, second = world.network.partition(["s"], ["c"]), world.network.partition(["c"], ["s"])
    first()
    with pytest.raises(TimeoutError):
        async with asyncio.timeout(10):
            await world.dial(port)
    second()
    second()
    await world.dial(port)


@in_world
async def test_dialling_into_a_partition_gives_up_like_linux(world: World) -> None:
    port = await world.serve(echo)
    world.network.block("s", "c")
    with pytest.raises(TimeoutError):
        await world.dial(port)
    assert 120 < world.loop.time() < 300


@in_world
async def test_dialling_succeeds_when_the_partition_heals(world: World) -> None:
    port = await world.serve(echo)
    world.network.block("c", "s")
    world.loop.call_later(4, world.network.heal)
    await world.dial(port)
    assert 4 < world.loop.time() < 9


@in_world
async def test_a_full_window_stops_the_sender(world: World) -> None:
    async def handler(reader: asyncio.StreamReader, writer: asyncio.StreamWriter) -> None:
        await asyncio.sleep(100)
        while await reader.read(1 << 20):
            pass
        writer.write(b"done")

    reader, writer = await world.dial(await world.serve(handler))
    world.loop.stop_process(world.server)
    sent = 0
    with pytest.raises(TimeoutError):
        async with asyncio.timeout(10):
            while True:
                writer.write(bytes(50_000))
                sent += 50_000
                await writer.drain()
    assert WINDOW_BYTES <= sent < WINDOW_BYTES + 300_000
    world.loop.resume_process(world.server)
    await writer.drain()
    writer.write_eof()
    assert await reader.read() == b"done"


@in_world
async def test_closing_flushes_what_was_written(world: World) -> None:
    block = bytes(2 * WINDOW_BYTES)

    async def handler(reader: asyncio.StreamReader, writer: asyncio.StreamWriter) -> None:
        writer.write(block)
        writer.close()
        await writer.wait_closed()

    reader, _ = await world.dial(await world.serve(handler))
    assert len(await reader.read()) == len(block)


@in_world
async def test_aborting_resets_the_peer(world: World) -> None:
    async def handler(reader: asyncio.StreamReader, writer: asyncio.StreamWriter) -> None:
        await reader.readexactly(1)
        writer.transport.abort()

    reader, writer = await world.dial(await world.serve(handler))
    writer.write(b"x")
    with pytest.raises(ConnectionResetError):
        await reader.read()
    writer.close()
    with pytest.raises(ConnectionResetError):
        await writer.wait_closed()


@in_world
async def test_writing_to_a_closed_peer_is_answered_with_reset(world: World) -> None:
    async def handler(reader: asyncio.StreamReader, writer: asyncio.StreamWriter) -> None:
        return

    reader, writer = await world.dial(await world.serve(handler))
    assert await reader.read() == b""
    writer.write(b"too late")
    await asyncio.sleep(5)
    with pytest.raises(ConnectionResetError):
        writer.write(b"x")
        await writer.drain()


def test_a_cancelled_dial_leaves_nothing_open() -> None:
    world = World()
    ends: list[object] = []

    async def handler(reader: asyncio.StreamReader, writer: asyncio.StreamWriter) -> None:
        try:
            ends.append(await reader.read())
        except ConnectionResetError as error:
            ends.append(error)

    async def main() -> None:
        port = await world.serve(handler)
        world.network.set_link("s", "c", Link(latency_min_ns=10**9, latency_max_ns=10**9))
        with pytest.raises(TimeoutError):
            async with asyncio.timeout(0.5):
                await world.network.of("c").dial("s", port)
        await asyncio.sleep(5)
        assert len(ends) == 1

    world.run(main())
    assert not world.network._transports


@in_world
async def test_slow_link(world: World) -> None:
    port = await world.serve(echo)
    for pair in (("c", "s"), ("s", "c")):
        world.network.set_link(*pair, Link(latency_min_ns=2 * 10**9, latency_max_ns=2 * 10**9, spikes_per_mille=0))
    reader, writer = await world.dial(port)
    assert world.loop.time() == pytest.approx(4, abs=0.1)
    writer.write(b"x")
    await reader.readexactly(1)
    assert world.loop.time() == pytest.approx(8, abs=0.1)


def test_protocols_plain_and_buffered() -> None:
    world = World()
    got = bytearray()

    class Plain(asyncio.Protocol):
        def connection_made(self, transport: asyncio.BaseTransport) -> None:
            assert isinstance(transport, asyncio.Transport)
            transport.write(b"greetings")

    class Buffered(asyncio.BufferedProtocol):
        buffer = bytearray(4)

        def get_buffer(self, sizehint: int) -> bytearray:
            return self.buffer

        def buffer_updated(self, nbytes: int) -> None:
            got.extend(self.buffer[:nbytes])

    async def main() -> None:
        async def listen() -> int:
            return (await world.network.of("s").listen_protocol("s", 0, Plain)).port

        port = await world.loop.start(world.server, listen(), "listen")
        transport, _ = await world.network.connect(world.network.host("c"), "s", port, Buffered)
        await asyncio.sleep(1)
        assert transport.get_extra_info("peername") == ("s", port)

    world.run(main())
    assert bytes(got) == b"greetings"


def test_a_protocol_that_pauses_reads_nothing_more_until_it_goes_on() -> None:
    world = World()
    got: list[bytes] = []

    class Plain(asyncio.Protocol):
        def connection_made(self, transport: asyncio.BaseTransport) -> None:
            assert isinstance(transport, asyncio.Transport)
            transport.write(b"greetings")
            transport.write_eof()

    class Pausing(asyncio.BufferedProtocol):
        buffer = bytearray(4)
        transport: Any

        def connection_made(self, transport: asyncio.BaseTransport) -> None:
            self.transport = transport

        def get_buffer(self, sizehint: int) -> bytearray:
            return self.buffer

        def buffer_updated(self, nbytes: int) -> None:
            got.append(bytes(self.buffer[:nbytes]))
            self.transport.pause_reading()

        def eof_received(self) -> None:
            got.append(b"")

    async def main() -> None:
        async def listen() -> int:
            return (await world.network.of("s").listen_protocol("s", 0, Plain)).port

        port = await world.loop.start(world.server, listen(), "listen")
        transport, _ = await world.network.connect(world.network.host("c"), "s", port, Pausing)
        for count in range(1, 5):
            await asyncio.sleep(1)
            assert len(got) == count
            transport.resume_reading()

    world.run(main())
    assert got == [b"gree", b"ting", b"s", b""]
