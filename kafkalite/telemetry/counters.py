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

    def buckets(self) -> list[tuple[str, float]]:
        """(upper bound, how many are at most that), as Prometheus has them."""
        total = 0
        rows: list[tuple[str, float]] = []
        for bound, count in zip([*map(str, BUCKETS_MS), "+Inf"], self.counts, strict=True):
            total += count
            rows.append((bound, total))
        return rows


class ApiTiming:
    """One API's requests. `local`: our own work until the handler returned; `remote`: until the answer was there."""

    __slots__ = ("local", "remote", "total")

    def __init__(self) -> None:
        self.local = Timing()
        self.remote = Timing()
        self.total = Timing()


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
        total_ms = total_s * 1000
        bucket = bisect_left(BUCKETS_MS, total_ms)
        timing.total.counts[bucket] += 1
        timing.total.sum_ms += total_ms
        if local_s == total_s:  # answered at once, as most are: nothing to look up again
            timing.local.counts[bucket] += 1
            timing.local.sum_ms += total_ms
            timing.remote.counts[0] += 1
            return
        timing.local.add(local_s * 1000)
        timing.remote.add((total_s - local_s) * 1000)
