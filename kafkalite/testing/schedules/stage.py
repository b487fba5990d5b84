"""What fault schedules are made of: the stage that they play on, and the list of them."""

from __future__ import annotations

import asyncio
import contextlib
import os
import random
import signal
import time
from collections.abc import Awaitable, Callable
from dataclasses import dataclass, field
from pathlib import Path

from kafkalite.client.async_client import AsyncClient
from kafkalite.extension.messages.disks import DiskOnlineRequest, DiskOnlineResponse
from kafkalite.model import BrokerId
from kafkalite.testing.numbered_records import Tally
from kafkalite.testing.processes import Process, ProcessCluster

#: A session short enough for many failovers.
SESSION_S = 3.0
SETTINGS: dict[str, object] = {
    "zookeeper.session.timeout.ms": int(SESSION_S * 1000),
    "replica.lag.time.max.ms": 4_000,
    "controlled.shutdown.max.wait.ms": 5_000,
    "http.port": -1,
}


@dataclass
class Stage:
    """What a schedule plays on."""

    cluster: ProcessCluster
    rng: random.Random
    say: Callable[[str], None]
    tally: Tally
    #: Factor of every length of time; below 1 for a short run.
    pace: float = 1.0
    #: What went wrong on the way.
    notes: list[str] = field(default_factory=list)

    def note(self, what: str) -> None:
        """Print what is done, and how many records were acknowledged by then."""
        self.say(f"  {what} ({len(self.tally.acked)} acked)")

    def wrong(self, what: str) -> None:
        """Print and remember what should not be."""
        self.notes.append(what)
        self.note(f"WRONG: {what}")

    async def sleep(self, seconds: float) -> None:
        """This duration, times the pace."""
        await asyncio.sleep(seconds * self.pace)

    async def progress(self, count: int = 200, patience_s: float = 90.0) -> float:
        """Wait until this number of further records is acknowledged; the seconds it took. Raises TimeoutError."""
        began = time.monotonic()
        goal = len(self.tally.acked) + count
        async with asyncio.timeout(patience_s):
            while len(self.tally.acked) < goal:  # noqa: ASYNC110 - the tally is a plain dict
                await asyncio.sleep(0.02)
        return time.monotonic() - began

    def shuffled(self) -> list[int]:
        """The nodes' ids in random order."""
        return self.rng.sample(sorted(self.cluster.nodes), len(self.cluster.nodes))

    async def going_on(self) -> None:
        """Wait until many more records are acknowledged; returns the time it took."""
        self.note(f"going on after {await self.progress():.1f} s")

    async def all_ready(self) -> None:
        """Wait for the nodes that were started without waiting."""
        for node in self.cluster.nodes.values():
            if not node.ready:
                await asyncio.to_thread(node.wait_ready)

    async def kill_all(self, *, zookeeper: bool) -> None:
        """kill -9 to every node, and to ZooKeeper, which is started again."""
        self.note("kill -9 to all nodes" + (" and ZooKeeper" if zookeeper else ""))
        for broker_id in self.shuffled():
            self.cluster.nodes[broker_id].signal(signal.SIGKILL)
        for node in self.cluster.nodes.values():
            await asyncio.to_thread(node.kill)
        if zookeeper and self.cluster.zookeeper is not None:
            self.cluster.zookeeper.kill()
            await asyncio.to_thread(self.cluster.start_zookeeper)

    async def disk_online(self, broker_id: int, directory: Path) -> None:
        """`admin disk online`: somebody has put a disk there. Raises KafkaliteError."""
        async with AsyncClient.connect(self.cluster.bootstrap) as client:
            await client.metadata([])
            answer = await client.ask_node(BrokerId(broker_id), DiskOnlineRequest(str(directory)), timeout_s=30.0)
            if not isinstance(answer, DiskOnlineResponse) or answer.error:
                self.wrong(f"{directory} did not come online: {answer}")

    async def watch(self, what: str, seconds: float, *, serves: bool = True) -> None:
        """Print how many records are acknowledged while the fault lasts; it is wrong if none are where some should be.

        The fault lasts until some are, whatever the pace: a busy machine takes its time.
        """
        before = len(self.tally.acked)
        self.note(what)
        await self.sleep(seconds)
        if serves:
            try:
                await self.progress(0 if len(self.tally.acked) > before else 1)
            except TimeoutError:
                self.wrong(f"nothing was acknowledged: {what}")
        self.note(f"{len(self.tally.acked) - before} records acknowledged meanwhile")


Play = Callable[[Stage], Awaitable[None]]


@dataclass(frozen=True)
class Schedule:
    """One story, and what it plays on."""

    play: Play
    #: Each process on a host of its own (kafkalite.testing.network).
    hosts: bool = False
    #: Log directories of each node.
    log_dirs: int = 1
    #: Servers of ZooKeeper; more than one are an ensemble.
    zookeepers: int = 1
    #: ZooKeeper has a file system of 40 MB for itself (kafkalite.testing.schedules.ensemble).
    small_zookeeper_disk: bool = False
    #: Wall clocks that can be set (kafkalite.testing.schedules.clocks).
    clocks: bool = False
    #: Groups of transactions are written beside the numbered records, and counted, too.
    transactions: bool = False

    @property
    def title(self) -> str:
        return (self.play.__doc__ or "").splitlines()[0]


SCHEDULES: dict[str, Schedule] = {}


def schedule(
    name: str,
    *,
    hosts: bool = False,
    log_dirs: int = 1,
    zookeepers: int = 1,
    small_zookeeper_disk: bool = False,
    clocks: bool = False,
    transactions: bool = False,
) -> Callable[[Play], Play]:
    """Puts a story into SCHEDULES."""

    def add(play: Play) -> Play:
        SCHEDULES[name] = Schedule(play, hosts, log_dirs, zookeepers, small_zookeeper_disk, clocks, transactions)
        return play

    return add


def with_children(process: Process) -> list[int]:
    """The pids of a process and of what it has started (`kafkalite zookeeper` runs a JVM)."""
    found = [process.pid]
    for pid in found:
        with contextlib.suppress(OSError):
            for task in Path(f"/proc/{pid}/task").iterdir():
                found += [int(child) for child in (task / "children").read_text().split()]
    return found


def stop(process: Process) -> None:
    """SIGSTOP, children included."""
    for pid in with_children(process):
        os.kill(pid, signal.SIGSTOP)


def go_on(process: Process) -> None:
    """SIGCONT, children included."""
    for pid in with_children(process):
        os.kill(pid, signal.SIGCONT)
