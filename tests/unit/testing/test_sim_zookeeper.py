"""The simulated ZooKeeper on a real loop, as `kafkalite dev` and the tests run it."""

from __future__ import annotations

import asyncio
import random

import pytest

from kafkalite.coordination.coordinator import Coordinator, NodeExistsError, SessionState
from kafkalite.testing.simulated.zookeeper import SimZooKeeper
from kafkalite.testing.simulated.zookeeper_wire import ZooKeeperWrite
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


async def two_hosts() -> tuple[SimZooKeeper, Coordinator, Coordinator]:
    server = SimZooKeeper(random.Random(1), min_latency_s=0, max_latency_s=0)
    near, far = [await server.connector(host)("zk", 60_000) for host in ("near", "far")]
    await near.create("/a", b"1")
    return server, near, far


async def test_a_write_that_is_held_is_applied_when_its_host_may_pass_again() -> None:
    """And those after it come after it."""
    server, near, far = await two_hosts()
    server.hold("far", lambda request: isinstance(request, ZooKeeperWrite))
    assert (await far.get("/a"))[0] == b"1"
    writes = [asyncio.ensure_future(far.create(path, b"2")) for path in ("/b", "/c")]
    await until(lambda: server.is_blocked("far"))
    assert (await near.children("/"))[0] == ["a"]
    server.unblock("far")
    for write in writes:
        await write
    assert server.peek("/b") is not None and server.peek("/c") is not None
    for session in (near, far):
        await session.close()


async def test_a_server_that_is_behind_shows_the_past_and_lets_writes_through() -> None:
    server, near, far = await two_hosts()
    fired = asyncio.Event()
    server.lag("far", 3_600.0)
    assert (await far.get("/a", fired.set))[0] == b"1"
    await near.set("/a", b"2")
    await near.create("/b")
    assert (await far.get("/a"))[0] == b"1" and await far.exists("/b") is None
    assert await far.children("/") == (["a"], (await far.children("/"))[1])
    written = asyncio.ensure_future(far.set("/a", b"3", 1))
    refused = asyncio.ensure_future(far.create("/b"))
    read = asyncio.ensure_future(far.get("/a"))
    await until(lambda: server.peek("/a") is not None and server.tree.get("/a")[0] == b"3")  # type: ignore[index]
    assert (await near.get("/a"))[0] == b"3"
    assert not (written.done() or refused.done() or read.done() or fired.is_set())
    server.lag("far", None)
    assert (await written).version == 2
    with pytest.raises(NodeExistsError):
        await refused
    assert (await read)[0] == b"3"
    assert fired.is_set() and server.watch_count() == 0
    for session in (near, far):
        await session.close()


async def test_sync_waits_until_the_server_has_what_is_committed() -> None:
    server, near, far = await two_hosts()
    server.lag("far", 0.02)
    for number in range(5):
        await near.set("/a", b"%d" % number)
        await far.sync("/")
        assert (await far.get("/a"))[0] == b"%d" % number
    for session in (near, far):
        await session.close()


async def test_a_session_that_changes_its_server_never_sees_the_past_again() -> None:
    server, near, far = await two_hosts()
    server.lag("far", 3_600.0)
    await near.set("/a", b"2")
    seen = [(await far.get("/a"))[0]]
    for _ in range(12):
        server.disconnect("far")
        await until(lambda: far.state is SessionState.SUSPENDED)
        await until(lambda: far.state is SessionState.CONNECTED)
        seen.append((await far.get("/a"))[0])
    assert sorted(seen) == seen and set(seen) == {b"1", b"2"}
    for session in (near, far):
        await session.close()


async def test_what_a_dead_session_had_goes_late_too() -> None:
    server, near, far = await two_hosts()
    gone = asyncio.Event()
    await near.create("/e", ephemeral=True)
    server.lag("far", 3_600.0)
    assert await far.exists("/e", gone.set) is not None
    await near.close()
    await until(lambda: server.peek("/e") is None)
    assert await far.exists("/e") is not None and not gone.is_set()
    server.lag("far", None)
    await gone.wait()
    assert await far.exists("/e") is None
    await far.close()
