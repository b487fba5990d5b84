"""How far a query is behind, from what Spark reports of it."""

from __future__ import annotations

import json
import logging
from collections.abc import Mapping
from typing import Any

from pyspark.sql.streaming import StreamingQueryListener

from kafkalite.lazy_dataclass import dataclass
from pyspark_kafkalite.stream_offsets import StreamOffset

log = logging.getLogger("pyspark_kafkalite")


@dataclass(frozen=True, slots=True)
class Behind:
    """Offsets between what a batch read up to and the end of each partition, over all partitions of a source."""

    min: int
    max: int
    avg: float
    total: int


def behind(source: Any) -> Behind | None:
    """Of one source of a `StreamingQueryProgress`, as object (listener) or mapping (`query.lastProgress`).

    None if it is no kafkalite source or has not reported both ends yet.
    """
    end, latest = _offsets(source, "endOffset"), _offsets(source, "latestOffset")
    if not end or not latest:
        return None
    lags = [max(offset - end.get(tp, 0), 0) for tp, offset in sorted(latest.items())]
    return Behind(min(lags), max(lags), sum(lags) / len(lags), sum(lags))


class ProgressLog(StreamingQueryListener):  # type: ignore[misc]
    """One line per batch in the log `pyspark_kafkalite`: `spark.streams.addListener(ProgressLog())`.

    A query's own progress has rows, times and the offsets per partition; Spark lets Python sources add no figures.
    """

    def onQueryStarted(self, event: Any) -> None:
        log.info("query %s started", event.name or event.id)

    def onQueryProgress(self, event: Any) -> None:
        log.info("%s", line(event.progress))

    def onQueryIdle(self, event: Any) -> None:
        """Nothing to report."""

    def onQueryTerminated(self, event: Any) -> None:
        log.info("query %s ended%s", event.id, f": {event.exception}" if event.exception else "")


def line(progress: Any) -> str:
    """What a batch did: rows, rates, how far behind its sources are."""
    parts = [f"query {progress.name or progress.id} batch {progress.batchId}: {progress.numInputRows} rows"]
    if progress.processedRowsPerSecond:
        parts.append(f"{progress.processedRowsPerSecond:.0f} a second")
    for source in progress.sources:
        if (found := behind(source)) is not None:
            parts.append(f"behind by {found.min} to {found.max}, {found.avg:.1f} on average, {found.total} in all")
    return ", ".join(parts)


def _offsets(source: Any, name: str) -> Mapping[Any, int]:
    value = source.get(name) if isinstance(source, Mapping) else getattr(source, name, None)
    if isinstance(value, str):
        try:
            value = json.loads(value)
        except json.JSONDecodeError:
            return {}
    try:
        return StreamOffset.from_json(value).offsets if isinstance(value, Mapping) else {}
    except (AttributeError, TypeError, ValueError):
        return {}
