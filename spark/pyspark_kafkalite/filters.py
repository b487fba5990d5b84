"""What a query's filters say about which offsets to read. Pure.

Every filter goes back to Spark, which applies it again: here it only has to be safe to skip what it excludes.
"""

from __future__ import annotations

import datetime
from collections.abc import Iterable
from dataclasses import replace
from typing import Any

from kafkalite.lazy_dataclass import dataclass

_EPOCH = datetime.datetime(1970, 1, 1, tzinfo=datetime.UTC)
_MICROSECOND = datetime.timedelta(microseconds=1)


@dataclass(frozen=True, slots=True)
class Narrowing:
    """None means no bound. Offsets [first_offset, end_offset); records at or after `timestamp_ms`."""

    topics: frozenset[str] | None = None
    partitions: frozenset[int] | None = None
    first_offset: int | None = None
    end_offset: int | None = None
    #: A lower bound only: timestamps that producers give need not rise with offsets, so an upper one cuts wrongly.
    timestamp_ms: int | None = None

    def admits(self, topic: str, partition: int) -> bool:
        return (self.topics is None or topic in self.topics) and (
            self.partitions is None or partition in self.partitions
        )


def narrow(filters: Iterable[Any]) -> Narrowing:
    """Combine Spark's filters (all of them must hold); kinds and columns that say nothing here are passed over."""
    found = Narrowing()
    for pushed in filters:
        attribute: tuple[str, ...] = getattr(pushed, "attribute", ())
        value = getattr(pushed, "value", None)
        if len(attribute) != 1 or value is None:
            continue
        kind = type(pushed).__name__
        if kind == "EqualNullSafe":
            kind = "EqualTo"
        match attribute[0].lower(), kind:
            case "topic", "EqualTo" | "In":
                found = replace(found, topics=_meet(found.topics, _values(kind, value, str)))
            case "partition", "EqualTo" | "In":
                found = replace(found, partitions=_meet(found.partitions, _values(kind, value, int)))
            case "offset", _ if isinstance(value, int):
                found = _narrow_offset(found, kind, value)
            case "timestamp", _ if isinstance(value, datetime.datetime) and value.tzinfo is not None:
                found = _narrow_timestamp(found, kind, value)
    return found


def _values(kind: str, value: Any, of: type) -> frozenset[Any]:
    """An In list may hold nulls, which match nothing."""
    return frozenset(v for v in (value if kind == "In" else [value]) if isinstance(v, of))


def _meet(known: frozenset[Any] | None, more: frozenset[Any]) -> frozenset[Any]:
    return more if known is None else known & more


def _narrow_offset(found: Narrowing, kind: str, value: int) -> Narrowing:
    if kind in ("EqualTo", "GreaterThanOrEqual", "GreaterThan"):
        first = value + 1 if kind == "GreaterThan" else value
        found = replace(found, first_offset=max(first, found.first_offset or 0))
    if kind in ("EqualTo", "LessThanOrEqual", "LessThan"):
        end = value if kind == "LessThan" else value + 1
        found = replace(found, end_offset=end if found.end_offset is None else min(end, found.end_offset))
    return found


def _narrow_timestamp(found: Narrowing, kind: str, value: datetime.datetime) -> Narrowing:
    """Records have whole milliseconds, the filter has microseconds: round up to the first that can match."""
    micros = (value - _EPOCH) // _MICROSECOND
    if kind in ("EqualTo", "GreaterThanOrEqual"):
        bound = -(-micros // 1000)
    elif kind == "GreaterThan":
        bound = micros // 1000 + 1
    else:
        return found
    if bound < 0:  # before 1970 there are the records without a time (-1), which no question for a time finds
        return found
    known = found.timestamp_ms
    return replace(found, timestamp_ms=bound if known is None else max(bound, known))
