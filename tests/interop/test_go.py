"""franz-go and sarama, through the Go module proxy, against three nodes."""

from __future__ import annotations

import os
from pathlib import Path

import pytest

from kafkalite.testing.loopback_cluster import LoopbackCluster

from .conftest import install, scratch, seen_by

pytestmark = [pytest.mark.timeout(600), pytest.mark.cluster]

SOURCES = Path(__file__).parent / "clients" / "go"


@pytest.fixture(scope="session")
def go_clients() -> Path:
    """A directory with the programs `franz` and `sarama`."""
    directory = scratch("go", *sorted(file for file in SOURCES.rglob("*") if file.is_file()))
    build = ["go", "build", "-C", str(SOURCES), "-o", f"{directory}{os.sep}", "./..."]
    install(directory, build)
    return directory


async def test_franz_go(go_clients: Path, cluster: LoopbackCluster) -> None:
    assert await seen_by([str(go_clients / "franz"), cluster.bootstrap]) == {
        "consumed": 100,
        "headers": 5,
        "committed offsets": 100,
        "transactions": ["kept", "kept too"],
        "retention": "123456",
        "end offsets": 100,
        "brokers": 3,
    }


async def test_sarama(go_clients: Path, cluster: LoopbackCluster) -> None:
    assert await seen_by([str(go_clients / "sarama"), cluster.bootstrap]) == {
        "consumed": 100,
        "headers": 5,
        "committed offsets": 100,
        "transactions": ["kept", "kept too"],
        "brokers": 3,
    }
