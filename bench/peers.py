"""Systems side by side, and the processes that put a load on them: librdkafka, in an interpreter of its own."""

from __future__ import annotations

import json
import subprocess
import sys
from collections.abc import Mapping
from pathlib import Path
from typing import Any

from kafkalite.testing.apache_kafka import KafkaCluster, server_class_path
from kafkalite.testing.processes import DIE_WITH_PARENT, ProcessCluster

ROOT = Path(__file__).resolve().parents[1]
CACHE = ROOT / ".interop"


class PeerLoad:
    """A process with librdkafka: a script of bench/ that answers each line in JSON with one. `niceness` is added to ours."""

    def __init__(self, python: Path, script: str = "librdkafka_load.py", *arguments: object, niceness: int = 0) -> None:
        self._asked = ""
        command = [*DIE_WITH_PARENT, "nice", f"-n{niceness}", str(python), str(ROOT / "bench" / script)]
        command += map(str, arguments)
        self._process = subprocess.Popen(command, stdin=subprocess.PIPE, stdout=subprocess.PIPE, text=True)

    def send(self, name: str, *arguments: Any) -> None:
        assert self._process.stdin is not None
        self._asked = f"{name} {arguments}"
        self._process.stdin.write(json.dumps([name, *arguments]) + "\n")
        self._process.stdin.flush()

    def answer(self) -> Any:
        assert self._process.stdout is not None
        line = self._process.stdout.readline()
        if not line:
            raise RuntimeError(f"the load generator failed; see its traceback above. It was asked {self._asked}")
        return json.loads(line)

    def ask(self, name: str, *arguments: Any) -> Any:
        self.send(name, *arguments)
        return self.answer()

    def close(self) -> None:
        self._process.kill()
        self._process.wait()
        for pipe in (self._process.stdin, self._process.stdout):
            if pipe is not None:
                pipe.close()


def scratch_python() -> Path:
    """An interpreter with confluent-kafka, made once."""
    requirements = (ROOT / "tests" / "interop" / "requirements.txt").read_text().splitlines()
    [wanted] = [line for line in requirements if line.startswith("confluent-kafka==")]
    directory = CACHE / f"bench-{wanted.replace('==', '-')}-py{sys.version_info[0]}{sys.version_info[1]}"
    python = directory / "bin" / "python"
    if not (directory / ".complete").exists():
        subprocess.run([sys.executable, "-m", "venv", str(directory)], check=True)
        subprocess.run([str(python), "-m", "pip", "install", "-q", wanted], check=True)
        (directory / ".complete").touch()
    return python


def tree_bytes(pid: int) -> int:
    """Resident memory of a process and all below it (`kafkalite zookeeper` holds a JVM)."""
    total = 0
    for line in Path(f"/proc/{pid}/status").read_text().splitlines():
        if line.startswith("VmRSS:"):
            total += int(line.split()[1]) * 1024
    for children in Path(f"/proc/{pid}/task").glob("*/children"):
        total += sum(tree_bytes(int(child)) for child in children.read_text().split())
    return total


class Side:
    """Nodes that run one checkout's code, with this interpreter or another one."""

    def __init__(
        self,
        directory: Path,
        tree: Path = ROOT,
        python: Path | None = None,
        *,
        nodes: int = 3,
        settings: Mapping[str, object] | None = None,
    ) -> None:
        self.name = python.name if python is not None else "kafkalite" if tree == ROOT else tree.name
        self.cluster = ProcessCluster(directory, nodes=nodes, settings=settings)
        numbers = range(1, nodes + 1)
        self.cluster.trees.update(dict.fromkeys(numbers, tree))
        if python is not None:
            self.cluster.pythons.update(dict.fromkeys(numbers, python))

    @property
    def bootstrap(self) -> str:
        return ",".join(self.cluster.bootstrap)

    def cpu_seconds(self) -> list[float]:
        return [node.cpu_seconds() for node in self.cluster.nodes.values()]


class KafkaSide(Side):
    """Nodes of Apache Kafka, KRaft."""

    def __init__(
        self, directory: Path, version: str, *, nodes: int = 3, settings: Mapping[str, object] | None = None
    ) -> None:
        self.name = f"Apache Kafka {version}"
        classes = server_class_path(CACHE, version)
        self.cluster = KafkaCluster(directory, classes, nodes=nodes, settings=settings)  # type: ignore[assignment]

    @property
    def bootstrap(self) -> str:
        return str(self.cluster.bootstrap)
