"""franz-go and sarama, through the Go module proxy, against three nodes."""

from __future__ import annotations

import os
from pathlib import Path

import pytest

from tests.support.loopback_cluster import LoopbackCluster

from .conftest import CLUSTER_SETTINGS, install, scratch, seen_by

pytestmark = [pytest.mark.cluster]

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


async def test_schema_registry_of_franz_go(go_clients: Path, tmp_path: Path) -> None:
    """Its client `sr`; the nodes are asked in turn."""
    async with LoopbackCluster(tmp_path, nodes=3, settings=CLUSTER_SETTINGS | {"http.port": 0}) as cluster:
        urls = [f"http://{node.endpoints['http']}" for node in cluster.nodes.values()]
        assert await seen_by([str(go_clients / "schemas"), *urls]) == {
            "types": ["AVRO", "JSON", "PROTOBUF"],
            "same id elsewhere": True,
            "fits": [True, False],
            "incompatible": 409,
            "versions": [1, 2],
            "lookup": 1,
            "by id": True,
            "level": "FULL_TRANSITIVE",
            "mode": "READWRITE",
            "references": [1, "trip-value"],
            "referred to": 42206,
            "serde": 7,
            "deleted": [1],
            "deleted for ever": [1],
            "subjects": ["go-value", "place.proto"],
        }
