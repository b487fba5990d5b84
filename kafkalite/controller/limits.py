"""The limits of reassignments from the cluster's dynamic settings (KIP-435, C13). Pure."""

from __future__ import annotations

from collections.abc import Mapping

from kafkalite.config import LEADER_MOVEMENTS, LIMIT_PREFIXES, PARTITIONS, REPLICAS, parse_limit
from kafkalite.controller.events import UNLIMITED, Limits


def limits_from(settings: Mapping[str, str]) -> Limits:
    """The limits; what is missing, or was written by hand and is no limit, limits nothing."""

    def value(name: str) -> int:
        for prefix in LIMIT_PREFIXES:
            if prefix + name in settings:
                return parse_limit(settings[prefix + name]) or UNLIMITED
        return UNLIMITED

    return Limits(value(REPLICAS), value(PARTITIONS), value(LEADER_MOVEMENTS))
