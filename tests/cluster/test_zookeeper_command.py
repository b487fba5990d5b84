"""`kafkalite zookeeper`: serves until SIGTERM, keeps its data, leaves no server behind."""

from __future__ import annotations

import asyncio
import json
import os
import sys
from pathlib import Path

import pytest

from kafkalite.env.real import real_env
from tests.cluster.zookeeper_session import TIMEOUT_MS
from tests.zk import ZooKeeperForTests

pytestmark = [pytest.mark.zookeeper]


async def _cli(directory: Path, *arguments: str) -> asyncio.subprocess.Process:
    environment = {**os.environ, "PYTHONPATH": os.pathsep.join(sys.path)}
    return await asyncio.create_subprocess_exec(
        sys.executable, "-c", "from kafkalite_cli.zookeeper import zookeeper; zookeeper()",
        "--dir", str(directory), *arguments,
        stdout=asyncio.subprocess.PIPE, stderr=asyncio.subprocess.PIPE, env=environment,
    )  # fmt: skip


async def _until_refused(port: int) -> None:
    while True:
        try:
            _, writer = await asyncio.open_connection("127.0.0.1", port)
        except OSError:
            return
        writer.close()
        await asyncio.sleep(0.02)


async def test_the_command_serves_until_sigterm_and_keeps_its_data(tmp_path: Path) -> None:
    port = 0
    for round_number in range(2):
        process = await _cli(tmp_path / "zk", "--port", str(port))
        assert process.stdout is not None
        ready = json.loads(await process.stdout.readline())
        assert ready["event"] == "zookeeper.ready"
        assert ready["dir"] == str(tmp_path / "zk")
        port = ready["port"]
        zk = await real_env().connect_coordinator(f"127.0.0.1:{port}", TIMEOUT_MS)
        if round_number == 0:
            await zk.create("/kept", b"x")
        assert (await zk.get("/kept"))[0] == b"x"
        await zk.close()
        process.terminate()
        assert await process.wait() == 0
        await _until_refused(port)


async def test_no_server_outlives_a_killed_command(tmp_path: Path) -> None:
    process = await _cli(tmp_path / "zk", "--port", "0")
    assert process.stdout is not None
    port = json.loads(await process.stdout.readline())["port"]
    process.kill()
    await process.wait()
    await _until_refused(port)


async def test_a_port_in_use_is_refused_in_one_line(tmp_path: Path, zookeeper: ZooKeeperForTests) -> None:
    process = await _cli(tmp_path / "zk", "--port", str(zookeeper.port))
    _, told = await process.communicate()
    assert process.returncode == 1
    assert told.decode().strip() == f"kafkalite zookeeper: port {zookeeper.port} on 127.0.0.1 is in use"
