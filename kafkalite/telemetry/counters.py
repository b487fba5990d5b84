"""Counters of hot paths: plain integers and lists, turned into metrics by a scrape. Without locks: one loop."""

from __future__ import annotations

from bisect import bisect_left

#: Upper bounds of a histogram's buckets, in milliseconds; the last bucket has none.
BUCKETS_MS = (0.1, 0.25, 0.5, 1.0, 2.5, 5.0, 10.0, 25.0, 50.0, 100.0, 250.0, 500.0, 1000.0, 5000.0)


class Timing:
    """A histogram of durations."""

    __slots__ = ("counts", "sum_ms")

    def __init__(self) -> None:
        self.counts = [0] * (len(BUCKETS_MS) + 1)
        self.sum_ms = 0.0

    def add(self, ms: float) -> None:
        """Count one."""
        self.counts[bisect_left(BUCKETS_MS, ms)] += 1
        self.sum_ms += ms

    def and_of(self, other: Timing) -> Timing:
        """Both together."""
        both = Timing()
        both.counts = [mine + theirs for mine, theirs in zip(self.counts, other.counts, strict=True)]
        both.sum_ms = self.sum_ms + other.sum_ms
        return both

    def buckets(self) -> list[tuple[str, float]]:
        """(upper bound, how many are at most that), as Prometheus has them."""
        total = 0
        rows: list[tuple[str, float]] = []
        for bound, count in zip([*map(str, BUCKETS_MS), "+Inf"], self.counts, strict=True):
            total += count
            rows.append((bound, total))
        return rows


class ApiTiming:
    """One API's requests: those whose handler has answered, and those that were answered later."""

    __slots__ = ("_at_once", "_local", "_remote", "_total")

    def __init__(self) -> None:
        self._at_once = Timing()
        self._local = Timing()
        self._remote = Timing()
        self._total = Timing()

    def add(self, local_ms: float, total_ms: float) -> None:
        """Count one. It was answered at once if the two are the same."""
        if local_ms == total_ms:
            # Most requests: what that means for the three histograms is worked out when they are read.
            at_once = self._at_once
            at_once.counts[bisect_left(BUCKETS_MS, total_ms)] += 1
            at_once.sum_ms += total_ms
            return
        self._local.add(local_ms)
        self._remote.add(total_ms - local_ms)
        self._total.add(total_ms)

    @property
    def local(self) -> Timing:
        """Our own work until the handler returned."""
        return self._local.and_of(self._at_once)

    @property
    def remote(self) -> Timing:
        """From then on until the answer was there."""
        at_once = Timing()
        at_once.counts[0] = sum(self._at_once.counts)
        return self._remote.and_of(at_once)

    @property
    def total(self) -> Timing:
        """Both."""
        return self._total.and_of(self._at_once)


class Requests:
    """By the name of the API, which comes from our own tables: bounded."""

    __slots__ = ("by_api",)

    def __init__(self) -> None:
        self.by_api: dict[str, ApiTiming] = {}

    def add(self, api: str, local_s: float, total_s: float) -> None:
        """One request has its answer."""
        timing = self.by_api.get(api)
        if timing is None:
            timing = self.by_api[api] = ApiTiming()
        timing.add(local_s * 1000, total_s * 1000)
