"""The limits of reassignments from the cluster's dynamic settings (KIP-435, C13). Pure."""

from __future__ import annotations

from collections.abc import Mapping

from kafkalite.controller.events import UNLIMITED, Limits
from kafkalite.coordination.znodes import OrderLimits

#: Both spellings of the KIP: its text's and its table's.
PREFIXES = ("reassignment.parallel.", "parallel.reassignment.", "parallel.")
REPLICAS = "replica.count"
PARTITIONS = "partition.count"
LEADER_MOVEMENTS = "leader.movements"
#: As they are written by us.
KEYS = tuple(PREFIXES[0] + name for name in (REPLICAS, PARTITIONS, LEADER_MOVEMENTS))


def is_limit(key: str) -> bool:
    """Whether the key names a limit, in any spelling."""
    return any(key == prefix + name for prefix in PREFIXES for name in (REPLICAS, PARTITIONS, LEADER_MOVEMENTS))


def parse_limit(value: str) -> int | None:
    """A positive int, at most Kafka's Int.MAX; None if it is none."""
    text = value.strip()
    if not (text.isascii() and text.isdigit()) or len(text) > 10:
        return None
    return int(text) if 1 <= int(text) <= UNLIMITED else None


def limits_from(settings: Mapping[str, str]) -> Limits:
    """The limits; what is missing, or was written by hand and is no limit, limits nothing."""

    def value(name: str) -> int:
        for prefix in PREFIXES:
            if prefix + name in settings:
                return parse_limit(settings[prefix + name]) or UNLIMITED
        return UNLIMITED

    return Limits(value(REPLICAS), value(PARTITIONS), value(LEADER_MOVEMENTS))


def limits_of_order(limits: OrderLimits) -> Limits:
    """What an order limits itself to; 0 limits nothing."""
    return Limits(*(each or UNLIMITED for each in limits))


def stricter(one: Limits, other: Limits) -> Limits:
    """Both hold: the cluster's, and those of the order under way."""
    return Limits(
        min(one.replicas, other.replicas),
        min(one.partitions, other.partitions),
        min(one.leader_movements, other.leader_movements),
    )
