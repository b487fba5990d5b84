"""Latencies: percentiles, and a plot for a terminal. Pure."""

from __future__ import annotations

import math
from collections.abc import Sequence

_SHARES = (("p50", 0.5), ("p95", 0.95), ("p99", 0.99), ("p99.9", 0.999), ("max", 1.0))
_WIDTH = 50
_ROWS = 12


def percentiles(latencies_ms: Sequence[float]) -> dict[str, float]:
    """Of a sorted list; the value that this share of it does not exceed (nearest rank). Empty: nothing."""
    if not latencies_ms:
        return {}
    last = len(latencies_ms) - 1
    return {
        name: round(latencies_ms[min(last, max(0, math.ceil(share * len(latencies_ms)) - 1))], 3)
        for name, share in _SHARES
    }


def percentiles_text(found: dict[str, float]) -> str:
    """ "p50 1.2 ms, p95 …"."""
    return ", ".join(f"{name} {value:g} ms" for name, value in found.items())


def plot(latencies_ms: Sequence[float]) -> list[str]:
    """How many of a sorted list fall into each of a few ranges, each as wide as the one before times the same factor."""
    if not latencies_ms:
        return []
    low, high = max(latencies_ms[0], 0.001), max(latencies_ms[-1], 0.001)
    factor = max((high / low) ** (1 / _ROWS), 1.0001)
    counts = [0] * _ROWS
    for value in latencies_ms:
        row = int(math.log(max(value, low) / low) / math.log(factor))
        counts[min(row, _ROWS - 1)] += 1
    most = max(counts)
    lines = []
    for row, count in enumerate(counts):
        bar = "█" * round(_WIDTH * count / most) or ("▏" if count else "")
        lines.append(f"{low * factor**row:10.2f} ms  {bar} {count:,}" if count else f"{low * factor**row:10.2f} ms")
    return lines
