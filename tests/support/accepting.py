"""A server of a test whose end leaves no connection behind, whatever had just been accepted.

asyncio's own forgets, when it is closed, what it accepted a moment before: the socket ends with the garbage, and
whichever test runs then fails.
"""

from __future__ import annotations

import asyncio
import socket
from collections.abc import AsyncIterator, Callable
from contextlib import asynccontextmanager
from typing import Any

#: Told of a connection at once; a task that it starts is its own to end.
Accepted = Callable[[asyncio.StreamReader, asyncio.StreamWriter], None]


class _Connections:
    def __init__(self, listener: socket.socket, accepted: Accepted) -> None:
        self.listener = listener
        self._accepted = accepted
        self._loop = asyncio.get_running_loop()
        self._made: set[asyncio.Task[Any]] = set()
        self._open: set[_Connection] = set()
        self._lost = asyncio.Event()

    def accept(self) -> None:
        try:
            taken, _ = self.listener.accept()
        except (BlockingIOError, ConnectionAbortedError):
            return
        taken.settimeout(0)
        task = self._loop.create_task(self._loop.connect_accepted_socket(lambda: _Connection(self), taken))
        self._made.add(task)
        task.add_done_callback(self._made.discard)

    def made(self, connection: _Connection, reader: asyncio.StreamReader, writer: asyncio.StreamWriter) -> None:
        self._open.add(connection)
        self._accepted(reader, writer)

    def lost(self, connection: _Connection) -> None:
        self._open.discard(connection)
        self._lost.set()

    async def end(self) -> None:
        self._loop.remove_reader(self.listener)
        self.listener.close()
        await asyncio.gather(*self._made)
        for connection in self._open:
            connection.abort()
        while self._open:
            self._lost.clear()
            await self._lost.wait()


class _Connection(asyncio.StreamReaderProtocol):
    def __init__(self, connections: _Connections) -> None:
        super().__init__(asyncio.StreamReader(), self._ready)
        self._connections = connections
        self._writer: asyncio.StreamWriter | None = None

    def _ready(self, reader: asyncio.StreamReader, writer: asyncio.StreamWriter) -> None:
        self._writer = writer
        self._connections.made(self, reader, writer)

    def abort(self) -> None:
        assert self._writer is not None
        self._writer.transport.abort()

    def connection_lost(self, exc: Exception | None) -> None:
        super().connection_lost(exc)
        self._connections.lost(self)


@asynccontextmanager
async def accepting(accepted: Accepted) -> AsyncIterator[int]:
    """Listens on a free port of 127.0.0.1, which it yields; `accepted` gets the streams of each connection."""
    connections = _Connections(socket.create_server(("127.0.0.1", 0)), accepted)
    connections.listener.settimeout(0)
    asyncio.get_running_loop().add_reader(connections.listener, connections.accept)
    try:
        yield connections.listener.getsockname()[1]
    finally:
        await connections.end()
