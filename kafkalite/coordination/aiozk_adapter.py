"""The Coordinator on a real ZooKeeper: one session, over as many connections as it takes.

Built on aiozk's codec only. Its Session and Connection lose elections and fences (noticed dead connections late,
replayed writes in a later session, replaced sessions silently; docs/adr/0002), so connection and session are ours:

- a broken connection fails what is under way at once, and the next one is tried within milliseconds;
- every attempt is bounded, short at first (a server accepts connections before it answers any);
- only the server's word ends the session; `lease_left` tells when it can no longer be trusted;
- nothing is ever sent twice.
"""

from __future__ import annotations

import asyncio
from collections import deque
from collections.abc import Awaitable, Callable, Sequence
from dataclasses import field
from random import Random
from typing import TYPE_CHECKING, Any

from kafkalite.config import BrokerConfig
from kafkalite.coordination import zk_codec as codec
from kafkalite.coordination.coordinator import (
    AuthFailedError,
    Check,
    Coordinator,
    CoordinatorError,
    Create,
    Delete,
    NoNodeError,
    NotSentError,
    Op,
    OpResult,
    SessionExpiredError,
    SessionState,
    SetData,
    Stat,
    TooBigError,
    Watch,
)
from kafkalite.coordination.retry import retrying
from kafkalite.coordination.verbs import MAX_REQUEST_BYTES, ensure_path, split_connect_string
from kafkalite.coordination.watches import EventType, WatchKind, WatchTable
from kafkalite.coordination.zk_connection import Pending, ZkConnection
from kafkalite.env.seams import Clock, Network
from kafkalite.env.supervisor import Policy, Supervisor
from kafkalite.errors import ConfigError, ProtocolError
from kafkalite.lazy_dataclass import dataclass
from kafkalite.model import Endpoint
from kafkalite.telemetry.logs import get_logger

if TYPE_CHECKING:
    from kafkalite.security.tls import ClientTls

_log = get_logger(__name__)

#: How many requests of get_many, and of multi_many, are under way at once.
_READ_WINDOW = 512
_MULTI_WINDOW = 16
_SET_WATCHES_CHUNK_BYTES = 100_000
#: First patience with a server that accepts but does not answer; grows to a third of the session timeout.
_HANDSHAKE_S = 0.5
_BACKOFF_MIN_S = 0.05
_BACKOFF_MAX_S = 1.0
#: After we stood still (SIGSTOP, a suspended VM) the answers wait in the socket: look there before giving up.
_SECOND_LOOK_S = 0.05
_CLOSE_PATIENCE_S = 2.0


@dataclass(frozen=True, slots=True)
class Access:
    """What ZooKeeper is shown, and asked for.

    Args:
        auth: (scheme, credentials), for example ("digest", b"user:password"); sent on every connection.
        set_acl: what is created may be changed by that identity only.
        tls: the server's port speaks TLS.
    """

    auth: tuple[tuple[str, bytes], ...] = field(default=(), repr=False)
    set_acl: bool = False
    tls: ClientTls | None = None


_ANYBODY = Access()


def access_of(config: BrokerConfig) -> Access:
    """As configured (`zookeeper.auth` and the like). Raises ConfigError."""
    auth: tuple[tuple[str, bytes], ...] = ()
    tls = None
    if config.zookeeper_auth:
        from kafkalite.security.files import reveal  # only who uses it loads it

        credentials = reveal("zookeeper.auth", config.zookeeper_auth)
        user, _, password = credentials.partition(":")
        if not user or not password:
            raise ConfigError("zookeeper.auth: not USER:PASSWORD")
        auth = (("digest", credentials.encode()),)
    if config.zookeeper_ssl_client_enable:
        from kafkalite.security.tls import ClientTls, TlsFiles

        files = TlsFiles(config.zookeeper_ssl_keystore_location, config.zookeeper_ssl_truststore_location)
        tls = ClientTls(files, check_hostname=bool(config.ssl_endpoint_identification_algorithm))
        tls.context()
    return Access(auth, config.zookeeper_set_acl, tls)


async def connect(
    connect_string: str,
    session_timeout_ms: int,
    *,
    clock: Clock,
    network: Network,
    rng: Random,
    access: Access = _ANYBODY,
) -> Coordinator:
    """Open a new session, and make the chroot if it is not there.

    Args:
        connect_string: "host:port,host:port/chroot".
        access: identity, ACLs and TLS.
    Raises:
        NotSentError: nobody answered within the session timeout.
        AuthFailedError: the credentials were refused.
        ConfigError: the connect string is none.
    """
    servers, chroot = split_connect_string(connect_string)
    session = ZkSession(servers, chroot, session_timeout_ms, clock=clock, network=network, rng=rng, access=access)
    await session.open()
    return session


def connector(clock: Clock, network: Network, rng: Random) -> Callable[[str, int], Awaitable[Coordinator]]:
    """Env.connect_coordinator on real servers."""

    async def connect_real(connect_string: str, session_timeout_ms: int) -> Coordinator:
        return await connect(connect_string, session_timeout_ms, clock=clock, network=network, rng=rng)

    return connect_real


class ZkSession:
    """See the seam for what every method promises."""

    def __init__(
        self,
        servers: Sequence[Endpoint],
        chroot: str,
        timeout_ms: int,
        *,
        clock: Clock,
        network: Network,
        rng: Random,
        access: Access = _ANYBODY,
    ) -> None:
        self._servers = tuple(servers)
        self._chroot = chroot
        self._asked_timeout_ms = timeout_ms
        self._timeout_s = timeout_ms / 1000
        self._clock = clock
        self._network = network
        self._rng = rng
        self._auth = access.auth
        self._tls = access.tls
        #: On paths with the chroot.
        self._acl_of: codec.AclOf = self._creators_acl if access.set_acl else codec.open_acl
        self._session_id = 0
        self._password = b""
        self._state = SessionState.SUSPENDED
        self._callbacks: list[Callable[[SessionState], None]] = []
        self._connection: ZkConnection | None = None
        self._server: Endpoint | None = None
        self._watches = WatchTable()
        self._seen_zxid = 0
        self._xid = 0
        self._lease_until = float("-inf")
        self._last_heard = 0.0
        self._timer: asyncio.TimerHandle | None = None
        self._opened: asyncio.Future[None] | None = None
        self._closing = False
        self._supervisor = Supervisor(self._failed)

    # --- the session -----------------------------------------------------------------------------------------

    async def open(self) -> None:
        """Connect; see `connect`."""
        self._opened = asyncio.get_running_loop().create_future()
        self._supervisor.spawn("zookeeper-session", self._run(), Policy.FATAL)
        try:
            async with asyncio.timeout(self._timeout_s):
                await self._opened
                chroot, self._chroot = self._chroot, ""
                if chroot:
                    await retrying(lambda: self.ensure_path(chroot))
                self._chroot = chroot
        except TimeoutError:
            await self.close()
            servers = ",".join(map(str, self._servers))
            raise NotSentError(f"no ZooKeeper answered at {servers} within {self._timeout_s:g} s") from None
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
        if self._state is SessionState.EXPIRED:
            return float("-inf")
        return self._lease_until - self._clock.boottime()

    def on_state(self, callback: Callable[[SessionState], None]) -> None:
        self._callbacks.append(callback)

    async def close(self) -> None:
        if self._state is not SessionState.EXPIRED and not self._closing:
            self._closing = True
            if self._state is SessionState.CONNECTED:
                try:
                    async with asyncio.timeout(min(_CLOSE_PATIENCE_S, self._timeout_s)):
                        await self._request(codec.close, codec.decode_nothing)
                except (CoordinatorError, TimeoutError):
                    _log.info("session.close_unanswered", session=f"{self._session_id:x}")
            self._end("closed")
        await self._supervisor.stop()

    def _failed(self, error: BaseException) -> None:
        """The session's task died of a bug: nothing keeps the session any more."""
        self._end(f"failed: {error!r}")

    def _end(self, reason: str, error: CoordinatorError | None = None) -> None:
        """The session is over. Its task ends by itself (it may be what calls this)."""
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
                patience = min(patience * 1.5, max(_HANDSHAKE_S, self._timeout_s / 3))
                await asyncio.sleep(backoff * self._rng.uniform(0.5, 1.5))
                backoff = min(backoff * 2, _BACKOFF_MAX_S)

    async def _connect_any(self, patience: float) -> ZkConnection | None:
        """A connection on which our session is open; None if no server would, or the session is over."""
        for server in self._rng.sample(self._servers, len(self._servers)):
            try:
                async with asyncio.timeout(patience):
                    return await self._connect_to(server)
            except (OSError, EOFError, ProtocolError, TimeoutError) as error:
                _log.debug("zookeeper.attempt_failed", server=str(server), error=repr(error))
            except SessionExpiredError:
                self._end("expired at the server")
            if self._state is SessionState.EXPIRED:
                return None
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
        self._session_id, self._password = granted.session_id, granted.password
        self._timeout_s = granted.timeout_ms / 1000
        self._heard(sent_at)
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
        self._timer = asyncio.get_running_loop().call_later(self._timeout_s / 6, self._beat, connection)
        if self._opened is not None and not self._opened.done():
            self._opened.set_result(None)
        self._become(SessionState.CONNECTED)
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
        """Every sixth of the timeout: a heartbeat if due, or the end of a connection silent for two thirds.

        A third of the timeout is left then to reach another server.
        """
        if connection is not self._connection or connection.closed:
            return
        loop = asyncio.get_running_loop()
        slack = self._timeout_s / 60  # of the timers
        if self._silence() >= self._timeout_s * 2 / 3 - slack:
            self._timer = loop.call_later(_SECOND_LOOK_S, self._second_look, connection)
            return
        if self.lease_left() <= self._timeout_s * 2 / 3 + slack:
            connection.ping(self._clock.boottime())
        self._timer = loop.call_later(self._timeout_s / 6, self._beat, connection)

    def _second_look(self, connection: ZkConnection) -> None:
        if connection is not self._connection or connection.closed:
            return
        if self._silence() >= self._timeout_s / 2:
            self._lose(connection, "no answer for two thirds of the session timeout")
        else:
            self._beat(connection)

    def _silence(self) -> float:
        return self._clock.monotonic() - self._last_heard

    def _heard(self, sent_at: float | None) -> None:
        self._last_heard = self._clock.monotonic()
        if sent_at is not None:
            self._lease_until = max(self._lease_until, sent_at + self._timeout_s)

    def _replied(self, zxid: int, sent_at: float | None) -> None:
        self._heard(sent_at)
        self._seen_zxid = max(self._seen_zxid, zxid)

    def _notified(self, event: int, path: str) -> None:
        self._heard(None)
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
            raise NotSentError("not connected")
        self._xid = 1 if self._xid >= 0x7FFFFFFF else self._xid + 1
        frame = encode(self._xid)
        if len(frame) > MAX_REQUEST_BYTES:
            raise TooBigError(f"{len(frame)} bytes, at most {MAX_REQUEST_BYTES}")
        future: asyncio.Future[Any] = asyncio.get_running_loop().create_future()
        connection.send(frame, Pending(self._xid, future, decode, self._clock.boottime(), on_answer))
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

    async def _pipelined(
        self, encoders: Sequence[Callable[[int], bytes]], decode: codec.Decoder, width: int
    ) -> list[Any]:
        """The results in order, errors as values, at most `width` requests under way."""
        results: list[Any] = []
        window: deque[asyncio.Future[Any] | CoordinatorError] = deque()
        try:
            for encode in encoders:
                if len(window) == width:
                    results.append(await _outcome(window.popleft()))
                try:
                    window.append(self._send(encode, decode))
                except CoordinatorError as error:
                    window.append(error)
            while window:
                results.append(await _outcome(window.popleft()))
        finally:
            for future in window:
                if isinstance(future, asyncio.Future):
                    future.add_done_callback(_consume)
        return results

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

    # --- the verbs -------------------------------------------------------------------------------------------

    def _full(self, path: str) -> str:
        return path if not self._chroot else self._chroot if path == "/" else self._chroot + path

    def _creators_acl(self, path: str) -> bytes:
        return codec.creators_acl(path[len(self._chroot) :])

    def _full_op(self, op: Op) -> Op:
        if not self._chroot:
            return op
        path = self._full(op.path)
        match op:
            case Check():
                return Check(path, op.version)
            case Create():
                return Create(path, op.data, op.ephemeral, op.sequential)
            case SetData():
                return SetData(path, op.data, op.version)
            case Delete():
                return Delete(path, op.version)

    async def get(self, path: str, watch: Watch | None = None) -> tuple[bytes, Stat]:
        full = self._full(path)
        found: tuple[bytes, Stat] = await self._request(
            lambda xid: codec.get(xid, full, watch=watch is not None),
            codec.decode_get,
            self._arming(WatchKind.DATA, full, watch),
        )
        return found

    async def get_many(self, paths: Sequence[str]) -> list[tuple[bytes, Stat] | None]:
        encoders = [_get_encoder(self._full(path)) for path in paths]
        results = await self._pipelined(encoders, codec.decode_get, _READ_WINDOW)
        found: list[tuple[bytes, Stat] | None] = []
        for result in results:
            if isinstance(result, CoordinatorError) and not isinstance(result, NoNodeError):
                raise result
            found.append(None if isinstance(result, NoNodeError) else result)
        return found

    async def exists(self, path: str, watch: Watch | None = None) -> Stat | None:
        full = self._full(path)
        try:
            stat: Stat = await self._request(
                lambda xid: codec.exists(xid, full, watch=watch is not None),
                codec.decode_stat,
                self._arming(WatchKind.EXIST, full, watch),
            )
        except NoNodeError:
            return None
        return stat

    async def children(self, path: str, watch: Watch | None = None) -> tuple[list[str], Stat]:
        full = self._full(path)
        found: tuple[list[str], Stat] = await self._request(
            lambda xid: codec.children(xid, full, watch=watch is not None),
            codec.decode_children,
            self._arming(WatchKind.CHILD, full, watch),
        )
        return found

    async def create(
        self, path: str, data: bytes = b"", *, ephemeral: bool = False, sequential: bool = False
    ) -> tuple[str, Stat]:
        op = Create(self._full(path), data, ephemeral, sequential)
        acl = self._acl_of(op.path)
        made, stat = await self._request(lambda xid: codec.create(xid, op, acl), codec.decode_create)
        return made[len(self._chroot) :], stat

    async def ensure_path(self, path: str) -> None:
        await ensure_path(self.create, path)

    async def set(self, path: str, data: bytes, version: int = -1) -> Stat:
        op = SetData(self._full(path), data, version)
        stat: Stat = await self._request(lambda xid: codec.set_data(xid, op), codec.decode_stat)
        return stat

    async def delete(self, path: str, version: int = -1) -> None:
        op = Delete(self._full(path), version)
        await self._request(lambda xid: codec.delete(xid, op), codec.decode_nothing)

    async def multi(self, ops: Sequence[Op]) -> list[OpResult]:
        full = [self._full_op(op) for op in ops]
        results: list[OpResult] = await self._request(
            lambda xid: codec.multi(xid, full, self._acl_of), codec.decode_multi
        )
        return self._without_chroot(results)

    async def multi_many(self, transactions: Sequence[Sequence[Op]]) -> list[list[OpResult] | CoordinatorError]:
        encoders = [_multi_encoder([self._full_op(op) for op in ops], self._acl_of) for ops in transactions]
        results = await self._pipelined(encoders, codec.decode_multi, _MULTI_WINDOW)
        return [result if isinstance(result, CoordinatorError) else self._without_chroot(result) for result in results]

    def _without_chroot(self, results: list[OpResult]) -> list[OpResult]:
        if not self._chroot:
            return results
        return [each[len(self._chroot) :] if isinstance(each, str) else each for each in results]

    async def sync(self, path: str) -> None:
        full = self._full(path)
        await self._request(lambda xid: codec.sync(xid, full), codec.decode_nothing)


def _get_encoder(path: str) -> Callable[[int], bytes]:
    return lambda xid: codec.get(xid, path, watch=False)


def _multi_encoder(ops: Sequence[Op], acl_of: codec.AclOf) -> Callable[[int], bytes]:
    return lambda xid: codec.multi(xid, ops, acl_of)


async def _outcome(future: asyncio.Future[Any] | CoordinatorError) -> Any:
    if isinstance(future, CoordinatorError):
        return future
    try:
        return await future
    except CoordinatorError as error:
        return error


def _consume(future: asyncio.Future[Any]) -> None:
    """Nobody waits for this one: its error is no news."""
    if not future.cancelled():
        future.exception()
