"""Which replicas of a node should be on another of its disks. Pure.

As in the controller's balancer, each move lowers one sum: the squares of how far each disk is from its share of the replicas and of their
bytes. A disk's share is that of its size, so a plan ends, and the next one is empty.
"""

from __future__ import annotations

from collections.abc import Mapping

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
    total = sum(each.total_bytes for each in disks.values())
    if len(disks) < 2 or total <= 0:
        return []
    here = {key: (path, size) for key, (path, size) in replicas.items() if path in disks}
    count = dict.fromkeys(disks, 0.0)
    held = dict.fromkeys(disks, 0.0)
    for path, size in here.values():
        count[path] += 1
        held[path] += size
    share = {path: each.total_bytes / total for path, each in disks.items()}
    wanted_count = {path: len(here) * share[path] for path in disks}
    wanted_bytes = {path: sum(held.values()) * share[path] for path in disks}

    def distance(path: str, more: int = 0, size: float = 0.0) -> float:
        counts = (count[path] + more - wanted_count[path]) / max(1.0, wanted_count[path])
        sizes = (held[path] + size - wanted_bytes[path]) / max(_LEAST_BYTES, wanted_bytes[path])
        return counts * counts + sizes * sizes

    def is_out(path: str) -> bool:
        off = abs(count[path] - wanted_count[path])
        over = abs(held[path] - wanted_bytes[path]) / max(_LEAST_BYTES, wanted_bytes[path])
        return (off >= 1 and off > tolerance * wanted_count[path]) or over > tolerance

    if not any(map(is_out, disks)):
        return []
    added = dict.fromkeys(disks, 0)
    origin = {key: path for key, (path, _) in here.items()}
    chosen: dict[TopicPartition, DiskChoice] = {}
    movable = sorted(here)
    while len(chosen) < limit:
        best: tuple[float, TopicPartition, str] | None = None
        for key in movable:
            source, size = here[key]
            for target, room in disks.items():
                used = room.total_bytes - room.free_bytes + added[target] + size
                if target == source or used > max_disk * room.total_bytes:
                    continue
                before = distance(source) + distance(target)
                gain = before - distance(source, -1, -size) - distance(target, 1, size)
                if gain > _EPSILON and (best is None or gain > best[0] + _EPSILON):
                    best = gain, key, target
        if best is None:
            break
        _, key, target = best
        source, size = here[key]
        reason = f"{source} has {number_of(round(count[source]), 'replica')} and {held[source] / 1e6:.1f} MB, {target} {count[target]:.0f} and {held[target] / 1e6:.1f} MB"
        # A replica may be chosen again when others have moved: it goes to the last place at once, or stays.
        chosen.pop(key, None)
        if target != origin[key]:
            chosen[key] = DiskChoice(key, origin[key], target, reason)
        here[key] = target, size
        added[target] += size
        for path, sign in ((source, -1), (target, 1)):
            count[path] += sign
            held[path] += sign * size
    return list(chosen.values())
