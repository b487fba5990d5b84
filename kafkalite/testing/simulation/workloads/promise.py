"""What workloads promise for the time after the faults."""

from __future__ import annotations

from collections.abc import Callable
from typing import NamedTuple

#: Time that a cluster without faults has to recover, and clients to deliver their records.
CONVERGE_S = 90.0


class Promise(NamedTuple):
    """What has to come about when the faults are over. `missing` returns what is not so yet, or raises Violation."""

    text: str
    missing: Callable[[], str | None]
    within_s: float = CONVERGE_S
