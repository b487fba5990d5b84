"""Clusters for suites that start brokers one by one: the nodes run in this process, on a ZooKeeper in memory (ADR 72).

A start takes a tenth of the time that processes need, which is what matters to suites with a cluster for each of a thousand
tests. A node cannot be killed here; `abandon` ends it without a controlled shutdown.
"""

from __future__ import annotations

import asyncio
import contextlib
import itertools
import random
import shutil
import threading
from collections.abc import Coroutine, Mapping
from pathlib import Path
from typing import Any, TypeVar

from kafkalite.config.listeners import kafka_listeners
from kafkalite.env.real import RealClock
from kafkalite.env.supervisor import Supervisor
from kafkalite.errors import KafkaliteError
from kafkalite.kafka.connection import KafkaConnection
from kafkalite.listeners import kafka_endpoints
from kafkalite.node.node import Node
from kafkalite.rpc import server_connection
from kafkalite.security.principal import Principal
from kafkalite.testing.node_in_loop import launch, until_ready
from kafkalite.testing.simulated.zookeeper import SimZooKeeper
from tests.suites.kafka_settings import node_settings

_T = TypeVar("_T")
#: A Kafka listener on top of the test's own, in plain text, whose clients may do everything.
CONTROL = "CLUSTERCONTROL"
CONTROL_PRINCIPAL = "User:cluster_control"
_READY_S = 60.0
#: Bound port -> whom its clients are, for listeners where Kafka's tests have a principal builder of their own.
_principals: dict[int, Principal] = {}


class _Cluster:
    """Nodes by their ids; everything runs in one loop."""

    def __init__(self, directory: Path) -> None:
        self.directory = directory
        self.settings: dict[int, dict[str, Any]] = {}
        self.principals: dict[int, Mapping[str, str]] = {}
        self.nodes: dict[int, Node] = {}
        self._runs: dict[int, asyncio.Task[None]] = {}
        self._ports: dict[int, dict[str, int]] = {}
        self._supervisor = Supervisor(lambda error: None)
        self.zookeeper = SimZooKeeper(random.Random(), wall_ms=RealClock().wall_ms)

    async def start(self, broker_id: int) -> dict[str, str]:
        """Listener -> HOST:PORT. Raises what keeps the node from starting."""
        if broker_id not in self.nodes:
            node, run = launch(self.settings[broker_id], self.zookeeper, self._supervisor)
            await self._until_ready(node, run)
            self.nodes[broker_id], self._runs[broker_id] = node, run
        return self._addresses(broker_id)

    async def _until_ready(self, node: Node, run: asyncio.Task[None]) -> None:
        try:
            async with asyncio.timeout(_READY_S):
                await until_ready(node, run, self._supervisor)
                for each in [*self.nodes.values(), node]:  # and each knows all the others
                    while len(each.metadata.brokers()) < len(self.nodes) + 1:
                        await each.metadata.changed()
        except BaseException:
            run.cancel()
            raise

    def _addresses(self, broker_id: int) -> dict[str, str]:
        found = {}
        node = self.nodes[broker_id]
        listeners = kafka_listeners(node.config)
        for key, listener in zip(kafka_endpoints(listeners), listeners, strict=True):
            port = node.endpoints[key].port
            found[listener.name] = f"{listener.host}:{port}"
            _principals.pop(port, None)
            if (principal := self.principals[broker_id].get(listener.name)) is not None:
                _principals[port] = Principal.parse(principal)
        return found

    async def stop(self, broker_id: int) -> None:
        """A controlled shutdown."""
        if (node := self.nodes.pop(broker_id, None)) is not None:
            node.stop()
            with contextlib.suppress(KafkaliteError, OSError):  # how it ended is in its log
                await self._runs.pop(broker_id)

    async def abandon(self) -> None:
        """All end at once."""
        runs = list(self._runs.values())
        self.nodes.clear()
        self._runs.clear()
        for run in runs:
            run.cancel()
        if runs:
            await asyncio.wait(runs)
        await self._supervisor.stop()

    async def settle(self) -> None:
        """Return when all nodes have the same metadata."""
        async with asyncio.timeout(_READY_S):
            while len({_snapshot(node) for node in self.nodes.values()}) > 1:
                await asyncio.sleep(0.02)


def _of_node(broker_id: int, asked: Mapping[str, Any], directory: Path) -> tuple[dict[str, Any], dict[str, str]]:
    """(what the node takes, key -> why it does not take it)."""
    found = node_settings(asked, directory / f"settings-{broker_id}", plain_listeners={CONTROL: "127.0.0.1:0"})
    users = (str(found.taken.get("super.users", "")), CONTROL_PRINCIPAL)
    own = {
        "broker.id": broker_id,
        "log.dirs": list(found.log_dirs) or [str(directory / f"node-{broker_id}")],
        "zookeeper.connect": "127.0.0.1:2181",
        "super.users": ";".join(filter(None, users)),
        "http.port": -1,
        "rpc.port": 0,
    }
    return {**found.taken, **own}, found.ignored


def _snapshot(node: Node) -> str:
    cache = node.metadata
    topics = {name: sorted((cache.topic(name) or {}).items()) for name in sorted(cache.all_topics())}
    return repr((sorted(broker.broker_id for broker in cache.brokers()), topics))


class LoopbackClusters:
    """Answers of the control server; called by its threads."""

    def __init__(self, directory: Path) -> None:
        self._directory = directory
        self._numbers = itertools.count(1)
        self._clusters: dict[str, _Cluster] = {}
        self._loop = asyncio.new_event_loop()
        self._thread = threading.Thread(target=self._loop.run_forever, name="nodes", daemon=True)

    def start(self) -> None:
        # Nodes, which come in plain text, are not a test's anonymous clients. A node has no setting for that, and needs none: both
        # names are replaced in this process alone.
        server_connection.ANONYMOUS = Principal.parse(CONTROL_PRINCIPAL)  # type: ignore[attr-defined]
        KafkaConnection.connection_made = _with_principal(KafkaConnection.connection_made)  # type: ignore[method-assign]
        self._thread.start()

    def close(self) -> None:
        for name in list(self._clusters):
            self.remove(name)
        self._loop.call_soon_threadsafe(self._loop.stop)
        self._thread.join()

    def create(self) -> dict[str, Any]:
        """Without brokers yet."""
        name = f"c{next(self._numbers)}"
        self._clusters[name] = _Cluster(self._directory / name)
        return {"id": name}

    def add(self, name: str, question: Mapping[str, Any]) -> dict[str, Any]:
        """Note a broker's settings; `start` starts it. Also for one that is there, with other settings."""
        cluster, broker = self._found(name), int(question["broker"])
        cluster.directory.mkdir(parents=True, exist_ok=True)
        taken, ignored = _of_node(broker, question.get("settings", {}), cluster.directory)
        cluster.settings[broker] = taken
        cluster.principals[broker] = {CONTROL: CONTROL_PRINCIPAL, **question.get("principals", {})}
        return {"ignored": ignored}

    def change(self, name: str, broker: int, verb: str) -> dict[str, Any]:
        """Raises KeyError, ValueError, and what keeps a node from starting."""
        cluster = self._found(name)
        if verb == "start":
            return {"listeners": self._done(cluster.start(broker))}
        if verb != "stop":
            raise ValueError(f"a broker can be stopped or started, not: {verb}")
        self._done(cluster.stop(broker))
        return {}

    def settle(self, name: str) -> None:
        self._done(self._found(name).settle())

    def remove(self, name: str) -> None:
        cluster = self._clusters.pop(name)
        self._done(cluster.abandon())
        shutil.rmtree(cluster.directory, ignore_errors=True)

    def _found(self, name: str) -> _Cluster:
        return self._clusters[name]

    def _done(self, work: Coroutine[Any, Any, _T]) -> _T:
        return asyncio.run_coroutine_threadsafe(work, self._loop).result()


def _with_principal(connection_made: Any) -> Any:
    def with_principal(self: KafkaConnection, transport: asyncio.BaseTransport) -> None:
        connection_made(self, transport)
        address = transport.get_extra_info("sockname")
        if isinstance(address, tuple) and (principal := _principals.get(address[1])) is not None:
            self.principal = principal

    return with_principal
