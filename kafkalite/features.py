"""Features of the cluster (KIP-584): which new behaviour all live brokers have, and which of it is switched on.

A broker registers, for each feature, the highest level that its code knows. The level in force (Kafka: finalized) is
the lowest of those of the live brokers, so that a cluster of mixed versions stays on the lower one. UpdateFeatures
can choose a lower level; what it chose is kept in ZooKeeper. Without a choice the highest possible level is in force.

`Services.feature_level(name)` is what code asks that depends on a feature. Pure.
"""

from __future__ import annotations

from collections.abc import Iterable, Mapping

from kafkalite.lazy_dataclass import dataclass
from kafkalite.model import ELR_FEATURE, ELR_VERSION, TRANSACTION_FEATURE, TRANSACTION_VERSION
from kafkalite.rpc.messages.control import Broker

#: Consumer groups of KIP-848; share groups (KIP-932); streams groups (KIP-1071).
GROUP_FEATURE = "group.version"
SHARE_FEATURE = "share.version"
STREAMS_FEATURE = "streams.version"
#: From this level of share.version on, share groups have dead letters (KIP-1191).
DEAD_LETTERS_LEVEL = 2
#: Feature -> (lowest, highest) level of this code. Level 0: off. Code that brings a feature raises its highest level here.
#: Eligible leader replicas are never off: without them the last replica in sync may lose committed records (ADR 16).
SUPPORTED: Mapping[str, tuple[int, int]] = {
    GROUP_FEATURE: (0, 1),
    TRANSACTION_FEATURE: (0, TRANSACTION_VERSION),
    SHARE_FEATURE: (0, DEAD_LETTERS_LEVEL),
    STREAMS_FEATURE: (0, 1),
    ELR_FEATURE: (1, ELR_VERSION),
}


@dataclass(frozen=True, slots=True)
class Finalized:
    """`levels`: those in force, without those that are off. `epoch`: a client takes levels only with a higher one; -1: no broker is known."""

    epoch: int
    levels: Mapping[str, int]

    def level(self, name: str) -> int:
        """What code asks that depends on a feature. A node that has just started, and knows no broker, does not say that a feature is off:
        for clients that is final. It leads nothing, and the client hears that."""
        return SUPPORTED[name][1] if self.epoch < 0 else self.levels.get(name, 0)


def registered() -> tuple[tuple[str, int], ...]:
    """What this code states in its registration, beside the two features that have fields of their own there."""
    named = (ELR_FEATURE, TRANSACTION_FEATURE)
    return tuple((name, highest) for name, (_, highest) in SUPPORTED.items() if highest and name not in named)


def finalized(brokers: Iterable[Broker], stored: Mapping[str, str], stored_at: int = -1) -> Finalized:
    """The levels in force among these live brokers; `stored`: what UpdateFeatures has chosen, with the zxid of that write.

    A client accepts levels only from a response with a higher epoch. Registrations and choices have their zxids as epochs. A broker that knows less can only come in with a
    registration that is newer than all others, so the newest one's epoch rises whenever a level falls. It may fall back
    when that broker goes: then a client stays at the lower level until it meets a newer registration.
    """
    live = list(brokers)
    if not live:
        return Finalized(-1, {})
    levels: dict[str, int] = {}
    for name, (lowest, highest) in SUPPORTED.items():
        possible = min(highest, *(broker.feature_level(name) for broker in live))
        level = min(possible, max(lowest, stored_level(stored, name, possible)))
        if level:
            levels[name] = level
    return Finalized(max(stored_at, *(broker.broker_epoch for broker in live)), levels)


def stored_level(stored: Mapping[str, str], name: str, default: int) -> int:
    """A stored number; `default` if there is none, or if something else was written by hand."""
    text = stored.get(name, "")
    return int(text) if text.isascii() and text.isdigit() and len(text) <= 19 else default


def why_not(name: str, level: int, brokers: Iterable[Broker]) -> str:
    """Why a feature cannot have this level in a cluster of these live brokers; empty if it can."""
    if name not in SUPPORTED:
        return f"Invalid update version {level} for feature {name}. This cluster does not know the feature."
    lowest, highest = SUPPORTED[name]
    if not lowest <= level <= highest:
        return (
            f"Invalid update version {level} for feature {name}. Local broker only supports versions {lowest}-{highest}"
        )
    for broker in brokers:
        if broker.feature_level(name) < level:
            known = broker.feature_level(name)
            return f"Invalid update version {level} for feature {name}. Broker {broker.broker_id} only supports versions {lowest}-{known}"
    return ""
