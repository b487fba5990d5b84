"""Foreign clients, installed from their registries into a directory of their own, once per machine and version.

Tests that need more than Python take part where the machine has what they need; those that fetch a lot (Kafka's jars,
Go modules) only in `make interop`, which sets KAFKALITE_INTEROP.
"""

from __future__ import annotations

import asyncio
import contextlib
import hashlib
import json
import os
import shutil
import subprocess
import sys
from collections.abc import AsyncIterator
from pathlib import Path
from typing import Any

import pytest

from kafkalite.testing.apache_kafka import (
    class_path,
    flink_class_path,
    mirror_class_path,
    newest_client_class_path,
    services_class_path,
    spring_class_path,
    streams_tests_class_path,
    tools_class_path,
)
from kafkalite.testing.maven import only_one_fills
from kafkalite.testing.processes import ProcessCluster
from tests.support.loopback_cluster import LoopbackCluster

_HERE = Path(__file__).parent
CLUSTER_SETTINGS = {
    "group.initial.rebalance.delay.ms": 100,
    "group.min.session.timeout.ms": 1000,
    "offsets.topic.num.partitions": 3,
    "transaction.state.log.num.partitions": 3,
    "default.replication.factor": 3,
    "num.partitions": 3,
    "controlled.shutdown.enable": False,  # nothing is left to move to
}
_CLIENT_DEADLINE_S = 150


def python_of(version: str) -> str | None:
    """An interpreter of that version, in PATH or of pyenv; a wheel of years ago fits no newer one."""
    name = f"python{version}"
    found = [str(path) for path in sorted(Path.home().glob(f".pyenv/versions/{version}.*/bin/{name}"))]
    # pyenv puts commands into PATH that only say that the version is not chosen.
    candidates = [each for each in (shutil.which(name), *found) if each]
    return next(
        (each for each in candidates if not subprocess.run([each, "-c", ""], capture_output=True).returncode), None
    )


_IS_WHOLE_MATRIX = bool(os.environ.get("KAFKALITE_INTEROP"))
_HAS_JAVA = _IS_WHOLE_MATRIX and shutil.which("java") is not None and shutil.which("mvn") is not None
#: File of tests -> whether this run can and should have it.
_HAS = {
    "test_java.py": _IS_WHOLE_MATRIX
    and shutil.which("java") is not None
    and (shutil.which("mvn") is not None or "KAFKALITE_KAFKA_CLASSPATH" in os.environ),
    "test_attacks.py": _IS_WHOLE_MATRIX,
    "test_backup.py": _IS_WHOLE_MATRIX,
    "test_tokens.py": _IS_WHOLE_MATRIX,
    "test_apache_kafka.py": _HAS_JAVA,
    "test_init_producer_id.py": _HAS_JAVA,
    "test_same_answers.py": _HAS_JAVA,
    "test_same_nodes.py": _HAS_JAVA,
    "test_same_rights.py": _HAS_JAVA,
    "test_admin_answers.py": _HAS_JAVA and shutil.which("javac") is not None,
    "test_streams.py": _HAS_JAVA and shutil.which("javac") is not None,
    "test_streams_groups.py": _HAS_JAVA and shutil.which("javac") is not None,
    "test_kafka_system_tests.py": _HAS_JAVA,
    "test_flink.py": _HAS_JAVA and shutil.which("javac") is not None,
    "test_spring.py": _HAS_JAVA and shutil.which("javac") is not None,
    "test_connect.py": _HAS_JAVA and shutil.which("javac") is not None,
    "test_mirror.py": _HAS_JAVA and shutil.which("javac") is not None,
    "test_moving.py": _HAS_JAVA and shutil.which("javac") is not None,
    "test_kafka_tools.py": _HAS_JAVA and shutil.which("javac") is not None,
    "test_mixed_versions.py": _HAS_JAVA and shutil.which("javac") is not None,
    "test_old_clients.py": _HAS_JAVA and shutil.which("javac") is not None and python_of("3.10") is not None,
    "test_rates.py": _HAS_JAVA,
    "test_delegation_tokens.py": _HAS_JAVA and shutil.which("javac") is not None,
    "test_java_tokens.py": _HAS_JAVA and shutil.which("javac") is not None,
    "test_java_groups.py": _HAS_JAVA and shutil.which("javac") is not None,
    "test_java_share_admin.py": _HAS_JAVA and shutil.which("javac") is not None,
    "test_go.py": _IS_WHOLE_MATRIX and shutil.which("go") is not None,
    "test_kio.py": _IS_WHOLE_MATRIX,
    "test_kafka_python_suite.py": _IS_WHOLE_MATRIX,
}
collect_ignore = [name for name, is_there in _HAS.items() if not is_there]


def pytest_report_header() -> str:
    return f"interop without: {', '.join(collect_ignore) or 'nothing left out'}"


def _base() -> Path:
    return Path(os.environ.get("KAFKALITE_INTEROP_DIR", Path(__file__).parents[2] / ".interop"))


def scratch(name: str, *files: Path) -> Path:
    """A directory that belongs to this content of the requirement files."""
    digest = hashlib.sha256(b"".join(file.read_bytes() for file in files)).hexdigest()[:12]
    return _base() / f"{name}-{digest}-py{sys.version_info[0]}{sys.version_info[1]}"


def install(directory: Path, *commands: list[str]) -> None:
    """Run the commands in `directory` unless that was done once; one worker at a time, the others wait and find it there."""
    with only_one_fills(directory):
        if (directory / ".complete").exists():
            return
        shutil.rmtree(directory, ignore_errors=True)
        directory.mkdir(parents=True)
        for command in commands:
            done = subprocess.run(command, cwd=directory, capture_output=True, text=True, timeout=1500)
            assert done.returncode == 0, f"{command}: {(done.stdout + done.stderr)[-3000:]}"
        (directory / ".complete").touch()


def python_with(name: str, requirements: Path, interpreter: str = sys.executable) -> Path:
    """The interpreter of a virtual environment with these packages."""
    directory = scratch(name, requirements)
    python = directory / "venv" / "bin" / "python"
    install(
        directory,
        [interpreter, "-m", "venv", "venv"],
        [str(python), "-m", "pip", "install", "-q", "-r", str(requirements)],
    )
    return python


def compiled(name: str, jars: str, *sources: Path) -> str:
    """The class path of Java programs (default: those in clients/NAME), which are compiled against `jars`, and of `jars`."""
    sources = sources or tuple(sorted((_HERE / "clients" / name).glob("*.java")))
    directory = scratch(name, *sources)
    install(directory, ["javac", "-nowarn", "-cp", jars, "-d", str(directory), *map(str, sources)])
    return f"{directory}{os.pathsep}{jars}"


@pytest.fixture(scope="session")
def python_clients() -> Path:
    """The interpreter of a virtual environment with the Python clients."""
    return python_with("python", _HERE / "requirements.txt")


@pytest.fixture(scope="session")
def node_clients() -> Path:
    """A directory with node_modules."""
    package = _HERE / "package.json"
    directory = scratch("node", package)
    install(directory, ["cp", str(package), "."], ["npm", "install", "--silent", "--no-audit", "--no-fund"])
    return directory


@pytest.fixture(scope="session")
def kafka_classes() -> str:
    """The class path of Apache Kafka's tools."""
    return class_path(_base())


@pytest.fixture(scope="session")
def service_classes() -> str:
    """The class path of Kafka Streams, Connect, and of our own programs in clients/java."""
    return compiled("java", services_class_path(_base()))


@pytest.fixture(scope="session")
def newest_classes() -> str:
    """The class path of the newest Java client, and of our programs in clients/java-newest."""
    return compiled("java-newest", newest_client_class_path(_base()))


@pytest.fixture(scope="session")
def mirror_classes() -> str:
    """The class path of MirrorMaker, with what clients/java-mirror has for it."""
    return compiled("java-mirror", mirror_class_path(_base()))


@pytest.fixture(scope="session")
def flink_classes() -> str:
    """The class path of Apache Flink, and of our job in clients/java-flink."""
    return compiled("java-flink", flink_class_path(_base()))


@pytest.fixture(scope="session")
def spring_classes() -> str:
    """The class path of Spring Kafka, and of our program in clients/java-spring."""
    return compiled("java-spring", spring_class_path(_base()))


@pytest.fixture(scope="session")
def system_test_classes() -> tuple[str, str]:
    """The class paths of Kafka's tools, and of the programs of its system tests of Streams."""
    return tools_class_path(_base()), streams_tests_class_path(_base())


@pytest.fixture
async def cluster(tmp_path: Path) -> AsyncIterator[LoopbackCluster]:
    async with LoopbackCluster(tmp_path, nodes=3, settings=CLUSTER_SETTINGS) as running:
        yield running
    assert not running.failures


@contextlib.asynccontextmanager
async def chaos_client(python: Path, cluster: ProcessCluster) -> AsyncIterator[dict[str, Any]]:
    """clients/confluent_chaos.py produces while the block runs; what it has seen is in the dictionary afterwards."""
    client = await asyncio.create_subprocess_exec(
        str(python),
        str(_HERE / "clients" / "confluent_chaos.py"),
        ",".join(cluster.bootstrap),
        stdin=asyncio.subprocess.PIPE,
        stdout=asyncio.subprocess.PIPE,
    )
    assert client.stdin is not None and client.stdout is not None
    seen: dict[str, Any] = {}
    try:
        assert await client.stdout.readline() == b"producing\n"
        yield seen
        client.stdin.close()
        seen |= json.loads((await client.stdout.read()).splitlines()[-1])
    finally:
        if client.returncode is None:
            client.kill()
        await client.wait()


async def run_client(command: list[str], *, stdin: bytes = b"", **environment: str) -> bytes:
    """Run a foreign client beside the cluster (which lives in this process); its stdout."""
    process = await asyncio.create_subprocess_exec(
        *command,
        stdin=asyncio.subprocess.PIPE,
        stdout=asyncio.subprocess.PIPE,
        stderr=asyncio.subprocess.PIPE,
        env=os.environ | environment,
    )
    try:
        async with asyncio.timeout(_CLIENT_DEADLINE_S):
            out, err = await process.communicate(stdin)
    finally:
        if process.returncode is None:
            process.kill()
            await process.wait()
    assert process.returncode == 0, err.decode(errors="replace")[-3000:]
    return out


async def seen_by(command: list[str], **environment: str) -> dict[str, Any]:
    """What a client script says it saw: the JSON on its last line."""
    out = await run_client(command, stdin=b"", **environment)
    seen: dict[str, Any] = json.loads(out.splitlines()[-1])
    return seen
