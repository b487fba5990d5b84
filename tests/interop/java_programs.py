"""Java programs beside a cluster of three nodes, which are killed while the programs run."""

from __future__ import annotations

import json
import subprocess
import time
from collections.abc import Callable, Iterator, Sequence
from contextlib import ExitStack
from pathlib import Path
from typing import Any, Self

from kafkalite.client.blocking import BlockingClient
from kafkalite.extension.messages.topics import NewTopic
from kafkalite.testing.apache_kafka import java
from kafkalite.testing.processes import DIE_WITH_PARENT, ProcessCluster
from tests.cluster.running import wait_until

SETTINGS = {
    "default.replication.factor": 3,
    "min.insync.replicas": 2,
    "offsets.topic.num.partitions": 5,
    "transaction.state.log.num.partitions": 5,
    "zookeeper.session.timeout.ms": 6000,
}
_NOTHING_MORE_MS = 20_000
_TOOLS = "org.apache.kafka.tools"


class JavaProgram:
    """A Java program whose output nobody reads while it runs: it goes to a file, and is continued if the program is started again.

    (`JavaProcess` prints one line when it is ready, into a pipe.)
    """

    def __init__(
        self, directory: Path, name: str, classes: str, main: str, *arguments: object, flags: Sequence[str] = ()
    ) -> None:
        self.name = name
        self._path = directory / f"{name}.out"
        command = [java(), "-Xmx512M", "-XX:TieredStopAtLevel=1", *flags, "-cp", classes, main, *map(str, arguments)]
        self._command = [*DIE_WITH_PARENT, *command]
        self.start()

    def start(self) -> None:
        with self._path.open("ab") as out, self._path.with_suffix(".err").open("ab") as err:
            self._process = subprocess.Popen(self._command, stdout=out, stderr=err)

    def __enter__(self) -> Self:
        return self

    def __exit__(self, *_: object) -> None:
        self.kill()

    def kill(self) -> None:
        self._process.kill()
        self._process.wait()

    @property
    def has_ended(self) -> bool:
        return self._process.poll() is not None

    def output(self) -> str:
        return self._path.read_text(errors="replace") + self._path.with_suffix(".err").read_text(errors="replace")

    def lines(self) -> list[str]:
        return self._path.read_text(errors="replace").splitlines()

    def events(self) -> Iterator[dict[str, Any]]:
        """Its lines of JSON; the last one may be cut off."""
        for line in self.lines():
            try:
                yield json.loads(line)
            except ValueError:
                continue

    def until(self, holds: Callable[[], object], what: str, seconds: float = 240) -> None:
        deadline = time.monotonic() + seconds
        while not holds():
            assert time.monotonic() < deadline, (
                f"{self.name}: not {what} within {seconds:.0f} s: {self.output()[-3000:]}"
            )
            time.sleep(0.2)

    def prints(self, text: str) -> None:
        self.until(lambda: text in self.output() or self.has_ended, f"printed {text!r}")
        assert text in self.output(), f"{self.name} ended: {self.output()[-3000:]}"


def create_topics(cluster: ProcessCluster, topics: dict[str, int]) -> None:
    with BlockingClient(cluster.bootstrap[0]) as client:
        client.create_topics([NewTopic(name, partitions, 3) for name, partitions in topics.items()])


def bounce(cluster: ProcessCluster, node: int) -> None:
    """kill -9; it is back when the cluster has missed it."""
    cluster.nodes[node].kill()
    other = next(number for number in cluster.nodes if number != node)
    with BlockingClient(cluster.bootstrap[list(cluster.nodes).index(other)]) as client:
        wait_until(lambda: len(client.metadata().brokers) == len(cluster.nodes) - 1, f"node {node} is missed")
    cluster.restart(node)


class ToolBox:
    """Kafka's tools and a cluster; what it starts ends with the stack."""

    def __init__(self, stack: ExitStack, directory: Path, classes: str) -> None:
        self._stack, self._directory, self._classes = stack, directory, classes
        self.cluster = stack.enter_context(ProcessCluster(directory / "cluster", nodes=3, settings=SETTINGS))
        self.bootstrap = ",".join(self.cluster.bootstrap)

    def tool(self, name: str, main: str, *arguments: object) -> JavaProgram:
        return self._stack.enter_context(
            JavaProgram(self._directory, name, self._classes, f"{_TOOLS}.{main}", *arguments)
        )

    def seed(self, topic: str, count: int) -> list[int]:
        """Write the numbers from 0; returns them as they were acknowledged."""
        settings = self._directory / "seed.properties"
        settings.write_text("enable.idempotence=true\nacks=all\nretries=1000000\n")
        tool = self.tool(
            "seed", "VerifiableProducer", "--bootstrap-server", self.bootstrap, "--topic", topic,
            "--max-messages", count, "--acks", -1, "--command-config", settings,
        )  # fmt: skip
        tool.until(lambda: tool.has_ended, "through")
        acked = [int(each["value"]) for each in tool.events() if each.get("name") == "producer_send_success"]
        assert len(acked) == count
        return acked

    def consumer(self, name: str, topic: str, protocol: str = "consumer", *, ends: bool = False) -> JavaProgram:
        """Prints what is committed. `ends`: when no record has come for a while, so that one too many is seen, too."""
        return self.tool(
            name, "consumer.ConsoleConsumer", "--bootstrap-server", self.bootstrap, "--topic", topic, "--from-beginning",
            "--group", name, "--isolation-level", "read_committed", "--command-property", f"group.protocol={protocol}",
            *(("--timeout-ms", _NOTHING_MORE_MS) if ends else ()),
        )  # fmt: skip
