"""A ZooKeeper in memory: the server with its sessions and faults. `coordinator` is the Coordinator that talks to it.

Runs on any asyncio loop, also on one with virtual time. Deterministic: every random number comes from the generator
given, nothing iterates a set, messages of one connection keep their order. No tasks: timers and futures only.

Messages travel in the receiver's context (a simulation keeps the host's incarnation in a ContextVar): what happens
at the server goes on when a host crashes or stands still; what goes to a host is held or dropped with it.
"""

from __future__ import annotations

import asyncio
import contextvars
import random
from collections.abc import Awaitable, Callable, Sequence
from enum import Enum
from typing import Any

from kafkalite.coordination.coordinator import (
    Coordinator,
    CoordinatorError,
    Create,
    Delete,
    MultiFailedError,
    Op,
    OpResult,
    Stat,
)
from kafkalite.coordination.paths import split_connect_string
from kafkalite.coordination.watches import EventType, WatchKind
from kafkalite.testing.simulated.coordinator import SimCoordinator, ZooKeeperLink, ZooKeeperSession
from kafkalite.testing.simulated.zookeeper_server import Change, ServerBehind, SimServer
from kafkalite.testing.simulated.zookeeper_tree import Event, ZnodeTree
from kafkalite.testing.simulated.zookeeper_wire import (
    Direction,
    Read,
    Request,
)


class Fate(Enum):
    """What happens to a request that has reached the server."""

    SERVE = "serve"
    #: The connection goes before the request is applied.
    LOSE_REQUEST = "lose_request"
    #: The request is applied, then the connection goes instead of the reply.
    LOSE_REPLY = "lose_reply"


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
        self._present: SimServer[ZooKeeperLink] = SimServer(ZnodeTree(), self._send_event)
        #: Host -> the server that it uses, which is behind.
        self._behind: dict[str, ServerBehind[ZooKeeperLink]] = {}
        #: Decides the fate of every request (host, request); None serves all.
        self.decide_fate: Callable[[str, Request], Fate] | None = None
        #: Called with every committed transaction: (zxid, host, operations). For checkers.
        self.on_commit: Callable[[int, str, tuple[Op, ...]], None] | None = None
        self._wall_ms = wall_ms
        self._context = contextvars.copy_context()
        self._sessions: dict[int, ZooKeeperSession] = {}
        self._links: dict[ZooKeeperLink, None] = {}
        self._blocked: dict[str, None] = {}
        self._latencies: dict[str, tuple[float, float]] = {}
        self._lose: dict[str, list[Fate]] = {}
        self._holding: dict[str, Callable[[Request], bool]] = {}
        self._up = True
        self._next_session = 0x1000_0000_0000

    @property
    def tree(self) -> ZnodeTree:
        """All that is committed."""
        return self._present.tree

    @tree.setter
    def tree(self, tree: ZnodeTree) -> None:
        for host in list(self._behind):
            self.lag(host, None)
        self._present.tree = tree

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
        """Cut the host's connections; its clients reconnect. Returns how many there were.

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

    def lag(self, host: str, behind_s: float | None) -> None:
        """The server that the host is connected to is behind by this number of seconds from now on; None: it has caught up.

        A later connection of the host may get another server, which is not.
        """
        server = self._behind.pop(host, None)
        if server is not None:
            server.catch_up()
        links = [link for link in self._links if link.client.host == host]
        for link in links:
            if link.server is server and server is not None:
                server.hand_over(link, self._present)
                link.server = self._present
        if behind_s is not None:
            server = self._behind[host] = ServerBehind(self.tree, self._send_event, behind_s, self._context)
            for link in links:
                self._present.hand_over(link, server)
                link.server = server

    def block(self, host: str) -> None:
        """Nothing passes between host and server, silently; what is under way waits (TCP sends again)."""
        self._blocked[host] = None

    def hold(self, host: str, picks: Callable[[Request], bool]) -> None:
        """As `block`, as soon as a request of the host arrives that is picked: that one waits, too."""
        self._holding[host] = picks

    def is_blocked(self, host: str) -> bool:
        return host in self._blocked

    def unblock(self, host: str) -> None:
        """Let pass again what waited, on connections that nobody gave up meanwhile."""
        self._holding.pop(host, None)
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
        for server in self._behind.values():
            server.catch_up()

    def start(self) -> None:
        """The service is back; every session gets its full timeout again, as ZooKeeper's new leader grants it."""
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
        return sum(each.watch_count() for each in (self._present, *self._behind.values()))

    # --- messages --------------------------------------------------------------------------------------------

    def send_up(self, link: ZooKeeperLink, message: Callable[[], None]) -> None:
        """From the client to the server."""
        self._send(link, link.up, self._context, message)

    def _send_down(self, link: ZooKeeperLink, message: Callable[[], None]) -> None:
        self._send(link, link.down, link.context, message)

    def _send(
        self, link: ZooKeeperLink, direction: Direction, context: contextvars.Context, message: Callable[[], None]
    ) -> None:
        if link.closed:
            return
        loop = asyncio.get_running_loop()
        low, high = self._latencies.get(link.client.host, (self.min_latency_s, self.max_latency_s))
        at = max(direction.last_at, loop.time() + self.rng.uniform(low, high))
        direction.last_at = at
        direction.queue.append(message)
        loop.call_at(at, self._arrive, link, direction, context=context)

    def _arrive(self, link: ZooKeeperLink, direction: Direction) -> None:
        if link.closed:
            return
        if link.client.host in self._blocked:
            direction.held += 1
        elif direction.queue:
            direction.queue.popleft()()

    def _drop(self, link: ZooKeeperLink) -> None:
        """The connection is cut; the client learns it a moment later (unless it is cut off, then by silence)."""
        if link.closed:
            return
        blocked = link.client.host in self._blocked
        self.forget(link)
        if not blocked:
            loop = asyncio.get_running_loop()
            delay = self.rng.uniform(self.min_latency_s, self.max_latency_s)
            loop.call_later(delay, link.client.link_lost, link, context=link.context)

    def forget(self, link: ZooKeeperLink) -> None:
        """Server and client know this connection no more; its watches are gone."""
        link.closed = True
        link.up.queue.clear()
        link.down.queue.clear()
        self._links.pop(link, None)
        if link.session is not None and link.session.link is link:
            link.session.link = None
        link.server.forget(link)

    # --- sessions --------------------------------------------------------------------------------------------

    def dial(self, client: SimCoordinator) -> ZooKeeperLink | None:
        """A new connection; None if it is refused at once (the service is down)."""
        if not self._up:
            return None
        server: SimServer[ZooKeeperLink] | None = self._behind.get(client.host)
        if server is not None and self.rng.random() < 0.5:
            server = None
        link = ZooKeeperLink(client, client.context, server or self._present)
        self._links[link] = None
        return link

    def connect_session(self, link: ZooKeeperLink, session_id: int, timeout_s: float, seen_zxid: int) -> None:
        """ConnectRequest: a new session (id 0) or the old one again; one that is gone is answered with None.

        A server that is behind what the client has seen refuses it.
        """
        loop = asyncio.get_running_loop()
        if session_id == 0:
            self._next_session += 1
            session = ZooKeeperSession(self._next_session, link.client.host, timeout_s, loop.time() + timeout_s)
            self._sessions[session.session_id] = session
            _open_session(self.tree)
            self._replicate(_open_session)
            self._arm_expiry(session)
        else:
            known = self._sessions.get(session_id)
            if known is None:
                client = link.client
                self._send_down(link, lambda: client.session_refused(link))
                return
            if link.server.tree.zxid < seen_zxid:
                self._drop(link)
                return
            session = known
            if session.link is not None:
                self.forget(session.link)
        session.link = link
        session.expires_at = loop.time() + session.timeout_s
        link.session = session
        client, opened = link.client, session.session_id

        def granted() -> None:
            self._send_down(link, lambda: client.session_granted(link, opened))

        if session_id == 0:
            link.server.when_applied(granted)
        else:
            granted()

    def _arm_expiry(self, session: ZooKeeperSession) -> None:
        loop = asyncio.get_running_loop()
        # A real server looks once per tick; hence up to a tick late, never early.
        late = self.rng.uniform(0.0, session.timeout_s / 10)
        due = max(session.expires_at, loop.time()) + late
        session.timer = loop.call_at(due, self._check_expiry, session, due, context=self._context)

    def _check_expiry(self, session: ZooKeeperSession, due: float) -> None:
        if session.session_id not in self._sessions:
            return
        now = asyncio.get_running_loop().time()
        if now - due > session.timeout_s / 10:
            # The loop stood still (never in virtual time), and on a real one the clients stand still with it: what they
            # would have sent counts as sent, as at a start.
            session.expires_at = now + session.timeout_s
        if self._up and now >= session.expires_at:
            self._end(session)
        else:
            self._arm_expiry(session)

    def _end(self, session: ZooKeeperSession) -> None:
        """Expired or closed: ephemerals go, the connection too."""
        del self._sessions[session.session_id]
        if session.timer is not None:
            session.timer.cancel()
        ephemerals = tuple(Delete(path) for path in self.tree.ephemerals(session.session_id))
        events = self.tree.end_session(session.session_id)
        if self.on_commit is not None and ephemerals:
            self.on_commit(self.tree.zxid, session.host, ephemerals)
        self._present.fire(events)
        self._replicate(lambda tree: tree.end_session(session.session_id))
        if session.link is not None:
            self._drop(session.link)

    # --- requests --------------------------------------------------------------------------------------------

    def serve(self, link: ZooKeeperLink, xid: int, request: Request) -> None:
        """One request arrives."""
        host = link.client.host
        if host in self._holding and self._holding[host](request):
            del self._holding[host]
            self.block(host)
            link.up.queue.appendleft(lambda: self.serve(link, xid, request))
            link.up.held += 1
            return
        session = link.session
        if session is None:
            return
        session.expires_at = asyncio.get_running_loop().time() + session.timeout_s
        if isinstance(request, Read) and request.verb != "sync" and link.deferred > link.answered:
            link.later.append((link.deferred, lambda: self._serve_now(link, session, xid, request)))
        else:
            self._serve_now(link, session, xid, request)

    def _serve_now(self, link: ZooKeeperLink, session: ZooKeeperSession, xid: int, request: Request) -> None:
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

        def answer() -> None:
            if link.closed:
                return
            zxid, client = link.server.tree.zxid, link.client
            self._send_down(link, lambda: client.replied(link, xid, zxid, result))
            if request == Read("close"):
                self._end(session)

        def answer_late() -> None:
            answer()
            link.answered += 1
            while link.later and link.later[0][0] <= link.answered and not link.closed:
                link.later.popleft()[1]()

        if link.server.is_present or (isinstance(request, Read) and request.verb != "sync"):
            answer()
        else:
            link.deferred += 1
            link.server.when_applied(answer_late)

    def _fate(self, host: str, request: Request) -> Fate:
        if isinstance(request, Read) and request.verb == "ping":
            return Fate.SERVE
        if waiting := self._lose.get(host):
            return waiting.pop(0)
        return Fate.SERVE if self.decide_fate is None else self.decide_fate(host, request)

    def _perform(self, link: ZooKeeperLink, session: ZooKeeperSession, request: Request) -> Any:
        if isinstance(request, Read):
            return link.server.read(link, request)
        ops = request.ops
        if not request.single:
            return self._commit(ops, session.session_id, session.host)
        try:
            results = self._commit(ops, session.session_id, session.host)
        except MultiFailedError as failed:
            raise failed.error from None
        path = results[0] if isinstance(ops[0], Create) else ops[0].path
        found = self.tree.get(str(path))
        return path, (None if found is None else found[1])

    def _commit(self, ops: tuple[Op, ...], session_id: int, host: str) -> list[OpResult]:
        now_ms = int(asyncio.get_running_loop().time() * 1000) if self._wall_ms is None else self._wall_ms()
        results, events = self.tree.commit(ops, session_id, now_ms)
        if self.on_commit is not None:
            self.on_commit(self.tree.zxid, host, ops)
        self._present.fire(events)
        self._replicate(lambda tree: tree.commit(ops, session_id, now_ms)[1])
        return results

    def _replicate(self, change: Change) -> None:
        for server in self._behind.values():
            server.follow(change)

    def _send_event(self, link: ZooKeeperLink, event: EventType, path: str) -> None:
        zxid, client = link.server.tree.zxid, link.client
        self._send_down(link, lambda: client.notified(link, zxid, event, path))

    def set_watches(self, link: ZooKeeperLink, seen_zxid: int, watches: Sequence[tuple[WatchKind, str]]) -> None:
        """SetWatches arrives."""
        link.server.set_watches(link, seen_zxid, watches)


def _open_session(tree: ZnodeTree) -> Sequence[Event]:
    tree.zxid += 1
    return ()
