"""What the contract's tests run on: a real ZooKeeper behind a proxy, and the simulated one."""

from __future__ import annotations

import asyncio
import random
from collections.abc import Callable
from typing import Protocol

from kafkalite.coordination import zk_codec
from kafkalite.coordination.aiozk_adapter import ZkCoordinator
from kafkalite.coordination.coordinator import Check, Coordinator, Create, SessionState
from kafkalite.env.real import RealClock, real_env
from kafkalite.env.real_network import RealNetwork
from kafkalite.testing.simulated.coordinator import ZooKeeperLink
from kafkalite.testing.simulated.zookeeper import Fate, SimZooKeeper
from kafkalite.testing.simulated.zookeeper_wire import Read, Request
from tests.zk import ZooKeeperForTests
from tests.zk_proxy import CONNECT, PING, Do, FaultProxy

#: Of sessions that nothing is to end, however long a loaded machine stands still.
LONG_MS = 100_000
#: Of sessions that are to run out within the test.
TIMEOUT_MS = 4_000
#: What the adapter proves its lease with, after the request's number.
_CONFIRMATION = zk_codec.multi(0, (Check("/", -1),))[4:]


class Rig(Protocol):
    """A server, and how to break what is between it and one client ("a"); others connect undisturbed."""

    @property
    def pings(self) -> int:
        """Heartbeats of "a" that have reached the server."""
        ...

    async def connect(self, host: str = "a", timeout_ms: int = LONG_MS, chroot: str = "") -> Coordinator: ...
    def cut(self) -> None: ...
    def refuse(self) -> None: ...
    def accept(self) -> None: ...
    def hold(self) -> None: ...
    def release(self) -> None: ...
    def lose_next_request(self) -> None: ...
    def lose_next_reply(self) -> None: ...
    async def expire(self, coordinator: Coordinator) -> None: ...
    async def outlive_a_silent_session(self, timeout_ms: int) -> None:
        """Open a session that never says a word, and wait until the server has let it go."""

    async def close(self) -> None: ...


class PingCounter(SimZooKeeper):
    """Counts the heartbeats of "a"."""

    pings = 0

    def serve(self, link: ZooKeeperLink, xid: int, request: Request) -> None:
        self.pings += link.client.host == "a" and request == Read("ping")
        super().serve(link, xid, request)


class SimRig:
    def __init__(self) -> None:
        self.server = PingCounter(random.Random(7), wall_ms=RealClock().wall_ms)
        self.server.poke(Create("/test"))
        self.opened: list[Coordinator] = []

    async def connect(self, host: str = "a", timeout_ms: int = LONG_MS, chroot: str = "") -> Coordinator:
        session = await self.server.connector(host)(f"sim/test{chroot}", timeout_ms)
        self.opened.append(session)
        return session

    def cut(self) -> None:
        self.server.disconnect("a", Fate.LOSE_REQUEST)

    def refuse(self) -> None:
        self.server.stop()

    def accept(self) -> None:
        self.server.start()

    def hold(self) -> None:
        self.server.block("a")

    def release(self) -> None:
        self.server.unblock("a")

    def lose_next_request(self) -> None:
        self.server.lose_next("a", Fate.LOSE_REQUEST)

    def lose_next_reply(self) -> None:
        self.server.lose_next("a", Fate.LOSE_REPLY)

    async def expire(self, coordinator: Coordinator) -> None:
        self.server.expire("a")

    @property
    def pings(self) -> int:
        return self.server.pings

    async def outlive_a_silent_session(self, timeout_ms: int) -> None:
        await self.connect("silent", timeout_ms)
        self.server.block("silent")
        while self.server.session_ids("silent"):
            await asyncio.sleep(0.01)
        self.server.unblock("silent")

    async def close(self) -> None:
        for session in self.opened:
            await session.close()


class RealRig:
    def __init__(self, zookeeper: ZooKeeperForTests, proxy: FaultProxy) -> None:
        self.proxy = proxy
        self.chroot = "/" + zookeeper.chroot("contract").partition("/")[2]
        self.zookeeper = zookeeper
        self.env = real_env()
        self.opened: list[Coordinator] = []
        self.pings = 0
        self.lose: Do | None = None
        proxy.on_request = self._on_request

    async def connect(self, host: str = "a", timeout_ms: int = LONG_MS, chroot: str = "") -> Coordinator:
        server = self.proxy.connect if host == "a" else self.zookeeper.connect
        session = await self.env.connect_coordinator(f"{server}{self.chroot}{chroot}", timeout_ms)
        self.opened.append(session)
        return session

    def cut(self) -> None:
        self.proxy.cut(Do.RST)

    def refuse(self) -> None:
        self.proxy.accepting = False
        self.proxy.cut(Do.RST)

    def accept(self) -> None:
        self.proxy.accepting = True

    def hold(self) -> None:
        self.proxy.hold()

    def release(self) -> None:
        self.proxy.release()

    def _on_request(self, opcode: int, frame: bytes) -> Do:
        is_heartbeat = opcode == PING or frame[4:] == _CONFIRMATION
        self.pings += is_heartbeat
        if self.lose is None or opcode == CONNECT or is_heartbeat:
            return Do.PASS
        act, self.lose = self.lose, None
        return act

    def lose_next_request(self) -> None:
        self.lose = Do.RST

    def lose_next_reply(self) -> None:
        self.lose = Do.APPLY_THEN_RST

    async def expire(self, coordinator: Coordinator) -> None:
        """Take the session over with a second connection and close it there."""
        assert isinstance(coordinator, ZkCoordinator)
        self.refuse()  # or its owner, losing its connection to us, takes it back before we have closed it
        await self._say_and_wait(
            zk_codec.connect_request(coordinator.session_id, coordinator._password, TIMEOUT_MS, 0),
            zk_codec.close(1),
        )
        self.accept()

    async def outlive_a_silent_session(self, timeout_ms: int) -> None:
        await self._say_and_wait(zk_codec.connect_request(0, b"", timeout_ms, 0))

    async def _say_and_wait(self, *frames: bytes) -> None:
        """On a connection of our own, until the server ends it: the session is over."""
        reader, writer = await RealNetwork().dial("127.0.0.1", self.zookeeper.port)
        for frame in frames:
            writer.write(len(frame).to_bytes(4, "big") + frame)
        while await reader.read(1 << 16):
            pass
        writer.close()

    async def close(self) -> None:
        for session in self.opened:
            await session.close()


def watcher() -> tuple[asyncio.Event, Callable[[], None], list[int]]:
    """(set when fired, the watch, one entry per firing)."""
    event = asyncio.Event()
    fired: list[int] = []

    def watch() -> None:
        fired.append(1)
        event.set()

    return event, watch, fired


def states(coordinator: Coordinator) -> asyncio.Queue[SessionState]:
    queue: asyncio.Queue[SessionState] = asyncio.Queue()
    coordinator.on_state(queue.put_nowait)
    return queue
