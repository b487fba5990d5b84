"""Kafka Connect in distributed mode: two workers, file connectors, exactly once, a worker killed."""

from __future__ import annotations

import asyncio
import itertools
import json
import urllib.error
import urllib.request
from collections.abc import Callable, Mapping
from pathlib import Path
from typing import Any

import pytest

from kafkalite.testing.apache_kafka import JavaProcess, free_ports, tool_command
from kafkalite.testing.processes import ProcessCluster

from .conftest import seen_by

pytestmark = [pytest.mark.cluster]

_SETTINGS = {
    "default.replication.factor": 3,
    "min.insync.replicas": 2,
    "group.initial.rebalance.delay.ms": 300,
    "offsets.topic.num.partitions": 5,
    "transaction.state.log.num.partitions": 5,
    "zookeeper.session.timeout.ms": 6000,
    "auto.create.topics.enable": False,  # Connect makes its own
}
_JSON = "org.apache.kafka.connect.json.JsonConverter"
_STRING = "org.apache.kafka.connect.storage.StringConverter"
_FILE = "org.apache.kafka.connect.file"


class _Worker(JavaProcess):
    """A Connect worker and its REST API."""

    def __init__(self, classes: str, bootstrap: str, directory: Path, name: str) -> None:
        [self.port] = free_ports(1)
        lines = {
            "bootstrap.servers": bootstrap,
            "group.id": "connect",
            "config.storage.topic": "connect-configs",
            "offset.storage.topic": "connect-offsets",
            "status.storage.topic": "connect-status",
            "config.storage.replication.factor": -1,
            "offset.storage.replication.factor": -1,
            "offset.storage.partitions": 3,
            "status.storage.replication.factor": -1,
            "status.storage.partitions": 2,
            "key.converter": _STRING,
            "value.converter": _STRING,
            "listeners": f"http://127.0.0.1:{self.port}",
            "exactly.once.source.support": "enabled",
            "offset.flush.interval.ms": 500,
            "session.timeout.ms": 6000,
            "heartbeat.interval.ms": 1000,
            "scheduled.rebalance.max.delay.ms": 1000,
            "task.shutdown.graceful.timeout.ms": 5000,
            "consumer.isolation.level": "read_committed",
            "consumer.session.timeout.ms": 6000,
            "consumer.heartbeat.interval.ms": 1000,
        }
        properties = directory / f"{name}.properties"
        properties.write_text("".join(f"{key}={value}\n" for key, value in lines.items()))
        main = "org.apache.kafka.connect.cli.ConnectDistributed"
        super().__init__(f"worker {name}", classes, main, [str(properties)], directory / f"{name}.log")

    @property
    def worker_id(self) -> str:
        return f"127.0.0.1:{self.port}"

    async def ask(self, method: str, path: str, body: Mapping[str, object] | None = None) -> Any:
        """What the REST API answers; None if it does not, or not yet (starting, rebalancing)."""
        return await asyncio.to_thread(self._ask, method, path, body)

    def _ask(self, method: str, path: str, body: Mapping[str, object] | None) -> Any:
        data = None if body is None else json.dumps(body).encode()
        head = {"Content-Type": "application/json"}
        request = urllib.request.Request(f"http://{self.worker_id}{path}", data, head, method=method)
        try:
            with urllib.request.urlopen(request, timeout=30) as answer:
                return json.loads(answer.read() or b"null")
        except urllib.error.HTTPError as error:
            assert error.code in (404, 409, 500, 503), error.read()
            return None
        except OSError:
            assert self.running, self.log_tail()
            return None


class _Lines:
    """A file to which numbered lines are appended."""

    def __init__(self, path: Path) -> None:
        self.path = path
        self.count = 0
        path.touch()

    def append(self, count: int) -> None:
        with self.path.open("a") as file:
            for _ in range(count):
                file.write(f"{self.path.stem} {self.count}\n")
                self.count += 1

    @property
    def all(self) -> list[str]:
        return [f"{self.path.stem} {number}" for number in range(self.count)]


async def _until(holds: Callable[[], Any], *workers: _Worker) -> None:
    """Wait for it; the test's own limit ends it."""
    while not holds():
        for worker in workers:
            assert worker.running, worker.log_tail()
        await asyncio.sleep(0.2)


async def test_files_go_through_while_workers_are_killed(service_classes: str, tmp_path: Path) -> None:
    lines = [_Lines(tmp_path / f"{name}.txt") for name in ("first", "second")]
    out = tmp_path / "out.txt"

    with ProcessCluster(tmp_path, nodes=3, settings=_SETTINGS) as cluster:
        bootstrap = ",".join(cluster.bootstrap)
        workers = [_Worker(service_classes, bootstrap, tmp_path, name) for name in ("a", "b")]

        def written() -> list[str]:
            return out.read_text().splitlines() if out.exists() else []

        async def all_arrive(*running: _Worker) -> None:
            for source in lines:
                source.append(200)
            await _until(lambda: set(written()) >= set(itertools.chain(*(source.all for source in lines))), *running)

        async def status(worker: _Worker) -> dict[str, str]:
            """Connector or task -> the worker that runs it; empty if it is not all RUNNING."""
            placed: dict[str, str] = {}
            for name in connectors:
                told = await worker.ask("GET", f"/connectors/{name}/status")
                if told is None or len(told["tasks"]) != 1:
                    return {}
                for part, where in ((name, told["connector"]), (f"{name}-0", told["tasks"][0])):
                    assert where["state"] != "FAILED", where
                    if where["state"] != "RUNNING":
                        return {}
                    placed[part] = where["worker_id"]
            return placed

        async def placed(worker: _Worker, among: set[str]) -> dict[str, str]:
            """Where everything runs once it runs on these workers, and on all of them."""
            while set((found := await status(worker)).values()) != among:
                await asyncio.sleep(0.2)
            return found

        source_of = {"connector.class": f"{_FILE}.FileStreamSourceConnector", "tasks.max": 1, "topic": "lines"}
        exactly_once = {"exactly.once.support": "required", "transaction.boundary": "poll"}
        topic_of = {"topic.creation.default.replication.factor": -1, "topic.creation.default.partitions": 1}
        policy = {"topic.creation.default.cleanup.policy": "delete", "topic.creation.default.retention.ms": "7200000"}
        sink_of = {"connector.class": f"{_FILE}.FileStreamSinkConnector", "tasks.max": 1, "topics": "lines"}
        connectors: dict[str, dict[str, Any]] = {
            **{
                each.path.stem: {**source_of, **exactly_once, **topic_of, **policy, "file": str(each.path)}
                for each in lines
            },
            "sink": {**sink_of, "file": str(out), "consumer.override.auto.offset.reset": "earliest"},
        }
        try:
            for worker in workers:
                worker.launch()
            for worker in workers:
                while await worker.ask("GET", "/connectors") is None:
                    await asyncio.sleep(0.2)
            for name, config in connectors.items():
                while await workers[0].ask("PUT", f"/connectors/{name}/config", config) is None:
                    await asyncio.sleep(0.2)
            both = {worker.worker_id for worker in workers}
            before = await placed(workers[0], both)
            await all_arrive(*workers)

            # The worker of a source, with lines under way.
            victim = next(worker for worker in workers if worker.worker_id == before["first-0"])
            [survivor] = [worker for worker in workers if worker is not victim]
            for source in lines:
                source.append(2000)
            await asyncio.to_thread(victim.kill)
            await placed(survivor, {survivor.worker_id})
            await all_arrive(survivor)

            # It comes back and takes its part; then a broker goes.
            victim.launch()
            await placed(survivor, both)
            for source in lines:
                source.append(2000)
            await asyncio.to_thread(cluster.nodes[1].kill)
            await all_arrive(*workers)
            cluster.restart(1)
            await all_arrive(*workers)

            offsets = await survivor.ask("GET", "/connectors/first/offsets")
            assert await asyncio.to_thread(survivor.terminate, 60) == 143
            while not await status(victim):
                await asyncio.sleep(0.2)
            assert await victim.ask("GET", "/connectors/first/offsets") == offsets
            assert await asyncio.to_thread(victim.terminate, 60) == 143
        finally:
            for worker in workers:
                worker.kill()
        total = sum(each.count for each in lines)
        seen = await seen_by(tool_command(service_classes, "ReadLines", bootstrap, "lines", str(total)))

    # A sink of files may write a line again; the topic has each once and in order.
    expected = {each.path.stem: each.all for each in lines}
    assert {name: [line for line in seen["lines"] if line.startswith(name)] for name in expected} == expected
