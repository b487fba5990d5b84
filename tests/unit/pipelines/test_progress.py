"""What `pipeline run` and `status` show of a batch."""

from __future__ import annotations

from pathlib import Path
from types import SimpleNamespace
from typing import Any

import pytest

from kafkalite_pipelines import Pipeline, Source, overview
from kafkalite_pipelines.batches import BatchResult
from kafkalite_pipelines.control import _new_progress, _watch, own


def report(number: int, records: int, **durations: int) -> dict[str, Any]:
    return {"batchId": number, "numInputRows": records, "durationMs": durations, "sources": [{"metrics": {}}]}


def test_a_trigger_that_found_nothing_is_not_the_batch_that_comes_next() -> None:
    """Spark reports it with that batch's number, and keeps the report."""
    query = SimpleNamespace(
        recentProgress=[
            report(4, 2, addBatch=900, triggerExecution=1000),
            report(5, 0, latestOffset=3, triggerExecution=4),
            report(5, 3, addBatch=1900, triggerExecution=2000),
        ]
    )
    shown = list(_new_progress(query, [BatchResult(4, 2, 0, {}), BatchResult(5, 3, 0, {})], -1))
    assert [(each.batch, each.records, each.seconds) for each in shown] == [(4, 2, 1.0), (5, 3, 2.0)]


def test_records_that_were_not_decoded_stay_in_the_status(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    """The next batch hid them: a minute later `status` said that 0 records were not decoded."""
    durations = {"addBatch": 900, "triggerExecution": 1000}
    reports = [report(number, 9, **durations) for number in range(4)]
    query = SimpleNamespace(isActive=False, recentProgress=reports, exception=lambda: None)
    results = [BatchResult(number, 9, bad, {}) for number, bad in enumerate((2, 0, 5, 0))]
    pipeline = Pipeline("p", {}, Source(("t",)), (), directory=tmp_path)
    run = {"state": "ended", "pid": 1, "host": "h", "started": "then"}
    _watch(query, own(pipeline), run, results, lambda _: None)
    monkeypatch.setattr(overview, "positions", lambda *_: [])
    lines = overview.state(pipeline)["lines"]
    assert any(line.startswith("last ") and "0 not decoded" in line for line in lines)
    assert "undecoded  7 records since the start, the last in batch 2" in lines
