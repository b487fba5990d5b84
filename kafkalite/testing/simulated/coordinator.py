"""The Coordinator on a simulated ZooKeeper: one session, over as many connections as it takes.

No tasks: timers and futures only (see `zookeeper`, which is the server).
"""

from __future__ import annotations

import asyncio
import contextvars
from collections import deque
from collections.abc import Callable, Collection, Sequence
from dataclasses import field
from typing import TYPE_CHECKING, Any

from kafkalite.coordination.coordinator import (
    CoordinatorError,
    Create,
    Delete,
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
from kafkalite.coordination.verbs import (
    MAX_REQUEST_BYTES,
    Chroot,
    ensure_path,
    none_where_missing,
    pass_over,
    pipelined,
    size_of_ops,
)
from kafkalite.coordination.watches import EventType, WatchKind, WatchTable
from kafkalite.lazy_dataclass import dataclass
from kafkalite.testing.simulated.zookeeper_server import SimServer
from kafkalite.testing.simulated.zookeeper_wire import Direction, Read, Request, ZooKeeperWrite

if TYPE_CHECKING:
    from kafkalite.testing.simulated.zookeeper import SimZooKeeper

#: How many requests of get_many and multi_many are under way at once.
_WINDOW = 256
_BACKOFF_MIN_S = 0.05
_BACKOFF_MAX_S = 1.0
_HANDSHAKE_S = 0.5


class SimCoordinator:
    """A session with SimZooKeeper; see the seam for what every method promises."""

    def __init__(self, server: SimZooKeeper, host: str, chroot: str, timeout_s: float) -> None:
        self.host = host
        self.context = contextvars.copy_context()
        self._server = server
        self._root = Chroot(chroot)
        self._timeout_s = timeout_s
        self._session_id = 0
        self._state = SessionState.SUSPENDED
        self._callbacks: list[Callable[[SessionState], None]] = []
        self._link: ZooKeeperLink | None = None
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
            root, self._root = self._root, Chroot("")
            await retrying(lambda: self.ensure_path(root.prefix))
            self._root = root
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

    def silent_s(self) -> float:
        return asyncio.get_running_loop().time() - self._last_heard

    @property
    def is_refused(self) -> bool:
        return False

    @property
    def timeout_s(self) -> float:
        return self._timeout_s

    def on_state(self, callback: Callable[[SessionState], None]) -> None:
        self._callbacks.append(callback)

    async def close(self) -> None:
        if self._state is SessionState.EXPIRED:
            return
        self._closing = True
        if self._state is SessionState.CONNECTED:
            try:
                async with asyncio.timeout(min(2.0, self._timeout_s)):
                    await self._send(Read("close"))
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
        session_id, timeout_s, seen, server = self._session_id, self._timeout_s, self._seen_zxid, self._server
        server.send_up(link, lambda: server.connect_session(link, session_id, timeout_s, seen))
        patience = min(_HANDSHAKE_S, self._timeout_s / 3)
        self._timer = loop.call_later(patience, self._handshake_failed, link)

    def _handshake_failed(self, link: ZooKeeperLink) -> None:
        if link is self._link and self._state is SessionState.SUSPENDED:
            self._timer = None
            self._server.forget(link)
            self._link = None
            self._dial_later()

    def _dial_later(self) -> None:
        wait = self._backoff_s * self._server.rng.uniform(0.5, 1.5)
        self._backoff_s = min(self._backoff_s * 2, _BACKOFF_MAX_S)
        self._timer = asyncio.get_running_loop().call_later(wait, self._dial)

    def session_refused(self, link: ZooKeeperLink) -> None:
        """The server does not know our session (any more)."""
        if link is self._link:
            self._expire()

    def session_granted(self, link: ZooKeeperLink, session_id: int) -> None:
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

    def _beat(self, link: ZooKeeperLink) -> None:
        """Every sixth of the timeout: a heartbeat, or the end of a connection silent for two thirds."""
        if link is not self._link or self._state is not SessionState.CONNECTED:
            return
        loop = asyncio.get_running_loop()
        slack = self._timeout_s / 60
        if loop.time() - self._last_heard >= self._timeout_s * 2 / 3 - slack:
            self._server.forget(link)
            self.link_lost(link)
            return
        self._send(Read("ping")).add_done_callback(pass_over)
        self._timer = loop.call_later(self._timeout_s / 6, self._beat, link)

    def link_lost(self, link: ZooKeeperLink) -> None:
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
        if isinstance(request, ZooKeeperWrite) and (size := size_of_ops(request.ops)) > MAX_REQUEST_BYTES:
            raise TooBigError(f"{size} bytes")
        loop = asyncio.get_running_loop()
        self._xid += 1
        xid, server = self._xid, self._server
        future: asyncio.Future[Any] = loop.create_future()
        self._pending[xid] = (future, loop.time(), request, watch)
        server.send_up(link, lambda: server.serve(link, xid, request))
        return future

    def replied(self, link: ZooKeeperLink, xid: int, zxid: int, result: Any) -> None:
        """An answer arrives."""
        if link is not self._link or xid not in self._pending:
            return
        future, sent_at, request, watch = self._pending.pop(xid)
        self._last_heard = asyncio.get_running_loop().time()
        self._touch(sent_at)
        self._seen_zxid = max(self._seen_zxid, zxid)
        if watch is not None and isinstance(request, Read) and not isinstance(result, CoordinatorError):
            absent = WatchKind.EXIST if result is None else WatchKind.DATA
            self._watches.arm(WatchKind.CHILD if request.verb == "children" else absent, request.path, watch)
        if future.done():
            return
        if isinstance(result, CoordinatorError):
            future.set_exception(result)
        else:
            future.set_result(result)

    def notified(self, link: ZooKeeperLink, zxid: int, event: EventType, path: str) -> None:
        """A watch has fired at the server."""
        if link is not self._link:
            return
        self._last_heard = asyncio.get_running_loop().time()
        self._seen_zxid = max(self._seen_zxid, zxid)
        loop = asyncio.get_running_loop()
        for watch in self._watches.take(event, path):
            loop.call_soon(watch)

    def forget(self, watches: Collection[Watch]) -> None:
        self._watches.forget(watches)

    # --- the verbs -------------------------------------------------------------------------------------------

    async def get(self, path: str, watch: Watch | None = None) -> tuple[bytes, Stat]:
        found: tuple[bytes, Stat] = await self._send(Read("get", self._root.full(path), watch is not None), watch)
        return found

    async def get_many(self, paths: Sequence[str]) -> list[tuple[bytes, Stat] | None]:
        reads = [Read("get", self._root.full(path)) for path in paths]
        return none_where_missing(await pipelined(self._send, reads, _WINDOW))

    async def exists(self, path: str, watch: Watch | None = None) -> Stat | None:
        stat: Stat | None = await self._send(Read("exists", self._root.full(path), watch is not None), watch)
        return stat

    async def children(self, path: str, watch: Watch | None = None) -> tuple[list[str], Stat]:
        found: tuple[list[str], Stat] = await self._send(
            Read("children", self._root.full(path), watch is not None), watch
        )
        return found

    async def create(
        self, path: str, data: bytes = b"", *, ephemeral: bool = False, sequential: bool = False
    ) -> tuple[str, Stat]:
        op = Create(self._root.full(path), data, ephemeral, sequential)
        made, stat = await self._send(ZooKeeperWrite((op,), single=True))
        return self._root.bare(made), stat

    async def ensure_path(self, path: str) -> None:
        await ensure_path(self.create, path)

    async def set(self, path: str, data: bytes, version: int = -1) -> Stat:
        _, stat = await self._send(ZooKeeperWrite((SetData(self._root.full(path), data, version),), single=True))
        assert isinstance(stat, Stat)
        return stat

    async def delete(self, path: str, version: int = -1) -> None:
        await self._send(ZooKeeperWrite((Delete(self._root.full(path), version),), single=True))

    async def multi(self, ops: Sequence[Op]) -> list[OpResult]:
        results: list[OpResult] = await self._send(ZooKeeperWrite(tuple(map(self._root.full_op, ops)), single=False))
        return self._root.bare_results(results)

    async def multi_many(self, transactions: Sequence[Sequence[Op]]) -> list[list[OpResult] | CoordinatorError]:
        results: list[list[OpResult] | CoordinatorError] = []
        requests = [ZooKeeperWrite(tuple(map(self._root.full_op, ops)), single=False) for ops in transactions]
        for result in await pipelined(self._send, requests, _WINDOW):
            results.append(result if isinstance(result, CoordinatorError) else self._root.bare_results(result))
        return results

    async def sync(self, path: str) -> None:
        await self._send(Read("sync", self._root.full(path)))


@dataclass(eq=False, slots=True)
class ZooKeeperLink:
    """A connection between one client and a server."""

    client: SimCoordinator
    context: contextvars.Context
    server: SimServer[ZooKeeperLink]
    session: ZooKeeperSession | None = None
    closed: bool = False
    up: Direction = field(default_factory=Direction)
    down: Direction = field(default_factory=Direction)
    #: Answers that its server gives only when it has applied something, and those that it has given.
    deferred: int = 0
    answered: int = 0
    #: Reads that wait, each until that number of deferred answers is given.
    later: deque[tuple[int, Callable[[], None]]] = field(default_factory=deque)


@dataclass(eq=False, slots=True)
class ZooKeeperSession:
    session_id: int
    host: str
    timeout_s: float
    expires_at: float
    link: ZooKeeperLink | None = None
    timer: asyncio.TimerHandle | None = None
