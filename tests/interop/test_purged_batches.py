"""librdkafka gives the sequence of a batch that it purged in an abort to the next transaction, though the broker has the batch."""

from __future__ import annotations

from collections.abc import Iterator
from contextlib import contextmanager
from pathlib import Path

import pytest

from kafkalite.testing.apache_kafka import NEWEST_VERSION, KafkaCluster, free_ports, server_class_path
from kafkalite.testing.processes import ProcessCluster

from .conftest import _HAS_JAVA, _base, seen_by

pytestmark = [pytest.mark.cluster, pytest.mark.zookeeper]

_SCRIPT = Path(__file__).parent / "clients" / "confluent_purged.py"
_LOGS = {"offsets.topic.num.partitions": 1, "transaction.state.log.num.partitions": 1}


@contextmanager
def _node(directory: Path, kafka: str, proxy: int) -> Iterator[str]:
    """One broker, which gives its clients the proxy's address; its own."""
    settings = _LOGS | {"advertised.listeners": f"PLAINTEXT://127.0.0.1:{proxy}"}
    if kafka:
        with KafkaCluster(directory, server_class_path(_base(), kafka), nodes=1, settings=settings) as theirs:
            yield theirs.bootstrap
    else:
        with ProcessCluster(directory, nodes=1, settings=settings) as ours:
            yield ours.bootstrap[0]


@pytest.mark.checklist("F25")
@pytest.mark.parametrize("kafka", ["", *([NEWEST_VERSION] if _HAS_JAVA else [])])
async def test_a_committed_transaction_of_librdkafka_after_a_purged_batch(
    python_clients: Path, tmp_path: Path, kafka: str
) -> None:
    (proxy,) = free_ports(1)
    with _node(tmp_path / "node", kafka, proxy) as bootstrap:
        seen = await seen_by([str(python_clients), str(_SCRIPT), str(proxy), bootstrap.rpartition(":")[2]])
    assert seen["of the lost batch"] == "_PURGE_QUEUE"
    if kafka:  # takes the next record for a retry of the purged one: it is in no log
        assert (seen["next"], seen["read"]) == ("committed", ["first", "last"])
    else:
        assert (seen["next"], seen["read"]) == ("INVALID_TXN_STATE, abortable", ["first", "committed", "last"])
