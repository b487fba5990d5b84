"""How fast replicas that are not in sync may copy (KIP-73, invariant F22). Pure: times are passed in.

The leader's side holds back what a move adds, while the move asks for it, and what Kafka's settings list. A rate at which a replica
falls behind for good, because producers are faster, is raised there until it gains.
"""

from __future__ import annotations

from collections.abc import Collection
from dataclasses import field
from functools import lru_cache

from kafkalite.lazy_dataclass import dataclass
from kafkalite.model import BrokerId, TopicPartition

#: Time without progress after which a replica gets a higher rate.
PATIENCE_MS = 5_000
RAISE_BY = 1.5
#: A replica that still does not gain has another reason; a larger number would become infinite one day.
MAX_FACTOR = 1e6
#: A wait is not longer (ms): the rate may be raised meanwhile.
MAX_WAIT_MS = 1_000
#: What may be sent at once after a pause, in seconds of the rate.
BURST_S = 1.0
#: As a setting: no limit.
NO_RATE = 2**63 - 1


@dataclass(slots=True)
class _Gain:
    since_ms: int
    lag: int
    factor: float = 1.0


@dataclass(slots=True)
class Throttle:
    """One per node and side: all throttled replicas share its rate, as leader the highest that any of their moves asks for."""

    _tokens: float = 0.0
    _at_ms: int = -1
    _gains: dict[tuple[TopicPartition, int], _Gain] = field(default_factory=dict)

    def rate(self, partition: TopicPartition, replica: int, ordered: int, *, lag: int, now_ms: int) -> float:
        """Bytes/s for this replica now; `lag` in records."""
        key = (partition, replica)
        gain = self._gains.get(key)
        if gain is None:
            gain = self._gains[key] = _Gain(now_ms, lag)
        elif now_ms - gain.since_ms >= PATIENCE_MS:
            if lag >= gain.lag:
                gain.factor = min(gain.factor * RAISE_BY, MAX_FACTOR)
            gain.since_ms, gain.lag = now_ms, lag
        return ordered * gain.factor

    def retain(self, throttled: Collection[TopicPartition]) -> None:
        """Forget what was noted of partitions whose moves are over, or that are led elsewhere."""
        for key in [key for key in self._gains if key[0] not in throttled]:
            del self._gains[key]

    def wait_ms(self, rate: float, now_ms: int) -> int:
        """How long nothing may be sent, as far as is known; 0: something may."""
        if self._at_ms < 0:
            self._tokens += rate * BURST_S
        else:
            elapsed_s = max(0, now_ms - self._at_ms) / 1000
            self._tokens = min(self._tokens + elapsed_s * rate, rate * BURST_S)
        self._at_ms = now_ms
        if self._tokens > 0:
            return 0
        return min(int(-self._tokens / rate * 1000) + 1, MAX_WAIT_MS)

    @property
    def allowance(self) -> int:
        """Bytes that may be sent now, beyond which one batch may go."""
        return max(1, int(self._tokens))

    def take(self, size_bytes: int) -> None:
        """This was sent; a batch larger than what was left is paid off later."""
        self._tokens -= size_bytes


@lru_cache(maxsize=1000)
def _listed_replicas(text: str) -> frozenset[tuple[int, int]]:
    return frozenset(
        (int(number), int(broker)) for number, _, broker in (e.partition(":") for e in text.split(",")) if broker
    )


def is_listed(text: str, partition: int, broker: BrokerId) -> bool:
    """Whether a topic's throttled replicas, PARTITION:BROKER,… or *, have this one."""
    return bool(text) and (text == "*" or (partition, broker) in _listed_replicas(text))


def is_throttled(ordered: int, replica: int, in_sync: tuple[int, ...], adding: tuple[int, ...]) -> bool:
    """Whether a follower's copying is held back."""
    return ordered > 0 and replica in adding and replica not in in_sync
