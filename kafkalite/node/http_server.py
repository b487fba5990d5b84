"""The HTTP listener: a few read-only pages, parsed by h11. Not on any hot path.

A page is a function of the query's parameters, or a coroutine of them; it runs on the node's loop, within the deadline
of the request.
"""

from __future__ import annotations

import asyncio
from collections.abc import Awaitable, Callable, Mapping
from dataclasses import dataclass
from typing import TYPE_CHECKING
from urllib.parse import parse_qsl

import h11

from kafkalite.env.seams import Listener, Network

if TYPE_CHECKING:
    from kafkalite.security.tls import ServerTls

#: A request must be complete within this time, and an idle connection ends after it.
_DEADLINE_S = 10.0
_MAX_CONNECTIONS = 100
_READ_BYTES = 16 * 1024
_MAX_PARAMETERS = 20


@dataclass(frozen=True, slots=True)
class Page:
    """A response."""

    body: bytes
    content_type: str = "text/plain; charset=utf-8"
    status: int = 200
    headers: tuple[tuple[str, str], ...] = ()


#: Parameter -> value; the last one counts.
Query = Mapping[str, str]
Handler = Callable[[Query], "Page | Awaitable[Page]"]


class HttpServer:
    """Serves GET and HEAD of fixed paths."""

    def __init__(self, network: Network, pages: Mapping[str, Handler], tls: ServerTls | None = None) -> None:
        self._network = network
        self._tls = tls
        self._pages = dict(pages)
        self._listener: Listener | None = None
        self._open = 0

    async def start(self, host: str, port: int) -> tuple[str, int]:
        """Bind. Raises OSError."""
        self._listener = await self._network.listen(host, port, self._serve, self._tls)
        return self._listener.host, self._listener.port

    async def close(self) -> None:
        if self._listener is not None:
            await self._listener.close()

    async def _serve(self, reader: asyncio.StreamReader, writer: asyncio.StreamWriter) -> None:
        self._open += 1
        connection = h11.Connection(h11.SERVER, max_incomplete_event_size=_READ_BYTES)
        try:
            while self._open <= _MAX_CONNECTIONS and await self._one(connection, reader, writer):
                connection.start_next_cycle()
        except (OSError, TimeoutError, h11.ProtocolError):
            pass  # the peer's problem: its connection ends here
        finally:
            self._open -= 1
            writer.close()

    async def _one(
        self, connection: h11.Connection, reader: asyncio.StreamReader, writer: asyncio.StreamWriter
    ) -> bool:
        """Answer one request; whether the connection may carry another."""
        request: h11.Request | None = None
        async with asyncio.timeout(_DEADLINE_S):
            while True:
                event = connection.next_event()
                if event is h11.NEED_DATA:
                    connection.receive_data(await reader.read(_READ_BYTES))
                elif isinstance(event, h11.Request):
                    request = event
                elif isinstance(event, h11.EndOfMessage):
                    break
                elif isinstance(event, h11.ConnectionClosed) or event is h11.PAUSED:
                    return False
            assert request is not None
            page = await self._page(request)
            headers = [
                ("content-type", page.content_type),
                ("content-length", str(len(page.body))),
                ("cache-control", "no-store"),
                ("x-content-type-options", "nosniff"),
                *page.headers,
            ]
            out = connection.send(h11.Response(status_code=page.status, headers=headers)) or b""
            if request.method != b"HEAD":
                out += connection.send(h11.Data(data=page.body)) or b""
            out += connection.send(h11.EndOfMessage()) or b""
            writer.write(out)
            await writer.drain()
        return connection.our_state is h11.DONE and connection.their_state is h11.DONE

    async def _page(self, request: h11.Request) -> Page:
        if request.method not in (b"GET", b"HEAD"):
            return Page(b"method not allowed\n", status=405)
        path, _, query = request.target.decode("latin-1").partition("?")
        handler = self._pages.get(path)
        if handler is None:
            return Page(b"not found\n", status=404)
        try:
            outcome = handler(dict(parse_qsl(query, keep_blank_values=True, max_num_fields=_MAX_PARAMETERS)))
            return outcome if isinstance(outcome, Page) else await outcome
        except ValueError as error:  # what somebody typed
            return Page(f"{error}\n".encode(), status=400)
