"""The server of pages: what is no request, slow peers, many connections."""

from __future__ import annotations

import asyncio
import contextlib
import socket
from collections.abc import AsyncIterator

import pytest

from kafkalite.env.real import RealClock, real_env
from kafkalite.env.turns import Turns
from kafkalite.http import server as http_server
from kafkalite.http.authentication import AuthenticatedRequest, HttpAuthenticator
from kafkalite.http.page import Page
from kafkalite.http.server import HttpServer, TreeRequest
from kafkalite.security.access import Access
from tests.support.waiting import until


def open_to_all() -> HttpAuthenticator:
    env = real_env()
    return HttpAuthenticator(Access(), None, env.clock, env.disk)


@contextlib.asynccontextmanager
async def serving(page: Page) -> AsyncIterator[HttpServer]:
    """A server of one page, on any port."""
    server = HttpServer(real_env().network, {"/": lambda asked: page}, open_to_all())
    await server.start("127.0.0.1", 0)
    try:
        yield server
    finally:
        await server.close()


async def talk(server: HttpServer, data: bytes) -> bytes:
    """What comes back until the connection ends."""
    assert server._listener is not None
    reader, writer = await asyncio.open_connection("127.0.0.1", server._listener.port)
    try:
        writer.write(data)
        async with asyncio.timeout(150):
            return await reader.read()
    except ConnectionResetError:
        return b""
    finally:
        writer.close()


@pytest.mark.parametrize(
    ("data", "status"),
    [
        (b"GET / HTTP/1.1\r\nhost: x\r\nx: " + b"a" * 20_000, b"431"),
        (b"GET /" + b"a" * 20_000, b"431"),
        (b"GET / HTTP/1.1\r\nhost: x\r\ncontent-length: 5\r\n\r\nhello", b"413"),
        (b"GET / HTTP/1.1\r\nhost: x\r\ntransfer-encoding: chunked\r\n\r\n5\r\nhello\r\n", b"413"),
        (b"GET / HTTP/1.1\r\nhost: x\r\nexpect: 100-continue\r\ncontent-length: 1000000\r\n\r\n", b"413"),
        (
            # A proxy that goes by Content-Length would take the second request for the body of the first.
            (
                b"GET / HTTP/1.1\r\nhost: x\r\ncontent-length: 49\r\ntransfer-encoding: chunked\r\n\r\n0\r\n\r\n"
                b"GET / HTTP/1.1\r\nhost: x\r\nx-hidden: request\r\n\r\n"
            ),
            b"400",
        ),
        (b"GET / HTTP/1.1\r\n\r\n", b"400"),
        (b"nonsense\r\n\r\n", b"400"),
        (b"GET / HTTP/1.1\r\nhost: x\r\nauthorization: a\r\nauthorization: b\r\nconnection: close\r\n\r\n", b"400"),
    ],
)
async def test_what_is_no_request(data: bytes, status: bytes) -> None:
    async with serving(Page(b"content")) as server:
        answer = await talk(server, data)
        # What was sent beyond the answer may reset the connection before it is read.
        assert answer.startswith(b"HTTP/1.1 " + status) or (status == b"431" and not answer)
        assert b"content\n" not in answer
        await until(lambda: server.connections == 0)


async def test_pages_that_were_asked_for_together_take_turns_with_everything_else() -> None:
    """Otherwise 200 scrapes in one packet hold the loop for all of them, and the other nodes take this one for dead."""
    passes, seen = 0, []

    def page(asked: AuthenticatedRequest) -> Page:
        seen.append(passes)
        return Page(b"")

    turns = Turns(RealClock().monotonic)
    server = HttpServer(real_env().network, {"/readyz": page, "/healthz": page}, open_to_all(), turns=turns)
    host, port = await server.start("127.0.0.1", 0)
    conversations = [await asyncio.open_connection(host, port) for _ in range(3)]
    try:
        async with asyncio.timeout(150):
            for _, writer in conversations:
                writer.write(b"GET /readyz HTTP/1.1\r\nhost: x\r\n\r\n" * 50)
            while len(seen) < 150:
                passes += 1
                await asyncio.sleep(0)
        assert len(set(seen)) == 150
    finally:
        for _, writer in conversations:
            writer.close()
        await server.close()


@pytest.mark.parametrize(("count", "status"), [(150, b"200"), (250, b"431"), (4000, b"431")])
@pytest.mark.parametrize("line", [b"a:\r\n", b"a:\n", b"a: b\r\n c\r\n"])
async def test_a_head_has_a_bounded_number_of_lines(line: bytes, count: int, status: bytes) -> None:
    """Four thousand headers in 16 kB took 40 ms of the loop."""
    end = b"\n" if b"\r" not in line else b"\r\n"
    lines = line * (count // line.count(b"\n"))
    async with serving(Page(b"ok")) as server:
        answer = await talk(server, b"GET / HTTP/1.1\r\nhost: localhost\r\nconnection: close\r\n" + lines + end)
    assert answer.split()[1] == status


async def test_a_body_may_have_many_lines() -> None:
    body = b"\n" * 5000
    text = b"GET / HTTP/1.1\r\nhost: localhost\r\ncontent-length: %d\r\n\r\n" % len(body)
    async with serving(Page(b"ok")) as server:
        assert (await talk(server, text + body)).split()[1] == b"413"  # no body at all on this page, but not 431


async def test_who_waits_for_leave_to_send_a_body_gets_it() -> None:
    """RFC 9110, section 10.1.1: curl and Java's client wait a second or for ever otherwise."""

    async def tree(asked: TreeRequest) -> Page:
        return Page(asked.asked.body)

    server = HttpServer(real_env().network, {}, open_to_all(), trees={"subjects": tree})
    host, port = await server.start("127.0.0.1", 0)
    reader, writer = await asyncio.open_connection(host, port)
    try:
        async with asyncio.timeout(150):
            writer.write(b"PUT /subjects/x HTTP/1.1\r\nhost: x\r\nexpect: 100-continue\r\ncontent-length: 5\r\n\r\n")
            assert (await reader.readuntil(b"\r\n\r\n")).startswith(b"HTTP/1.1 100 ")
            writer.write(b"hello")
            assert (await reader.readuntil(b"\r\n\r\n")).startswith(b"HTTP/1.1 200 ")
            assert await reader.readexactly(5) == b"hello"
    finally:
        writer.close()
        await server.close()


async def test_slow_requests_and_slow_readers_end(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(http_server, "_DEADLINE_S", 0.3)
    async with serving(Page(b"x" * 50_000_000)) as server:
        assert await talk(server, b"GET / HT") == b""
        assert server._listener is not None
        with socket.create_connection(("127.0.0.1", server._listener.port)) as deaf:
            deaf.sendall(b"GET / HTTP/1.1\r\nhost: x\r\n\r\n")
            await until(lambda: server.connections == 1)
            await until(lambda: server.connections == 0)


@pytest.mark.parametrize("connection", ["close", "keep-alive"])
async def test_a_page_that_takes_too_long_says_so(monkeypatch: pytest.MonkeyPatch, connection: str) -> None:
    """A part of the cluster that does not answer: the browser would see its connection end, and not know why."""
    monkeypatch.setattr(http_server, "_DEADLINE_S", 0.2)

    async def slow(asked: AuthenticatedRequest) -> Page:
        await asyncio.Event().wait()
        raise AssertionError

    async with serving(Page(b"content")) as server:
        server._pages["/"] = slow
        answer = await talk(server, f"GET / HTTP/1.1\r\nhost: x\r\nconnection: {connection}\r\n\r\n".encode())
        assert answer.startswith(b"HTTP/1.1 503") and b"no answer within" in answer
        await until(lambda: server.connections == 0)


async def test_who_waits_longest_gives_way(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(http_server, "_MAX_CONNECTIONS", 20)
    async with serving(Page(b"content")) as server:
        assert server._listener is not None
        with contextlib.ExitStack() as held:
            silent = []
            for _ in range(60):
                each = held.enter_context(socket.create_connection(("127.0.0.1", server._listener.port)))
                each.sendall(b"GET / HTTP/1.1\r\n")
                silent.append(each)
            await until(lambda: server.connections == 20)
            assert b"content" in await talk(server, b"GET / HTTP/1.1\r\nhost: x\r\nconnection: close\r\n\r\n")
            silent[0].settimeout(30)
            with contextlib.suppress(ConnectionResetError):
                assert silent[0].recv(1) == b""
            assert server.connections <= 20


async def test_who_does_not_read_gives_way(monkeypatch: pytest.MonkeyPatch) -> None:
    """A hundred peers that read no response kept everybody from the pages, the probes among them, without a login."""
    monkeypatch.setattr(http_server, "_MAX_CONNECTIONS", 20)
    monkeypatch.setattr(http_server, "_DEADLINE_S", 150)
    served: list[AuthenticatedRequest] = []

    def page(asked: AuthenticatedRequest) -> Page:
        served.append(asked)
        return Page(b"x" * 8_000_000)

    async with serving(Page(b"")) as server:
        server._pages["/"] = page
        assert server._listener is not None
        with contextlib.ExitStack() as held:
            for _ in range(20):
                deaf = held.enter_context(socket.socket())
                deaf.setsockopt(socket.SOL_SOCKET, socket.SO_RCVBUF, 4096)
                deaf.connect(("127.0.0.1", server._listener.port))
                deaf.sendall(b"GET / HTTP/1.1\r\nhost: x\r\n\r\n")
            await until(lambda: len(served) == 20)
            honest = await talk(server, b"GET / HTTP/1.1\r\nhost: x\r\nconnection: close\r\n\r\n")
            assert honest.startswith(b"HTTP/1.1 200")
            assert server.connections <= 20


async def test_of_a_long_page_that_nobody_reads_little_is_written() -> None:
    """Each scrape that was not read kept a copy of the text."""
    async with serving(Page(bytes(32 * 2**20))) as server:
        assert server._listener is not None
        _, writer = await asyncio.open_connection("127.0.0.1", server._listener.port, limit=1024)
        writer.write(b"GET / HTTP/1.1\r\nhost: x\r\n\r\n")
        held: list[int] = []

        def is_full() -> bool:
            held[:] = [each.transport.get_write_buffer_size() for each in server._waiting]
            return held != [] and held[0] > 0

        await until(is_full)
        assert held[0] < 2**20
        writer.transport.abort()
        await until(lambda: server.connections == 0)


async def test_an_address_with_many_connections_gives_way_to_others(monkeypatch: pytest.MonkeyPatch) -> None:
    """Peers whose requests were being served did not give way, and there was always such a one: they sent hundreds of requests ahead."""
    monkeypatch.setattr(http_server, "_MAX_CONNECTIONS", 20)
    served: list[AuthenticatedRequest] = []

    async def page(asked: AuthenticatedRequest) -> Page:
        served.append(asked)
        if asked.client_host == "127.0.0.2":
            await asyncio.Event().wait()
        return Page(b"content")

    async with serving(Page(b"")) as server:
        server._pages["/"] = page
        assert server._listener is not None
        with contextlib.ExitStack() as held:

            def busy() -> None:
                each = held.enter_context(socket.socket())
                each.bind(("127.0.0.2", 0))
                assert server._listener is not None
                each.connect(("127.0.0.1", server._listener.port))
                each.sendall(b"GET / HTTP/1.1\r\nhost: x\r\n\r\n")

            for _ in range(20):
                busy()
            await until(lambda: len(served) == 20)
            assert b"content" in await talk(server, b"GET / HTTP/1.1\r\nhost: x\r\nconnection: close\r\n\r\n")
