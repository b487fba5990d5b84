"""The limits of reassignments (KIP-435, invariant C13): cluster-wide dynamic settings."""

from __future__ import annotations

#: The KIP's text has the first prefix, its table the second one; the others are accepted because earlier versions accepted them.
LIMIT_PREFIXES = ("reassignment.parallel.", "reassignment.max.concurrent.", "parallel.reassignment.", "parallel.")
REPLICAS = "replica.count"
PARTITIONS = "partition.count"
LEADER_MOVEMENTS = "leader.movements"
#: As they are written by us.
LIMIT_KEYS = tuple(LIMIT_PREFIXES[0] + name for name in (REPLICAS, PARTITIONS, LEADER_MOVEMENTS))


def is_limit(key: str) -> bool:
    """Whether the key names a limit, in any spelling."""
    return any(key == prefix + name for prefix in LIMIT_PREFIXES for name in (REPLICAS, PARTITIONS, LEADER_MOVEMENTS))


def parse_limit(value: str) -> int | None:
    """A positive int, at most Kafka's Int.MAX; None if the text is not one."""
    text = value.strip()
    if not (text.isascii() and text.isdigit()) or len(text) > 10:
        return None
    return int(text) if 1 <= int(text) < 2**31 else None
