"""Each number once while Spark runs a task twice: speculative twins on a Spark cluster of two hosts, and a repeated stage. For `make sparks`."""

from __future__ import annotations

import asyncio
import os
import subprocess
import sys
from collections.abc import Iterator
from pathlib import Path

import pytest

from bench.spark_exactly_once import PATHS, SETTINGS, count, create
from bench.spark_twins import BATCHES, run
from kafkalite.testing.processes import ProcessCluster
from tests.spark import repeated_stage

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


@pytest.mark.checklist("F27")
def test_each_row_once_though_a_stage_is_repeated(cluster, tmp_path: Path) -> None:
    """Spark counts attempts from 0 again: the second attempt of a task fenced the first, whose message counted, and the write failed."""
    asyncio.run(create(cluster, "rows"))
    directory = tmp_path / "steps"
    directory.mkdir()
    command = [sys.executable, repeated_stage.__file__, str(directory), ",".join(cluster.bootstrap), "rows"]
    done = subprocess.run(
        command, env=dict(os.environ, PYTHONPATH=PATHS), capture_output=True, text=True, timeout=600, check=False
    )
    assert done.returncode == 0, done.stderr[-3000:]
    assert (directory / "second-wrote").exists()
    rows = count(cluster, "rows", "read_committed")
    assert (rows.total(), len(rows)) == (repeated_stage.ROWS, repeated_stage.ROWS)
    assert count(cluster, "rows", "read_uncommitted").total() > repeated_stage.ROWS
