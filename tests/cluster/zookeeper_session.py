"""A session with ZooKeeper through a proxy that does harm."""

from __future__ import annotations

import asyncio
from collections.abc import Callable

from kafkalite.coordination.aiozk_adapter import ZkCoordinator
from kafkalite.coordination.coordinator import Coordinator, SessionState
from kafkalite.env.real import real_env
from tests.zk import ZooKeeperForTests
from tests.zk_proxy import Do, FaultProxy

TIMEOUT_MS = 3000


class Bench:
    """One session through a proxy, others directly."""

    def __init__(self, proxy: FaultProxy, zookeeper: ZooKeeperForTests) -> None:
        self.proxy = proxy
        self.zookeeper = zookeeper
        self.chroot = "/" + zookeeper.chroot("faults").partition("/")[2]
        self._env = real_env()
        self._opened: list[Coordinator] = []

    async def session(self, timeout_ms: int = TIMEOUT_MS) -> ZkCoordinator:
        return await self._open(f"{self.proxy.connect}{self.chroot}", timeout_ms)

    async def direct(self) -> ZkCoordinator:
        return await self._open(f"{self.zookeeper.connect}{self.chroot}", TIMEOUT_MS)

    async def _open(self, connect: str, timeout_ms: int) -> ZkCoordinator:
        session = await self._env.connect_coordinator(connect, timeout_ms)
        assert isinstance(session, ZkCoordinator)
        self._opened.append(session)
        return session

    async def close(self) -> None:
        for session in self._opened:
            await session.close()


def states(coordinator: Coordinator) -> asyncio.Queue[SessionState]:
    queue: asyncio.Queue[SessionState] = asyncio.Queue()
    coordinator.on_state(queue.put_nowait)
    return queue


async def connected(seen: asyncio.Queue[SessionState]) -> None:
    while (state := await seen.get()) is not SessionState.CONNECTED:
        assert state is SessionState.SUSPENDED, "the session must survive this"


def once(proxy: FaultProxy, opcode: int, act: Do, times: int = 1) -> Callable[[], int]:
    """Let the next requests of this kind meet `act`; returns how many are left."""
    left = [times]

    def on_request(seen: int, _frame: bytes) -> Do:
        if seen == opcode and left[0]:
            left[0] -= 1
            return act
        return Do.PASS

    proxy.on_request = on_request
    return lambda: left[0]
