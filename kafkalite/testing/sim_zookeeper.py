"""A ZooKeeper in memory: the server with its sessions and faults, and the Coordinator that talks to it.

Runs on any asyncio loop, also on one with virtual time. Deterministic: every random number comes from the generator
given, nothing iterates a set, messages of one connection keep their order. No tasks: timers and futures only.

Messages travel in the receiver's context (a simulation keeps the host's incarnation in a ContextVar): what happens
at the server goes on when a host crashes or stands still; what goes to a host is held or dropped with it.
"""

from __future__ import annotations

import asyncio
import contextvars
import random
from collections import deque
from collections.abc import Awaitable, Callable, Sequence
from dataclasses import field
from enum import Enum
from typing import Any

from kafkalite.coordination.coordinator import (
    Check,
    Coordinator,
    CoordinatorError,
    Create,
    Delete,
    MultiFailedError,
    NoNodeError,
    NotSentError,
    Op,
    OpResult,
    OutcomeUnknownError,
    SessionExpiredError,
    SessionState,
    SetData,
    Stat,
    TooBigError,
    Watch,
)
from kafkalite.coordination.retry import retrying
from kafkalite.coordination.verbs import MAX_REQUEST_BYTES, ensure_path, size_of_ops, split_connect_string
from kafkalite.coordination.watches import EventType, WatchKind, WatchTable
from kafkalite.lazy_dataclass import dataclass
from kafkalite.testing.sim_zookeeper_tree import Event, ZnodeTree

#: How many requests of get_many and multi_many are under way at once.
_WINDOW = 256
_BACKOFF_MIN_S = 0.05
_BACKOFF_MAX_S = 1.0
_HANDSHAKE_S = 0.5


class Fate(Enum):
    """What happens to a request that has reached the server."""

    SERVE = "serve"
    #: The connection goes before the request is applied.
    LOSE_REQUEST = "lose_request"
    #: The request is applied, then the connection goes instead of the reply.
    LOSE_REPLY = "lose_reply"


@dataclass(frozen=True, slots=True)
class _Read:
    """A read or a session's own request; `verb` is get, exists, children, sync, ping or close."""

    verb: str
    path: str = "/"
    watch: bool = False


@dataclass(frozen=True, slots=True)
class _Write:
    """A transaction; `single` is answered with (path, Stat) instead of a list of results."""

    ops: tuple[Op, ...]
    single: bool


#: What a fault schedule sees of a request: the verbs of the seam.
Request = _Read | _Write


@dataclass(eq=False, slots=True)
class _Direction:
    """One way of a connection: messages arrive in the order sent."""

    queue: deque[Callable[[], None]] = field(default_factory=deque)
    last_at: float = 0.0
    held: int = 0


@dataclass(eq=False, slots=True)
class _Link:
    """A connection between one client and the server."""

    client: SimCoordinator
    context: contextvars.Context
    session: _Session | None = None
    closed: bool = False
    up: _Direction = field(default_factory=_Direction)
    down: _Direction = field(default_factory=_Direction)


@dataclass(eq=False, slots=True)
class _Session:
    session_id: int
    host: str
    timeout_s: float
    expires_at: float
    link: _Link | None = None
    timer: asyncio.TimerHandle | None = None


class SimZooKeeper:
    """The server, and the knobs that a fault schedule turns.

    Args:
        rng: where latencies, reconnection waits and the fate of requests in flight come from.
        min_latency_s, max_latency_s: one way, drawn per message; may be changed at any time.
        wall_ms: the time in Stat; the loop's by default.
    """

    def __init__(
        self,
        rng: random.Random,
        *,
        min_latency_s: float = 0.0002,
        max_latency_s: float = 0.001,
        wall_ms: Callable[[], int] | None = None,
    ) -> None:
        self.rng = rng
        self.min_latency_s = min_latency_s
        self.max_latency_s = max_latency_s
        self.tree = ZnodeTree()
        #: Decides the fate of every request (host, request); None serves all.
        self.decide_fate: Callable[[str, Request], Fate] | None = None
        #: Told every committed transaction: (zxid, host, operations). For checkers.
        self.on_commit: Callable[[int, str, tuple[Op, ...]], None] | None = None
        self._wall_ms = wall_ms
        self._context = contextvars.copy_context()
        self._sessions: dict[int, _Session] = {}
        self._links: dict[_Link, None] = {}
        self._data_watches: dict[str, dict[_Link, None]] = {}
        self._child_watches: dict[str, dict[_Link, None]] = {}
        self._blocked: dict[str, None] = {}
        self._latencies: dict[str, tuple[float, float]] = {}
        self._lose: dict[str, list[Fate]] = {}
        self._up = True
        self._next_session = 0x1000_0000_0000

    # --- how a node connects ---------------------------------------------------------------------------------

    def connector(self, host: str) -> Callable[[str, int], Awaitable[Coordinator]]:
        """Env.connect_coordinator for the node on `host`."""

        async def connect(connect_string: str, session_timeout_ms: int) -> Coordinator:
            _, chroot = split_connect_string(connect_string)
            client = SimCoordinator(self, host, chroot, session_timeout_ms / 1000)
            await client.open()
            return client

        return connect

    # --- the knobs -------------------------------------------------------------------------------------------

    def disconnect(self, host: str, fate: Fate | None = None) -> int:
        """Cut the host's connections; its clients reconnect by themselves. Returns how many there were.

        What is under way to the server is applied (LOSE_REPLY) or not (LOSE_REQUEST); None lets the generator choose.
        """
        links = [link for link in self._links if link.client.host == host]
        for link in links:
            if fate is None:
                fate = self.rng.choice((Fate.LOSE_REQUEST, Fate.LOSE_REPLY))
            if fate is Fate.LOSE_REPLY and self._up and host not in self._blocked:
                while link.up.queue and not link.closed:
                    link.up.queue.popleft()()
            self._drop(link)
        return len(links)

    def expire(self, host: str) -> int:
        """End the host's sessions at the server now. Returns how many there were."""
        sessions = [session for session in self._sessions.values() if session.host == host]
        for session in sessions:
            self._end(session)
        return len(sessions)

    def lose_next(self, host: str, fate: Fate, count: int = 1) -> None:
        """The next `count` requests of the host (pings aside) meet this fate."""
        self._lose.setdefault(host, []).extend([fate] * count)

    def slow(self, host: str, latency_s: tuple[float, float] | None) -> None:
        """Between the host and the server a message takes from .. to seconds, one way; None: as for everybody."""
        if latency_s is None:
            self._latencies.pop(host, None)
        else:
            self._latencies[host] = latency_s

    def block(self, host: str) -> None:
        """Nothing passes between host and server, silently; what is under way waits (TCP sends again)."""
        self._blocked[host] = None

    def unblock(self, host: str) -> None:
        """Let pass again what waited, on connections that nobody gave up meanwhile."""
        self._blocked.pop(host, None)
        loop = asyncio.get_running_loop()
        for link in list(self._links):
            if link.client.host == host:
                for direction, context in ((link.up, self._context), (link.down, link.context)):
                    held, direction.held = direction.held, 0
                    for _ in range(held):
                        loop.call_soon(self._arrive, link, direction, context=context)

    def stop(self) -> None:
        """The whole service goes down. Committed data and sessions stay; connections are cut."""
        self._up = False
        for link in list(self._links):
            self._drop(link)

    def start(self) -> None:
        """The service is back; every session gets its full timeout anew, as ZooKeeper's new leader grants it."""
        self._up = True
        now = asyncio.get_running_loop().time()
        for session in self._sessions.values():
            session.expires_at = now + session.timeout_s

    @property
    def is_up(self) -> bool:
        return self._up

    # --- the view of a checker -------------------------------------------------------------------------------

    def peek(self, path: str) -> tuple[bytes, Stat] | None:
        """Data and stat, at once and without a session."""
        return self.tree.get(path)

    def poke(self, *ops: Op) -> list[OpResult]:
        """Commit as if another client did (a person with a shell). Raises MultiFailedError."""
        return self._commit(tuple(ops), 0, "")

    def hosts(self) -> list[str]:
        """The hosts that hold a session, in the order of opening, each once."""
        return list(dict.fromkeys(session.host for session in self._sessions.values()))

    def session_ids(self, host: str) -> list[int]:
        """The live sessions of a host."""
        return [session.session_id for session in self._sessions.values() if session.host == host]

    def watch_count(self) -> int:
        """Armed watches at the server."""
        return sum(map(len, self._data_watches.values())) + sum(map(len, self._child_watches.values()))

    # --- messages --------------------------------------------------------------------------------------------

    def send_up(self, link: _Link, message: Callable[[], None]) -> None:
        """From the client to the server."""
        self._send(link, link.up, self._context, message)

    def _send_down(self, link: _Link, message: Callable[[], None]) -> None:
        self._send(link, link.down, link.context, message)

    def _send(
        self, link: _Link, direction: _Direction, context: contextvars.Context, message: Callable[[], None]
    ) -> None:
        if link.closed:
            return
        loop = asyncio.get_running_loop()
        low, high = self._latencies.get(link.client.host, (self.min_latency_s, self.max_latency_s))
        at = max(direction.last_at, loop.time() + self.rng.uniform(low, high))
        direction.last_at = at
        direction.queue.append(message)
        loop.call_at(at, self._arrive, link, direction, context=context)

    def _arrive(self, link: _Link, direction: _Direction) -> None:
        if link.closed:
            return
        if link.client.host in self._blocked:
            direction.held += 1
        elif direction.queue:
            direction.queue.popleft()()

    def _drop(self, link: _Link) -> None:
        """The connection is cut; the client learns it a moment later (unless it is cut off, then by silence)."""
        if link.closed:
            return
        blocked = link.client.host in self._blocked
        self.forget(link)
        if not blocked:
            loop = asyncio.get_running_loop()
            delay = self.rng.uniform(self.min_latency_s, self.max_latency_s)
            loop.call_later(delay, link.client.link_lost, link, context=link.context)

    def forget(self, link: _Link) -> None:
        """Server and client know this connection no more; its watches are gone."""
        link.closed = True
        link.up.queue.clear()
        link.down.queue.clear()
        self._links.pop(link, None)
        if link.session is not None and link.session.link is link:
            link.session.link = None
        for watches in (self._data_watches, self._child_watches):
            for path in [path for path, links in watches.items() if link in links]:
                del watches[path][link]
                if not watches[path]:
                    del watches[path]

    # --- sessions --------------------------------------------------------------------------------------------

    def dial(self, client: SimCoordinator) -> _Link | None:
        """A new connection; None if it is refused at once (the service is down)."""
        if not self._up:
            return None
        link = _Link(client, client.context)
        self._links[link] = None
        return link

    def connect_session(self, link: _Link, session_id: int, timeout_s: float) -> None:
        """ConnectRequest: a new session (id 0) or the old one again; one that is gone is answered with None."""
        loop = asyncio.get_running_loop()
        if session_id == 0:
            self._next_session += 1
            session = _Session(self._next_session, link.client.host, timeout_s, loop.time() + timeout_s)
            self._sessions[session.session_id] = session
            self.tree.zxid += 1
            self._arm_expiry(session)
        else:
            known = self._sessions.get(session_id)
            if known is None:
                client = link.client
                self._send_down(link, lambda: client.session_refused(link))
                return
            session = known
            if session.link is not None:
                self.forget(session.link)
        session.link = link
        session.expires_at = loop.time() + session.timeout_s
        link.session = session
        client, opened = link.client, session.session_id
        self._send_down(link, lambda: client.session_granted(link, opened))

    def _arm_expiry(self, session: _Session) -> None:
        loop = asyncio.get_running_loop()
        # A real server looks once per tick; hence up to a tick late, never early.
        late = self.rng.uniform(0.0, session.timeout_s / 10)
        session.timer = loop.call_at(
            max(session.expires_at, loop.time()) + late, self._check_expiry, session, context=self._context
        )

    def _check_expiry(self, session: _Session) -> None:
        if session.session_id not in self._sessions:
            return
        if self._up and asyncio.get_running_loop().time() >= session.expires_at:
            self._end(session)
        else:
            self._arm_expiry(session)

    def _end(self, session: _Session) -> None:
        """Expired or closed: ephemerals go, the connection too."""
        del self._sessions[session.session_id]
        if session.timer is not None:
            session.timer.cancel()
        ephemerals = tuple(Delete(path) for path in self.tree.ephemerals(session.session_id))
        events = self.tree.end_session(session.session_id)
        if self.on_commit is not None and ephemerals:
            self.on_commit(self.tree.zxid, session.host, ephemerals)
        self._fire(events)
        if session.link is not None:
            self._drop(session.link)

    # --- requests --------------------------------------------------------------------------------------------

    def serve(self, link: _Link, xid: int, request: Request) -> None:
        """One request arrives."""
        session = link.session
        if session is None:
            return
        session.expires_at = asyncio.get_running_loop().time() + session.timeout_s
        fate = self._fate(link.client.host, request)
        if fate is Fate.LOSE_REQUEST:
            self._drop(link)
            return
        try:
            result: Any = self._perform(link, session, request)
        except CoordinatorError as error:
            result = error
        if fate is Fate.LOSE_REPLY:
            self._drop(link)
            return
        zxid, client = self.tree.zxid, link.client
        self._send_down(link, lambda: client.replied(link, xid, zxid, result))
        if request == _Read("close"):
            self._end(session)

    def _fate(self, host: str, request: Request) -> Fate:
        if isinstance(request, _Read) and request.verb == "ping":
            return Fate.SERVE
        if waiting := self._lose.get(host):
            return waiting.pop(0)
        return Fate.SERVE if self.decide_fate is None else self.decide_fate(host, request)

    def _perform(self, link: _Link, session: _Session, request: Request) -> Any:
        match request:
            case _Write(ops, single):
                if not single:
                    return self._commit(ops, session.session_id, session.host)
                try:
                    results = self._commit(ops, session.session_id, session.host)
                except MultiFailedError as failed:
                    raise failed.error from None
                path = results[0] if isinstance(ops[0], Create) else ops[0].path
                found = self.tree.get(str(path))
                return path, (None if found is None else found[1])
            case _Read("get", path, watch):
                found = self.tree.get(path)
                if found is None:
                    raise NoNodeError(path)
                self._watch(self._data_watches, path, link, armed=watch)
                return found
            case _Read("exists", path, watch):
                self._watch(self._data_watches, path, link, armed=watch)
                found = self.tree.get(path)
                return None if found is None else found[1]
            case _Read("children", path, watch):
                found, names = self.tree.get(path), self.tree.children(path)
                if found is None:
                    raise NoNodeError(path)
                self._watch(self._child_watches, path, link, armed=watch)
                return names, found[1]
            case _:
                return None

    def _watch(self, watches: dict[str, dict[_Link, None]], path: str, link: _Link, *, armed: bool) -> None:
        if armed:
            watches.setdefault(path, {})[link] = None

    def _commit(self, ops: tuple[Op, ...], session_id: int, host: str) -> list[OpResult]:
        now_ms = int(asyncio.get_running_loop().time() * 1000) if self._wall_ms is None else self._wall_ms()
        results, events = self.tree.commit(ops, session_id, now_ms)
        if self.on_commit is not None:
            self.on_commit(self.tree.zxid, host, ops)
        self._fire(events)
        return results

    def _fire(self, events: Sequence[Event]) -> None:
        for event, path in events:
            told: dict[_Link, None] = {}
            if event is not EventType.CHILDREN_CHANGED:
                told |= self._data_watches.pop(path, {})
            if event in (EventType.CHILDREN_CHANGED, EventType.DELETED):
                told |= self._child_watches.pop(path, {})
            for link in told:
                self._tell(link, event, path)

    def _tell(self, link: _Link, event: EventType, path: str) -> None:
        zxid, client = self.tree.zxid, link.client
        self._send_down(link, lambda: client.notified(link, zxid, event, path))

    def set_watches(self, link: _Link, seen_zxid: int, watches: Sequence[tuple[WatchKind, str]]) -> None:
        """SetWatches: tell at once what was missed, arm the others."""
        for kind, path in watches:
            event = self.tree.missed(kind, path, seen_zxid)
            if event is not None:
                self._tell(link, event, path)
            else:
                by_path = self._child_watches if kind is WatchKind.CHILD else self._data_watches
                by_path.setdefault(path, {})[link] = None


class SimCoordinator:
    """A session with SimZooKeeper; see the seam for what every method promises."""

    def __init__(self, server: SimZooKeeper, host: str, chroot: str, timeout_s: float) -> None:
        self.host = host
        self.context = contextvars.copy_context()
        self._server = server
        self._chroot = chroot
        self._timeout_s = timeout_s
        self._session_id = 0
        self._state = SessionState.SUSPENDED
        self._callbacks: list[Callable[[SessionState], None]] = []
        self._link: _Link | None = None
        self._pending: dict[int, tuple[asyncio.Future[Any], float, Request, Watch | None]] = {}
        self._xid = 0
        self._seen_zxid = 0
        self._watches = WatchTable()
        self._lease_until = float("-inf")
        self._last_heard = 0.0
        self._sent_connect_at = 0.0
        self._backoff_s = _BACKOFF_MIN_S
        self._timer: asyncio.TimerHandle | None = None
        self._opened: asyncio.Future[None] | None = None
        self._closing = False

    # --- the session -----------------------------------------------------------------------------------------

    async def open(self) -> None:
        """Connect. Raises NotSentError if nobody answers within the session timeout."""
        self._opened = asyncio.get_running_loop().create_future()
        self._dial()
        try:
            async with asyncio.timeout(self._timeout_s):
                await self._opened
            chroot, self._chroot = self._chroot, ""
            await retrying(lambda: self.ensure_path(chroot))
            self._chroot = chroot
        except TimeoutError:
            self._expire()
            raise NotSentError(f"no ZooKeeper answered {self.host} within {self._timeout_s} s") from None
        except BaseException:
            self._expire()
            raise

    @property
    def session_id(self) -> int:
        return self._session_id

    @property
    def state(self) -> SessionState:
        return self._state

    def lease_left(self) -> float:
        if self._state is SessionState.EXPIRED:
            return float("-inf")
        return self._lease_until - asyncio.get_running_loop().time()

    def on_state(self, callback: Callable[[SessionState], None]) -> None:
        self._callbacks.append(callback)

    async def close(self) -> None:
        if self._state is SessionState.EXPIRED:
            return
        self._closing = True
        if self._state is SessionState.CONNECTED:
            try:
                async with asyncio.timeout(min(2.0, self._timeout_s)):
                    await self._send(_Read("close"))
            except (CoordinatorError, TimeoutError):
                pass  # the server will let the session expire
        self._expire()

    def _become(self, state: SessionState) -> None:
        if state is not self._state and self._state is not SessionState.EXPIRED:
            self._state = state
            for callback in list(self._callbacks):
                callback(state)

    def _dial(self) -> None:
        self._timer = None
        if self._state is not SessionState.SUSPENDED:
            return
        link = self._server.dial(self)
        if link is None:
            self._dial_later()
            return
        loop = asyncio.get_running_loop()
        self._link = link
        self._sent_connect_at = loop.time()
        session_id, timeout_s, server = self._session_id, self._timeout_s, self._server
        server.send_up(link, lambda: server.connect_session(link, session_id, timeout_s))
        patience = min(_HANDSHAKE_S, self._timeout_s / 3)
        self._timer = loop.call_later(patience, self._handshake_failed, link)

    def _handshake_failed(self, link: _Link) -> None:
        if link is self._link and self._state is SessionState.SUSPENDED:
            self._timer = None
            self._server.forget(link)
            self._link = None
            self._dial_later()

    def _dial_later(self) -> None:
        wait = self._backoff_s * self._server.rng.uniform(0.5, 1.5)
        self._backoff_s = min(self._backoff_s * 2, _BACKOFF_MAX_S)
        self._timer = asyncio.get_running_loop().call_later(wait, self._dial)

    def session_refused(self, link: _Link) -> None:
        """The server does not know our session (any more)."""
        if link is self._link:
            self._expire()

    def session_granted(self, link: _Link, session_id: int) -> None:
        """ConnectResponse."""
        if link is not self._link or self._state is SessionState.EXPIRED:
            return
        loop = asyncio.get_running_loop()
        self._session_id = session_id
        self._touch(self._sent_connect_at)
        self._last_heard = loop.time()
        self._backoff_s = _BACKOFF_MIN_S
        if watches := list(self._watches.armed()):
            seen, server = self._seen_zxid, self._server
            server.send_up(link, lambda: server.set_watches(link, seen, watches))
        if self._timer is not None:
            self._timer.cancel()
        self._timer = loop.call_later(self._timeout_s / 6, self._beat, link)
        if self._opened is not None and not self._opened.done():
            self._opened.set_result(None)
        self._become(SessionState.CONNECTED)

    def _beat(self, link: _Link) -> None:
        """Every sixth of the timeout: a heartbeat if due, or the end of a connection silent for two thirds."""
        if link is not self._link or self._state is not SessionState.CONNECTED:
            return
        loop = asyncio.get_running_loop()
        slack = self._timeout_s / 60
        if loop.time() - self._last_heard >= self._timeout_s * 2 / 3 - slack:
            self._server.forget(link)
            self.link_lost(link)
            return
        if self.lease_left() <= self._timeout_s * 2 / 3 + slack:
            self._send(_Read("ping")).add_done_callback(_consume)
        self._timer = loop.call_later(self._timeout_s / 6, self._beat, link)

    def link_lost(self, link: _Link) -> None:
        """The connection is gone; requests without an answer have an unknown outcome."""
        if link is not self._link or self._state is SessionState.EXPIRED:
            return
        self._link = None
        if self._timer is not None:
            self._timer.cancel()
            self._timer = None
        self._fail_pending(OutcomeUnknownError("connection lost"))
        self._become(SessionState.SUSPENDED)
        if self._state is SessionState.SUSPENDED and not self._closing:
            self._dial_later()

    def _expire(self) -> None:
        if self._state is SessionState.EXPIRED:
            return
        if self._timer is not None:
            self._timer.cancel()
            self._timer = None
        if self._link is not None:
            self._server.forget(self._link)
            self._link = None
        self._watches.clear()
        self._fail_pending(SessionExpiredError(f"session {self._session_id:x} is gone"))
        self._become(SessionState.EXPIRED)

    def _fail_pending(self, error: CoordinatorError) -> None:
        pending, self._pending = self._pending, {}
        for future, _, _, _ in pending.values():
            if not future.done():
                future.set_exception(error)

    # --- requests and events ---------------------------------------------------------------------------------

    def _touch(self, sent_at: float) -> None:
        self._lease_until = max(self._lease_until, sent_at + self._timeout_s)

    def _send(self, request: Request, watch: Watch | None = None) -> asyncio.Future[Any]:
        if self._state is SessionState.EXPIRED:
            raise SessionExpiredError(f"session {self._session_id:x} is gone")
        link = self._link
        if link is None or self._state is not SessionState.CONNECTED:
            raise NotSentError("not connected")
        if isinstance(request, _Write) and (size := size_of_ops(request.ops)) > MAX_REQUEST_BYTES:
            raise TooBigError(f"{size} bytes")
        loop = asyncio.get_running_loop()
        self._xid += 1
        xid, server = self._xid, self._server
        future: asyncio.Future[Any] = loop.create_future()
        self._pending[xid] = (future, loop.time(), request, watch)
        server.send_up(link, lambda: server.serve(link, xid, request))
        return future

    def replied(self, link: _Link, xid: int, zxid: int, result: Any) -> None:
        """An answer arrives."""
        if link is not self._link or xid not in self._pending:
            return
        future, sent_at, request, watch = self._pending.pop(xid)
        self._last_heard = asyncio.get_running_loop().time()
        self._touch(sent_at)
        self._seen_zxid = max(self._seen_zxid, zxid)
        if watch is not None and isinstance(request, _Read) and not isinstance(result, CoordinatorError):
            absent = WatchKind.EXIST if result is None else WatchKind.DATA
            self._watches.arm(WatchKind.CHILD if request.verb == "children" else absent, request.path, watch)
        if future.done():
            return
        if isinstance(result, CoordinatorError):
            future.set_exception(result)
        else:
            future.set_result(result)

    def notified(self, link: _Link, zxid: int, event: EventType, path: str) -> None:
        """A watch has fired at the server."""
        if link is not self._link:
            return
        self._last_heard = asyncio.get_running_loop().time()
        self._seen_zxid = max(self._seen_zxid, zxid)
        loop = asyncio.get_running_loop()
        for watch in self._watches.take(event, path):
            loop.call_soon(watch)

    # --- the verbs -------------------------------------------------------------------------------------------

    def _full(self, path: str) -> str:
        return path if not self._chroot else self._chroot if path == "/" else self._chroot + path

    def _full_op(self, op: Op) -> Op:
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
        found: tuple[bytes, Stat] = await self._send(_Read("get", self._full(path), watch is not None), watch)
        return found

    async def get_many(self, paths: Sequence[str]) -> list[tuple[bytes, Stat] | None]:
        found: list[tuple[bytes, Stat] | None] = []
        for result in await self._pipelined([_Read("get", self._full(path)) for path in paths]):
            if isinstance(result, CoordinatorError) and not isinstance(result, NoNodeError):
                raise result
            found.append(None if isinstance(result, NoNodeError) else result)
        return found

    async def _pipelined(self, requests: Sequence[Request]) -> list[Any]:
        """The results in order, errors as values, at most _WINDOW requests under way."""
        results: list[Any] = []
        window: deque[asyncio.Future[Any] | CoordinatorError] = deque()
        try:
            for request in requests:
                if len(window) == _WINDOW:
                    results.append(await _outcome(window.popleft()))
                try:
                    window.append(self._send(request))
                except CoordinatorError as error:
                    window.append(error)
            while window:
                results.append(await _outcome(window.popleft()))
        finally:
            for future in window:
                if isinstance(future, asyncio.Future):
                    future.add_done_callback(_consume)
        return results

    async def exists(self, path: str, watch: Watch | None = None) -> Stat | None:
        stat: Stat | None = await self._send(_Read("exists", self._full(path), watch is not None), watch)
        return stat

    async def children(self, path: str, watch: Watch | None = None) -> tuple[list[str], Stat]:
        found: tuple[list[str], Stat] = await self._send(_Read("children", self._full(path), watch is not None), watch)
        return found

    async def create(
        self, path: str, data: bytes = b"", *, ephemeral: bool = False, sequential: bool = False
    ) -> tuple[str, Stat]:
        op = Create(self._full(path), data, ephemeral, sequential)
        made, stat = await self._send(_Write((op,), single=True))
        return made[len(self._chroot) :], stat

    async def ensure_path(self, path: str) -> None:
        await ensure_path(self.create, path)

    async def set(self, path: str, data: bytes, version: int = -1) -> Stat:
        _, stat = await self._send(_Write((SetData(self._full(path), data, version),), single=True))
        assert isinstance(stat, Stat)
        return stat

    async def delete(self, path: str, version: int = -1) -> None:
        await self._send(_Write((Delete(self._full(path), version),), single=True))

    async def multi(self, ops: Sequence[Op]) -> list[OpResult]:
        results: list[OpResult] = await self._send(_Write(tuple(map(self._full_op, ops)), single=False))
        return self._without_chroot(results)

    async def multi_many(self, transactions: Sequence[Sequence[Op]]) -> list[list[OpResult] | CoordinatorError]:
        results: list[list[OpResult] | CoordinatorError] = []
        requests = [_Write(tuple(map(self._full_op, ops)), single=False) for ops in transactions]
        for result in await self._pipelined(requests):
            results.append(result if isinstance(result, CoordinatorError) else self._without_chroot(result))
        return results

    def _without_chroot(self, results: list[OpResult]) -> list[OpResult]:
        return [each[len(self._chroot) :] if isinstance(each, str) else each for each in results]

    async def sync(self, path: str) -> None:
        await self._send(_Read("sync", self._full(path)))


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
