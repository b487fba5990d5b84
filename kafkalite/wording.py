"""Words of messages that people read. Pure."""

from __future__ import annotations


def number_of(count: int, noun: str) -> str:
    """1 partition, 2,000 partitions, 1 directory, 2 directories."""
    if count == 1:
        return f"1 {noun}"
    plural = f"{noun[:-1]}ies" if noun.endswith("y") else f"{noun}s"
    return f"{count:,} {plural}"
