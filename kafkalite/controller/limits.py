"""The limits of reassignments from the cluster's dynamic settings (KIP-435, invariant C13). Pure."""

from __future__ import annotations

from collections.abc import Mapping

from kafkalite.config import LEADER_MOVEMENTS, LIMIT_PREFIXES, PARTITIONS, REPLICAS, parse_limit
from kafkalite.controller.events import UNLIMITED, Limits
from kafkalite.coordination.admin_znodes import OrderLimits


def limits_from(settings: Mapping[str, str]) -> Limits:
    """The limits; what is missing, or was written by hand and is no limit, limits nothing."""

    def value(name: str) -> int:
        for prefix in LIMIT_PREFIXES:
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
