"""The plan of a directed run: three nodes on a fast network, some clients, and the faults that a test names."""

from __future__ import annotations

import dataclasses
from collections.abc import Mapping
from typing import Any

from kafkalite.testing.simulated.network import Link
from kafkalite.testing.simulation.plan import Fault, Plan, draw


def three_nodes(
    *faults: Fault,
    settings: Mapping[str, int | str] | None = None,
    topic_settings: Mapping[str, str] | None = None,
    **changes: Any,
) -> Plan:
    """Nothing is drawn that does not stand here or in `changes` (fields of the plan): the rest is always that of seed 1.

    Args:
        settings: of the nodes, on top of those; likewise `topic_settings`.
    """
    drawn = draw(1, may_drain=False)
    small: dict[str, Any] = {"nodes": 3, "topics": {"topic1": 3}, "link": Link(), "producers": 2, "consumers": 1}
    if "flush_before_ack" in changes:
        topic_settings = {"log.flush.before.ack": str(changes["flush_before_ack"]).lower(), **(topic_settings or {})}
    return dataclasses.replace(
        drawn,
        faults=faults,
        settings={**drawn.settings, **(settings or {})},
        topic_settings={**drawn.topic_settings, **(topic_settings or {})},
        **{**small, **changes},
    )
