"""Each number once while Spark runs speculative twins: on a Spark cluster of two hosts, for `make sparks`."""

from __future__ import annotations

from collections.abc import Iterator
from pathlib import Path

import pytest

from bench.spark_exactly_once import SETTINGS
from bench.spark_twins import BATCHES, run
from kafkalite.testing.processes import ProcessCluster

RECORDS = 3_000


@pytest.fixture
def cluster(tmp_path: Path) -> Iterator[ProcessCluster]:
    with ProcessCluster(tmp_path / "cluster", nodes=3, settings=SETTINGS) as running:
        yield running


@pytest.mark.checklist("F27")
def test_each_number_once_though_twins_write_it_too(cluster, tmp_path: Path) -> None:
    """In a stream and in batch writes, whichever of the two attempts ends first; and twice without transactions."""
    found = run(cluster, tmp_path, RECORDS)
    for sink in ("stream-once", "write-once"):
        twins = found[sink]
        assert (twins.records, twins.duplicates, twins.lost) == (RECORDS, 0, 0)
        assert twins.speculative >= BATCHES
        assert twins.uncommitted_too > RECORDS
    again = found["stream-at-least-once"]
    assert again.duplicates > 0 and again.lost == 0
    assert again.speculative >= BATCHES
