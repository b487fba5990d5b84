"""Clients of years ago, unchanged: confluent-kafka 1.9 (librdkafka 1.9, of 2022), and Kafka's Java client 2.1 (of 2019)."""

from __future__ import annotations

from pathlib import Path

import pytest

from kafkalite.testing.apache_kafka import oldest_client_class_path, tool_command
from tests.support.loopback_cluster import LoopbackCluster

from .conftest import _base, compiled, python_of, python_with, seen_by

pytestmark = [pytest.mark.cluster]

CLIENTS = Path(__file__).parent / "clients"
_REQUIREMENTS = Path(__file__).parent / "requirements-old.txt"
_ALL = [0, 1, 2]


async def test_confluent_kafka_1_9(cluster: LoopbackCluster) -> None:
    interpreter = python_of("3.10")
    assert interpreter is not None
    python = python_with("python-old", _REQUIREMENTS, interpreter)
    seen = await seen_by([str(python), str(CLIENTS / "confluent_old_client.py"), cluster.bootstrap])
    # Per assignor: read, owned by three members, owned by two, the sum of the positions where the group goes on.
    group = [200, _ALL, _ALL, 200]
    assert seen == {
        "librdkafka": "1.9",
        "produce errors": [],
        "range": group,
        "roundrobin": group,
        "cooperative-sticky": group,
        "committed": ["kept", "kept too"],
        "offset by transaction": 5,
        "fenced": True,
        "retention": "123456",
        "broker": "1",
        "groups": ["old-cooperative-sticky", "old-range", "old-roundrobin", "old-txn-group"],
        "brokers": 3,
        "partitions": 2,
        "topics": ["old-txn"],
    }


async def test_java_2_1(cluster: LoopbackCluster) -> None:
    classes = compiled("java-oldest", oldest_client_class_path(_base()))
    seen = await seen_by(tool_command(classes, "OldClient", cluster.bootstrap))
    assert seen == {
        "client": "2.1.1",
        "acknowledged": 201,
        "read": 201,
        "headers": ["gzip", "lz4", "none", "snappy", "zstd"],
        "assignments of three": _ALL,
        "assignments of two": _ALL,
        "read again": 0,
        "committed": ["kept", "kept too"],
        "offset by transaction": 5,
        "fenced": True,
        "retention": "123456",
        "partitions": 2,
        "brokers": 3,
        "groups": ["old-group", "old-txn-group"],
        "state": "Empty",
        "offsets": 3,
        "low watermark": 2,
        "log dirs": 1,
        "topics": ["old-txn"],
    }
