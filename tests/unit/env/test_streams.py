"""The chunk reader: asyncio's contract for `read` and `readexactly`, without its copies, bounded."""

from __future__ import annotations

import asyncio
import socket
import struct
from collections.abc import Callable
from typing import cast

import pytest
import uvloop
from hypothesis import given
from hypothesis import strategies as st

from kafkalite.env import streams
from kafkalite.env.streams import ChunkReader, close_when_written, cut, open_stream, stream_protocol

LOOPS = [asyncio.new_event_loop, uvloop.new_event_loop]


class PausableTransport(asyncio.ReadTransport):
    def __init__(self) -> None:
        super().__init__()
        self.calls: list[str] = []

    def pause_reading(self) -> None:
        self.calls.append("pause")

    def resume_reading(self) -> None:
        self.calls.append("resume")


@given(chunks=st.lists(st.binary(min_size=1, max_size=40), max_size=20), sizes=st.lists(st.integers(1, 50), min_size=1))
def test_every_byte_comes_once_and_in_order(chunks: list[bytes], sizes: list[int]) -> None:
    async def go() -> None:
        reader = ChunkReader(1 << 20)
        for chunk in chunks:
            reader.feed_data(chunk)
        reader.feed_eof()
        got, number = [], 0
        while part := await reader.read(sizes[number % len(sizes)]):
            assert len(part) <= sizes[number % len(sizes)]
            got.append(part)
            number += 1
        assert b"".join(got) == b"".join(chunks)
        assert reader.at_eof()

    asyncio.run(go())


async def test_a_whole_chunk_is_handed_on_as_it_is() -> None:
    reader = ChunkReader(1 << 20)
    chunk = bytes(1000)
    reader.feed_data(chunk)
    assert await reader.read(4096) is chunk


async def test_readexactly_waits_for_the_rest_and_tells_of_a_short_end() -> None:
    reader = ChunkReader(1 << 20)
    waiting = asyncio.ensure_future(reader.readexactly(5))
    for part in (b"ab", b"cde", b"fg"):
        await asyncio.sleep(0)
        reader.feed_data(part)
    assert await waiting == b"abcde"
    reader.feed_eof()
    with pytest.raises(asyncio.IncompleteReadError) as told:
        await reader.readexactly(3)
    assert told.value.partial == b"fg"


async def test_what_is_not_read_is_bounded() -> None:
    reader, transport = ChunkReader(100), PausableTransport()
    reader.set_transport(transport)
    for _ in range(5):
        reader.feed_data(bytes(50))
    assert transport.calls == ["pause"]
    await reader.readexactly(149)
    assert transport.calls == ["pause"]
    await reader.readexactly(1)
    assert transport.calls == ["pause", "resume"]


async def test_a_broken_connection_is_told_to_who_waits_and_to_who_comes() -> None:
    reader = ChunkReader(100)
    waiting = asyncio.ensure_future(reader.read(10))
    await asyncio.sleep(0)
    reader.set_exception(ConnectionResetError("gone"))
    with pytest.raises(ConnectionResetError):
        await waiting
    with pytest.raises(ConnectionResetError):
        await reader.read(10)


async def test_a_cancelled_read_loses_nothing() -> None:
    reader = ChunkReader(100)
    waiting = asyncio.ensure_future(reader.read(10))
    await asyncio.sleep(0)
    waiting.cancel()
    with pytest.raises(asyncio.CancelledError):
        await waiting
    reader.feed_data(b"abc")
    assert await reader.read(10) == b"abc"


@pytest.mark.parametrize("new_loop", LOOPS)
def test_megabytes_over_a_real_socket(new_loop: Callable[[], asyncio.AbstractEventLoop]) -> None:
    async def go() -> None:
        async def echo(reader: asyncio.StreamReader, writer: asyncio.StreamWriter) -> None:
            while data := await reader.read(1 << 20):
                writer.write(data)
                await writer.drain()
            writer.close()

        tasks: list[asyncio.Task[None]] = []
        server = await asyncio.get_running_loop().create_server(
            lambda: stream_protocol(lambda r, w: tasks.append(asyncio.ensure_future(echo(r, w))), 64 * 1024),
            "127.0.0.1",
            0,
        )
        reader, writer = await open_stream("127.0.0.1", server.sockets[0].getsockname()[1], 64 * 1024)
        sent = bytes(range(256)) * 20_000
        writer.write(sent)
        assert await reader.readexactly(len(sent)) == sent
        writer.write_eof()
        assert await reader.read(1) == b""
        writer.close()
        server.close()
        await asyncio.gather(*tasks)

    loop = new_loop()
    try:
        loop.run_until_complete(go())
    finally:
        loop.close()


@pytest.mark.parametrize("new_loop", LOOPS)
def test_a_connection_that_is_closed_does_not_wait_for_ever_for_its_peer_to_read(
    new_loop: Callable[[], asyncio.AbstractEventLoop], monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr(streams, "LINGER_S", 0.01)

    async def go() -> None:
        lost = asyncio.Event()

        class Flooding(asyncio.Protocol):
            def connection_made(self, transport: asyncio.BaseTransport) -> None:
                out = cast(asyncio.WriteTransport, transport)  # uvloop's is none by its class
                out.write(bytes(64 << 20))  # more than the kernel takes
                close_when_written(out)

            def connection_lost(self, exc: Exception | None) -> None:
                lost.set()

        server = await asyncio.get_running_loop().create_server(Flooding, "127.0.0.1", 0)
        with socket.create_connection(server.sockets[0].getsockname()[:2]):
            async with asyncio.timeout(150):
                await lost.wait()
        server.close()

    loop = new_loop()
    try:
        loop.run_until_complete(go())
    finally:
        loop.close()


@pytest.mark.parametrize("new_loop", LOOPS)
def test_what_was_written_before_the_end_arrives(new_loop: Callable[[], asyncio.AbstractEventLoop]) -> None:
    async def go() -> None:
        class Answering(asyncio.Protocol):
            def connection_made(self, transport: asyncio.BaseTransport) -> None:
                out = cast(asyncio.WriteTransport, transport)
                out.write(bytes(64 << 20))
                close_when_written(out)

        server = await asyncio.get_running_loop().create_server(Answering, "127.0.0.1", 0)
        reader, writer = await open_stream("127.0.0.1", server.sockets[0].getsockname()[1], 64 * 1024)
        assert len(await reader.read()) == 64 << 20
        writer.close()
        server.close()

    loop = new_loop()
    try:
        loop.run_until_complete(go())
    finally:
        loop.close()


def _reset(writer: asyncio.StreamWriter) -> None:
    writer.get_extra_info("socket").setsockopt(socket.SOL_SOCKET, socket.SO_LINGER, struct.pack("ii", 1, 0))
    writer.transport.abort()


async def _closing(writer: asyncio.StreamWriter) -> None:
    async with asyncio.timeout(150):
        while not writer.transport.is_closing():
            await asyncio.sleep(0.001)


@pytest.mark.parametrize("make_loop", LOOPS, ids=["asyncio", "uvloop"])
@pytest.mark.parametrize("resets", ["client", "server"])
def test_what_is_written_to_a_connection_that_was_reset_is_lost_and_told_as_such(
    make_loop: Callable[[], asyncio.AbstractEventLoop], resets: str
) -> None:
    """uvloop raises RuntimeError there, which nobody expects: a bug of ours, by its name."""

    async def main() -> None:
        loop = asyncio.get_running_loop()
        accepted: asyncio.Future[asyncio.StreamWriter] = loop.create_future()
        server = await loop.create_server(
            lambda: stream_protocol(lambda reader, writer: accepted.set_result(writer), 4096), "127.0.0.1", 0
        )
        async with server:
            _, client = await open_stream("127.0.0.1", server.sockets[0].getsockname()[1], 4096)
            served = await accepted
            one, other = (client, served) if resets == "client" else (served, client)
            _reset(one)
            await _closing(other)
            other.write(b"late")
            other.writelines([b"la", b"te"])
            with pytest.raises(OSError):
                async with asyncio.timeout(150):
                    while True:  # asyncio's own tells at the second
                        await other.drain()
                        await asyncio.sleep(0)

    with asyncio.Runner(loop_factory=make_loop) as runner:
        runner.run(main())


@pytest.mark.parametrize("new_loop", LOOPS)
def test_what_the_peer_has_not_got_when_a_connection_is_cut_never_arrives(
    new_loop: Callable[[], asyncio.AbstractEventLoop],
) -> None:
    """After a partition of the network, a kernel would still deliver it: requests of a connection that was given up long ago."""

    async def go() -> None:
        with socket.create_server(("127.0.0.1", 0)) as listening:
            _, writer = await open_stream("127.0.0.1", listening.getsockname()[1], 1 << 16)
            accepted, _ = listening.accept()
            with accepted:
                while not writer.transport.get_write_buffer_size():  # until the kernels are full
                    writer.write(bytes(1 << 20))
                    await asyncio.sleep(0)
                cut(writer.transport)
                while not writer.transport.is_closing():
                    await asyncio.sleep(0)
                await asyncio.sleep(0)
                with pytest.raises(ConnectionResetError):
                    while accepted.recv(1 << 20):
                        pass

    with asyncio.Runner(loop_factory=new_loop) as runner:
        runner.run(go())
