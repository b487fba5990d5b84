"""Share groups under Admin of the Java client of today: what kafka-share-groups does, over three nodes."""

from __future__ import annotations

import asyncio
import json
from pathlib import Path

import pytest

from kafkalite.testing.apache_kafka import tool_command
from kafkalite.testing.processes import ProcessCluster

pytestmark = [pytest.mark.cluster]


async def test_java_describes_moves_and_deletes_a_share_group(newest_classes: str, tmp_path: Path) -> None:
    settings = {
        "default.replication.factor": 3,
        "min.insync.replicas": 2,
        "offsets.topic.num.partitions": 3,
        "share.coordinator.state.topic.num.partitions": 3,
        "group.share.heartbeat.interval.ms": 300,
    }
    with ProcessCluster(tmp_path, nodes=3, settings=settings) as cluster:
        command = tool_command(newest_classes, "ShareAdmin", ",".join(cluster.bootstrap), "shared-by-admin")
        program = await asyncio.create_subprocess_exec(*command, stdout=asyncio.subprocess.PIPE)
        output, _ = await program.communicate()
        assert program.returncode == 0, output
        assert json.loads(output.splitlines()[-1]) == {
            "read": 100,
            "state": "Empty",
            "listed": "share-admin:Share:Empty",
            "start": 100,
            "lag": [0, 10, 20],
            "moved": 90,
            "again": 20,
            "created": "none",
            "left": 0,
            "gone": "GroupIdNotFoundException",
        }
