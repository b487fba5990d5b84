"""Foreign clients, installed from their registries into a directory of their own, once per machine and version."""

from __future__ import annotations

import asyncio
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

from kafkalite.testing.loopback_cluster import LoopbackCluster

_HERE = Path(__file__).parent
_SETTINGS = {
    "group.initial.rebalance.delay.ms": 100,
    "group.min.session.timeout.ms": 1000,
    "offsets.topic.num.partitions": 3,
    "transaction.state.log.num.partitions": 3,
    "default.replication.factor": 3,
    "num.partitions": 3,
    "controlled.shutdown.enable": False,  # nothing is left to move to
}
_CLIENT_DEADLINE_S = 150


def _scratch(name: str, *files: Path) -> Path:
    """A directory that belongs to this content of the requirement files."""
    digest = hashlib.sha256(b"".join(file.read_bytes() for file in files)).hexdigest()[:12]
    base = Path(os.environ.get("KAFKALITE_INTEROP_DIR", Path(__file__).parents[2] / ".interop"))
    return base / f"{name}-{digest}-py{sys.version_info[0]}{sys.version_info[1]}"


def _install(directory: Path, *commands: list[str]) -> None:
    if (directory / ".complete").exists():
        return
    shutil.rmtree(directory, ignore_errors=True)
    directory.mkdir(parents=True)
    for command in commands:
        subprocess.run(command, cwd=directory, check=True, stdout=subprocess.DEVNULL, timeout=280)
    (directory / ".complete").touch()


@pytest.fixture(scope="session")
def python_clients() -> Path:
    """The interpreter of a virtual environment with the Python clients."""
    requirements = _HERE / "requirements.txt"
    directory = _scratch("python", requirements)
    python = directory / "venv" / "bin" / "python"
    _install(
        directory,
        [sys.executable, "-m", "venv", "venv"],
        [str(python), "-m", "pip", "install", "-q", "-r", str(requirements)],
    )
    return python


@pytest.fixture(scope="session")
def node_clients() -> Path:
    """A directory with node_modules."""
    package = _HERE / "package.json"
    directory = _scratch("node", package)
    if not (directory / ".complete").exists():
        directory.mkdir(parents=True, exist_ok=True)
    _install(directory, ["cp", str(package), "."], ["npm", "install", "--silent", "--no-audit", "--no-fund"])
    return directory


@pytest.fixture
async def cluster(tmp_path: Path) -> AsyncIterator[LoopbackCluster]:
    async with LoopbackCluster(tmp_path, nodes=3, settings=_SETTINGS) as running:
        yield running
    assert not running.failures


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
    out = await run_client(command, **environment)
    seen: dict[str, Any] = json.loads(out.splitlines()[-1])
    return seen
