"""Which node to ask first when any of them will do. No I/O."""

from __future__ import annotations

import random
from collections.abc import Container, Iterable, Sequence

from kafkalite.client.cluster_view import ClusterView
from kafkalite.model import Endpoint

#: Time in seconds for which a slow node is asked last.
LATE_FOR_S = 5.0


class BootstrapRotation:
    """Every address that a client knows, in turn.

    Args:
        view: where the brokers are; read, never changed.
    """

    def __init__(self, bootstrap: Sequence[Endpoint], view: ClusterView, rng: random.Random) -> None:
        self._bootstrap = tuple(bootstrap)
        self._view = view
        #: Nodes that were late -> until when (seconds) they are asked last.
        self._late: dict[Endpoint, float] = {}
        self._rotation = rng.randrange(1 << 16)

    def in_turn(self, now: float, unreachable: Container[Endpoint]) -> list[Endpoint]:
        """Each time beginning with the next: a node that is cut off from the cluster, but not from us, must not be the
        only one we listen to. Those that were late or could not be reached come last."""
        brokers = [broker.endpoint for _, broker in sorted(self._view.brokers.items())]
        known = list(dict.fromkeys((*brokers, *self._bootstrap)))
        self._rotation += 1
        start = self._rotation % len(known)
        return sorted(
            known[start:] + known[:start],
            key=lambda endpoint: endpoint in unreachable or self._late.get(endpoint, now) > now,
        )

    def was_late(self, endpoints: Iterable[Endpoint], now: float) -> None:
        """Ask these last for a while."""
        self._late.update(dict.fromkeys(endpoints, now + LATE_FOR_S))

    def was_in_time(self, endpoint: Endpoint) -> None:
        """Ask it in its turn again."""
        self._late.pop(endpoint, None)
