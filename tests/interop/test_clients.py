"""Clients that others wrote, as they are installed, against three nodes.

kcat and the JavaScript clients take part where the machine has kcat and npm.
"""

from __future__ import annotations

import json
import re
import shutil
from pathlib import Path

import pytest

from tests.support.loopback_cluster import LoopbackCluster

from .conftest import CLUSTER_SETTINGS, run_client, seen_by

pytestmark = [pytest.mark.cluster]

CLIENTS = Path(__file__).parent / "clients"
CONFLUENT_SEES = {
    "produce errors": [],
    "consumed": 200,
    "headers": ["gzip", "lz4", "none", "snappy", "zstd"],
    "assignments of three": [0, 1, 2],
    "assignments of two": [0, 1, 2],
    "resumed with": ["after"],
    "committed": ["kept", "kept too"],
    "offset by transaction": 5,
    "fenced": True,
    "retention": "123456",
    "fetchers": [False, "3"],
    "brokers": 3,
    "groups": ["confluent-group", "txn-group"],
    "low watermarks": [2],
    "topics": ["confluent-txn"],
}


@pytest.fixture
def boot(cluster: LoopbackCluster) -> str:
    return cluster.bootstrap


async def test_confluent_kafka(python_clients: Path, boot: str) -> None:
    seen = await seen_by([str(python_clients), str(CLIENTS / "confluent_client.py"), boot])
    assert seen == CONFLUENT_SEES


async def test_confluent_schema_registry(python_clients: Path, tmp_path: Path) -> None:
    """Its registry client and its serializers of Avro, JSON Schema and Protobuf; the nodes are asked in turn."""
    async with LoopbackCluster(tmp_path, nodes=3, settings=CLUSTER_SETTINGS | {"http.port": 0}) as cluster:
        urls = [f"http://{node.endpoints['http']}" for node in cluster.nodes.values()]
        command = [str(python_clients), str(CLIENTS / "schema_client.py"), cluster.bootstrap, *urls]
        assert await seen_by(command) == {
            "same id elsewhere": True,
            "second": 1,
            "versions": [1, 2],
            "incompatible": 409,
            "test": False,  # the newest version is wider
            "level": ["FULL", "FULL"],
            "normalized": True,
            "new subject fits": True,
            "lookup": 1,
            "read": {"avro": 1, "json": 2, "proto": 3},
            "subjects": ["avro-value", "json-value", "proto-value", "t-value"],
        }


async def test_confluent_kafka_outside(python_clients: Path, tmp_path: Path) -> None:
    """A client that reaches the nodes at 127.0.0.2 only; nodes write their markers on the listener inside."""
    settings = CLUSTER_SETTINGS | {
        "listeners": "INSIDE://127.0.0.1:0,OUTSIDE://127.0.0.2:0",
        "advertised.listeners": "INSIDE://localhost:0,OUTSIDE://127.0.0.2:0",
        "listener.security.protocol.map": "INSIDE:PLAINTEXT,OUTSIDE:PLAINTEXT",
    }
    async with LoopbackCluster(tmp_path, nodes=3, settings=settings) as cluster:
        outside = ",".join(str(node.endpoints["kafka.OUTSIDE"]) for node in cluster.nodes.values())
        assert outside.count("127.0.0.2") == 3
        seen = await seen_by([str(python_clients), str(CLIENTS / "confluent_client.py"), outside])
        assert seen == CONFLUENT_SEES
    assert not cluster.failures


async def test_kafka_python(python_clients: Path, boot: str) -> None:
    seen = await seen_by([str(python_clients), str(CLIENTS / "kafka_python_client.py"), boot])
    assert seen == {
        "consumed": 150,
        "headers": ["None", "gzip", "lz4", "snappy", "zstd"],
        "assigned": [0, 1, 2],
        "positions": 150,
        "committed": ["kept", "last"],
        "topics": ["kafka-python", "kafka-python-txn"],
    }


async def test_administration_by_python_clients(python_clients: Path, boot: str) -> None:
    seen = await seen_by([str(python_clients), str(CLIENTS / "admin_clients.py"), boot])
    assert seen == {
        "partitions": 4,
        "reassigned": [[3, 1], [1, 3]],
        "called off": ["NoReassignmentInProgressError"],
        "elected": [["moved", 0, None]],
        "leaders": True,
        "room on every disk": [1, 2, 3],
        "to disks": ["LogDirNotFoundError", "NoError"],
        "page": [3, 3],
        "producers": 0,
    }


async def test_aiokafka(python_clients: Path, boot: str) -> None:
    seen = await seen_by([str(python_clients), str(CLIENTS / "aiokafka_client.py"), boot])
    assert seen == {
        "consumed": 100,
        "headers": ["None", "gzip", "lz4", "snappy", "zstd"],
        "assigned": [0, 1, 2],
        "positions": 100,
        "committed": ["kept", "last"],
        "topics": ["aiokafka", "aiokafka-txn"],
    }


if shutil.which("npm"):

    async def test_kafkajs(node_clients: Path, boot: str) -> None:
        modules = str(node_clients / "node_modules")
        seen = await seen_by(["node", str(CLIENTS / "kafkajs_client.js"), boot], NODE_PATH=modules)
        assert seen == {
            "consumed": 101,
            "headers": ["0", "1", "txn"],
            "saw the aborted one": False,
            "groups": ["kafkajs-group"],
            "topics": ["kafkajs"],
        }

    async def test_platformatic_kafka(node_clients: Path, boot: str) -> None:
        # ES modules look for packages beside the script, not on NODE_PATH.
        script = node_clients / "platformatic_client.mjs"
        shutil.copy(CLIENTS / script.name, script)
        assert await seen_by(["node", str(script), boot]) == {"consumed": 20, "distinct": 20}


if kcat := shutil.which("kcat"):

    async def test_kcat(boot: str) -> None:
        assert kcat is not None
        lines = b"".join(b"%d\n" % number for number in range(50))
        for codec in ("none", "gzip", "snappy", "lz4", "zstd"):
            await run_client([kcat, "-b", boot, "-P", "-t", "kcat", "-z", codec, "-H", "a=b"], stdin=lines)
        out = await run_client([kcat, "-b", boot, "-C", "-t", "kcat", "-e", "-q"])
        assert sorted(out.split()) == sorted(lines.split() * 5)
        listed = json.loads(await run_client([kcat, "-b", boot, "-L", "-J", "-t", "kcat"]))
        [topic] = listed["topics"]
        assert (len(listed["brokers"]), topic["topic"], len(topic["partitions"])) == (3, "kcat", 3)
        shown = await run_client([kcat, "-b", boot, "-C", "-t", "kcat", "-e", "-q", "-f", "%p %o %h\n"])
        rows = [row.split() for row in shown.splitlines()]
        assert {row[2] for row in rows} == {b"a=b"}
        ends = await run_client([kcat, "-b", boot, "-Q", *(f"-tkcat:{number}:-1" for number in range(3))])
        found = {int(n): int(end) for n, end in re.findall(rb"kcat \[(\d+)\] offset (\d+)", ends)}
        assert found == {number: sum(int(row[0]) == number for row in rows) for number in range(3)}
        grouped = await run_client(
            [kcat, "-b", boot, "-q", "-e", "-X", "auto.offset.reset=earliest", "-G", "kcat-group", "kcat"]
        )
        assert len(grouped.split()) == 250
