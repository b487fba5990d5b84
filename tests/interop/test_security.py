"""Foreign admin clients on a secure cluster: their ACLs and quotas, and what those do to them."""

from __future__ import annotations

from collections.abc import AsyncIterator
from pathlib import Path

import pytest

from kafkalite.security.quotas import Kind
from tests.support.loopback_cluster import LoopbackCluster
from tests.support.principals import SECURE, by_client_id

from .conftest import CLUSTER_SETTINGS, seen_by

pytestmark = [pytest.mark.cluster]

CLIENTS = Path(__file__).parent / "clients"


@pytest.fixture
async def secure(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> AsyncIterator[LoopbackCluster]:
    by_client_id(monkeypatch)
    async with LoopbackCluster(tmp_path, nodes=3, settings=CLUSTER_SETTINGS | SECURE) as running:
        yield running
    assert not running.failures


async def test_confluent_kafka(python_clients: Path, secure: LoopbackCluster) -> None:
    seen = await seen_by([str(python_clients), str(CLIENTS / "confluent_security.py"), secure.bootstrap])
    assert seen == {
        "described": [
            ["allowed", "User:ann", "WRITE"],
            ["allowed", "User:bob", "READ"],
            ["app-", "User:bob", "READ"],
        ],
        "ann writes a secret": "TOPIC_AUTHORIZATION_FAILED",
        "carol writes": "TOPIC_AUTHORIZATION_FAILED",
        "carol reads": ["GROUP_AUTHORIZATION_FAILED"],
        "bob in a group of others": ["GROUP_AUTHORIZATION_FAILED"],
        "carol deletes": "CLUSTER_AUTHORIZATION_FAILED",
        "carol creates": "CLUSTER_AUTHORIZATION_FAILED",
        "carol's topics": [],
        "bob's topics": ["allowed"],
        "deleted": ["allowed", "app-"],
    }


async def test_kafka_python(python_clients: Path, secure: LoopbackCluster) -> None:
    seen = await seen_by([str(python_clients), str(CLIENTS / "kafka_python_security.py"), secure.bootstrap])
    assert seen == {
        "created": 2,
        "described": ["DESCRIBE", "WRITE"],
        "deleted": ["DESCRIBE", "WRITE"],
        "altered": [0],
        "quotas": [["producer_byte_rate", 2000.0]],
        "produced": [0, 1, 2],
    }
    assert sum(node.rights.quotas.throttled[Kind.PRODUCE] for node in secure.nodes.values()) > 0
