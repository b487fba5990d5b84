"""What Kafka has no API for, or a poorer one: messages of the extension API (`kafkalite.extension.apis`).

The rules of `kafkalite.rpc.messages` hold: frozen dataclasses, packed as arrays of their fields; a new field goes to
the end and has a default.
"""

from kafkalite.extension.messages import (
    balancing,
    configs,
    disks,
    open_transactions,
    rates,
    reassignment,
    topics,
    tracing,
    transactions,
    watching,
)

#: The modules that hold messages; all of them register theirs when the package is imported.
AREAS = (
    "balancing", "configs", "disks", "open_transactions", "rates", "reassignment", "topics", "tracing", "transactions", "watching",
)  # fmt: skip

__all__ = [
    "AREAS",
    "balancing",
    "configs",
    "disks",
    "open_transactions",
    "rates",
    "reassignment",
    "topics",
    "tracing",
    "transactions",
    "watching",
]
