"""How far reassignments are: bytes that the new replicas have and will have, rate and time left. Pure."""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from dataclasses import field
from typing import Any

from kafkalite.extension.messages.reassignment import Reassignment
from kafkalite.lazy_dataclass import dataclass
from kafkalite.model import BrokerId, TopicPartition

#: Number of seconds over which the rate is measured.
RATE_WINDOW_S = 10.0
#: Followers fetch in steps of up to a megabyte, so the rate of a shorter time is wrong by any factor.
MIN_WINDOW_S = 2.0


@dataclass(frozen=True, slots=True)
class Part:
    """One partition: bytes that its new replicas will have, and have. `origin`: its replicas before the move."""

    partition: TopicPartition
    total_bytes: int
    done_bytes: int
    is_under_way: bool
    replicas: tuple[int, ...]
    target: tuple[int, ...]
    origin: tuple[int, ...] = ()


def part_of(move: Reassignment, held: Mapping[tuple[TopicPartition, BrokerId], int]) -> Part:
    """`held`: bytes of each replica, as far as its broker reported them."""
    partition = TopicPartition(move.topic, move.partition)
    full = held.get((partition, move.leader), 0)
    new = [broker for broker in move.target if broker not in move.origin]
    done = sum(full if broker in move.isr else min(held.get((partition, broker), 0), full) for broker in new)
    under_way = bool(move.step or move.dropping)
    return Part(
        partition, full * len(new), done, under_way, tuple(move.replicas), tuple(move.target), tuple(move.origin)
    )


@dataclass(slots=True)
class Tracker:
    """What was seen since the watch began. A partition that is not listed any more is done. A move that is replaced or cancelled begins again."""

    totals: dict[TopicPartition, int] = field(default_factory=dict)
    done: dict[TopicPartition, int] = field(default_factory=dict)
    history: list[tuple[float, int]] = field(default_factory=list)
    #: What was last requested of each; a move that is rolled back keeps what was requested before.
    wanted: dict[TopicPartition, tuple[int, ...]] = field(default_factory=dict)
    parts: Sequence[Part] = ()

    def take(self, parts: Sequence[Part], now: float) -> None:
        """A new sample; `now` in seconds."""
        before = {part.partition: part.target for part in self.parts}
        self.parts = parts
        listed = {part.partition for part in parts}
        for part in parts:
            if before.get(part.partition, part.target) != part.target:
                # It goes elsewhere now: what was copied for the earlier move says nothing about this one.
                del self.totals[part.partition], self.done[part.partition]
                self.history.clear()
            if part.target != part.origin:
                self.wanted[part.partition] = part.target
            self.totals[part.partition] = max(part.total_bytes, self.totals.get(part.partition, 0))
            # If a replica starts again, the progress that was shown does not go back.
            self.done[part.partition] = max(part.done_bytes, self.done.get(part.partition, 0))
        for partition in self.totals.keys() - listed:
            self.done[partition] = self.totals[partition]
        self.history.append((now, self.done_bytes))
        while len(self.history) > 2 and now - self.history[1][0] >= RATE_WINDOW_S:
            self.history.pop(0)

    @property
    def total_bytes(self) -> int:
        return sum(self.totals.values())

    @property
    def done_bytes(self) -> int:
        return sum(self.done.values())

    @property
    def finished(self) -> int:
        return len(self.totals) - len(self.parts)

    @property
    def rate(self) -> float:
        """Bytes/s; 0 while it is not known."""
        (start, first), (end, last) = self.history[0], self.history[-1]
        return (last - first) / (end - start) if end - start >= MIN_WINDOW_S else 0.0

    @property
    def eta_s(self) -> float | None:
        """Seconds left; None while unknown."""
        return (self.total_bytes - self.done_bytes) / self.rate if self.rate > 0 else None

    def value(self) -> dict[str, Any]:
        """For programs."""
        return {
            "partitions": len(self.totals),
            "finished": self.finished,
            "under_way": sum(part.is_under_way for part in self.parts),
            "bytes_total": self.total_bytes,
            "bytes_done": self.done_bytes,
            "bytes_per_s": round(self.rate),
            "eta_s": None if self.eta_s is None else round(self.eta_s, 1),
            "done": not self.parts,
        }
