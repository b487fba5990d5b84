"""The RPC listener: reads requests in big chunks, dispatches them in arrival order, answers in that order.

Handlers are called synchronously, so what they do at once (appending to a log) happens in the order of
arrival; what takes time is a future or a coroutine, and later requests go on meanwhile. Every connection is
bounded on its own (requests under way, bytes not yet taken by the peer, time for a frame), and all together
(number, memory): a slow or hostile peer costs only itself.
"""

from __future__ import annotations

import asyncio
from collections.abc import Callable, Mapping
from typing import TYPE_CHECKING

from kafkalite.config import BrokerConfig, max_connections
from kafkalite.env.seams import Listener, Network
from kafkalite.env.supervisor import Policy, Supervisor
from kafkalite.listener_settings import RPC
from kafkalite.model import Endpoint
from kafkalite.rpc.greeting import Identity
from kafkalite.rpc.handling import Handler
from kafkalite.rpc.memory import RequestMemory
from kafkalite.rpc.messages.base import Message
from kafkalite.rpc.server_connection import SWEEP_INTERVAL_S, ServerConnection
from kafkalite.security.connection_limits import ConnectionLimits
from kafkalite.telemetry.counters import Requests
from kafkalite.telemetry.logs import get_logger
from kafkalite.telemetry.repeats import Repeats, kind_of

if TYPE_CHECKING:
    from kafkalite.security.listener import ListenerSecurity

_log = get_logger(__name__)

#: While others wait for memory that half received frames hold, such a frame has only this long.
MEMORY_GRACE_S = 1.0


class RpcServer:
    """Serves the handlers on one address.

    Args:
        identity: asked at each hello.
        handlers: by class of request.
        security: the authentication that peers need; None: none.
        per_ip: the limit of connections per address, if there is one.
        monotonic: seconds; requests are timed if it is given.
    """

    def __init__(
        self,
        *,
        network: Network,
        supervisor: Supervisor,
        config: BrokerConfig,
        identity: Callable[[], Identity],
        handlers: Mapping[type[Message], Handler],
        security: ListenerSecurity | None = None,
        per_ip: ConnectionLimits | None = None,
        monotonic: Callable[[], float] | None = None,
    ) -> None:
        self.monotonic = monotonic
        self._repeats = Repeats(lambda: asyncio.get_running_loop().time())
        self.requests = Requests()
        self.network = network
        self.security = security
        self.supervisor = supervisor
        self.config = config
        self.max_connections = max_connections(config, RPC)
        self.identity = identity
        self.handlers = dict(handlers)
        self._per_ip = per_ip
        self.memory = RequestMemory(config.queued_max_request_bytes)
        self.connections: dict[int, ServerConnection] = {}
        #: Those that have not said hello, the oldest first.
        self._ungreeted: dict[ServerConnection, None] = {}
        self._next_connection = 0
        self._listener: Listener | None = None
        self._sweeper: asyncio.Task[None] | None = None
        self._closing = False

    async def start(self, host: str, port: int) -> Endpoint:
        """Listen; returns the address as bound (port 0 picks a free one). Raises OSError."""
        tls = self.security.tls if self.security is not None else None
        self._listener = await self.network.listen(host, port, self._accept, tls)
        self._sweeper = self.supervisor.spawn("rpc.sweeper", self._sweep())
        return Endpoint(self._listener.host, self._listener.port)

    async def close(self) -> None:
        """Stop listening and close every connection; answers already given are flushed as far as peers read."""
        self._closing = True
        if self._listener is not None:
            await self._listener.close()
        if self._sweeper is not None:
            self._sweeper.cancel()
        for connection in list(self.connections.values()):
            connection.shut("server is closing", quietly=True)

    def warn(self, event: str, reason: str, *, peer: str, **details: object) -> None:
        """One line about a connection; many similar ones from one host are suppressed."""
        suppressed = self._repeats.admit((event, kind_of(reason), peer.rpartition(":")[0]))
        if suppressed is not None:
            _log.warning(event, peer=peer, **details, reason=reason, suppressed=suppressed)

    async def _accept(self, reader: asyncio.StreamReader, writer: asyncio.StreamWriter) -> None:
        address = _address(writer)
        is_full = len(self.connections) >= self.max_connections
        if self._closing or (is_full and not self._ungreeted):
            if not self._closing:
                self.warn("rpc.refused", "max.connections reached", peer=address)
            writer.transport.abort()
            return
        host = address.rpartition(":")[0]
        if self._per_ip is not None and not self._per_ip.opened(host):
            self.warn("rpc.refused", "max.connections.per.ip reached", peer=address)
            writer.transport.abort()
            return
        if is_full:  # peers that come back whenever they are closed must not part the nodes
            oldest = next(iter(self._ungreeted))
            del self._ungreeted[oldest]
            oldest.shut("replaced by a newer connection before its hello", at_once=True)
        number = self._next_connection
        self._next_connection += 1
        connection = ServerConnection(self, reader, writer, address, number)
        self.connections[number] = connection
        self._ungreeted[connection] = None
        # Supervised, so that a bug in a handler is logged and ends only this connection.
        task = self.supervisor.spawn(f"rpc.connection[{address}]", connection.run(), Policy.ISOLATED)
        task.add_done_callback(lambda _: self._ended(number, host))
        # For the task, and not for its code: a task that is cancelled before its first step runs none.
        await asyncio.wait((task,))

    def greeted(self, connection: ServerConnection) -> None:
        """The peer has said hello: it is a node."""
        self._ungreeted.pop(connection, None)

    def _ended(self, number: int, host: str) -> None:
        ended = self.connections.pop(number, None)
        if ended is not None:
            self._ungreeted.pop(ended, None)
        if self._per_ip is not None:
            self._per_ip.closed(host)

    async def _sweep(self) -> None:
        loop = asyncio.get_running_loop()
        while True:
            await asyncio.sleep(SWEEP_INTERVAL_S)
            now = loop.time()
            for connection in list(self.connections.values()):
                connection.check_deadlines(now)
            self._evict(now)

    def _evict(self, now: float) -> None:
        """Cut half received frames, the largest first, while they take the room that others wait for."""
        excess = self.memory.shortage_of_incomplete
        if excess <= 0:
            return
        late = [c for c in self.connections.values() if c.held_by_frame_since(now - MEMORY_GRACE_S)]
        for connection in sorted(late, key=lambda c: c.memory.incomplete_bytes, reverse=True):
            excess -= connection.memory.incomplete_bytes
            connection.shut("a frame arrived too slowly while memory was short", at_once=True)
            if excess <= 0:
                return


def _address(writer: asyncio.StreamWriter) -> str:
    name = writer.get_extra_info("peername")
    return f"{name[0]}:{name[1]}" if isinstance(name, tuple) and len(name) >= 2 else str(name)
