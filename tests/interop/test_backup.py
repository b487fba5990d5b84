"""`kafkalite admin backup`: what confluent-kafka wrote is copied, put back, and read by confluent-kafka; both verbs are killed in between."""

from __future__ import annotations

import asyncio
import json
import os
import signal
import sys
from pathlib import Path
from typing import Any

import pytest

from tests.support.loopback_cluster import LoopbackCluster

from .conftest import CLUSTER_SETTINGS, run_client, seen_by

pytestmark = [pytest.mark.cluster]

ROOT = Path(__file__).parents[2]
CLIENT = Path(__file__).parent / "clients" / "backup_client.py"
ENVIRONMENT = {"PYTHONPATH": f"{ROOT}:{ROOT / 'cli'}"}
#: One node each: what is tested is the copy, not replication.
SETTINGS = CLUSTER_SETTINGS | {"default.replication.factor": 1, "offsets.topic.replication.factor": 1}


async def backup(*arguments: str) -> Any:
    """Run a verb to its end; its JSON."""
    command = [sys.executable, "-m", "kafkalite_cli", "admin", "backup", *arguments, "--json"]
    return json.loads(await run_client(command, stdin=b"", **ENVIRONMENT))


async def stopped_after(what: Path, number: int, *arguments: str) -> None:
    """Run a verb until the directory has `what`, and send it a signal. Its rate is limited, so that it cannot end before."""
    process = await asyncio.create_subprocess_exec(
        sys.executable, "-m", "kafkalite_cli", "admin", "backup", *arguments,
        stdout=asyncio.subprocess.DEVNULL, stderr=asyncio.subprocess.PIPE, env=os.environ | ENVIRONMENT,
    )  # fmt: skip
    while process.returncode is None and not os.path.exists(what):  # noqa: ASYNC240 - a look, on a disk of our own
        await asyncio.sleep(0.02)
    process.send_signal(number)
    _, err = await process.communicate()
    if number == signal.SIGINT:
        assert (process.returncode, b"run the same command again" in err) == (130, True), err
    else:
        assert process.returncode == -number, err


async def test_a_backup_and_its_restore(tmp_path: Path, python_clients: Path) -> None:
    directory = tmp_path / "backup"
    async with (
        LoopbackCluster(tmp_path / "one", settings=SETTINGS) as source,
        LoopbackCluster(tmp_path / "two", settings=SETTINGS) as target,
    ):
        await run_client([str(python_clients), str(CLIENT), "write", source.bootstrap])
        before = await seen_by([str(python_clients), str(CLIENT), "read", source.bootstrap, ""])
        slow = ("create", str(directory), "--bootstrap", source.bootstrap, "--parallel", "1", "--limit")
        journal = directory / "topics" / "plain" / "0" / "files.jsonl"
        await stopped_after(journal, signal.SIGINT, *slow, "10k")
        copied = await backup(*slow, "100MB")
        assert {each["topic"]: each["records"] for each in copied["topics"]} == {
            "compacted": 2000, "plain": 1983, "stamped": 2000, "transactions": 60,
        }  # fmt: skip
        assert (copied["groups"], copied["notes"]) == (2, [])
        assert await backup("verify", str(directory)) == copied
        state = tmp_path / "state.json"
        restore = ("restore", str(directory), "--bootstrap", target.bootstrap, "--state", str(state), "--limit")
        await stopped_after(state, signal.SIGKILL, *restore, "200k")
        restored = await backup(*restore, "100MB")
        assert (restored["records"], restored["groups"], state.exists()) == (6043, 2, False)
        assert await seen_by([str(python_clients), str(CLIENT), "read", target.bootstrap, ""]) == before
        # The same cluster: beside what is there, and instead of it.
        again = await backup(
            "restore", str(directory), "--bootstrap", source.bootstrap, "--prefix", "x.", "--no-groups"
        )
        assert again["records"] == 6043
        await backup("restore", str(directory), "--bootstrap", source.bootstrap, "--replace", "--yes")
        assert await seen_by([str(python_clients), str(CLIENT), "read", source.bootstrap, ""]) == before
    assert not source.failures + target.failures
