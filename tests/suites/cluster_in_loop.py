"""A cluster whose nodes run in this process, in the way of `ProcessCluster` (docs/adr/0065).

Where a test's time is the start of its nodes, and processes have few cores to start on, that is what a suite needs.
"""

from __future__ import annotations

import asyncio
import contextlib
import random
import shutil
import threading
from collections.abc import Coroutine, Mapping
from pathlib import Path
from typing import Any, TypeVar

from kafkalite.env.real import RealClock
from kafkalite.env.supervisor import Supervisor
from kafkalite.errors import KafkaliteError
from kafkalite.node.node import Node
from kafkalite.testing.node_in_loop import launch, until_ready
from kafkalite.testing.processes import ProcessFailed
from kafkalite.testing.simulated.zookeeper import SimZooKeeper

_T = TypeVar("_T")
_READY_S = 120.0
_KINDS = ("kafka", "rpc")


class Loop:
    """A thread that runs nodes."""

    def __init__(self) -> None:
        self._loop = asyncio.new_event_loop()
        self._thread = threading.Thread(target=self._loop.run_forever, name="nodes", daemon=True)

    def start(self) -> None:
        self._thread.start()

    def close(self) -> None:
        self._loop.call_soon_threadsafe(self._loop.stop)
        self._thread.join()

    def done(self, work: Coroutine[Any, Any, _T]) -> _T:
        """Raises what `work` raises."""
        return asyncio.run_coroutine_threadsafe(work, self._loop).result()


class NodeInLoop:
    """Of ClusterInLoop, as `Process` is of ProcessCluster."""

    def __init__(self, cluster: ClusterInLoop, settings: Mapping[str, Any]) -> None:
        self._cluster = cluster
        self._settings = dict(settings)
        self._node: Node | None = None
        self._run: asyncio.Task[None] | None = None
        self.addresses: dict[str, str] = {}

    @property
    def running(self) -> bool:
        return self._run is not None and not self._run.done()

    async def launch(self) -> None:
        """Returns when it is ready. Raises what keeps it from starting."""
        ports = {f"{kind}.port": int(found.rpartition(":")[2]) for kind, found in self.addresses.items()}
        settings = {"host": "localhost", "kafka.port": 0, "rpc.port": 0, **self._settings, **ports}
        node, run = launch(settings, self._cluster.zookeeper, self._cluster.supervisor)
        self._node, self._run = node, run
        async with asyncio.timeout(_READY_S):
            await until_ready(node, run, self._cluster.supervisor)
        self.addresses = {kind: f"localhost:{node.endpoints[kind].port}" for kind in _KINDS}

    async def stop(self) -> None:
        """A controlled shutdown."""
        if self._node is not None and self._run is not None:
            self._node.stop()
            with contextlib.suppress(KafkaliteError, OSError):  # how it ended is in its log
                await self._run

    async def abandon(self) -> None:
        if self._run is not None:
            self._run.cancel()
            await asyncio.wait([self._run])

    def terminate(self) -> None:
        self._cluster.loop.done(self.stop())

    def kill(self) -> None:
        raise ProcessFailed("a node in the control server's process cannot be killed: run it without --in-loop")


class ClusterInLoop:
    """ZooKeeper in memory and `nodes` brokers under `directory`. The arguments are ProcessCluster's."""

    def __init__(
        self,
        loop: Loop,
        directory: Path,
        *,
        nodes: int,
        first_id: int,
        settings: Mapping[str, object],
        own_settings: Mapping[int, Mapping[str, object]],
        log_dirs: int,
    ) -> None:
        self.loop = loop
        self._directory = directory
        self.supervisor = Supervisor(lambda error: None)
        self.zookeeper = SimZooKeeper(random.Random(), wall_ms=RealClock().wall_ms)
        self.nodes = {
            broker: NodeInLoop(
                self,
                {
                    "broker.id": broker,
                    "log.dirs": [str(directory / f"node-{broker}" / f"disk-{disk}") for disk in range(log_dirs)],
                    "zookeeper.connect": "127.0.0.1:2181",
                    "http.port": -1,
                    **{key: str(value) for key, value in {**settings, **own_settings.get(broker, {})}.items()},
                },
            )
            for broker in range(first_id, first_id + nodes)
        }

    def start(self) -> None:
        """Raises ProcessFailed, ConfigError."""
        self._directory.mkdir(parents=True, exist_ok=True)
        self.loop.done(self._all())

    async def _all(self) -> None:
        try:
            async with asyncio.TaskGroup() as group:
                for node in self.nodes.values():
                    group.create_task(node.launch())
        except ExceptionGroup as errors:
            raise ProcessFailed(f"a node does not start: {errors.exceptions[0]}") from errors

    def restart(self, broker: int) -> None:
        """Start a node that has ended again, at its old addresses."""
        self.loop.done(self.nodes[broker].launch())

    def kafka(self, broker: int) -> str:
        return self.nodes[broker].addresses["kafka"]

    def close(self) -> None:
        """All end at once."""
        self.loop.done(self._abandon())

    async def _abandon(self) -> None:
        for node in self.nodes.values():
            await node.abandon()
        await self.supervisor.stop()

    def remove(self) -> None:
        """Delete the data."""
        shutil.rmtree(self._directory, ignore_errors=True)
