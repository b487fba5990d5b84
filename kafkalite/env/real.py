"""The seams on the operating system: asyncio's sockets, POSIX files, the kernel's clocks."""

from __future__ import annotations

import importlib
import random
import sys
import time
from collections.abc import Awaitable, Callable
from functools import partial
from typing import TYPE_CHECKING, Any

from kafkalite.env import heap, open_files
from kafkalite.env.real_disk import RealDisk
from kafkalite.env.real_network import RealNetwork, die
from kafkalite.env.seams import Clock, Disk, Env, Network

if TYPE_CHECKING:
    from kafkalite.config import BrokerConfig
    from kafkalite.coordination.coordinator import Coordinator

#: When a thread computes in Python, the loop waits up to this time for the interpreter after each system call: an acknowledgement makes
#: about eight. With Python's default, 5 ms, a search in the console made 2 ms of it 38, with this 15 (bench/hostile_clients.py).
SWITCH_S = 0.0005


class RealClock:
    """The kernel's clocks."""

    #: The function itself, not a method that calls it: each request reads this clock several times.
    monotonic = staticmethod(time.monotonic)
    boottime = staticmethod(partial(time.clock_gettime, time.CLOCK_BOOTTIME))

    def wall_ms(self) -> int:
        return time.time_ns() // 1_000_000

    def processor(self) -> float:
        return time.thread_time()


def real_env(
    *,
    connect_coordinator: Callable[[str, int], Awaitable[Coordinator]] | None = None,
    on_fatal: Callable[[BaseException], None] = die,
    config: BrokerConfig | None = None,
) -> Env:
    """The environment of a process on this machine. Sets how long one of its threads may keep the interpreter, and what malloc keeps.

    Args:
        connect_coordinator: opens one session; by default the aiozk adapter on this environment's own seams.
        on_fatal: called with an AssertionError in a connection handler.
        config: says how to authenticate to ZooKeeper; None: not at all.
    """
    sys.setswitchinterval(SWITCH_S)
    heap.keep_freed()
    access: list[Any] = []
    clock: Clock = RealClock()
    network: Network = RealNetwork(on_fatal)
    disk: Disk = RealDisk()
    source = random.Random()

    async def connect(connect_string: str, session_timeout_ms: int) -> Coordinator:
        # By name and late: `coordination` is above `env`, and tools that never connect need not load aiozk.
        adapter = importlib.import_module("kafkalite.coordination.aiozk_adapter")
        if not access:
            access.append(adapter.ZooKeeperAccess() if config is None else adapter.access_of(config))
        session: Coordinator = await adapter.connect(
            connect_string, session_timeout_ms, clock=clock, network=network, rng=source, access=access[0]
        )
        return session

    return Env(
        clock=clock,
        network=network,
        disk=disk,
        random=source,
        connect_coordinator=connect_coordinator or connect,
        zookeeper_tls=lambda: access[0].tls if access else None,
        log_files=open_files.log_files(),
        descriptors=open_files.in_use,
    )
