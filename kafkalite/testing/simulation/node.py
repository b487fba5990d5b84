"""A host of the simulated cluster with its node."""

from __future__ import annotations

from typing import Any

from kafkalite.config import BrokerConfig
from kafkalite.testing.simulated.process import Process


class SimNode:
    """A node's host as the harness sees it."""

    def __init__(self, name: str, broker_id: int, config: BrokerConfig) -> None:
        self.name = name
        self.broker_id = broker_id
        self.config = config
        self.node: Any = None
        self.process: Process | None = None
        #: Asked to stop, by a fault or at the end: its end is no news.
        self.stopping = False
        self.lives = 0

    @property
    def alive(self) -> bool:
        return self.process is not None and self.process.alive

    @property
    def ready(self) -> bool:
        """Alive (perhaps stopped), and past its start."""
        return self.alive and self.node is not None and self.node.ready.is_set()
