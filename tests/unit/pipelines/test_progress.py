"""What `pipeline run` and `status` show of a batch."""

from __future__ import annotations

from types import SimpleNamespace
from typing import Any

from kafkalite_pipelines.batches import BatchResult
from kafkalite_pipelines.control import _new_progress


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
