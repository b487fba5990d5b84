"""The systems of bench.beside_kafka: three nodes each, their clients, and what is read from /proc."""

from __future__ import annotations

import contextlib
import os
import shutil
import subprocess
import tempfile
import time
from collections.abc import Callable
from pathlib import Path
from typing import Any

from bench import small_requests
from bench.beside import BesideClient, helper
from bench.creation import create, tree_cpu_seconds
from bench.peers import ROOT, KafkaSide, PeerLoad, Side, scratch_python
from kafkalite.protocol import wire
from kafkalite.testing.processes import Process

#: The cold records: 300 MB.
OLD_RECORDS, OLD_BYTES, OLD_PARTITIONS = 4_800, 64 * 1024, 6


class Load(PeerLoad):
    """bench/librdkafka_load.py, started again after a failure."""

    def __init__(self) -> None:
        super().__init__(scratch_python())

    def ask(self, name: str, *arguments: Any) -> Any:
        try:
            return super().ask(name, *arguments)
        except (RuntimeError, OSError):
            self.close()
            super().__init__(scratch_python())
            raise


class System:
    """Three nodes of one system, with what the rows need on them. `make`: a cluster of it in a directory, with `nodes` nodes."""

    def __init__(self, make: Callable[..., Side], directory: Path) -> None:
        self.make = make
        self.directory = directory
        self.side = make(directory)
        self.name = self.side.name
        self.load = Load()

    @property
    def bootstrap(self) -> str:
        return self.side.bootstrap

    @property
    def nodes(self) -> dict[int, Process]:
        return self.side.cluster.nodes

    def prepare(self) -> None:
        """Topics, cold records, and enough requests for a JVM to compile what is hot."""
        self.load.ask("create", self.bootstrap, "victim", 1, 3)
        self.load.ask("create", self.bootstrap, "old", OLD_PARTITIONS, 1)
        victim = helper(scratch_python())
        victim.ask("fill", self.bootstrap, "old", OLD_RECORDS, OLD_BYTES, OLD_PARTITIONS)
        victim.close()
        for factor in (3, 1):
            small_requests.measure(self.side, self.load, factor, 3_000, 5)
        create(self.bootstrap, 100, 100, 1, 3)

    def start_node(self, number: int) -> None:
        """A node that ended; ready when this returns."""
        if isinstance(self.side, KafkaSide):
            node = self.side.cluster.nodes[number]
            node.launch()
            node.wait_listening()  # type: ignore[attr-defined]
        else:
            self.side.cluster.restart(number)

    def revive(self) -> list[int]:
        """Start the nodes that ended though nobody asked them to; their numbers."""
        dead = [number for number, node in self.nodes.items() if not node.running]
        for number in dead:
            self.start_node(number)
        return dead

    def metadata(self, topic: str) -> Any:
        client = BesideClient(self.bootstrap.split(",", maxsplit=1)[0])
        answer = client.ask(
            wire.MetadataRequest(
                [wire.MetadataRequest.MetadataRequestTopic(name=topic)], allow_auto_topic_creation=False
            ),
            12,
        )
        client.close()
        return answer

    def address_of_leader(self, topic: str) -> str:
        answer = self.metadata(topic)
        addresses = {broker.node_id: f"{broker.host}:{broker.port}" for broker in answer.brokers}
        return addresses[answer.topics[0].partitions[0].leader_id]

    def wait_in_sync(self, topic: str, deadline_s: float = 90.0) -> None:
        """All replicas, also on a node that was just started."""
        until = time.monotonic() + deadline_s
        while time.monotonic() < until:
            with contextlib.suppress(OSError):
                if all(len(each.isr_nodes) == 3 for each in self.metadata(topic).topics[0].partitions):
                    return
            time.sleep(0.2)
        raise TimeoutError(f"{topic} is not in sync")

    def cpu_seconds(self) -> float:
        return sum(self.side.cpu_seconds())

    def peak_bytes(self) -> int:
        return max(node.peak_memory_bytes() for node in self.nodes.values())


def zookeeper_cpu(system: System) -> float:
    """Of our ZooKeeper, in seconds; Kafka's is part of its nodes."""
    keeper = getattr(system.side.cluster, "zookeeper", None)
    return 0.0 if keeper is None else tree_cpu_seconds(keeper.pid)


def pids(system: System) -> list[int]:
    return [node.pid for node in system.nodes.values()]


def waited_for_disk_ms(pid: int) -> float:
    """How long all threads of a process have waited for the disk; 0 without sysctl kernel.task_delayacct=1."""
    return sum(_delayed_ms(stat) for stat in Path(f"/proc/{pid}/task").glob("*/stat"))


def loop_waited_ms(pid: int) -> float:
    """The same for the first thread, which is the loop of a node of ours."""
    return _delayed_ms(Path(f"/proc/{pid}/task/{pid}/stat"))


def loop_queued_ms(pid: int) -> float:
    """How long the first thread was ready to run and had no processor."""
    return int(Path(f"/proc/{pid}/task/{pid}/schedstat").read_text().split()[1]) / 1e6


def _delayed_ms(stat: Path) -> float:
    try:
        fields = stat.read_text().rpartition(")")[2].split()
    except OSError:  # the thread has ended
        return 0.0
    return int(fields[39]) * 1000 / os.sysconf("SC_CLK_TCK")


def versions(kafka: str, trees: list[Path]) -> dict[str, str]:
    """What is compared, with what, on what."""
    librdkafka = "import confluent_kafka as c; print(c.version()[0], c.libversion()[0])"
    asked = {
        "confluent-kafka, librdkafka": [str(scratch_python()), "-c", librdkafka],
        "java": ["java", "--version"],
        "franz-go": ["go", "list", "-C", str(ROOT / "tests/interop/clients/go"), "-m", "github.com/twmb/franz-go"],
        "python": [str(ROOT / ".venv/bin/python") if (ROOT / ".venv").exists() else "python3", "--version"],
        "kernel": ["uname", "-r"],
        "processors": ["nproc"],
    }
    for tree in trees:
        asked[f"kafkalite {tree.name}"] = ["git", "-C", str(tree), "describe", "--always", "--dirty"]
    found = {"Apache Kafka": kafka or "none"}
    for name, command in asked.items():
        done = subprocess.run(command, check=False, capture_output=True, text=True)
        found[name] = (done.stdout or done.stderr).strip().split("\n", maxsplit=1)[0]
    found["free on the disk, GB"] = str(shutil.disk_usage(tempfile.gettempdir()).free >> 30)
    return found
