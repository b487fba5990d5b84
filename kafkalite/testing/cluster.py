"""A whole cluster in this process: the shipped node code on an in-memory ZooKeeper, without a JVM.

    async with cluster(nodes=3) as c:
        ...  c.bootstrap

It serves `kafkalite dev`, and tests of other projects (also through the pytest fixture `kafkalite_cluster`). The
in-memory ZooKeeper is the one that the contract suite holds against a real server.
"""

from __future__ import annotations

import asyncio
import base64
import json
import random
import shutil
import tempfile
import threading
from collections.abc import AsyncIterator, Mapping
from contextlib import asynccontextmanager
from pathlib import Path
from types import TracebackType
from typing import Any, Self

from kafkalite.coordination.coordinator import Create, Op
from kafkalite.env.real import RealClock
from kafkalite.env.supervisor import Supervisor
from kafkalite.node.node import Node
from kafkalite.telemetry.logs import get_logger
from kafkalite.testing.node_in_loop import launch, until_ready
from kafkalite.testing.simulated.zookeeper import SimZooKeeper

_log = get_logger(__name__)

#: Minimum interval at which changes of znodes are saved.
_SAVE_DELAY_S = 0.05
_ZNODES_FILE = "znodes.json"


class Cluster:
    """See the module. Everything runs in the loop that calls `start`.

    Args:
        nodes: how many; their ids are 1 to `nodes`.
        directory: where logs and znodes are kept; None: in a temporary directory that `stop` removes.
        kafka_port: of node 1, the others follow; RPC listens 100 and HTTP 200 above. 0: any free ports.
        settings: configuration of every node, key with dots -> value.
    """

    def __init__(
        self,
        *,
        nodes: int = 3,
        directory: Path | None = None,
        kafka_port: int = 0,
        settings: Mapping[str, Any] | None = None,
    ) -> None:
        self.nodes: dict[int, Node] = {}
        self._count = nodes
        self._temporary = directory is None
        self._directory = directory if directory is not None else Path(tempfile.mkdtemp(prefix="kafkalite-"))
        self._kafka_port = kafka_port
        self._settings = dict(settings or {})
        self.zookeeper = SimZooKeeper(random.Random(), wall_ms=RealClock().wall_ms)
        self._runs: dict[int, asyncio.Task[None]] = {}
        self._supervisor = Supervisor(lambda error: None)
        self._save_timer: asyncio.TimerHandle | None = None

    @property
    def bootstrap(self) -> list[str]:
        """Where clients connect: any Kafka client, the command line, Spark."""
        return [str(node.endpoints["kafka"]) for node in self.nodes.values()]

    async def start(self) -> Self:
        """Start every node; returns when all serve. Raises what keeps a node from starting."""
        self._directory.mkdir(parents=True, exist_ok=True)
        self._load_znodes()
        self.zookeeper.on_commit = lambda zxid, host, ops: self._save_soon()
        for broker_id in range(1, self._count + 1):
            self._launch(broker_id)
        try:
            for broker_id in self.nodes:
                await self._ready(broker_id)
            for node in self.nodes.values():  # and each knows all the others
                while len(node.metadata.brokers()) < self._count:
                    await node.metadata.changed()
        except BaseException:
            await self.stop()
            raise
        return self

    async def stop(self) -> None:
        """Stop every node, all at once: nodes that stop together do not wait for each other. Remove what was temporary.

        Raises what kept a node from stopping, when all have ended.
        """
        runs = list(self._runs.values())
        for broker_id in self._runs:
            self.nodes[broker_id].stop(is_discarded=self._temporary)
        self._runs.clear()
        if runs:
            await asyncio.wait(runs)
        if self._save_timer is not None:
            self._save_timer.cancel()
            self._save_znodes()
        self.zookeeper.on_commit = None
        await self._supervisor.stop()
        if self._temporary:
            shutil.rmtree(self._directory, ignore_errors=True)
        for run in runs:
            run.result()

    async def stop_node(self, broker_id: int) -> None:
        """A controlled shutdown of one node."""
        run = self._runs.pop(broker_id)
        self.nodes[broker_id].stop()
        await run

    async def start_node(self, broker_id: int) -> None:
        """Start a stopped node again, on its directories; returns when it serves."""
        self._launch(broker_id)
        await self._ready(broker_id)

    def _launch(self, broker_id: int) -> None:
        def port(offset: int) -> int:
            return self._kafka_port + offset + broker_id - 1 if self._kafka_port else 0

        settings = {
            "offsets.topic.num.partitions": 8,
            "transaction.state.log.num.partitions": 8,
            "group.initial.rebalance.delay.ms": 0,
            "kafka.port": port(0),
            "rpc.port": port(100),
            "http.port": port(200),
            **self._settings,
            "broker.id": broker_id,
            "log.dirs": [str(self._directory / f"node-{broker_id}")],
        }
        self.nodes[broker_id], self._runs[broker_id] = launch(settings, self.zookeeper, self._supervisor)

    async def _ready(self, broker_id: int) -> None:
        await until_ready(self.nodes[broker_id], self._runs[broker_id], self._supervisor)

    # --- znodes on disk ------------------------------------------------------------------------------------

    def _save_soon(self) -> None:
        if self._save_timer is None and not self._temporary:
            self._save_timer = asyncio.get_running_loop().call_later(_SAVE_DELAY_S, self._try_to_save)

    def _try_to_save(self) -> None:
        try:
            self._save_znodes()
        except OSError as error:
            _log.warning("znodes.not_saved", error=str(error))
            self._save_soon()

    def _save_znodes(self) -> None:
        """Every persistent znode; the last moment before a kill -9 may be missing, as documented for `dev`."""
        self._save_timer = None
        znodes = {
            path: base64.b64encode(data).decode() for path, data in self.zookeeper.tree.persistent() if path != "/"
        }
        target = self._directory / _ZNODES_FILE
        scratch = target.with_suffix(".tmp")
        scratch.write_text(json.dumps(znodes))
        scratch.rename(target)

    def _load_znodes(self) -> None:
        try:
            znodes = json.loads((self._directory / _ZNODES_FILE).read_text())
        except FileNotFoundError:
            return
        ops: list[Op] = [Create(path, base64.b64decode(data)) for path, data in sorted(znodes.items())]
        if ops:
            self.zookeeper.poke(*ops)


@asynccontextmanager
async def cluster(
    nodes: int = 3, *, directory: Path | None = None, settings: Mapping[str, Any] | None = None
) -> AsyncIterator[Cluster]:
    """A running cluster; stopped and removed at the end. See Cluster."""
    running = await Cluster(nodes=nodes, directory=directory, settings=settings).start()
    try:
        yield running
    finally:
        await running.stop()


class ThreadedCluster:
    """A cluster in a thread with a loop of its own, for callers that are not asynchronous. A context manager."""

    def __init__(self, nodes: int = 3, *, settings: Mapping[str, Any] | None = None) -> None:
        self._nodes = nodes
        self._settings = settings
        self._loop: asyncio.AbstractEventLoop | None = None
        self._stop: asyncio.Event | None = None
        self._started = threading.Event()
        self._error: BaseException | None = None
        self._thread = threading.Thread(target=self._run, name="kafkalite-cluster", daemon=True)
        self.bootstrap: list[str] = []

    def __enter__(self) -> Self:
        self._thread.start()
        self._started.wait()
        if self._error is not None:
            raise self._error
        return self

    def __exit__(
        self, kind: type[BaseException] | None, error: BaseException | None, trace: TracebackType | None
    ) -> None:
        if self._loop is not None and self._stop is not None:
            self._loop.call_soon_threadsafe(self._stop.set)
        self._thread.join()

    def _run(self) -> None:
        import uvloop

        try:
            uvloop.run(self._serve())
        except BaseException as error:  # noqa: BLE001 - handed to the thread that waits for us
            self._error = error
        finally:
            self._started.set()

    async def _serve(self) -> None:
        async with cluster(self._nodes, settings=self._settings) as running:
            self._loop = asyncio.get_running_loop()
            self._stop = asyncio.Event()
            self.bootstrap = running.bootstrap
            self._started.set()
            await self._stop.wait()
