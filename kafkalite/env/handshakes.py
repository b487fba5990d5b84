"""A TLS listener: the handshake comes first, the listener's own protocol sees none of it.

Unauthenticated peers cost little: a handshake has a deadline, and their number is bounded (the newest replaces the oldest;
an honest one is done in milliseconds). Failures are logged in one line, not in a thousand.

Connections are accepted here, not by asyncio's server: that one gives a listener's connections one SSLContext for ever,
and shows nobody which of them are still shaking hands.
"""

from __future__ import annotations

import asyncio
import socket
from collections import deque
from collections.abc import Callable

from kafkalite.env.heap import Crowds
from kafkalite.env.seams import LISTEN_BACKLOG
from kafkalite.env.supervisor import Policy, Supervisor
from kafkalite.lazy_dataclass import dataclass
from kafkalite.security.tls import ServerTls, describe
from kafkalite.telemetry.logs import get_logger
from kafkalite.telemetry.repeats import Repeats

_log = get_logger(__name__)

HANDSHAKE_S = 10.0
#: Time in seconds that a peer has to answer the end of TLS.
SHUTDOWN_S = 5.0
MAX_HANDSHAKES = 1024
#: The first byte of a TLS connection (RFC 8446 section 5.1: content type handshake).
_TLS_HANDSHAKE = b"\x16"
#: Connections accepted in one turn of the loop.
_ACCEPTED_PER_TURN = 100
#: Handshakes whose first message is answered in one turn of the loop: each costs a signature, a millisecond or two.
_PER_TURN = 2
#: Pause in seconds after accepting has failed.
_ACCEPT_PAUSE_S = 1.0


def _wake(readable: asyncio.Future[None]) -> None:
    if not readable.done():
        readable.set_result(None)


@dataclass(slots=True, eq=False)
class _Handshake:
    """One under way. `is_begun`: its task has begun, and takes care of the socket."""

    accepted: socket.socket
    host: str
    task: asyncio.Task[None] | None = None
    is_begun: bool = False

    def give_up(self) -> None:
        assert self.task is not None
        self.task.cancel()
        if not self.is_begun:  # a task that is cancelled before its first step takes none
            self.accepted.close()


class TlsListener:
    """See the module. `start` raises OSError, and ConfigError when certificates cannot be used."""

    def __init__(self, tls: ServerTls, factory: Callable[[], asyncio.BaseProtocol], supervisor: Supervisor) -> None:
        tls.context()  # errors in the files are reported now
        self.host = ""
        self.port = 0
        self._tls = tls
        self._factory = factory
        self._supervisor = supervisor
        self._loop = asyncio.get_running_loop()
        self._repeats = Repeats(self._loop.time)
        self._sockets: list[socket.socket] = []
        self._crowds = Crowds(self._loop)
        #: Under way, oldest first.
        self._pending: dict[_Handshake, None] = {}
        #: Those whose first byte has come, in the order of their turns.
        self._lining_up: deque[asyncio.Future[None]] = deque()

    async def start(self, host: str, port: int) -> None:
        """Bind every address of `host` and accept."""
        found = await self._loop.getaddrinfo(host, port, type=socket.SOCK_STREAM, flags=socket.AI_PASSIVE)
        for family, _, _, _, address in dict.fromkeys(found):
            bound = socket.socket(family, socket.SOCK_STREAM)
            self._sockets.append(bound)
            bound.settimeout(0)
            bound.setsockopt(socket.SOL_SOCKET, socket.SO_REUSEADDR, 1)
            if family == socket.AF_INET6:
                bound.setsockopt(socket.IPPROTO_IPV6, socket.IPV6_V6ONLY, 1)
            try:
                bound.bind(address)
                bound.listen(LISTEN_BACKLOG)
            except OSError:
                await self.close()
                raise
            self._loop.add_reader(bound, self._accept, bound)
        self.host, self.port = self._sockets[0].getsockname()[:2]

    async def close(self) -> None:
        sockets, self._sockets = self._sockets, []
        for bound in sockets:
            self._loop.remove_reader(bound)
            bound.close()
        self._crowds.close()
        pending, self._pending = self._pending, {}
        for handshake in pending:
            handshake.give_up()

    def _accept(self, bound: socket.socket) -> None:
        for _ in range(_ACCEPTED_PER_TURN):
            try:
                accepted, address = bound.accept()
            except (BlockingIOError, InterruptedError, ConnectionAbortedError):
                return
            except OSError as error:
                # No descriptors or no memory left, as a rule: looking again at once would not help.
                _log.error("tls.accept_paused", error=str(error))
                self._loop.remove_reader(bound)
                self._loop.call_later(_ACCEPT_PAUSE_S, self._accept_again, bound)
                return
            accepted.settimeout(0)
            accepted.setsockopt(socket.IPPROTO_TCP, socket.TCP_NODELAY, 1)
            self._begin(accepted, str(address[0]))

    def _accept_again(self, bound: socket.socket) -> None:
        if bound in self._sockets:
            self._loop.add_reader(bound, self._accept, bound)

    def _begin(self, accepted: socket.socket, host: str) -> None:
        if len(self._pending) >= MAX_HANDSHAKES:
            oldest = next(iter(self._pending))
            del self._pending[oldest]
            oldest.give_up()
            self._log_refusal(oldest.host, "replaced by a newer handshake: too many at once")
        self._crowds.came()
        handshake = _Handshake(accepted, host)
        handshake.task = self._supervisor.spawn("tls.handshake", self._shake(handshake), Policy.ISOLATED)
        self._pending[handshake] = None

    async def _shake(self, handshake: _Handshake) -> None:
        handshake.is_begun = True
        is_ours = True
        try:
            is_tls = await self._begins_with_tls(handshake.accepted) or not self._tls.takes_plain
            if is_tls:
                await self._turn()
            is_ours = False
            if is_tls:
                await self._loop.connect_accepted_socket(
                    self._factory,
                    handshake.accepted,
                    ssl=self._tls.context_at(self._loop.time()),
                    ssl_handshake_timeout=HANDSHAKE_S,
                    ssl_shutdown_timeout=SHUTDOWN_S,
                )
            else:
                await self._loop.connect_accepted_socket(self._factory, handshake.accepted)
        except OSError as error:  # TimeoutError is one
            self._log_refusal(handshake.host, describe(error))
        finally:
            self._pending.pop(handshake, None)
            if is_ours:
                handshake.accepted.close()

    async def _turn(self) -> None:
        """A thousand peers that all speak at once are answered in turn, and everybody else between them."""
        turn: asyncio.Future[None] = self._loop.create_future()
        if not self._lining_up:
            self._loop.call_soon(self._admit)
        self._lining_up.append(turn)
        await turn

    def _admit(self) -> None:
        for _ in range(_PER_TURN):
            if not self._lining_up:
                return
            turn = self._lining_up.popleft()
            if not turn.done():
                turn.set_result(None)
        if self._lining_up:
            self._loop.call_soon(self._admit)

    async def _begins_with_tls(self, accepted: socket.socket) -> bool:
        """Waits for the first byte, and leaves it there: no frame of ours can begin like a TLS record. Raises OSError."""
        readable = self._loop.create_future()
        self._loop.add_reader(accepted, _wake, readable)
        try:
            async with asyncio.timeout(HANDSHAKE_S):
                await readable
        finally:
            self._loop.remove_reader(accepted)
        return accepted.recv(1, socket.MSG_PEEK) == _TLS_HANDSHAKE

    def _log_refusal(self, host: str, reason: str) -> None:
        self._tls.refused += 1
        suppressed = self._repeats.admit((host, reason))
        if suppressed is not None:
            _log.warning("tls.refused", peer=host, port=self.port, reason=reason, suppressed=suppressed)
