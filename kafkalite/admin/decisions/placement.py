"""Which brokers hold the replicas of a new topic's partitions. Pure; no randomness: the caller draws the start.

`shifted` is Kafka's (AdminUtils 2.8): leaders go round the brokers, followers stand `shift` further on, and the shift
grows with every round, so that a dead broker's load spreads over all others (invariant C8). `mod` is the high-availability article's formula (docs/sources.md).
"""

from __future__ import annotations

from collections.abc import Mapping, Sequence

from kafkalite.model import BrokerId, Replicas
from kafkalite.wording import number_of


class PlacementError(ValueError):
    """There are not enough brokers, or only some of them name a rack."""


def mod(brokers: Sequence[BrokerId], partitions: int, replication_factor: int) -> list[Replicas]:
    """Replica j of partition i on broker (i + j) mod n, brokers sorted (the article's formula, docs/sources.md). Raises PlacementError."""
    order = _checked(brokers, replication_factor)
    count = len(order)
    return [tuple(order[(i + j) % count] for j in range(replication_factor)) for i in range(partitions)]


def shifted(
    brokers: Mapping[BrokerId, str | None],
    partitions: int,
    replication_factor: int,
    *,
    start: int,
    shift: int,
    first_partition: int = 0,
) -> list[Replicas]:
    """Kafka's placement; rack-aware if every broker names its rack.

    Args:
        brokers: id -> rack or None.
        start: index of the broker that leads the first partition; any integer >= 0.
        shift: where the first round's second replica stands; any integer >= 0.
        first_partition: number of the first partition to place (when partitions are added).
    Raises:
        PlacementError: fewer brokers than replicas, or a rack for some brokers only.
    """
    order = _checked(brokers, replication_factor)
    racks = {broker: rack for broker in order if (rack := brokers[broker])}
    if not racks:
        return _rack_unaware(order, partitions, replication_factor, start, shift, first_partition)
    if len(racks) != len(order):
        raise PlacementError("some brokers name a rack and some do not")
    return _rack_aware(racks, partitions, replication_factor, start, shift, first_partition)


def _checked(brokers: Sequence[BrokerId] | Mapping[BrokerId, str | None], replication_factor: int) -> list[BrokerId]:
    order = sorted(brokers)
    if replication_factor < 1:
        raise PlacementError("replication factor must be at least 1")
    if replication_factor > len(order):
        raise PlacementError(
            f"replication factor {replication_factor} is larger than the {number_of(len(order), 'live broker')}"
        )
    return order


def _follower(first: int, shift: int, index: int, count: int) -> int:
    """Where follower `index` stands if the leader is at `first`; never at `first`."""
    return (first + 1 + (shift + index) % (count - 1)) % count


def _rack_unaware(
    order: Sequence[BrokerId], partitions: int, replication_factor: int, start: int, shift: int, first_partition: int
) -> list[Replicas]:
    count = len(order)
    result: list[Replicas] = []
    for number in range(first_partition, first_partition + partitions):
        if number > 0 and number % count == 0:
            shift += 1
        first = (number + start) % count
        followers = [order[_follower(first, shift, j, count)] for j in range(replication_factor - 1)]
        result.append((order[first], *followers))
    return result


def alternate_racks(racks: Mapping[BrokerId, str]) -> list[BrokerId]:
    """The brokers, one rack after the other in turn: neighbours stand in different racks as long as that can be."""
    by_rack: dict[str, list[BrokerId]] = {}
    for broker in sorted(racks):
        by_rack.setdefault(racks[broker], []).append(broker)
    waiting = [by_rack[rack] for rack in sorted(by_rack)]
    result: list[BrokerId] = []
    while waiting:
        for members in waiting:
            result.append(members.pop(0))
        waiting = [members for members in waiting if members]
    return result


def _rack_aware(
    racks: Mapping[BrokerId, str],
    partitions: int,
    replication_factor: int,
    start: int,
    shift: int,
    first_partition: int,
) -> list[Replicas]:
    """Like the other, but a follower is skipped while its rack, or it itself, has a replica and others have none."""
    order = alternate_racks(racks)
    count = len(order)
    rack_count = len(set(racks.values()))
    result: list[Replicas] = []
    for number in range(first_partition, first_partition + partitions):
        if number > 0 and number % count == 0:
            shift += 1
        first = (number + start) % count
        replicas = [order[first]]
        used_racks = {racks[order[first]]}
        step = 0
        while len(replicas) < replication_factor:
            # Kafka multiplies by the number of racks so that the rounds differ in more than their order.
            broker = order[_follower(first, shift * rack_count, step, count)]
            step += 1
            rack_taken = racks[broker] in used_racks and len(used_racks) < rack_count
            broker_taken = broker in replicas and len(replicas) < count
            if not rack_taken and not broker_taken:
                replicas.append(broker)
                used_racks.add(racks[broker])
        result.append(tuple(replicas))
    return result
