"""One session with real ZooKeeper servers, over as many connections as it takes. `aiozk_adapter` adds the seam's verbs.

- a broken connection fails what is under way at once, and the next one is tried within milliseconds;
- every attempt is bounded, short at first (a server accepts connections before it answers any);
- only the server's word ends the session; `lease_left` shows when it can no longer be trusted;
- nothing is ever sent twice.
"""

from __future__ import annotations

import asyncio
from collections.abc import Awaitable, Callable, Collection, Sequence
from random import Random
from typing import TYPE_CHECKING, Any

from kafkalite.coordination import zk_codec as codec
from kafkalite.coordination.coordinator import (
    AuthFailedError,
    Check,
    CoordinatorError,
    NoNodeError,
    NotSentError,
    SessionExpiredError,
    SessionState,
    TooBigError,
    Watch,
)
from kafkalite.coordination.quorum_lease import QuorumLease
from kafkalite.coordination.verbs import MAX_REQUEST_BYTES, pass_over
from kafkalite.coordination.watches import EventType, WatchKind, WatchTable
from kafkalite.coordination.zk_connection import Pending, ZkConnection
from kafkalite.env.seams import Clock, Network
from kafkalite.env.supervisor import Policy, Supervisor
from kafkalite.errors import ProtocolError
from kafkalite.model import Endpoint
from kafkalite.telemetry.logs import get_logger

if TYPE_CHECKING:
    from kafkalite.security.tls import ClientTls

_log = get_logger(__name__)

_SET_WATCHES_CHUNK_BYTES = 100_000
#: First patience with a server that accepts but does not answer; grows to a third of the session timeout.
_HANDSHAKE_S = 0.5
_BACKOFF_MIN_S = 0.05
_BACKOFF_MAX_S = 1.0
#: After we stood still (SIGSTOP, a suspended VM) the answers wait in the socket: look there before giving up.
_SECOND_LOOK_S = 0.05
_CLOSE_PATIENCE_S = 2.0
#: For each append asks for the lease.
_EXPIRED, _NO_LEASE = SessionState.EXPIRED, float("-inf")


class ZkSession:
    """Keeps the session, and sends requests on it: answered, refused or of unknown outcome, never twice.

    Args:
        servers: tried in random order.
        auth: (scheme, credentials), sent on every connection.
        tls: the servers' ports speak TLS.
    """

    def __init__(
        self,
        servers: Sequence[Endpoint],
        timeout_ms: int,
        *,
        clock: Clock,
        network: Network,
        rng: Random,
        auth: Sequence[tuple[str, bytes]] = (),
        tls: ClientTls | None = None,
    ) -> None:
        self._servers = tuple(servers)
        self._asked_timeout_ms = timeout_ms
        self.timeout_s = timeout_ms / 1000
        self._clock = clock
        self._network = network
        self._rng = rng
        self._auth = tuple(auth)
        self._tls = tls
        self._session_id = 0
        self._password = b""
        self._state = SessionState.SUSPENDED
        self._callbacks: list[Callable[[SessionState], None]] = []
        self._connection: ZkConnection | None = None
        self._server: Endpoint | None = None
        self._watches = WatchTable()
        self._seen_zxid = 0
        self._xid = 0
        self._lease = QuorumLease()
        #: Times of the last message of the server, and of the last confirmation of the ensemble behind it.
        self._last_heard = 0.0
        self._last_confirmed = clock.monotonic()
        #: When (boot clock) the confirmation was sent that is not answered yet.
        self._confirming_since: float | None = None
        self._timer: asyncio.TimerHandle | None = None
        self._opened: asyncio.Future[None] | None = None
        self._is_refused = False
        self._closing = False
        self._supervisor = Supervisor(self._failed)

    # --- the session -----------------------------------------------------------------------------------------

    async def begin(self, prepare: Callable[[], Awaitable[None]]) -> None:
        """Connect, and then `prepare`; both within the session timeout, or the session is closed again.

        Raises NotSentError if nobody answered, AuthFailedError if the credentials were refused, what `prepare` raises.
        """
        self._opened = asyncio.get_running_loop().create_future()
        self._supervisor.spawn("zookeeper-session", self._run(), Policy.FATAL)
        try:
            async with asyncio.timeout(self.timeout_s):
                await self._opened
                await prepare()
        except TimeoutError:
            await self.close()
            servers = ",".join(map(str, self._servers))
            raise NotSentError(f"no ZooKeeper answered at {servers} within {self.timeout_s:g} s") from None
        except BaseException:
            await self.close()
            raise

    @property
    def session_id(self) -> int:
        return self._session_id

    @property
    def server(self) -> Endpoint | None:
        """Where we are connected at the moment."""
        return None if self._connection is None else self._server

    @property
    def state(self) -> SessionState:
        return self._state

    def lease_left(self) -> float:
        if self._state is _EXPIRED:
            return _NO_LEASE
        return self._lease.until - self._clock.boottime()

    def silent_s(self) -> float:
        return self._clock.monotonic() - self._last_confirmed

    @property
    def is_refused(self) -> bool:
        return self._is_refused

    def on_state(self, callback: Callable[[SessionState], None]) -> None:
        self._callbacks.append(callback)

    def forget(self, watches: Collection[Watch]) -> None:
        self._watches.forget(watches)

    async def close(self) -> None:
        if self._state is not SessionState.EXPIRED and not self._closing:
            self._closing = True
            if self._state is SessionState.CONNECTED:
                try:
                    async with asyncio.timeout(min(_CLOSE_PATIENCE_S, self.timeout_s)):
                        await self._request(codec.close, codec.decode_nothing)
                except (CoordinatorError, TimeoutError):
                    _log.info("session.close_unanswered", session=f"{self._session_id:x}")
            self._end("closed")
        await self._supervisor.stop()

    def _failed(self, error: BaseException) -> None:
        """The session's task died of a bug: nothing keeps the session any more."""
        self._end(f"failed: {error!r}")

    def _end(self, reason: str, error: CoordinatorError | None = None) -> None:
        """The session is over. Its task ends later (it may be the caller)."""
        if self._state is SessionState.EXPIRED:
            return
        if self._timer is not None:
            self._timer.cancel()
        self._watches.clear()
        if self._connection is not None:
            self._connection.abort(reason)
        self._become(SessionState.EXPIRED)
        if self._opened is not None and not self._opened.done():
            self._opened.set_exception(error or SessionExpiredError(f"session {self._session_id:x}: {reason}"))

    def _become(self, state: SessionState) -> None:
        if state is not self._state and self._state is not SessionState.EXPIRED:
            self._state = state
            for callback in list(self._callbacks):
                callback(state)

    # --- connections -----------------------------------------------------------------------------------------

    async def _run(self) -> None:
        """Connect, serve, connect again, until the session is over."""
        patience = _HANDSHAKE_S
        backoff = _BACKOFF_MIN_S
        while self._state is not SessionState.EXPIRED:
            connection = await self._connect_any(patience)
            if connection is not None:
                patience, backoff = _HANDSHAKE_S, _BACKOFF_MIN_S
                await self._serve(connection)
            elif self._state is SessionState.SUSPENDED:
                patience = min(patience * 1.5, max(_HANDSHAKE_S, self.timeout_s / 3))
                await asyncio.sleep(backoff * self._rng.uniform(0.5, 1.5))
                backoff = min(backoff * 2, _BACKOFF_MAX_S)

    async def _connect_any(self, patience: float) -> ZkConnection | None:
        """A connection on which our session is open; None if no server would, or the session is over."""
        closed = 0
        for server in self._rng.sample(self._servers, len(self._servers)):
            try:
                async with asyncio.timeout(patience):
                    connection = await self._connect_to(server)
                self._is_refused = False
                return connection
            except EOFError:
                closed += 1
                _log.debug("zookeeper.attempt_failed", server=str(server), error="closed without an answer")
            except (OSError, ProtocolError, TimeoutError) as error:
                _log.debug("zookeeper.attempt_failed", server=str(server), error=repr(error))
            except SessionExpiredError:
                self._end("expired at the server")
            if self._state is SessionState.EXPIRED:
                return None
        self._is_refused = closed == len(self._servers)
        return None

    async def _connect_to(self, server: Endpoint) -> ZkConnection:
        reader, writer = await self._network.dial(server.host, server.port, self._tls)
        connection = ZkConnection(reader, writer, on_reply=self._replied, on_event=self._notified)
        try:
            sent_at = self._clock.boottime()
            connection.send_special(
                codec.connect_request(self._session_id, self._password, self._asked_timeout_ms, self._seen_zxid)
            )
            granted = codec.decode_connect_response(await connection.read_frame())
            if granted.session_id == 0:
                raise SessionExpiredError("the server does not know the session")
        except BaseException:
            connection.abort("no session")
            raise
        self._server = server
        is_new = granted.session_id != self._session_id
        self._session_id, self._password = granted.session_id, granted.password
        self.timeout_s = granted.timeout_ms / 1000
        self._last_heard = self._clock.monotonic()
        if is_new:
            self._lease.opened(sent_at, self.timeout_s)
            self._last_confirmed = self._last_heard
        else:
            self._lease.attached(sent_at, self._clock.boottime())
        for scheme, credentials in self._auth:
            connection.send_special(codec.auth(scheme, credentials))
        for frame in codec.set_watches(self._seen_zxid, self._watches.armed(), _SET_WATCHES_CHUNK_BYTES):
            connection.send_special(frame)
        return connection

    async def _serve(self, connection: ZkConnection) -> None:
        """Until the connection breaks or the session is over."""
        if self._state is SessionState.EXPIRED:
            connection.abort("session is over")
            return
        self._connection = connection
        self._confirming_since = None
        self._timer = asyncio.get_running_loop().call_later(self.timeout_s / 6, self._beat, connection)
        if self._opened is not None and not self._opened.done():
            self._opened.set_result(None)
        self._become(SessionState.CONNECTED)
        self._confirm(connection)
        reason = "closed"
        try:
            await connection.run()
        except AuthFailedError as error:
            reason = str(error)
            self._end(reason, error)
        except (OSError, EOFError, ProtocolError) as error:
            reason = str(error) or repr(error)
        finally:
            self._lose(connection, reason)

    def _lose(self, connection: ZkConnection, reason: str) -> None:
        connection.abort(reason)
        if connection is not self._connection:
            return
        self._connection = None
        if self._timer is not None:
            self._timer.cancel()
        if self._state is SessionState.CONNECTED and not self._closing:
            _log.info("session.connection_lost", session=f"{self._session_id:x}", reason=reason)
        self._become(SessionState.SUSPENDED)

    def _beat(self, connection: ZkConnection) -> None:
        """Every sixth of the timeout: a confirmation, or the end of a connection silent for two thirds.

        A third of the timeout is left then to reach another server. Without a lease the connection ends at once: to attach
        again is the fastest way to prove that the session is held, through a server that reaches its ensemble.
        """
        if connection is not self._connection or connection.closed:
            return
        loop = asyncio.get_running_loop()
        slack = self.timeout_s / 60  # of the timers
        if self._silence() >= self.timeout_s * 2 / 3 - slack:
            self._timer = loop.call_later(_SECOND_LOOK_S, self._second_check, connection)
            return
        if self._confirming_since is None:
            if self.lease_left() <= 0:
                self._lose(connection, "the lease has run out")
                return
            self._confirm(connection)
        elif self._clock.boottime() - self._confirming_since >= self.timeout_s * 2 / 3 - slack:
            self._lose(connection, "the server answers, its ensemble has not for two thirds of the session timeout")
            return
        else:
            connection.ping()
        self._timer = loop.call_later(self.timeout_s / 6, self._beat, connection)

    def _confirm(self, connection: ZkConnection) -> None:
        """Send a request that only a quorum can answer: a transaction that changes nothing."""
        if connection is not self._connection or connection.closed or self._state is SessionState.EXPIRED:
            return
        sent_at = self._confirming_since = self._clock.boottime()

        def answered(answer: Any) -> None:
            if connection is self._connection and not isinstance(answer, SessionExpiredError):
                self._confirming_since = None
                self._last_confirmed = self._clock.monotonic()
                self._lease.confirmed(sent_at, self._clock.boottime(), self.timeout_s)

        check = (Check("/", -1),)
        self._send(lambda xid: codec.multi(xid, check), codec.decode_multi, answered).add_done_callback(pass_over)

    def _second_check(self, connection: ZkConnection) -> None:
        if connection is not self._connection or connection.closed:
            return
        if self._silence() >= self.timeout_s / 2:
            self._lose(connection, "no answer for two thirds of the session timeout")
        else:
            self._beat(connection)

    def _silence(self) -> float:
        return self._clock.monotonic() - self._last_heard

    def _heard(self) -> None:
        self._last_heard = self._clock.monotonic()

    def _replied(self, zxid: int) -> None:
        self._heard()
        self._seen_zxid = max(self._seen_zxid, zxid)

    def _notified(self, event: int, path: str) -> None:
        self._heard()
        try:
            kind = EventType(event)
        except ValueError:
            return  # the session's own events
        loop = asyncio.get_running_loop()
        for watch in self._watches.take(kind, path):
            loop.call_soon(watch)

    # --- requests --------------------------------------------------------------------------------------------

    def _send(
        self,
        encode: Callable[[int], bytes],
        decode: codec.Decoder,
        on_answer: Callable[[Any], None] | None = None,
    ) -> asyncio.Future[Any]:
        if self._state is SessionState.EXPIRED:
            raise SessionExpiredError(f"session {self._session_id:x} is over")
        connection = self._connection
        if connection is None or connection.closed:
            raise NotSentError("not connected to ZooKeeper")
        self._xid = 1 if self._xid >= 0x7FFFFFFF else self._xid + 1
        frame = encode(self._xid)
        if len(frame) > MAX_REQUEST_BYTES:
            raise TooBigError(f"{len(frame)} bytes, at most {MAX_REQUEST_BYTES}")
        future: asyncio.Future[Any] = asyncio.get_running_loop().create_future()
        connection.send(frame, Pending(self._xid, future, decode, on_answer))
        return future

    async def _request(
        self,
        encode: Callable[[int], bytes],
        decode: codec.Decoder,
        on_answer: Callable[[Any], None] | None = None,
    ) -> Any:
        try:
            return await self._send(encode, decode, on_answer)
        except SessionExpiredError:
            self._end("expired")
            raise

    def _arming(self, kind: WatchKind, path: str, watch: Watch | None) -> Callable[[Any], None] | None:
        """What to do with the answer to a read with a watch: the server armed it when it answered."""
        if watch is None:
            return None

        def arm(answer: Any) -> None:
            if not isinstance(answer, CoordinatorError):
                self._watches.arm(WatchKind.DATA if kind is WatchKind.EXIST else kind, path, watch)
            elif kind is WatchKind.EXIST and isinstance(answer, NoNodeError):
                self._watches.arm(kind, path, watch)

        return arm
