"""The tests' own loop: what was closed is closed with it, and what nobody closed is reported."""

from __future__ import annotations

import asyncio
import socket
import ssl
import threading
from collections.abc import Iterator
from pathlib import Path

import pytest

from kafkalite.testing.certificates import Authority
from tests.support.loop import ClosingLoop


@pytest.fixture
def listening() -> Iterator[socket.socket]:
    with socket.create_server(("127.0.0.1", 0)) as listener:
        yield listener


def test_a_peer_that_does_not_read_does_not_keep_a_closed_connection_open(listening: socket.socket) -> None:
    async def main() -> asyncio.StreamWriter:
        _, writer = await asyncio.open_connection(*listening.getsockname()[:2])
        writer.write(bytes(64 << 20))
        writer.close()
        return writer

    loop = ClosingLoop()
    writer = loop.run_until_complete(main())
    assert writer.transport.get_write_buffer_size()
    loop.close()
    assert writer.get_extra_info("socket").fileno() == -1


def test_nor_does_one_that_does_not_answer_the_end_of_tls(listening: socket.socket, tmp_path: Path) -> None:
    authority = Authority(tmp_path)
    server = ssl.SSLContext(ssl.PROTOCOL_TLS_SERVER)
    server.load_cert_chain(authority.issue("node"))
    client = ssl.create_default_context(cafile=authority.truststore)
    silent: list[ssl.SSLSocket] = []
    thread = threading.Thread(target=lambda: silent.append(server.wrap_socket(listening.accept()[0], server_side=True)))
    thread.start()

    async def main() -> asyncio.StreamWriter:
        _, writer = await asyncio.open_connection(*listening.getsockname()[:2], ssl=client)
        writer.close()
        return writer

    loop = ClosingLoop()
    writer = loop.run_until_complete(main())
    thread.join()
    raw = writer.get_extra_info("socket")
    assert raw.fileno() != -1
    loop.close()
    assert raw.fileno() == -1
    silent[0].close()


def test_what_nobody_closed_fails_the_test_that_left_it(listening: socket.socket) -> None:
    """Left to the collector of cycles, it would fail another one."""

    async def main() -> asyncio.StreamWriter:
        return (await asyncio.open_connection(*listening.getsockname()[:2]))[1]

    loop = ClosingLoop()
    writer = loop.run_until_complete(main())
    with pytest.warns(ResourceWarning, match="nobody closed <_SelectorSocketTransport"):
        loop.close()
    assert writer.get_extra_info("socket").fileno() == -1
    assert loop.is_closed()
