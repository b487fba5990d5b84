"""Histories of numbers for small plots: one value at each sample, the oldest forgotten. Pure; a few kB each."""

from __future__ import annotations

from array import array
from collections.abc import Generator, Mapping
from heapq import nlargest

#: Samples that are kept: with one every 10 s, half an hour.
KEPT = 180
#: Subjects sampled between two yields: about half a millisecond.
_STEP = 100


class Series:
    """The latest values of one number, the oldest first."""

    __slots__ = ("values",)

    def __init__(self) -> None:
        self.values = array("d")

    def add(self, value: float) -> None:
        """The value at this sample."""
        self.values.append(value)
        if len(self.values) > KEPT:
            del self.values[0]

    def last(self, points: int) -> tuple[int, ...]:
        """Of the latest samples, rounded."""
        return tuple(round(value) for value in self.values[-points:]) if points > 0 else ()


class Rates:
    """Rates per second of several counters, by subject, from what the counters show at each sample.

    Subjects that did nothing in all the samples that are kept are forgotten, and so is the quietest where there are more
    than `max_subjects`.
    """

    def __init__(self, counters: int, *, max_subjects: int) -> None:
        self._counters = counters
        self._max = max_subjects
        self._before: dict[str, tuple[int, ...]] = {}
        self._is_first = True
        self._series: dict[str, tuple[Series, ...]] = {}

    def sample(self, counts: Mapping[str, tuple[int, ...]], seconds: float) -> Generator[None, None, None]:
        """`counts`: what each subject's counters show now; `seconds` since the sample before. In steps."""
        for number, (subject, present) in enumerate(counts.items(), 1):
            if not number % _STEP:
                yield
            # What appears after the first sample began at nothing. A counter that went back belongs to a replica that was
            # recreated: what it shows now is certain.
            before = self._before.get(subject, present if self._is_first else (0,) * self._counters)
            gained = [now - then if now >= then else now for now, then in zip(present, before, strict=True)]
            if subject not in self._series and not any(gained):
                continue
            series = self._series.setdefault(subject, tuple(Series() for _ in range(self._counters)))
            for each, gain in zip(series, gained, strict=True):
                each.add(gain / seconds if seconds > 0 else 0.0)
        self._is_first = False
        self._before = dict(counts)
        totals: list[tuple[float, str]] = []
        for number, (subject, series) in enumerate(list(self._series.items()), 1):
            if subject not in counts or not any(any(each.values) for each in series):
                del self._series[subject]
            elif len(self._series) > self._max:
                totals.append((sum(sum(each.values) for each in series), subject))
            if not number % _STEP:
                yield
        if len(self._series) > self._max:
            kept = {subject for _, subject in nlargest(self._max, totals)}
            for number, subject in enumerate(list(self._series), 1):
                if subject not in kept:
                    del self._series[subject]
                if not number % _STEP:
                    yield

    def of(self, subject: str, points: int) -> tuple[tuple[int, ...], ...]:
        """The latest samples of each counter; empty ones where nothing is known."""
        series = self._series.get(subject)
        return tuple(each.last(points) for each in series) if series is not None else ((),) * self._counters

    def subjects(self) -> list[str]:
        """Those with a history."""
        return sorted(self._series)
