"""An ensemble of ZooKeeper servers that is rolled, beheaded and away for a while; and one server without room on its disk."""

from __future__ import annotations

import asyncio
import contextlib
import signal
import subprocess
import time
from collections.abc import Callable, Iterator
from pathlib import Path
from typing import Self

from kafkalite.coordination.embedded import EmbeddedZooKeeper, cache_directory, free_port
from kafkalite.testing.processes import ProcessCluster, kazoo_client
from kafkalite.testing.schedules.stage import SESSION_S, Stage, schedule

_ELECTION_S = 60.0


class EnsembleCluster(ProcessCluster):
    """Three nodes on an ensemble of ZooKeeper servers. Start it on the thread that stays: the kernel ends them together."""

    def __init__(self, directory: Path, servers: int, *, settings: dict[str, object]) -> None:
        members = [f"127.0.0.1:{free_port('127.0.0.1')}:{free_port('127.0.0.1')}" for _ in range(servers)]
        self.servers = [
            EmbeddedZooKeeper(
                directory / f"zookeeper-{number}",
                free_port("127.0.0.1"),
                my_id=number,
                members=members,
                class_cache=cache_directory(),
                max_heap_mb=64,
            )
            for number in range(1, servers + 1)
        ]
        connect = ",".join(server.connect for server in self.servers)
        super().__init__(directory, nodes=3, settings=settings, zookeeper=connect)

    def start(self) -> Self:
        """Servers first."""
        for server in self.servers:
            server.launch()
        self.await_leader()
        return super().start()

    def close(self) -> None:
        """kill -9 to all."""
        super().close()
        for server in self.servers:
            if server.running:
                server.kill()

    def leader(self) -> EmbeddedZooKeeper | None:
        """Who leads the ensemble."""
        return next((each for each in self.servers if each.running and "Mode: leader" in each.command("srvr")), None)

    def await_leader(self) -> EmbeddedZooKeeper:
        """Raises TimeoutError."""
        until = time.monotonic() + _ELECTION_S
        while (found := self.leader()) is None:
            if time.monotonic() > until:
                raise TimeoutError("the ensemble has no leader")
            time.sleep(0.05)
        return found


def _ensemble(stage: Stage) -> EnsembleCluster:
    assert isinstance(stage.cluster, EnsembleCluster)
    return stage.cluster


async def _until_serving(server: EmbeddedZooKeeper) -> None:
    async with asyncio.timeout(_ELECTION_S):
        while "Mode: " not in await asyncio.to_thread(server.command, "srvr"):  # noqa: ASYNC110 - another process
            await asyncio.sleep(0.1)


@schedule("ensemble-roll", zookeepers=3)
async def roll(stage: Stage) -> None:
    """Every server of the ensemble is restarted, one after the other, the leader last; then in random order without a pause."""
    cluster = _ensemble(stage)
    for waits in (True, False):
        leader = await asyncio.to_thread(cluster.await_leader)
        order = [each for each in cluster.servers if each is not leader] + [leader]
        for server in order if waits else stage.rng.sample(order, len(order)):
            await stage.watch(f"{server.connect} is restarted" + (" (the leader)" if server is leader else ""), 0.0)
            await asyncio.to_thread(server.stop)
            server.launch()
            await _until_serving(server)
            if waits:
                await stage.sleep(3.0)
        await stage.going_on()


@schedule("ensemble-leader", zookeepers=3)
async def behead(stage: Stage) -> None:
    """kill -9 to the ensemble's leader, again and again; every other time it stays away for two sessions."""
    cluster = _ensemble(stage)
    for number in range(6):
        leader = await asyncio.to_thread(cluster.await_leader)
        leader.kill()
        await stage.watch(f"kill -9 to the ensemble's leader {leader.connect}", 2 * SESSION_S if number % 2 else 0.5)
        leader.launch()
        await _until_serving(leader)
        await stage.going_on()


@schedule("ensemble-suspend", zookeepers=3, transactions=True)
async def suspend(stage: Stage) -> None:
    """Servers of the ensemble stand still for two sessions: each in turn, the leader, two at once; their connections stay."""
    cluster = _ensemble(stage)
    leader = await asyncio.to_thread(cluster.await_leader)
    others = [each for each in cluster.servers if each is not leader]
    for chosen in ([others[0]], [others[1]], [leader], None, stage.rng.sample(cluster.servers, 2), None):
        still = [await asyncio.to_thread(cluster.await_leader)] if chosen is None else chosen
        for server in still:
            server.signal(signal.SIGSTOP)
        names = ", ".join(each.connect for each in still)
        await stage.watch(f"{names}: still", 3 * SESSION_S)
        for server in still:
            server.signal(signal.SIGCONT)
        await stage.going_on()
        await stage.sleep(stage.rng.uniform(0.0, 3.0))


@schedule("ensemble-down", zookeepers=3, transactions=True)
async def down(stage: Stage) -> None:
    """All of ZooKeeper is killed and away for half a minute; then all but one; a node is killed meanwhile."""
    cluster = _ensemble(stage)
    for number, away in enumerate((cluster.servers, cluster.servers[1:], cluster.servers)):
        for server in away:
            server.kill()
        await stage.watch(f"{len(away)} of {len(cluster.servers)} servers are away", 15.0)
        if number:
            victim = stage.rng.choice(sorted(cluster.nodes))
            stage.note(f"kill -9 to node {victim}")
            await asyncio.to_thread(cluster.nodes[victim].kill)
            cluster.restart(victim, wait=False)
        await stage.sleep(15.0)
        await _each(away, EmbeddedZooKeeper.launch)
        stage.note("all servers are started")
        await stage.all_ready()
        await stage.going_on()
        await stage.sleep(5.0)


async def _each(servers: list[EmbeddedZooKeeper], act: Callable[[EmbeddedZooKeeper], None]) -> None:
    for server in servers:
        act(server)
    for server in servers:
        await _until_serving(server)


@contextlib.contextmanager
def small_disk(directory: Path) -> Iterator[None]:
    """A file system of 40 MB there. Raises CalledProcessError where that is not allowed."""
    directory.mkdir(parents=True)
    subprocess.run(["mount", "-t", "tmpfs", "-o", "size=40m", "tmpfs", str(directory)], check=True)
    try:
        yield
    finally:
        subprocess.run(["umount", "-l", str(directory)], check=True)


@schedule("zookeeper-disk-full", small_zookeeper_disk=True, transactions=True)
async def disk_full(stage: Stage) -> None:
    """ZooKeeper's disk is full, which ends the server; somebody makes room and starts it again, at once or much later."""
    cluster = stage.cluster
    assert cluster.zookeeper is not None
    rubbish = cluster.directory / "zookeeper" / "rubbish"
    for away_s in (0.0, 20.0):
        with contextlib.suppress(OSError), rubbish.open("wb", 0) as file:
            while True:
                file.write(bytes(1 << 16))
        stage.note("ZooKeeper's disk is full")
        async with asyncio.timeout(60):
            while cluster.zookeeper.running:
                await asyncio.to_thread(_write_something, cluster.zookeeper_connect)
        stage.note("ZooKeeper has ended")
        await stage.sleep(away_s)
        rubbish.unlink()
        await asyncio.to_thread(cluster.start_zookeeper)
        await stage.going_on()
        await stage.sleep(5.0)


def _write_something(connect: str) -> None:
    from kazoo.exceptions import KazooException
    from kazoo.handlers.threading import KazooTimeoutError

    with contextlib.suppress(KazooException, KazooTimeoutError), kazoo_client(connect, session_s=4, start_s=3) as zk:
        zk.create("/rubbish-", bytes(500_000), sequence=True)
