"""Consumer groups of KIP-848 and share groups of KIP-932 under the Java client of today, while a node is killed."""

from __future__ import annotations

import asyncio
import json
import subprocess
from pathlib import Path

import pytest

from kafkalite.protocol import wire
from kafkalite.testing.apache_kafka import tool_command
from kafkalite.testing.kafka_client import FrameClient
from kafkalite.testing.processes import ProcessCluster

pytestmark = [pytest.mark.cluster]

_QUICK = {"group.consumer.heartbeat.interval.ms": 300, "group.consumer.session.timeout.ms": 6000}
_RECORDS = 1500


async def _coordinator(bootstrap: str, group: str) -> int:
    client = await FrameClient.to(bootstrap)
    found = await client.ask(wire.FindCoordinatorRequest(key_type=0, coordinator_keys=[group]), 4)
    client.close()
    node: int = found.coordinators[0].node_id
    return node


async def test_java_while_the_coordinator_is_killed(newest_classes: str, tmp_path: Path) -> None:
    """Members come and go, the coordinator dies: every record is read, no partition has two owners."""
    settings = _QUICK | {
        "default.replication.factor": 3,
        "num.partitions": 6,
        "min.insync.replicas": 2,
        "offsets.topic.num.partitions": 3,
        "zookeeper.session.timeout.ms": 3000,
    }
    with ProcessCluster(tmp_path, nodes=3, settings=settings) as cluster:
        command = tool_command(newest_classes, "ModernGroup", ",".join(cluster.bootstrap), "modern-j1", str(_RECORDS))
        program = await asyncio.create_subprocess_exec(*command, stdout=subprocess.PIPE)
        assert program.stdout is not None
        lines = []
        killed = 0
        while line := (await program.stdout.readline()).decode():
            lines.append(line)
            if line.startswith("read") and not killed:
                killed = await _coordinator(cluster.bootstrap[0], "modern-java")
                await asyncio.to_thread(cluster.nodes[killed].kill)
        assert await program.wait() == 0, lines
        assert killed
        assert json.loads(lines[-1]) == {
            "distinct": _RECORDS,
            "owned twice": 0,
            "assignor": "uniform",
            "type": "Consumer",
            "state": "Stable",
        }


_SHARED_RECORDS = 4000


async def test_java_members_of_a_share_group_while_a_leader_is_killed(newest_classes: str, tmp_path: Path) -> None:
    """They accept, release and reject; one says nothing until its locks end. What was confirmed does not come again, the rest does."""
    settings = {
        "group.share.min.record.lock.duration.ms": 1_000,  # the client asks for 4 s
        "default.replication.factor": 3,
        "min.insync.replicas": 2,
        "offsets.topic.num.partitions": 3,
        "share.coordinator.state.topic.num.partitions": 3,
        "group.share.heartbeat.interval.ms": 1000,
        "zookeeper.session.timeout.ms": 3000,
    }
    with ProcessCluster(tmp_path, nodes=3, settings=settings) as cluster:
        command = tool_command(
            newest_classes, "ShareGroup", ",".join(cluster.bootstrap), "shared-j1", str(_SHARED_RECORDS)
        )
        program = await asyncio.create_subprocess_exec(*command, stdout=subprocess.PIPE)
        assert program.stdout is not None
        lines = []
        killed = False
        while line := (await program.stdout.readline()).decode():
            lines.append(line)
            if line.startswith("read") and not killed:
                killed = True
                await asyncio.to_thread(cluster.nodes[2].kill)
        assert await program.wait() == 0, lines
        assert killed
        seen = json.loads(lines[-1])
        # An acknowledgement whose response was lost with the node may have been stored: then its records do not come again.
        assert seen["accepted"] + seen["rejected"] + seen["failed"] >= _SHARED_RECORDS, lines
        assert (seen["seen"], seen["again"], seen["returned"], seen["taken over"]) == (
            _SHARED_RECORDS,
            0,
            True,
            True,
        ), lines
