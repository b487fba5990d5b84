"""Which partition a record goes to: Kafka's default, so that both worlds' producers agree on a key's partition."""

from __future__ import annotations

import random
from collections.abc import Sequence

_SEED = 0x9747B28C
_M = 0x5BD1E995
_MASK = 0xFFFFFFFF


def murmur2(data: bytes) -> int:
    """The 32-bit MurmurHash2 that Kafka's producers use, unsigned."""
    length = len(data)
    h = (_SEED ^ length) & _MASK
    whole = length & ~3
    for at in range(0, whole, 4):
        k = int.from_bytes(data[at : at + 4], "little") * _M & _MASK
        k = (k ^ (k >> 24)) * _M & _MASK
        h = (h * _M & _MASK) ^ k
    rest = data[whole:]
    if rest:
        h = (h ^ int.from_bytes(rest, "little")) * _M & _MASK
    h = (h ^ (h >> 13)) * _M & _MASK
    return h ^ (h >> 15)


def partition_for_key(key: bytes, partition_count: int) -> int:
    """The partition of a keyed record (Kafka's DefaultPartitioner: positive murmur2 modulo all partitions)."""
    return (murmur2(key) & 0x7FFFFFFF) % partition_count


class StickyPartitioner:
    """Partitions for records without a key: one partition until its batch is full, then another (KIP-480)."""

    def __init__(self, rng: random.Random) -> None:
        self._random = rng
        self._current: dict[str, int] = {}

    def partition(self, topic: str, available: Sequence[int]) -> int:
        """The current partition of the topic. `available` are those with a leader, not empty."""
        current = self._current.get(topic)
        if current is None or current not in available:
            current = self._pick(topic, available)
        return current

    def next_batch(self, topic: str, available: Sequence[int]) -> None:
        """The current partition's batch is full: go on with another one, if there is any."""
        current = self._current.get(topic)
        others = [partition for partition in available if partition != current]
        if others:
            self._pick(topic, others)

    def _pick(self, topic: str, available: Sequence[int]) -> int:
        self._current[topic] = chosen = available[self._random.randrange(len(available))]
        return chosen
