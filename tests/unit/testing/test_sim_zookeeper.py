"""The simulated ZooKeeper on a real loop, as `kafkalite dev` and the tests run it."""

from __future__ import annotations

import asyncio
import random

import pytest

from kafkalite.coordination.coordinator import SessionState
from kafkalite.testing.simulated.zookeeper import SimZooKeeper
from tests.support.waiting import until


@pytest.mark.parametrize("stood_still_s", [3.0, 60.0])
async def test_a_loop_that_stood_still_ends_no_session(monkeypatch: pytest.MonkeyPatch, stood_still_s: float) -> None:
    """Its clients could not say a word either. On a loaded machine the nodes of one process lost all their sessions."""
    server = SimZooKeeper(random.Random(1), min_latency_s=0, max_latency_s=0)
    sessions = [await server.connector(host)("zk", 2_000) for host in ("a", "b")]
    for host, session in zip("ab", sessions, strict=True):
        await session.create(f"/{host}", b"", ephemeral=True)
    ended: list[SessionState] = []
    for session in sessions:
        session.on_state(ended.append)
    loop = asyncio.get_running_loop()
    real = loop.time
    monkeypatch.setattr(loop, "time", lambda: real() + stood_still_s)
    await until(lambda: all(each.state is SessionState.CONNECTED and each.lease_left() > 0 for each in sessions))
    assert SessionState.EXPIRED not in ended
    assert server.peek("/a") is not None and server.peek("/b") is not None
    server.block("a")  # one that is silent, while the loop turns, still ends
    await until(lambda: server.peek("/a") is None)
    assert server.peek("/b") is not None
    server.unblock("a")
    for session in sessions:
        await session.close()
