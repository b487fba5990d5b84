"""Real nodes with real sockets and files in one process, on a ZooKeeper in memory: quick to start, nothing to install.

For tests that need a whole cluster behind real clients, but no crash of a process: a node can be stopped cleanly, or
lose its session. Unlike `kafkalite.testing.cluster.Cluster`, it has Kafka's defaults, a started node gets its ports again, and
`nodes` are those that run.
"""

from __future__ import annotations

import asyncio
import random
from collections.abc import Mapping
from pathlib import Path
from types import TracebackType
from typing import Any, Self

from kafkalite.env.real import RealClock
from kafkalite.env.supervisor import Supervisor
from kafkalite.node.node import Node
from kafkalite.testing.node_in_loop import launch, until_ready
from kafkalite.testing.simulated.zookeeper import SimZooKeeper

_READY_S = 120.0


class LoopbackCluster:
    """Use as an async context manager.

    Args:
        settings: configuration of every node, key with dots -> value.
        first_id: of the nodes; the others follow.
        own_settings: by node, on top of `settings`.
    """

    def __init__(
        self,
        directory: Path,
        *,
        nodes: int = 1,
        settings: Mapping[str, Any] | None = None,
        first_id: int = 1,
        own_settings: Mapping[int, Mapping[str, Any]] | None = None,
    ) -> None:
        self._own_settings = own_settings or {}
        self._directory = directory
        self._settings = dict(settings or {})
        self._ids = list(range(first_id, first_id + nodes))
        self._runs: dict[int, asyncio.Task[None]] = {}
        self._ports: dict[int, dict[str, int]] = {}
        self.zookeeper = SimZooKeeper(random.Random(1), wall_ms=RealClock().wall_ms)
        self.nodes: dict[int, Node] = {}
        self.failures: list[BaseException] = []
        self._supervisor = Supervisor(self.failures.append)

    async def __aenter__(self) -> Self:
        for broker_id in self._ids:
            self._launch(broker_id)
        for broker_id in self._ids:
            await self._wait_ready(broker_id)
        return self

    async def __aexit__(
        self, kind: type[BaseException] | None, error: BaseException | None, trace: TracebackType | None
    ) -> None:
        for broker_id in sorted(self.nodes):
            await self.stop(broker_id)

    @property
    def bootstrap(self) -> str:
        """Kafka endpoints, as clients take them."""
        return ",".join(str(node.endpoints["kafka"]) for _, node in sorted(self.nodes.items()) if node.ready.is_set())

    async def stop(self, broker_id: int) -> None:
        """A controlled shutdown."""
        node = self.nodes.pop(broker_id)
        node.stop()
        await self._runs.pop(broker_id)

    async def start(self, broker_id: int) -> None:
        """Start a stopped node again, on its directory and ports."""
        self._launch(broker_id)
        await self._wait_ready(broker_id)

    def _launch(self, broker_id: int) -> None:
        ports = self._ports.get(broker_id, {})
        settings = {
            "broker.id": broker_id,
            "log.dirs": [str(self._directory / f"node-{broker_id}")],
            "http.port": -1,
            "kafka.port": ports.get("kafka", 0),
            "rpc.port": ports.get("rpc", 0),
            **self._settings,
            **self._own_settings.get(broker_id, {}),
        }
        launched = launch(settings, self.zookeeper, self._supervisor, self.failures.append)
        self.nodes[broker_id], self._runs[broker_id] = launched

    async def _wait_ready(self, broker_id: int) -> None:
        node = self.nodes[broker_id]
        async with asyncio.timeout(_READY_S):
            await until_ready(node, self._runs[broker_id], self._supervisor)
        self._ports[broker_id] = {name: endpoint.port for name, endpoint in node.endpoints.items()}
