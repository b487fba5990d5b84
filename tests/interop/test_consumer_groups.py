"""Consumer groups of KIP-848 under librdkafka."""

from __future__ import annotations

from pathlib import Path

import pytest

from tests.support.loopback_cluster import LoopbackCluster

from .conftest import CLUSTER_SETTINGS, seen_by

pytestmark = [pytest.mark.cluster]

CLIENTS = Path(__file__).parent / "clients"
_QUICK = {"group.consumer.heartbeat.interval.ms": 300, "group.consumer.session.timeout.ms": 6000}


async def test_confluent_kafka(python_clients: Path, tmp_path: Path) -> None:
    """Assignments, a member that is killed, offsets, a regular expression, static members, both protocols in one group."""
    async with LoopbackCluster(tmp_path, nodes=3, settings=CLUSTER_SETTINGS | _QUICK) as cluster:
        program = str(CLIENTS / "confluent_consumer_groups.py")
        assert await seen_by([str(python_clients), program, cluster.bootstrap]) == {
            "consumed": 60,
            "of a fourth process": 1,
            "described": ["CONSUMER", "STABLE", "uniform", 3],
            "listed": ["modern"],
            "committed": 60,
            "by a regular expression": ["CONSUMER", "STABLE", "range", 1],
            "a static member keeps": True,
            "online": ["CLASSIC", "CONSUMER", "CLASSIC"],
        }
    assert not cluster.failures
