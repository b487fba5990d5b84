"""What the tests on real processes share: waiting for conditions, numbered records, another client's eyes."""

from __future__ import annotations

import asyncio
import contextlib
import json
import time
from collections.abc import Callable, Iterator, Mapping
from functools import partial
from pathlib import Path
from types import TracebackType
from typing import Any, Self

from kazoo.client import KazooClient
from kazoo.exceptions import NoNodeError

from kafkalite.client.async_client import AsyncClient
from kafkalite.client.producer import Producer, RecordMetadata
from kafkalite.errors import KafkaliteError
from kafkalite.extension.messages.topics import DescribeReplicasResponse, NewTopic, ReplicaDescription
from kafkalite.testing.cluster_state import wait_in_sync
from kafkalite.testing.numbered_records import read_all
from kafkalite.testing.processes import ProcessCluster, kazoo_client

#: A guard against hanging. No test expects anything to happen sooner than this.
PATIENCE_S = 90.0
#: A session short enough for many failovers, long enough for a busy machine.
QUICK = {
    "zookeeper.session.timeout.ms": 3_000,
    "replica.lag.time.max.ms": 5_000,
    "controlled.shutdown.max.wait.ms": 5_000,
    "http.port": -1,
}


def wait_until(condition: Callable[[], Any], what: str) -> Any:
    """The first true value of `condition`, asked again and again."""
    until = time.monotonic() + PATIENCE_S
    while not (value := condition()):
        assert time.monotonic() < until, f"waited in vain: {what}"
        time.sleep(0.02)
    return value


def is_alive(pid: int) -> bool:
    """Whether the process runs (a zombie does not)."""
    try:
        return Path(f"/proc/{pid}/stat").read_text().rsplit(")", 1)[1].split()[0] != "Z"
    except OSError:
        return False


def marked_processes(mark: str) -> list[int]:
    """Processes with this text in their environment, children of children included."""
    found = []
    for entry in Path("/proc").iterdir():
        if entry.name.isdigit():
            with contextlib.suppress(OSError):
                if mark.encode() in (entry / "environ").read_bytes() and is_alive(int(entry.name)):
                    found.append(int(entry.name))
    return found


class Eye:
    """ZooKeeper as another client library sees it."""

    def __init__(self, client: KazooClient) -> None:
        self.client = client

    def text(self, path: str) -> str | None:
        try:
            return str(self.client.get(path)[0].decode())
        except NoNodeError:
            return None

    def json(self, path: str) -> Any:
        """None if there is no such znode."""
        text = self.text(path)
        return None if text is None else json.loads(text)

    def stat(self, path: str) -> Any:
        return self.client.exists(path)

    def controller(self) -> int:
        """-1 while there is none."""
        found = self.json("/controller")
        return -1 if found is None else int(found["brokerid"])

    def state(self, topic: str, partition: int = 0) -> Any:
        return self.json(f"/brokers/topics/{topic}/partitions/{partition}/state")


@contextlib.contextmanager
def eye(connect: str) -> Iterator[Eye]:
    with kazoo_client(connect) as client:
        yield Eye(client)


async def create_topic(
    cluster: ProcessCluster,
    name: str,
    *,
    assignment: Mapping[int, tuple[int, ...]] | None = None,
    partitions: int = 3,
    replicas: int = 3,
    **configs: str,
) -> None:
    """Create it and wait until every replica is in sync. In `configs` dots are underscores."""
    settings = {key.replace("_", "."): value for key, value in configs.items()}
    if assignment is not None:
        topic = NewTopic(name, assignment=dict(assignment), configs=settings)  # type: ignore[arg-type]
        replicas = len(next(iter(assignment.values())))
    else:
        topic = NewTopic(name, partitions, replicas, configs=settings)
    async with AsyncClient.connect(cluster.bootstrap) as client:
        (result,) = await client.create_topics([topic])
        assert result.error == 0, result
    await wait_in_sync(cluster, name, replicas)


async def replicas_of(client: AsyncClient, topic: str) -> dict[tuple[int, int], ReplicaDescription]:
    """(broker, partition) -> what that broker says of its replica; brokers that do not answer are left out."""
    answers = await client.describe_replicas([topic], timeout_s=10)
    return {
        (node, replica.partition): replica
        for node, answer in answers.items()
        if isinstance(answer, DescribeReplicasResponse)
        for replica in answer.replicas
    }


class Load:
    """Numbered records, `rate` a second, as long as the block lasts; each has its answer at its end."""

    def __init__(
        self,
        cluster: ProcessCluster,
        topic: str,
        *,
        acks: str | int = "all",
        rate: int = 500,
    ) -> None:
        self.cluster = cluster
        self.topic = topic
        #: number -> (partition, offset)
        self.acked: dict[int, tuple[int, int]] = {}
        self.failed: dict[int, BaseException | None] = {}
        self.sent = 0
        self._acks = acks
        self._rate = rate
        self._stop = asyncio.Event()
        self._task: asyncio.Task[None] | None = None

    async def __aenter__(self) -> Self:
        self._task = asyncio.create_task(self._run())
        return self

    async def __aexit__(
        self, kind: type[BaseException] | None, error: BaseException | None, trace: TracebackType | None
    ) -> None:
        self._stop.set()
        assert self._task is not None
        if error is not None:
            self._task.cancel()
            await asyncio.wait([self._task])
        else:
            await self._task

    async def _run(self) -> None:
        async with AsyncClient.connect(self.cluster.bootstrap) as client:
            producer = Producer(client, acks=self._acks, retries=None if self._acks == "all" else 100)
            while not self._stop.is_set():
                for _ in range(max(1, self._rate // 100)):
                    key = b"key-%d" % (self.sent % 97)
                    future = await producer.send(self.topic, key, b"%d" % self.sent)
                    future.add_done_callback(partial(self._done, self.sent))
                    self.sent += 1
                await asyncio.sleep(0.01)
            await producer.flush()
            await asyncio.sleep(0)
            await producer.close()

    def _done(self, number: int, future: asyncio.Future[RecordMetadata]) -> None:
        error = None if future.cancelled() else future.exception()
        if future.cancelled() or error is not None:
            self.failed[number] = error
        else:
            metadata = future.result()
            self.acked[number] = (metadata.partition, metadata.offset)

    async def more(self, count: int = 200) -> None:
        """Wait until so many more records are acknowledged."""
        goal = len(self.acked) + count
        async with asyncio.timeout(PATIENCE_S):
            while len(self.acked) < goal:
                assert self._task is not None
                if self._task.done():
                    self._task.result()
                await asyncio.sleep(0.01)

    async def read_back(self) -> dict[int, list[tuple[int, int]]]:
        """number -> where it was found."""
        found: dict[int, list[tuple[int, int]]] = {}
        async for tp, offset, _, value in read_all(self.cluster, self.topic):
            found.setdefault(int(value or b"-1"), []).append((tp.partition, offset))
        return found

    async def check_exactly_once(self) -> None:
        """Every acknowledged record stands where it was acknowledged and nowhere else; nothing failed; order is kept."""
        assert not self.failed, dict(list(self.failed.items())[:5])
        found = await self.read_back()
        wrong = {n: (where, found.get(n)) for n, where in self.acked.items() if found.get(n) != [where]}
        assert not wrong, dict(list(wrong.items())[:5])
        assert len(found) == self.sent
        for partition in {where[0] for where in self.acked.values()}:
            offsets = [(where[1], n) for n, where in self.acked.items() if where[0] == partition]
            numbers = [n for _, n in sorted(offsets)]
            assert numbers == sorted(numbers), f"partition {partition} is out of order"


async def settled(cluster: ProcessCluster) -> None:
    """Start what does not run, and wait until a controller holds office and all nodes know each other."""
    for broker_id, node in cluster.nodes.items():
        if not node.running:
            await asyncio.to_thread(cluster.restart, broker_id)
    async with asyncio.timeout(PATIENCE_S), AsyncClient.connect(cluster.bootstrap) as client:
        while True:
            with contextlib.suppress(KafkaliteError, OSError):
                told = await client.describe_cluster(timeout_s=10)
                if told.controller_id in cluster.nodes and len(told.brokers) == len(cluster.nodes):
                    answers = await client.health(timeout_s=10)
                    if len(answers) == len(cluster.nodes) and not any(
                        isinstance(answer, KafkaliteError) or answer.problems for answer in answers.values()
                    ):
                        return
            await asyncio.sleep(0.05)
