"""How far a query is behind, from what Spark reports of it."""

from __future__ import annotations

import json
from collections.abc import Mapping
from dataclasses import dataclass
from typing import Any

from pyspark_kafkalite.stream_offsets import StreamOffset


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
