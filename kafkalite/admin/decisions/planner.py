"""Plans for reassignments: few movements, racks kept apart, load even. Pure.

What can stay, stays. A replica that has to go is replaced on the broker that holds least, on a rack that the partition
does not use yet where there is one. Only then, and only to make the counts even, is more moved.
"""

from __future__ import annotations

from collections.abc import Collection, Iterable, Iterator, Mapping, Sequence
from dataclasses import field

from kafkalite.errors import ErrorCode, api_error
from kafkalite.lazy_dataclass import dataclass
from kafkalite.model import BrokerId, Replicas, TopicPartition
from kafkalite.wording import number_of


@dataclass(frozen=True, slots=True)
class Goal:
    """What a plan is for.

    brokers: who may hold replicas afterwards. `replication_factor`: None keeps each partition's own.
    is_spread: move more than has to be, until every broker holds about the same number.
    """

    brokers: frozenset[BrokerId]
    replication_factor: int | None = None
    is_spread: bool = False
    #: Of `brokers`, those that keep what they have and get nothing new.
    closed: frozenset[BrokerId] = frozenset()


@dataclass(slots=True)
class _BrokerLoads:
    """Replicas and bytes by broker, over ALL partitions of the cluster; and how many prefer it as their leader."""

    replicas: dict[BrokerId, int] = field(default_factory=dict)
    size_bytes: dict[BrokerId, int] = field(default_factory=dict)
    leaders: dict[BrokerId, int] = field(default_factory=dict)

    def add(self, broker: BrokerId, size_bytes: int, sign: int = 1) -> None:
        self.replicas[broker] = self.replicas.get(broker, 0) + sign
        self.size_bytes[broker] = self.size_bytes.get(broker, 0) + sign * size_bytes

    def key(self, broker: BrokerId) -> tuple[int, int, BrokerId]:
        return self.replicas.get(broker, 0), self.size_bytes.get(broker, 0), broker


@dataclass(frozen=True, slots=True)
class ReassignmentPlan:
    """Partition -> replicas, for those that change."""

    targets: Mapping[TopicPartition, Replicas]


def make_plan(
    goal: Goal,
    assignment: Mapping[TopicPartition, Replicas],
    *,
    chosen: Collection[TopicPartition],
    racks: Mapping[BrokerId, str | None],
    sizes: Mapping[TopicPartition, int],
) -> ReassignmentPlan:
    """A plan for the chosen partitions.

    Args:
        assignment: of every partition in the cluster: the others count as load.
        racks: of every live broker.
        sizes: bytes of one replica; missing: unknown, counts as nothing.
    Raises:
        ApiError: INVALID_REPLICATION_FACTOR, INVALID_REPLICA_ASSIGNMENT: the goal cannot be reached.
    """
    dead = sorted(goal.brokers - racks.keys())
    if dead:
        raise api_error(ErrorCode.INVALID_REPLICA_ASSIGNMENT, f"brokers that are not alive: {dead}")
    load = _BrokerLoads()
    for partition, replicas in assignment.items():
        for broker in replicas:
            load.add(broker, sizes.get(partition, 0))
        load.leaders[replicas[0]] = load.leaders.get(replicas[0], 0) + 1
    wanted: dict[TopicPartition, Replicas] = {}
    # The largest first: what is placed last evens out what came before.
    for partition in sorted(chosen, key=lambda each: (-sizes.get(each, 0), each)):
        wanted[partition] = _place(goal, partition, assignment[partition], racks, sizes.get(partition, 0), load)
    if goal.is_spread:
        _spread(goal, wanted, racks, sizes, load)
    for partition in sorted(wanted):
        wanted[partition] = _ordered(assignment[partition], wanted[partition], load)
    if goal.is_spread:
        _spread_leaders(goal, wanted, load)
    return ReassignmentPlan(
        {partition: wanted[partition] for partition in sorted(wanted) if wanted[partition] != assignment[partition]}
    )


def _place(
    goal: Goal,
    partition: TopicPartition,
    current: Replicas,
    racks: Mapping[BrokerId, str | None],
    size_bytes: int,
    load: _BrokerLoads,
) -> Replicas:
    count = len(current) if goal.replication_factor is None else goal.replication_factor
    if count > len(goal.brokers):
        reason = f"{partition}: {number_of(count, 'replica')}, but only {number_of(len(goal.brokers), 'broker')} to hold them"
        raise api_error(ErrorCode.INVALID_REPLICATION_FACTOR, reason)
    kept = [broker for broker in current if broker in goal.brokers]
    for broker in current:
        if broker not in kept:
            load.add(broker, size_bytes, -1)
    while len(kept) > count:
        # The leader stays; of the others first those that share a rack, then those on the fullest broker.
        gone = max(kept[1:], key=lambda each: (_shares_rack(each, kept, racks), load.key(each)))
        kept.remove(gone)
        load.add(gone, size_bytes, -1)
    while len(kept) < count:
        free = [broker for broker in goal.brokers if broker not in kept and broker not in goal.closed]
        if not free:
            reason = f"{partition}: {number_of(count, 'replica')}, but too few brokers take new ones"
            raise api_error(ErrorCode.INVALID_REPLICATION_FACTOR, reason)
        new = min(free, key=lambda each: (_shares_rack(each, kept, racks), load.key(each)))
        kept.append(new)
        load.add(new, size_bytes)
    return tuple(kept)


def _shares_rack(broker: BrokerId, others: Iterable[BrokerId], racks: Mapping[BrokerId, str | None]) -> bool:
    rack = racks.get(broker)
    return rack is not None and any(racks.get(other) == rack for other in others if other != broker)


def _spread(
    goal: Goal,
    wanted: dict[TopicPartition, Replicas],
    racks: Mapping[BrokerId, str | None],
    sizes: Mapping[TopicPartition, int],
    load: _BrokerLoads,
) -> None:
    """Move single replicas from the fullest broker to the emptiest until no move makes the counts more even."""
    hosted: dict[BrokerId, set[TopicPartition]] = {broker: set() for broker in goal.brokers}
    for partition, replicas in wanted.items():
        for broker in replicas:
            hosted[broker].add(partition)
    for _ in range(sum(map(len, hosted.values()))):
        for full, empty in _uneven_pairs(sorted(goal.brokers - goal.closed, key=load.key), load):
            movable = [
                partition
                for partition in hosted[full] - hosted[empty]
                if _may_swap(wanted[partition], full, empty, racks)
            ]
            if movable:
                break
        else:
            return
        partition = min(movable, key=lambda each: (wanted[each][0] == full, sizes.get(each, 0), each))
        wanted[partition] = tuple(empty if each == full else each for each in wanted[partition])
        hosted[full].remove(partition)
        hosted[empty].add(partition)
        load.add(full, sizes.get(partition, 0), -1)
        load.add(empty, sizes.get(partition, 0))


def _uneven_pairs(by_load: Sequence[BrokerId], load: _BrokerLoads) -> Iterator[tuple[BrokerId, BrokerId]]:
    """A fuller broker and an emptier one, between which a replica makes the counts more even; the fullest ones first."""
    for full in reversed(by_load):
        for empty in by_load:
            if load.replicas.get(full, 0) - load.replicas.get(empty, 0) < 2:
                break
            yield full, empty


def _spread_leaders(goal: Goal, wanted: dict[TopicPartition, Replicas], load: _BrokerLoads) -> None:
    """Another replica of a partition comes first until no such change makes the numbers of preferred leaders more even.

    A broker that joins would hold its share of the replicas otherwise, and lead nothing.
    """
    changed = True
    while changed:
        changed = False
        for partition in sorted(wanted):
            first, *others = wanted[partition]
            able = [other for other in others if other in goal.brokers]
            chosen = min(able, key=lambda each: (load.leaders.get(each, 0), each), default=first)
            if load.leaders.get(first, 0) - load.leaders.get(chosen, 0) < 2:
                continue
            load.leaders[first] -= 1
            load.leaders[chosen] = load.leaders.get(chosen, 0) + 1
            wanted[partition] = (chosen, *(each for each in wanted[partition] if each != chosen))
            changed = True


def _may_swap(replicas: Replicas, gone: BrokerId, new: BrokerId, racks: Mapping[BrokerId, str | None]) -> bool:
    """Not where it would bring two replicas onto one rack that were apart."""
    rest = [each for each in replicas if each != gone]
    return not _shares_rack(new, rest, racks) or _shares_rack(gone, rest, racks)


def _ordered(current: Replicas, replicas: Replicas, load: _BrokerLoads) -> Replicas:
    """The leader first if it stays; otherwise the replica that leads least, and among these one that has the records."""
    kept = tuple(broker for broker in current if broker in replicas)
    order = (*kept, *(broker for broker in replicas if broker not in kept))
    if current[0] in replicas:
        return order
    load.leaders[current[0]] = load.leaders.get(current[0], 0) - 1
    first = min(order, key=lambda broker: (load.leaders.get(broker, 0), broker not in kept, broker))
    load.leaders[first] = load.leaders.get(first, 0) + 1
    return (first, *(broker for broker in order if broker != first))
