"""Which replicas of a node should be on another of its disks. Pure.

As in the controller's balancer, each move lowers one sum: the squares of how far each disk is from its share of the replicas and of their
bytes. A disk's share is that of its size, so a plan ends, and the next one is empty.
"""

from __future__ import annotations

from collections.abc import Collection, Mapping

from kafkalite.lazy_dataclass import dataclass
from kafkalite.model import TopicPartition
from kafkalite.wording import number_of

#: Differences are measured against a disk's share, but never against less bytes than this.
_LEAST_BYTES = 64 * 1024**2
_EPSILON = 1e-9


@dataclass(frozen=True, slots=True)
class DiskShare:
    """A disk that is in use: its size and what is free, in bytes."""

    total_bytes: int
    free_bytes: int


@dataclass(frozen=True, slots=True)
class DiskChoice:
    partition: TopicPartition
    source: str
    target: str
    reason: str


class _Loads:
    """How many replicas and bytes each disk has, and which share of both it should have."""

    def __init__(self, disks: Mapping[str, DiskShare], here: Collection[tuple[str, int]]) -> None:
        total = sum(each.total_bytes for each in disks.values())
        share = {path: each.total_bytes / total for path, each in disks.items()}
        self.count = {path: sum(at == path for at, _ in here) for path in disks}
        self.held = {path: sum(size for at, size in here if at == path) for path in disks}
        self._wanted_count = {path: len(here) * share[path] for path in disks}
        self._wanted_bytes = {path: sum(self.held.values()) * share[path] for path in disks}

    def move(self, source: str, target: str, size: int) -> None:
        """Count a replica of `size` bytes at `target`."""
        for path, sign in ((source, -1), (target, 1)):
            self.count[path] += sign
            self.held[path] += sign * size

    def is_out(self, path: str, tolerance: float) -> bool:
        off = abs(self.count[path] - self._wanted_count[path])
        over = abs(self.held[path] - self._wanted_bytes[path]) / max(_LEAST_BYTES, self._wanted_bytes[path])
        return (off >= 1 and off > tolerance * self._wanted_count[path]) or over > tolerance

    def gain(self, source: str, target: str, size: int) -> float:
        """By how much the move would lower the sum of all distances."""
        before = self._distance(source) + self._distance(target)
        return before - self._distance(source, -1, -size) - self._distance(target, 1, size)

    def compared(self, source: str, target: str) -> str:
        count, megabytes = self.count, {path: size / 1e6 for path, size in self.held.items()}
        return f"{source} has {number_of(count[source], 'replica')} and {megabytes[source]:.1f} MB, {target} {count[target]} and {megabytes[target]:.1f} MB"

    def _distance(self, path: str, more: int = 0, size: int = 0) -> float:
        count, held = self._wanted_count[path], self._wanted_bytes[path]
        counts = (self.count[path] + more - count) / max(1.0, count)
        sizes = (self.held[path] + size - held) / max(_LEAST_BYTES, held)
        return counts * counts + sizes * sizes


def choose_disk_moves(
    disks: Mapping[str, DiskShare],
    replicas: Mapping[TopicPartition, tuple[str, int]],
    *,
    tolerance: float,
    max_disk: float,
    limit: int,
) -> list[DiskChoice]:
    """At most `limit` moves.

    Args:
        disks: by directory; only those that can take replicas.
        replicas: where each replica is, and its bytes.
        tolerance: nothing is moved while every disk is within this share of what it should have, or within one replica of it.
        max_disk: share of a disk that may be used.
    """
    if len(disks) < 2 or not any(each.total_bytes for each in disks.values()):
        return []
    here = {key: replicas[key] for key in sorted(replicas) if replicas[key][0] in disks}
    origin = {key: path for key, (path, _) in here.items()}
    loads = _Loads(disks, here.values())
    if not any(loads.is_out(path, tolerance) for path in disks):
        return []
    left = {path: max_disk * each.total_bytes - (each.total_bytes - each.free_bytes) for path, each in disks.items()}
    chosen: dict[TopicPartition, DiskChoice] = {}
    while len(chosen) < limit:
        best, found = 0.0, None
        for key, (source, size) in here.items():
            for target in disks:
                if target != source and size <= left[target]:
                    gain = loads.gain(source, target, size)
                    if gain > best + _EPSILON:
                        best, found = gain, (key, target)
        if found is None:
            break
        key, target = found
        source, size = here[key]
        # A replica may be chosen again when others have moved: it goes to the last place at once, or stays.
        chosen.pop(key, None)
        if target != origin[key]:
            chosen[key] = DiskChoice(key, origin[key], target, loads.compared(source, target))
        here[key] = target, size
        left[target] -= size
        loads.move(source, target, size)
    return list(chosen.values())
