"""A copy of a real node's directories that was made while it was stopped, or ran, is put back later (ADR 16)."""

from __future__ import annotations

import asyncio
import shutil
from pathlib import Path

import pytest

from kafkalite.client.async_client import AsyncClient
from kafkalite.extension.messages.topics import NewTopic
from kafkalite.testing.cluster_state import wait_in_sync
from kafkalite.testing.processes import ProcessCluster
from tests.support.numbers import read_numbers, write_numbers

pytestmark = [pytest.mark.cluster, pytest.mark.zookeeper]

SETTINGS = {"zookeeper.session.timeout.ms": 6_000, "min.insync.replicas": 2, "http.port": -1}


@pytest.mark.checklist("F14")
@pytest.mark.parametrize("was_running", [False, True])
async def test_the_last_one_in_sync_does_not_lead_with_an_old_copy(tmp_path: Path, *, was_running: bool) -> None:
    """It did, and the eligible replica cut what had been acknowledged since the copy was made: while it was stopped before its last start, or while
    it ran before its last stop."""
    with ProcessCluster(tmp_path, nodes=3, settings=SETTINGS) as cluster:
        async with AsyncClient.connect(cluster.bootstrap) as client:
            await client.create_topics([NewTopic("t", 1, 3)])
            await write_numbers(client, 0, 50)
            if not was_running:
                assert cluster.nodes[1].terminate() == 0
            shutil.copytree(tmp_path / "node-1", tmp_path / "copy")
            if not was_running:
                cluster.restart(1)
            await wait_in_sync(cluster, "t", 3)
            await write_numbers(client, 50, 50)
            cluster.nodes[2].kill()
            await write_numbers(client, 100, 50)
        cluster.nodes[3].kill()
        async with AsyncClient.connect([cluster.kafka(1)]) as client, asyncio.timeout(60):
            while (await client.metadata(["t"])).topics[0].partitions[0].isr != (1,):
                await asyncio.sleep(0.1)
        if was_running:
            assert cluster.nodes[1].terminate() == 0
        else:
            cluster.nodes[1].kill()
        shutil.rmtree(tmp_path / "node-1")
        (tmp_path / "copy").rename(tmp_path / "node-1")
        for node in (1, 3, 2):
            cluster.restart(node)
        async with AsyncClient.connect(cluster.bootstrap) as client:
            await wait_in_sync(cluster, "t", 3)
            assert await read_numbers(client, 150) == list(range(150))
