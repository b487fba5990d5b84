"""Real processes: what led to a state is told after every node was killed and started again."""

from __future__ import annotations

import asyncio
import json
from pathlib import Path
from typing import Any

import pytest

from kafkalite.client.async_client import AsyncClient
from kafkalite.extension.messages.topics import NewTopic
from kafkalite.model import BrokerId
from kafkalite.testing.cluster_state import wait_in_sync
from kafkalite.testing.numbered_records import TOPIC
from kafkalite.testing.processes import ProcessCluster
from tests.cluster.running import QUICK, wait_until
from tests.support.commands import kafkalite

pytestmark = [pytest.mark.cluster, pytest.mark.zookeeper]


def why(cluster: ProcessCluster) -> Any:
    return kafkalite("admin", "why", f"{TOPIC}-0", "--json", bootstrap=cluster.bootstrap).json


def elections(cluster: ProcessCluster, *, is_earlier: bool) -> list[str]:
    """What controllers have told of the partition."""
    return [
        event["detail"]
        for _, event in why(cluster)["events"]
        if event["what"] == "controller.elected" and event["is_earlier"] is is_earlier
    ]


def kept(cluster: ProcessCluster, text: str) -> bool:
    """Whether some node has it in its file."""
    files = cluster.directory.rglob("kafkalite-history.jsonl")
    return any(text in path.read_text() for path in files)


async def test_why_tells_of_before_the_restart_of_all_nodes(tmp_path: Path) -> None:
    with ProcessCluster(tmp_path, nodes=3, settings=QUICK) as cluster:
        async with AsyncClient.connect(cluster.bootstrap) as client:
            await client.create_topics([NewTopic(TOPIC, assignment={0: (BrokerId(1), BrokerId(2), BrokerId(3))})])
            await wait_in_sync(cluster, TOPIC, 3)
        await asyncio.to_thread(_check, cluster)


def _check(cluster: ProcessCluster) -> None:
    cluster.nodes[1].kill()
    wait_until(lambda: any("leader 2" in each for each in elections(cluster, is_earlier=False)), "another leader")
    (change,) = [each for each in elections(cluster, is_earlier=False) if "leader 2" in each]
    cluster.restart(1)
    wait_until(lambda: kept(cluster, json.dumps(change)[1:-1]), "the change in a file")
    for node in (1, 2, 3):
        cluster.nodes[node].kill()
    for node in (1, 2, 3):
        cluster.restart(node, wait=False)
    for node in (1, 2, 3):
        cluster._note_ready(node)
    assert change in elections(cluster, is_earlier=True)
    told = kafkalite("admin", "why", f"{TOPIC}-0", bootstrap=cluster.bootstrap).out
    (line,) = [line for line in told.splitlines() if change in line]
    assert line.endswith("(before its restart)")
    assert "node.started broker 1" in told
