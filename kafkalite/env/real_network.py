"""TCP through asyncio."""

from __future__ import annotations

import asyncio
import os
import socket
from collections.abc import Callable
from typing import TYPE_CHECKING, Any

from kafkalite.env.seams import LISTEN_BACKLOG, ConnectionHandler, Listener
from kafkalite.env.streams import open_stream, stream_protocol
from kafkalite.env.supervisor import Policy, Supervisor
from kafkalite.telemetry.logs import get_logger

if TYPE_CHECKING:
    from kafkalite.security.tls import ClientTls, ServerTls

_log = get_logger(__name__)

#: Of a StreamReader: it stops reading from the socket at twice this. A replica fetch of 1 MiB fits whole.
STREAM_LIMIT_BYTES = 4 * 1024 * 1024
#: The same for accepted connections: there may be thousands, and what waits here no listener's bound counts.
ACCEPTED_LIMIT_BYTES = 256 * 1024


class RealListener:
    """A listening asyncio server."""

    def __init__(self, server: asyncio.Server) -> None:
        name = server.sockets[0].getsockname()
        self.host: str = name[0]
        self.port: int = name[1]
        self._server = server

    async def close(self) -> None:
        # asyncio forgets sockets, unclosed, that it accepted a moment before its server is closed: first none are
        # accepted any more, and those that were become connections.
        loop = asyncio.get_running_loop()
        for listening in self._server.sockets:
            loop.remove_reader(listening.fileno())
        await asyncio.sleep(0)
        # Not wait_closed(): since Python 3.12 that waits for the connections too, and they go on.
        self._server.close()


def die(error: BaseException) -> None:
    """An AssertionError in a connection's task is a bug: the process ends (errors.py)."""
    _log.critical("process.aborted", error=repr(error), exc_info=error)
    os._exit(70)


class RealNetwork:
    """TCP through asyncio streams, without Nagle's delay.

    Args:
        on_fatal: called with an AssertionError in a connection handler; any other exception ends that connection only.
    """

    def __init__(self, on_fatal: Callable[[BaseException], None] = die) -> None:
        self._supervisor = Supervisor(on_fatal)

    async def dial(
        self, host: str, port: int, tls: ClientTls | None = None
    ) -> tuple[asyncio.StreamReader, asyncio.StreamWriter]:
        reader, writer = await open_stream(host, port, STREAM_LIMIT_BYTES, tls.context() if tls is not None else None)
        _no_delay(writer.transport)
        return reader, writer

    async def listen(self, host: str, port: int, handler: ConnectionHandler, tls: ServerTls | None = None) -> Listener:
        def accepted(reader: asyncio.StreamReader, writer: asyncio.StreamWriter) -> None:
            _no_delay(writer.transport)
            task = self._supervisor.spawn("connection", handler(reader, writer), Policy.ISOLATED)
            # Not in the task: one that is cancelled before its first step runs nothing.
            task.add_done_callback(lambda _: writer.close())

        return await self.listen_protocol(host, port, lambda: stream_protocol(accepted, ACCEPTED_LIMIT_BYTES), tls)

    async def listen_protocol(
        self, host: str, port: int, factory: Callable[[], asyncio.BaseProtocol], tls: ServerTls | None = None
    ) -> Listener:
        # asyncio's and uvloop's transports set TCP_NODELAY themselves.
        if tls is None:
            loop = asyncio.get_running_loop()
            # uvloop encodes text with the codec of international names, which has large tables to load.
            name: Any = [host.encode()] if host and host.isascii() else host
            return RealListener(await loop.create_server(factory, name, port, backlog=LISTEN_BACKLOG))
        from kafkalite.env.handshakes import TlsListener  # loaded only where TLS is used

        listener = TlsListener(tls, factory, self._supervisor)
        await listener.start(host, port)
        return listener


def _no_delay(transport: asyncio.BaseTransport) -> None:
    sock = transport.get_extra_info("socket")
    if sock is not None:
        sock.setsockopt(socket.IPPROTO_TCP, socket.TCP_NODELAY, 1)
