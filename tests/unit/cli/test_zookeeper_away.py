"""Every verb that needs ZooKeeper, while ZooKeeper does not answer: its error says so."""

from __future__ import annotations

import asyncio
from pathlib import Path

import pytest

from kafkalite.client.async_client import AsyncClient
from kafkalite.extension.messages.topics import NewTopic
from kafkalite.extension.messages.watching import HealthResponse
from kafkalite.testing.cluster import cluster
from kafkalite_cli.main import run

#: Verbs of `admin`; one for each request that they send first.
_ORDERS = (
    "add-partitions t --total 5",
    "backup create {tmp}/backup --topic t",
    "broker cordon 1",
    "config get --topic t",
    "config set --cluster log.retention.ms=1000000",
    "create-topic more",
    "elect --preferred t-0",
    "groups describe g",
    "quotas set --user u producer_byte_rate=1000",
    "reassign plan --brokers 1",
    "reassign status",
    "users list",
)


async def test_every_error_names_zookeeper(tmp_path: Path, capsys: pytest.CaptureFixture[str]) -> None:
    """Most said only that a request was not answered within the command's own time, which ends before that of the broker."""
    wrong = []
    async with cluster(1) as on:
        async with AsyncClient.connect(on.bootstrap) as client:
            await client.create_topics([NewTopic("t", 1, 1)])
            on.zookeeper.stop()

            async def is_away() -> bool:
                (answer,) = (await client.health()).values()
                return isinstance(answer, HealthResponse) and bool(answer.problems)

            while not await is_away():
                await asyncio.sleep(0.05)
        for order in _ORDERS:
            words = order.format(tmp=tmp_path).split()
            code = await asyncio.to_thread(run, ["admin", *words, "--timeout", "2", "--bootstrap", *on.bootstrap])
            said = capsys.readouterr().err
            if code != 1 or "has not answered for" not in said or said.count("\n") != 1:
                wrong.append((order, code, said))
        on.zookeeper.start()
    assert not wrong, "\n".join(map(str, wrong))
