"""The pytest fixture `kafkalite_cluster`: a real replicated cluster for a test session, in well under a second.

def test_something(kafkalite_cluster):
    producer = KafkaProducer(bootstrap_servers=kafkalite_cluster.kafka_bootstrap)
"""

from __future__ import annotations

from collections.abc import Iterator
from typing import TYPE_CHECKING

import pytest

if TYPE_CHECKING:
    from kafkalite.testing.cluster import ThreadedCluster


@pytest.fixture(scope="session")
def kafkalite_cluster() -> Iterator[ThreadedCluster]:
    """Three nodes in a thread of this process; `.bootstrap` (RPC), `.kafka_bootstrap` (Kafka protocol)."""
    from kafkalite.testing.cluster import ThreadedCluster  # not imported in sessions that do not ask for it

    with ThreadedCluster(3) as running:
        yield running
