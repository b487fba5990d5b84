"""A simulated loop with a ZooKeeper in it."""

from __future__ import annotations

import asyncio
import functools
import random
from collections.abc import Callable, Coroutine, Iterator
from typing import Any, TypeVar

import pytest

from kafkalite.coordination.coordinator import Coordinator
from kafkalite.env.real import RealClock
from kafkalite.env.real_disk import RealDisk
from kafkalite.env.real_network import RealNetwork
from kafkalite.env.seams import Env
from kafkalite.testing.simulated.loop import SimLoop
from kafkalite.testing.simulated.zookeeper import SimZooKeeper

T = TypeVar("T")


class World:
    """Virtual time; hosts reach ZooKeeper under their names."""

    def __init__(self, seed: int = 1) -> None:
        self.loop = SimLoop()  # type: ignore[abstract]
        self.zk = SimZooKeeper(random.Random(seed))
        self.random = random.Random(seed)

    def env(self, host: str) -> Env:
        return Env(RealClock(), RealNetwork(), RealDisk(), random.Random(host), self.zk.connector(host))

    async def connect(self, host: str, timeout_ms: int = 6_000) -> Coordinator:
        return await self.zk.connector(host)("zk:2181", timeout_ms)

    def run(self, main: Coroutine[Any, Any, T]) -> T:
        async def bounded() -> T:
            async with asyncio.timeout(3_600):  # virtual
                return await main

        result: T = self.loop.run_until_complete(bounded())
        return result


def in_world(test: Callable[..., Coroutine[Any, Any, None]]) -> Callable[..., None]:
    """A test that runs in its `world`, in virtual time."""

    @functools.wraps(test)
    def run(world: World, **fixtures: Any) -> None:
        world.run(test(world=world, **fixtures))

    return run


@pytest.fixture
def world() -> Iterator[World]:
    made = World()
    yield made
    made.loop.close()
