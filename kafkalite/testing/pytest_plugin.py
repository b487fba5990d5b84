"""The pytest fixture `kafkalite_cluster`: a real replicated cluster for a test session, in well under a second.

def test_something(kafkalite_cluster):
    producer = KafkaProducer(bootstrap_servers=kafkalite_cluster.bootstrap)
"""

from __future__ import annotations

from collections.abc import Iterator
from typing import TYPE_CHECKING

import pytest

if TYPE_CHECKING:
    from kafkalite.testing.cluster import ThreadedCluster


@pytest.fixture(scope="session")
def kafkalite_cluster() -> Iterator[ThreadedCluster]:
    """Three nodes in a thread of this process; clients connect to `.bootstrap`."""
    # Not imported in sessions that do not ask for it.
    from kafkalite.telemetry import logs
    from kafkalite.testing.cluster import ThreadedCluster

    if not logs.is_configured():
        logs.configure(level="error")  # a test's output is not the place for a broker's news
    with ThreadedCluster(3) as running:
        yield running
