"""The HTTP listener: a few pages, parsed by h11. Not on any hot path.

A page is a function or coroutine function of an admitted request. It runs on the node's loop, within the deadline of the request.
Unauthenticated peers cost little: a connection has a deadline, and when there are too many, one of the address that has most is closed: the one
that has waited longest for its peer (for a whole request, or until a response is read), or else the oldest.
"""

from __future__ import annotations

import asyncio
from collections.abc import Awaitable, Callable, Collection, Iterator, Mapping
from dataclasses import replace
from typing import TYPE_CHECKING
from urllib.parse import parse_qsl

from kafkalite.env.seams import Listener, Network
from kafkalite.http.authentication import AuthenticatedRequest, HttpAuthenticator, HttpPeer
from kafkalite.http.own_names import is_own_name
from kafkalite.http.page import Page
from kafkalite.http.values import cut
from kafkalite.lazy_dataclass import dataclass

if TYPE_CHECKING:
    import h11

    from kafkalite.env.turns import Turns
    from kafkalite.security.connection_limits import ConnectionLimits
    from kafkalite.security.tls import ServerTls

#: A request must be complete within this time, its page be made within this time, and then be read. An idle connection ends after it.
_DEADLINE_S = 10.0
_MAX_CONNECTIONS = 100
_MAX_HEAD_BYTES = 16 * 1024
#: Parsed at a time: 4 KiB of one-byte chunks take 5 ms.
_READ_BYTES = 4 * 1024
#: Of a response's body, written at a time: the peer need not read.
_PIECE_BYTES = 64 * 1024
#: Lines of a request's head: each costs more than its bytes.
_MAX_HEAD_LINES = 200
_MAX_PARAMETERS = 20
#: Here nobody has to know which of two values of a parameter counts.
_STRICT = "/api/"
#: Of a POST.
_MAX_BODY_BYTES = 64 * 1024

#: Of a request to a tree of paths.
_MAX_TREE_BODY_BYTES = 1024 * 1024

Handler = Callable[[AuthenticatedRequest], "Page | Awaitable[Page]"]


@dataclass(frozen=True, slots=True)
class TreeRequest:
    """A request to a path below a tree's root: any method, any body."""

    asked: AuthenticatedRequest
    method: str
    path: str


TreeHandler = Callable[[TreeRequest], Awaitable[Page]]


class HttpServer:
    """Serves GET and HEAD of fixed paths, and POST of a few, to clients that the authenticator admits.

    Args:
        posts: the pages that take POST, and nothing else.
        trees: first segment of a path -> what serves every path and method below it.
        per_ip: how many connections one address may have; None: as many as all together.
        names: those of this node, which the Host header must have; None: it is not checked, because clients authenticate.
        turns: one page begins per turn of the loop, addresses in turn, however many requests were sent ahead.
        max_connections: None: 100.
    """

    def __init__(
        self,
        network: Network,
        pages: Mapping[str, Handler],
        authenticator: HttpAuthenticator,
        *,
        tls: ServerTls | None = None,
        per_ip: ConnectionLimits | None = None,
        posts: Collection[str] = (),
        names: Collection[str] | None = None,
        trees: Mapping[str, TreeHandler] | None = None,
        turns: Turns | None = None,
        max_connections: int | None = None,
    ) -> None:
        self._most = _MAX_CONNECTIONS if max_connections is None else max_connections
        self._network = network
        self._turns = turns
        self._tls = tls
        self._authenticator = authenticator
        self._per_ip = per_ip
        self._names = names
        self._pages = dict(pages)
        self._posts = frozenset(posts)
        self._trees = dict(trees or {})
        self._listener: Listener | None = None
        #: Open connections.
        self.connections = 0
        #: Those that wait for their peer, the longest wait first.
        self._waiting: dict[asyncio.StreamWriter, None] = {}
        #: All, by the peer's address.
        self._by_host: dict[str, dict[asyncio.StreamWriter, None]] = {}

    async def start(self, host: str, port: int) -> tuple[str, int]:
        """Bind. Raises OSError."""
        self._listener = await self._network.listen(host, port, self._serve, self._tls)
        return self._listener.host, self._listener.port

    async def close(self) -> None:
        if self._listener is not None:
            await self._listener.close()

    async def _serve(self, reader: asyncio.StreamReader, writer: asyncio.StreamWriter) -> None:
        address = writer.get_extra_info("peername") or ("", 0)
        peer = HttpPeer(str(address[0]), int(address[1]), writer.get_extra_info("ssl_object"))
        if self._per_ip is not None and not self._per_ip.opened(peer.host):
            writer.close()
            return
        self.connections += 1
        self._by_host.setdefault(peer.host, {})[writer] = None
        try:
            if self.connections <= self._most or self._make_room(peer.host):
                await self._converse(reader, writer, peer)
        finally:
            self.connections -= 1
            self._waiting.pop(writer, None)
            self._by_host[peer.host].pop(writer)
            if not self._by_host[peer.host]:
                del self._by_host[peer.host]
            if self._per_ip is not None:
                self._per_ip.closed(peer.host)
            writer.close()

    def _make_room(self, host: str) -> bool:
        """Whether another connection has given way to one from this address: where an address has more than that, one of that which has most."""
        most = max(self._by_host.values(), key=len)
        is_larger = len(most) > len(self._by_host[host])
        waiting = (each for each in self._waiting if not is_larger or each in most)
        oldest = next(waiting, next(iter(most)) if is_larger else None)
        if oldest is None:
            return False
        self._waiting.pop(oldest, None)
        oldest.transport.abort()
        return True

    async def _converse(self, reader: asyncio.StreamReader, writer: asyncio.StreamWriter, peer: HttpPeer) -> None:
        import h11  # here and below: no start of a node waits for it

        connection = h11.Connection(h11.SERVER, max_incomplete_event_size=_MAX_HEAD_BYTES)
        try:
            try:
                while await self._one(connection, reader, writer, peer):
                    connection.start_next_cycle()
            except h11.RemoteProtocolError as error:
                if connection.our_state is h11.IDLE or connection.our_state is h11.SEND_RESPONSE:
                    page = Page(b"not a valid request of HTTP/1.1\n", status=error.error_status_hint)
                    _write(writer, _response(connection, page, is_whole=True))
            self._waiting[writer] = None
            async with asyncio.timeout(_DEADLINE_S):
                writer.close()
                await writer.wait_closed()
        except TimeoutError:
            writer.transport.abort()  # nobody reads the answer: what is left of it is not kept
        except (OSError, h11.ProtocolError):
            pass  # the peer's problem: its connection ends here

    async def _one(
        self, connection: h11.Connection, reader: asyncio.StreamReader, writer: asyncio.StreamWriter, peer: HttpPeer
    ) -> bool:
        """Answer one request; whether the connection may carry another."""
        import h11

        self._waiting.pop(writer, None)
        self._waiting[writer] = None
        async with asyncio.timeout(_DEADLINE_S):
            received = await self._receive(connection, reader, writer, peer)
        if received is None:
            return False
        request, body = received
        self._waiting.pop(writer, None)
        try:
            async with asyncio.timeout(_DEADLINE_S):
                if self._turns is not None:
                    await self._turns.take((peer.host, peer.port))
                page = await self._page(request, body, peer)
        except TimeoutError:
            page = _TOO_SLOW
        self._waiting[writer] = None  # for its peer, which need not read
        async with asyncio.timeout(_DEADLINE_S):
            for piece in _pieces(connection, page, is_whole=request.method != b"HEAD"):
                _write(writer, piece)
                await writer.drain()
        return connection.our_state is h11.DONE and connection.their_state is h11.DONE

    async def _receive(
        self, connection: h11.Connection, reader: asyncio.StreamReader, writer: asyncio.StreamWriter, peer: HttpPeer
    ) -> tuple[h11.Request, bytes] | None:
        """The next request and its body; None: the peer is gone, or it was refused."""
        import h11

        request: h11.Request | None = None
        refusal: Page | None = None
        head, body = bytearray(), bytearray()
        reads = 0
        while refusal is None:
            event = connection.next_event()
            if event is h11.NEED_DATA:
                data = await reader.read(_READ_BYTES)
                reads += 1
                if reads > 1 and self._turns is not None:  # however fast they send: one piece per turn of the loop
                    await self._turns.take((peer.host, peer.port))
                if request is None:
                    head += data
                    refusal = _TOO_MANY_HEADERS if _lines(head) > _MAX_HEAD_LINES else None
                connection.receive_data(data)
            elif isinstance(event, h11.Request):
                request = event
                refusal = _unwanted(event, self._most_bytes(event))
                if refusal is None and connection.they_are_waiting_for_100_continue:
                    go_on = h11.InformationalResponse(status_code=100, headers=[])
                    _write(writer, connection.send(go_on) or b"")
            elif isinstance(event, h11.EndOfMessage):
                assert request is not None
                return request, bytes(body)
            elif isinstance(event, h11.Data):
                body += event.data
                refusal = _TOO_LARGE if len(body) > self._most_bytes(request) else None
            elif isinstance(event, h11.ConnectionClosed) or event is h11.PAUSED:
                return None
        _write(writer, _response(connection, refusal, is_whole=request is None or request.method != b"HEAD"))
        return None

    def _most_bytes(self, request: h11.Request | None) -> int:
        """Of the body."""
        if request is None:
            return 0
        if _root(_path(request)) in self._trees:
            return _MAX_TREE_BODY_BYTES
        return _MAX_BODY_BYTES if request.method == b"POST" and _path(request) in self._posts else 0

    async def _page(self, request: h11.Request, body: bytes, peer: HttpPeer) -> Page:
        if self._names is not None:
            host = next((value.decode("latin-1") for name, value in request.headers if name == b"host"), "")
            if host and not is_own_name(host, self._names):
                return Page(b"this is not the name of this node: see http.allowed.hosts\n", status=403)
        is_post = _path(request) in self._posts
        tree = self._trees.get(_root(_path(request)))
        if tree is None and request.method not in ((b"POST",) if is_post else (b"GET", b"HEAD")):
            allowed = (("allow", "POST" if is_post else "GET, HEAD"),)
            return Page(b"method not allowed\n", status=405, headers=allowed)
        path, _, text = request.target.decode("latin-1").partition("?")
        handler = self._pages.get(path)
        if handler is None and tree is None:
            return Page(b"not found\n", status=404)
        logins = [value.decode("latin-1") for name, value in request.headers if name == b"authorization"]
        if len(logins) > 1:
            return Page(b"more than one login\n", status=400)
        try:
            query = _query(text, may_repeat=not path.startswith(_STRICT))
            place = path if tree is None else f"/{_root(path)}"
            asked = await self._authenticator.admit(place, query, logins[0] if logins else None, peer)
            if isinstance(asked, Page):
                return asked
            headers = {name.decode("latin-1"): value.decode("latin-1") for name, value in request.headers}
            asked = replace(asked, headers=headers, body=body)
            if tree is not None:
                return await tree(TreeRequest(asked, request.method.decode("latin-1"), path))
            assert handler is not None
            outcome = handler(asked)
            return outcome if isinstance(outcome, Page) else await outcome
        except ValueError as error:  # what somebody typed
            return Page(f"{error}\n".encode(), status=400)


_TOO_MANY_HEADERS = Page(b"too many headers\n", status=431)
#: A request that changes something may have done so.
_TOO_SLOW = Page(
    f"no answer within {_DEADLINE_S:g} s; what was asked for may still be carried out\n".encode(), status=503
)
_TOO_LARGE = Page(b"this page takes no body of that size\n", status=413)


def _unwanted(request: h11.Request, most_bytes: int) -> Page | None:
    """The refusal of a request before its body has come; None: it is taken. The connection ends with a refusal.

    With both Content-Length and Transfer-Encoding a proxy in front of this node could see another end of the request than we do,
    and pass on as somebody's next request what is hidden behind it (RFC 9112, section 6.1).
    """
    found = dict(request.headers)
    length = found.get(b"content-length")
    if length is not None and b"transfer-encoding" in found:
        return Page(b"Content-Length or Transfer-Encoding, not both\n", status=400)
    return _TOO_LARGE if length is not None and int(length) > most_bytes else None


def _query(text: str, *, may_repeat: bool) -> dict[str, str]:
    """The parameters of an address. Of one that is repeated the last counts. Raises ValueError."""
    if text.count("&") >= _MAX_PARAMETERS:
        raise ValueError(f"more than {_MAX_PARAMETERS} parameters")
    found: dict[str, str] = {}
    for name, value in parse_qsl(text, keep_blank_values=True):
        if name in found and not may_repeat:
            raise ValueError(f"{cut(name)} is given twice")
        found[name] = value
    return found


def _lines(head: bytearray) -> int:
    """Of a request's head, up to the empty line."""
    ends = [end for end in (head.find(b"\n\r\n"), head.find(b"\n\n")) if end >= 0]
    return head.count(b"\n", 0, min(ends, default=len(head)))


def _path(request: h11.Request) -> str:
    return str(request.target.decode("latin-1").partition("?")[0])


def _root(path: str) -> str:
    """The first segment."""
    return path.lstrip("/").partition("/")[0]


def _write(writer: asyncio.StreamWriter, data: bytes) -> None:
    """Raises OSError if the connection is closed: uvloop's transports do not."""
    if writer.transport.is_closing():
        raise ConnectionResetError("the connection is closed")
    writer.write(data)


def _response(connection: h11.Connection, page: Page, *, is_whole: bool) -> bytes:
    """`is_whole`: with its body."""
    return b"".join(_pieces(connection, page, is_whole=is_whole))


def _pieces(connection: h11.Connection, page: Page, *, is_whole: bool) -> Iterator[bytes]:
    """Of a response, each made when the one before is on its way: the text of all metrics may have megabytes. A small one is in one piece."""
    import h11

    headers = [
        ("content-type", page.content_type),
        ("content-length", str(len(page.body))),
        ("cache-control", "no-store"),
        ("x-content-type-options", "nosniff"),
        *page.headers,
    ]
    out: bytes = connection.send(h11.Response(status_code=page.status, headers=headers)) or b""
    for begin in range(0, len(page.body) if is_whole else 0, _PIECE_BYTES):
        if begin:
            yield out
            out = b""
        out += connection.send(h11.Data(data=page.body[begin : begin + _PIECE_BYTES])) or b""
    yield out + (connection.send(h11.EndOfMessage()) or b"")
