"""Clusters of real nodes for suites that start brokers themselves: they ask this server, by JSON over HTTP on loopback.

    python -m tests.suites.cluster_control          prints {"port": N}; ends, with all clusters, when its input is closed

    POST   /clusters                      {"brokers": [0, 1], "settings": {...}, "own_settings": {"0": {...}}, "disks": 1,
                                           "security": "PLAINTEXT", "users": {NAME: PASSWORD}}
           -> {"id": "c1", "bootstrap": "HOST:PORT,…", "brokers": {"0": "HOST:PORT", …}, "ignored": {KEY: REASON}}
           (users: with SASL_PLAINTEXT, those of the mechanism PLAIN; the nodes are the first one)
    POST   /clusters/ID/brokers/N/stop    a controlled stop; kill: kill -9; start: again, at its old addresses
    DELETE /clusters/ID                   kills the nodes and removes their data

With `--in-process` the nodes run in this process, and brokers are added one by one (ADR 72):

    POST   /clusters                      -> {"id": "c1"}
    POST   /clusters/ID/brokers           {"broker": 0, "settings": {...}, "principals": {LISTENER: "User:NAME"}} -> {"ignored": {...}}
    POST   /clusters/ID/brokers/N/start   -> {"listeners": {NAME: "HOST:PORT"}}; stop
    POST   /clusters/ID/settle            returns when all nodes have the same metadata

With `--in-loop` the nodes of the first kind run in this process, too (docs/adr/0065); they cannot be killed.

Settings have Kafka's names; those that a node of ours refuses are left out and named in "ignored". An error is status 400
(what was asked) or 500 (what a node did), with {"error": text}.
"""

from __future__ import annotations

import itertools
import json
import logging
import os
import sys
import tempfile
import threading
from collections.abc import Mapping
from http.server import BaseHTTPRequestHandler, ThreadingHTTPServer
from pathlib import Path
from typing import Any

import structlog

from kafkalite.errors import ConfigError, KafkaliteError
from kafkalite.testing.processes import ProcessCluster, ProcessFailed
from tests.suites.cluster_in_loop import ClusterInLoop, Loop
from tests.suites.kafka_settings import DEFAULTS, as_named, node_settings
from tests.suites.loopback_clusters import LoopbackClusters

#: Nodes are processes: one that is killed should be missed soon.
_DEFAULTS: Mapping[str, object] = {**DEFAULTS, "zookeeper.session.timeout.ms": 6000}


class BadQuestion(ValueError):
    """There is no such thing to ask for."""


class Clusters:
    """Those that were asked for, on one ZooKeeper, each below a chroot of its own."""

    def __init__(self, directory: Path, *, is_in_loop: bool = False) -> None:
        self._directory = directory
        self._numbers = itertools.count(1)
        self._clusters: dict[str, ProcessCluster | ClusterInLoop] = {}
        self._loop = Loop() if is_in_loop else None
        # No node: the server of ZooKeeper only.
        self._zookeeper = ProcessCluster(directory / "zookeeper", nodes=0)

    def start(self) -> None:
        if self._loop is None:
            self._zookeeper.start()
        else:
            self._loop.start()

    def close(self) -> None:
        for name in list(self._clusters):
            self.remove(name)
        self._zookeeper.close()
        if self._loop is not None:
            self._loop.close()

    def create(self, question: Mapping[str, Any]) -> dict[str, Any]:
        """Raises BadQuestion, ProcessFailed."""
        ids = [int(each) for each in question.get("brokers", [0])]
        if not ids or ids != list(range(ids[0], ids[0] + len(ids))):
            raise BadQuestion(f"brokers: consecutive ids are needed, not {ids}")
        name = f"c{next(self._numbers)}"
        directory, nodes, disks = self._directory / name, len(ids), int(question.get("disks", 1))
        security = _security(directory, question.get("security", "PLAINTEXT"), question.get("users", {}))
        found = node_settings(question.get("settings", {}), directory, defaults=_DEFAULTS)
        settings, ignored = found.taken | security, found.ignored
        own = {
            int(broker): node_settings(each, directory / f"settings-{broker}", defaults={})
            for broker, each in question.get("own_settings", {}).items()
        }
        taken = {broker: each.taken for broker, each in own.items()}
        cluster: ProcessCluster | ClusterInLoop
        if self._loop is None:
            cluster = ProcessCluster(
                directory, nodes=nodes, first_id=ids[0], settings=settings, own_settings=taken, log_dirs=disks,
                zookeeper=f"{self._zookeeper.zookeeper_connect}/{name}",
            )  # fmt: skip
        else:
            cluster = ClusterInLoop(
                self._loop, directory, nodes=nodes, first_id=ids[0], settings=settings, own_settings=taken, log_dirs=disks,
            )  # fmt: skip
        try:
            cluster.start()
        except BaseException:
            cluster.close()
            raise
        self._clusters[name] = cluster
        for each in own.values():
            ignored |= each.ignored
        brokers = {str(broker): as_named(cluster.kafka(broker), settings) for broker in ids}
        return {"id": name, "bootstrap": ",".join(brokers.values()), "brokers": brokers, "ignored": ignored}

    def change(self, name: str, broker: int, verb: str) -> None:
        """Raises BadQuestion, ProcessFailed."""
        cluster = self._found(name)
        if broker not in cluster.nodes:
            raise BadQuestion(f"{name} has no broker {broker}")
        node = cluster.nodes[broker]
        if verb == "stop":
            node.terminate()
        elif verb == "kill":
            node.kill()
        elif verb != "start":
            raise BadQuestion(f"a broker can be stopped, killed or started, not: {verb}")
        elif not node.running:
            cluster.restart(broker)

    def remove(self, name: str) -> None:
        """Raises BadQuestion."""
        cluster = self._found(name)
        del self._clusters[name]
        cluster.close()
        cluster.remove()

    def _found(self, name: str) -> ProcessCluster | ClusterInLoop:
        if name not in self._clusters:
            raise BadQuestion(f"there is no cluster {name}")
        return self._clusters[name]


def _security(directory: Path, protocol: str, users: Mapping[str, str]) -> dict[str, object]:
    """The settings of nodes that authenticate clients and each other. Raises BadQuestion."""
    if not users:
        return {}  # what there is to say is in Kafka's settings
    if protocol != "SASL_PLAINTEXT":
        raise BadQuestion(f"users: those of SASL_PLAINTEXT, not of {protocol}")
    directory.mkdir(parents=True, exist_ok=True)
    node = next(iter(users))
    for name, text in (("users", "".join(f"{each}={users[each]}\n" for each in users)), ("password", users[node])):
        (directory / name).write_text(text)
        (directory / name).chmod(0o600)
    return {
        "listener.security.protocol": protocol,
        "rpc.security.protocol": protocol,
        "sasl.enabled.mechanisms": "PLAIN",
        "sasl.mechanism.inter.broker.protocol": "PLAIN",
        "sasl.plain.users.location": directory / "users",
        "inter.broker.username": node,
        "inter.broker.password": f"file:{directory / 'password'}",
    }


class _Handler(BaseHTTPRequestHandler):
    clusters: Clusters | LoopbackClusters

    def do_POST(self) -> None:
        self._answer()

    def do_DELETE(self) -> None:
        self._answer()

    def _answer(self) -> None:
        size = int(self.headers.get("Content-Length") or 0)
        text = self.rfile.read(size)
        try:
            status, answer = 200, self._done(json.loads(text or b"{}"))
        except (ValueError, KeyError, TypeError, ConfigError) as error:
            status, answer = 400, {"error": f"{type(error).__name__}: {error}"}
        except (ProcessFailed, OSError, KafkaliteError) as error:
            status, answer = 500, {"error": str(error)}
        body = json.dumps(answer).encode()
        self.send_response(status)
        self.send_header("Content-Type", "application/json")
        self.send_header("Content-Length", str(len(body)))
        self.end_headers()
        self.wfile.write(body)

    def _done(self, question: Mapping[str, Any]) -> Mapping[str, Any]:
        words = self.path.strip("/").split("/")
        if isinstance(self.clusters, LoopbackClusters):
            return self._in_process(self.clusters, words, question)
        match self.command, words:
            case "POST", ["clusters"]:
                return self.clusters.create(question)
            case "POST", ["clusters", name, "brokers", broker, verb]:
                self.clusters.change(name, int(broker), verb)
            case "DELETE", ["clusters", name]:
                self.clusters.remove(name)
            case _:
                raise BadQuestion(f"{self.command} {self.path}")
        return {}

    def _in_process(
        self, clusters: LoopbackClusters, words: list[str], question: Mapping[str, Any]
    ) -> Mapping[str, Any]:
        match self.command, words:
            case "POST", ["clusters"]:
                return clusters.create()
            case "POST", ["clusters", name, "brokers"]:
                return clusters.add(name, question)
            case "POST", ["clusters", name, "brokers", broker, verb]:
                return clusters.change(name, int(broker), verb)
            case "POST", ["clusters", name, "settle"]:
                clusters.settle(name)
            case "DELETE", ["clusters", name]:
                clusters.remove(name)
            case _:
                raise BadQuestion(f"{self.command} {self.path}")
        return {}

    def log_message(self, format: str, *arguments: object) -> None:
        """Nodes have logs of their own."""


def main() -> None:
    # Only the port is written to the output.
    structlog.configure(
        wrapper_class=structlog.make_filtering_bound_logger(logging.WARNING),
        logger_factory=structlog.PrintLoggerFactory(sys.stderr),
    )
    with tempfile.TemporaryDirectory(prefix="kafkalite-suites-", dir=os.environ.get("SUITES_DIRECTORY")) as directory:
        clusters: Clusters | LoopbackClusters
        if "--in-process" in sys.argv:
            clusters = LoopbackClusters(Path(directory))
        else:
            clusters = Clusters(Path(directory), is_in_loop="--in-loop" in sys.argv)
        handler = type("_OwnHandler", (_Handler,), {"clusters": clusters})
        try:
            clusters.start()
            server = ThreadingHTTPServer(("127.0.0.1", 0), handler)
            threading.Thread(target=server.serve_forever, name="http", daemon=True).start()
            print(json.dumps({"port": server.server_address[1]}), flush=True)
            sys.stdin.buffer.read()
            server.shutdown()
        finally:
            clusters.close()


if __name__ == "__main__":
    main()
