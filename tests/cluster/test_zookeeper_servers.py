"""ZooKeeper servers that are killed, hang, start late, or are none, and how a session comes through."""

from __future__ import annotations

import asyncio
import time
from collections.abc import AsyncIterator, Iterator
from pathlib import Path

import pytest

from kafkalite.coordination.aiozk_adapter import ZkCoordinator
from kafkalite.coordination.coordinator import Create, NotSentError, OutcomeUnknownError, SessionState
from kafkalite.coordination.embedded import EmbeddedZooKeeper, cache_directory, free_port
from kafkalite.coordination.retry import retrying
from kafkalite.env.real import real_env
from tests.cluster.zookeeper_session import connected, states
from tests.support.accepting import accepting
from tests.support.waiting import until

pytestmark = [pytest.mark.zookeeper]


@pytest.fixture
def own_server(tmp_path: Path) -> Iterator[EmbeddedZooKeeper]:
    """A server that the test may kill."""
    server = EmbeddedZooKeeper(tmp_path / "zk", class_cache=cache_directory())
    server.start()
    yield server
    server.kill()


async def test_a_killed_server_that_returns_keeps_session_data_and_ephemerals(own_server: EmbeddedZooKeeper) -> None:
    zk = await real_env().connect_coordinator(own_server.connect, 10_000)
    session = zk.session_id
    await zk.create("/e", ephemeral=True)
    await zk.multi([Create(f"/n{number}", b"-1") for number in range(10)])
    seen = states(zk)
    acked = [-1] * 10
    stop = asyncio.Event()

    async def write(number: int) -> None:
        value = 0
        while not stop.is_set():
            try:
                await zk.set(f"/n{number}", str(value).encode())
            except (NotSentError, OutcomeUnknownError):
                await asyncio.sleep(0.005)
                continue
            acked[number] = value
            value += 1

    async with asyncio.TaskGroup() as group:
        for number in range(10):
            group.create_task(write(number))
        await until(lambda: min(acked) >= 20)
        own_server.kill()
        assert await seen.get() is SessionState.SUSPENDED
        at_kill = list(acked)
        await asyncio.get_running_loop().run_in_executor(None, own_server.launch)
        await connected(seen)
        assert zk.session_id == session
        stop.set()
    found = await zk.get_many([f"/n{number}" for number in range(10)])
    stored = [int(each[0]) for each in found if each is not None]
    assert all(value >= acked_value for value, acked_value in zip(stored, at_kill, strict=True))
    assert (await zk.get("/e"))[1].ephemeral_owner == session
    await zk.close()


async def test_a_client_that_starts_with_the_server_is_served_when_it_is(tmp_path: Path) -> None:
    """In its boot window a server accepts connections that it never answers."""
    server = EmbeddedZooKeeper(tmp_path / "zk", class_cache=cache_directory())
    try:
        server.launch()
        zk = await real_env().connect_coordinator(server.connect, 20_000)
        assert (await zk.children("/"))[0] == ["zookeeper"]
        await zk.close()
    finally:
        server.kill()


@pytest.fixture
def ensemble(tmp_path: Path) -> Iterator[list[EmbeddedZooKeeper]]:
    members = [f"127.0.0.1:{free_port('127.0.0.1')}:{free_port('127.0.0.1')}" for _ in range(3)]
    servers = [
        EmbeddedZooKeeper(
            tmp_path / f"zk{number}", my_id=number, members=members, class_cache=cache_directory(), max_heap_mb=64
        )
        for number in (1, 2, 3)
    ]
    for server in servers:
        server.launch()
    # The election takes as long as the machine needs.
    while not all("Mode:" in server.command("srvr") for server in servers):
        time.sleep(0.05)
    yield servers
    for server in servers:
        server.kill()


async def test_an_ensemble_loses_servers_and_quorum_but_not_the_session(ensemble: list[EmbeddedZooKeeper]) -> None:
    loop = asyncio.get_running_loop()
    env = real_env()
    # Long enough for an election of the ensemble on a busy machine.
    zk = await env.connect_coordinator(",".join(server.connect for server in ensemble), 12_000)
    session = zk.session_id
    await retrying(lambda: zk.create("/n", b"0"))
    await retrying(lambda: zk.create("/e", ephemeral=True))
    seen = states(zk)
    # The server that we are on dies: the next one takes over.
    assert isinstance(zk, ZkCoordinator)
    port = zk.server.port if zk.server is not None else 0
    mine = next(server for server in ensemble if server.port == port)
    mine.kill()
    assert await seen.get() is SessionState.SUSPENDED
    while zk.state is not SessionState.CONNECTED:
        assert zk.lease_left() > 0  # a node on this session would not have been fenced
        await asyncio.sleep(0.01)
    await connected(seen)
    assert zk.server is not None
    assert zk.server.port != port
    await retrying(lambda: zk.set("/n", b"1"))
    # A second one stops: no quorum, no server; it goes on: all is as before.
    other = next(server for server in ensemble if server.running and server.port != zk.server.port)
    other.kill()
    while zk.state is SessionState.CONNECTED:
        await asyncio.sleep(0.01)
    with pytest.raises(NotSentError):
        await zk.get("/n")
    await until(lambda: zk.lease_left() <= 0)
    assert zk.state is SessionState.SUSPENDED
    await loop.run_in_executor(None, other.launch)
    await connected(seen)
    assert zk.session_id == session
    assert (await retrying(lambda: zk.get("/n")))[0] == b"1"
    assert (await retrying(lambda: zk.get("/e")))[1].ephemeral_owner == session
    await zk.close()


async def test_a_peer_that_is_no_zookeeper_is_given_up(unused_garbage_port: int) -> None:
    with pytest.raises(NotSentError):
        await real_env().connect_coordinator(f"127.0.0.1:{unused_garbage_port}", 1000)


@pytest.fixture(
    params=[b"HTTP/1.1 400 Bad Request\r\n\r\n", b"\x7f\xff\xff\xff", b"\xff\xff\xff\xff", b"\0\0\0\1x", b""]
)
async def unused_garbage_port(request: pytest.FixtureRequest) -> AsyncIterator[int]:
    tasks: list[asyncio.Task[None]] = []

    async def answer(reader: asyncio.StreamReader, writer: asyncio.StreamWriter) -> None:
        await reader.read(4)
        writer.write(request.param)
        writer.close()

    async with accepting(lambda *streams: tasks.append(asyncio.create_task(answer(*streams)))) as port:
        yield port
    await asyncio.gather(*tasks)
