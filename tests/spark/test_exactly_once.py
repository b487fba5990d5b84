"""Exactly once with real processes, in short; `python -m bench.spark_exactly_once` has every accident there is."""

from __future__ import annotations

import asyncio
from collections.abc import Iterator
from pathlib import Path

import pytest

from bench.spark_exactly_once import SETTINGS, SHORT, create, fill, run
from kafkalite.testing.processes import ProcessCluster

pytestmark = [pytest.mark.spark, pytest.mark.cluster, pytest.mark.timeout(900)]

RECORDS = 3_000


@pytest.fixture
def cluster(tmp_path: Path) -> Iterator[ProcessCluster]:
    with ProcessCluster(tmp_path / "cluster", nodes=3, settings=SETTINGS) as running:
        yield running


@pytest.mark.checklist(94)
@pytest.mark.checklist("F27")
def test_each_number_once_over_failed_tasks_a_killed_driver_and_a_killed_coordinator(cluster, tmp_path) -> None:
    """And more than once without transactions, through the same accidents: they did happen."""
    asyncio.run(create(cluster, "numbers", "once", "at-least-once"))
    fill(cluster, "numbers", RECORDS)
    once = run(cluster, tmp_path, "numbers", "once", "exactly-once", RECORDS, 3, SHORT)
    assert (once.records, once.duplicates, once.lost) == (RECORDS, 0, 0)
    assert once.accidents == len(SHORT) and once.driver_starts == 2
    again = run(cluster, tmp_path, "numbers", "at-least-once", "at-least-once", RECORDS, 3, SHORT)
    assert again.duplicates > 0 and again.lost == 0
    assert again.accidents == len(SHORT)
