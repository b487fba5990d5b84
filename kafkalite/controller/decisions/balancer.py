"""Which replicas should be elsewhere, and why: a broker drained, a rack used twice, a disk too full, load uneven. Pure.

Hard: a partition keeps its number of replicas, never uses fewer racks than it could keep, and no broker is given more than its disks
may hold. Below that, every move makes one sum smaller: the squares of how far each broker is from the mean, over replicas, preferred leaders,
bytes and bytes/s. So moves come to an end, and none is undone by the next while the load stays the same.
"""

from __future__ import annotations

from bisect import bisect_left, insort
from collections.abc import Callable, Iterator, Sequence
from heapq import nsmallest
from itertools import islice

from kafkalite.controller.decisions.balance_view import BalanceMove, BalanceView, Goals, PartitionLoad
from kafkalite.model import BrokerId, Replicas, TopicPartition

#: What is balanced, in the order in which a reason names it.
REPLICAS, LEADERS, BYTES, RATE = range(4)
_DIMENSIONS = (REPLICAS, LEADERS, BYTES, RATE)
#: Least scale of a dimension: differences are measured against the mean, but never against less than this. So nobody copies data because
#: one broker of an idle cluster has 3 kB/s and another 1 kB/s.
_LEAST = (1.0, 1.0, 64 * 1024**2, 1024**2)
#: A difference of one replica or leader does not count.
_GRAIN = (1.0, 1.0, 0.0, 0.0)
#: Least improvement of a move: less than this is rounding.
_EPSILON = 1e-9
#: Pairs of a full and an empty broker, and partitions of each, that are looked at for one move.
_PAIRS = 12
_CANDIDATES = 48

Loads = tuple[float, float, float, float]


_GOALS = ("replicas", "leaders", "bytes", "rate")
_NO_LOAD = PartitionLoad()


class Balancer:
    """One plan. `moves` is what to do, the most urgent first; each assumes that those before it are done."""

    def __init__(self, view: BalanceView, goals: Goals) -> None:
        self._view = view
        self._goals = goals
        self.assignment: dict[TopicPartition, Replicas] = dict(view.assignment)
        #: The brokers that share the load: live ones that take new replicas, and are to keep what they have.
        self.able = sorted(each for each in view.racks if each not in view.closed and each not in view.leaving)
        self._shares = frozenset(self.able)
        self._racks = {view.racks[each] for each in self.able} - {None}
        self.load: dict[BrokerId, list[float]] = {broker: [0.0] * 4 for broker in view.racks}
        self._hosted: dict[BrokerId, set[TopicPartition]] = {broker: set() for broker in view.racks}
        #: What `_sorted_by_size` has sorted: it is asked for every move, and a cluster has many partitions.
        self._by_size: dict[BrokerId, list[tuple[int, TopicPartition]]] = {}
        #: What the moves of this plan bring to each broker's disks.
        self._added_bytes: dict[BrokerId, int] = {}
        #: Replicas that have to move and cannot: partition -> the reason.
        self.stuck: dict[TopicPartition, str] = {}
        for partition, replicas in self.assignment.items():
            self._account(partition, replicas, 1)
        self._set_mean()

    def _set_mean(self) -> None:
        """The mean of the brokers that share the load. They also get what is now on brokers that are to be emptied."""
        sums = [0.0] * 4
        sharing = {*self.able, *self._view.leaving}
        for partition, replicas in self.assignment.items():
            for at, broker in enumerate(replicas):
                if broker in sharing:
                    for dimension, value in enumerate(self.loads_of(partition, replicas, at)):
                        sums[dimension] += value
        self.mean = [each / max(1, len(self.able)) for each in sums]
        self._scale = [max(mean, least) for mean, least in zip(self.mean, _LEAST, strict=True)]

    # --- load ------------------------------------------------------------------------------------------------

    def loads_of(self, partition: TopicPartition, replicas: Replicas, at: int) -> Loads:
        """What the replica at this position costs its broker: a leader also sends to followers and consumers."""
        load = self._view.loads.get(partition, _NO_LOAD)
        if at:
            return 1.0, 0.0, float(load.size_bytes), load.in_rate
        return 1.0, 1.0, float(load.size_bytes), load.in_rate * len(replicas) + load.out_rate

    def _account(self, partition: TopicPartition, replicas: Replicas, sign: int) -> None:
        for at, broker in enumerate(replicas):
            mine = self.load.get(broker)
            if mine is None:
                continue  # not alive
            for dimension, value in enumerate(self.loads_of(partition, replicas, at)):
                mine[dimension] += sign * value
            (self._hosted[broker].add if sign > 0 else self._hosted[broker].discard)(partition)
            if broker in self._by_size:
                entry, by_size = (self._size(partition), partition), self._by_size[broker]
                if sign > 0:
                    insort(by_size, entry)
                else:
                    del by_size[bisect_left(by_size, entry)]

    def _gain(self, partition: TopicPartition, before: Replicas, after: Replicas) -> float:
        """By how much the sum of squares becomes smaller; negative if it grows."""
        changes: dict[BrokerId, list[float]] = {}
        for replicas, sign in ((before, -1.0), (after, 1.0)):
            for at, broker in enumerate(replicas):
                change = changes.setdefault(broker, [0.0] * 4)
                for dimension, value in enumerate(self.loads_of(partition, replicas, at)):
                    change[dimension] += sign * value
        gain = 0.0
        for broker, change in changes.items():
            if broker not in self._shares:
                continue
            mine = self.load[broker]
            for dimension, value in enumerate(change):
                if value:
                    distance, scale = mine[dimension] - self.mean[dimension], self._scale[dimension]
                    gain -= (2 * distance * value + value * value) / (scale * scale)
        return gain

    def excess(self, broker: BrokerId, dimension: int) -> float:
        """How far a broker is from the mean: a share of it, positive if it has more."""
        return (self.load[broker][dimension] - self.mean[dimension]) / self._scale[dimension]

    def is_uneven(self, tolerance: float) -> bool:
        """Whether some broker differs from the mean by more than this share, and by more than one replica or leader."""
        return any(self._is_out(broker, dimension, tolerance) for broker in self.able for dimension in _DIMENSIONS)

    def _is_out(self, broker: BrokerId, dimension: int, tolerance: float) -> bool:
        distance = abs(self.load[broker][dimension] - self.mean[dimension])
        return distance > max(tolerance * self._scale[dimension], _GRAIN[dimension] * (1 - _EPSILON))

    # --- what is allowed ---------------------------------------------------------------------------------------

    def _rack_count(self, replicas: Sequence[BrokerId]) -> int:
        return len({rack for each in replicas if (rack := self._view.racks.get(each)) is not None})

    def _has_room(self, broker: BrokerId, partition: TopicPartition) -> bool:
        room = self._view.room.get(broker)
        if room is None or room.total_bytes <= 0:
            return True  # unknown: a node that does not answer is no target for long
        used = room.total_bytes - room.free_bytes + self._added_bytes.get(broker, 0)
        return used + self._view.loads.get(partition, _NO_LOAD).size_bytes <= self._goals.max_disk * room.total_bytes

    def _targets(self, partition: TopicPartition, replicas: Replicas, gone: BrokerId) -> list[BrokerId]:
        """Brokers that may take the replica of `gone`: as many racks as now, or as many as can be if it has to go."""
        rest = [each for each in replicas if each != gone]
        racks = {each: self._rack_count([*rest, each]) for each in self.able if each not in replicas}
        if not racks:
            return []
        least = self._rack_count(replicas)
        if gone in self._view.leaving:
            least = min(least, max(racks.values()))
        return [each for each, count in racks.items() if count >= least and self._has_room(each, partition)]

    def _orders(self, replicas: Replicas, gone: BrokerId, new: BrokerId) -> list[Replicas]:
        """`new` in the place of `gone`; where that was the preferred leader, also each of the others in front."""
        swapped = tuple(new if each == gone else each for each in replicas)
        orders = [swapped]
        if replicas[0] == gone:
            orders += [
                (first, *(each for each in swapped if each != first)) for first in swapped[1:] if first in self.able
            ]
        return orders

    # --- one more replica --------------------------------------------------------------------------------------

    def _one_more(self, partition: TopicPartition) -> list[Replicas]:
        replicas = self.assignment[partition]
        if partition in self._view.fixed:
            return []
        new = [each for each in self.able if each not in replicas and self._has_room(each, partition)]
        return [order for each in new for order in ((*replicas, each), (each, *replicas))]

    def may_grow(self, partition: TopicPartition) -> bool:
        """Whether a broker can take one more replica of it now."""
        return bool(self._one_more(partition))

    def grow(self, partition: TopicPartition, reason: str) -> BalanceMove | None:
        """One more replica, on one more rack if possible, where it costs least; None: not now."""
        before = self.assignment[partition]
        options = self._one_more(partition)
        if not options:
            return None
        best = max(options, key=lambda order: (self._rack_count(order), self._gain(partition, before, order)))
        return self._apply(partition, best, "internal", reason)

    # --- moves -----------------------------------------------------------------------------------------------

    def moves(self) -> Iterator[BalanceMove]:
        """One after the other; the caller stops when it has enough. Ends when nothing is left to improve."""
        if not self.able:
            self.stuck |= {
                partition: "no broker takes new replicas"
                for partition, replicas in self.assignment.items()
                if any(each in self._view.leaving for each in replicas)
            }
            return
        yield from self._leave()
        self._set_mean()
        if self._goals.mends:
            yield from self._mend_racks()
            yield from self._relieve_disks()
        if self._goals.is_spread:
            yield from self._spread()

    def _apply(self, partition: TopicPartition, target: Replicas, goal: str, reason: str) -> BalanceMove:
        before = self.assignment[partition]
        new = [each for each in target if each not in before]
        size = self._view.loads.get(partition, _NO_LOAD).size_bytes
        self._account(partition, before, -1)
        self._account(partition, target, 1)
        for broker in new:
            self._added_bytes[broker] = self._added_bytes.get(broker, 0) + size
        self.assignment[partition] = target
        return BalanceMove(partition, target, goal, reason, size * len(new))

    def _leave(self) -> Iterator[BalanceMove]:
        """Moves of all replicas away from the brokers that are to be emptied."""
        for partition in sorted(self.assignment):
            replicas = self.assignment[partition]
            gone = [each for each in replicas if each in self._view.leaving]
            if not gone or partition in self._view.fixed:
                continue
            target = replicas
            for broker in gone:
                options = [
                    order
                    for new in self._targets(partition, target, broker)
                    for order in self._orders(target, broker, new)
                ]
                if not options:
                    self.stuck[partition] = self._why_stuck(partition, target)
                    continue
                # Brokers that are to leave, too, must not come first.
                options.sort(
                    key=lambda order: (order[0] in self._view.leaving, -self._gain(partition, replicas, order), order)
                )
                target = options[0]
            if target != replicas:
                reason = "; ".join(self._view.leaving[each] for each in gone if each not in target)
                yield self._apply(partition, target, "drain", reason)

    def _why_stuck(self, partition: TopicPartition, replicas: Replicas) -> str:
        free = [each for each in self.able if each not in replicas]
        if any(self._has_room(each, partition) for each in free):
            return "the brokers whose disks have room for it are on a rack that has a replica already"
        if free:
            return f"no broker's disks have room for it: {', '.join(map(str, free))}"
        return f"every broker that takes new replicas ({', '.join(map(str, self.able))}) has one already"

    def _mend_racks(self) -> Iterator[BalanceMove]:
        """Two replicas on one rack, and a rack without one."""
        if len(self._racks) < 2:
            return
        for partition in sorted(self.assignment):
            replicas = self.assignment[partition]
            used = self._rack_count(replicas)
            if partition in self._view.fixed or used >= min(len(replicas), len(self._racks)):
                continue
            target = replicas
            while (better := self._on_more_racks(partition, target)) is not None:
                target = better
            if target != replicas:
                yield self._apply(
                    partition, target, "rack", f"its {len(replicas)} replicas were on {used} {_racks(used)}"
                )

    def _on_more_racks(self, partition: TopicPartition, replicas: Replicas) -> Replicas | None:
        """The best of the changes of one replica that use one more rack."""
        used = self._rack_count(replicas)
        racks = [self._view.racks.get(each) for each in replicas]
        doubled = [each for each, rack in zip(replicas, racks, strict=True) if rack is None or racks.count(rack) > 1]
        options = [
            order
            for gone in doubled
            for new in self._targets(partition, replicas, gone)
            if self._rack_count([*(each for each in replicas if each != gone), new]) > used
            for order in self._orders(replicas, gone, new)
        ]
        return max(options, key=lambda order: self._gain(partition, replicas, order), default=None)

    def _relieve_disks(self) -> Iterator[BalanceMove]:
        """Replicas off brokers whose disks are fuller than they may be, the largest first, until they are not."""
        for broker in self.able:
            room = self._view.room.get(broker)
            if room is None or room.total_bytes <= 0:
                continue
            over = room.total_bytes - room.free_bytes - self._goals.max_disk * room.total_bytes
            hosted = sorted(
                self._hosted[broker] - self._view.fixed,
                key=lambda each: (-self._view.loads.get(each, _NO_LOAD).size_bytes, each),
            )
            for partition in hosted:
                size = self._view.loads.get(partition, _NO_LOAD).size_bytes
                if over <= 0 or not size:
                    break
                replicas = self.assignment[partition]
                options = [
                    order
                    for new in self._targets(partition, replicas, broker)
                    for order in self._orders(replicas, broker, new)
                ]
                if options:
                    best = max(options, key=lambda order: self._gain(partition, replicas, order))
                    used = 100 * (1 - room.free_bytes / room.total_bytes)
                    reason = (
                        f"the disks of broker {broker} are {used:.0f} % full, {self._goals.max_disk:.0%} is the limit"
                    )
                    over -= size
                    yield self._apply(partition, best, "disk", reason)

    def _spread(self) -> Iterator[BalanceMove]:
        """Load from brokers that have more than the mean to brokers that have less."""
        for _ in range(4 * len(self.assignment) + 1):
            if not self.is_uneven(self._goals.tolerance / 2):
                return
            found = self._best()
            if found is None:
                return
            partition, target, full, empty, dimension = found
            reason = self._reason(full, empty, dimension)
            yield self._apply(partition, target, _GOALS[dimension], reason)

    def _best(self) -> tuple[TopicPartition, Replicas, BrokerId, BrokerId, int] | None:
        """The best move of the pair of brokers that differ most and have one at all."""
        pairs = sorted(
            (
                (self.excess(full, dimension) - self.excess(empty, dimension), dimension, full, empty)
                for dimension in _DIMENSIONS
                for full in self.able
                for empty in self.able
                if self._is_out(full, dimension, self._goals.tolerance / 2)
                or self._is_out(empty, dimension, self._goals.tolerance / 2)
                if self.load[full][dimension] > self.load[empty][dimension]
            ),
            key=lambda each: (-each[0], each[1:]),
        )
        for at, (_, dimension, full, empty) in enumerate(pairs):
            if at >= _PAIRS * len(_DIMENSIONS):
                return None
            best: tuple[float, TopicPartition, Replicas] | None = None
            for partition, target in self._candidates(dimension, full, empty):
                gain = self._gain(partition, self.assignment[partition], target)
                if gain > _EPSILON and (best is None or gain > best[0] * (1 + _EPSILON)):
                    best = gain, partition, target
            if best is not None:
                return best[1], best[2], full, empty, dimension
        return None

    def _candidates(self, dimension: int, full: BrokerId, empty: BrokerId) -> Iterator[tuple[TopicPartition, Replicas]]:
        """Moves of single replicas or leaderships from one broker to the other. A new order copies nothing, and comes first."""
        wanted = (self.load[full][dimension] - self.load[empty][dimension]) / 2
        there = self._hosted[empty]
        if dimension in (LEADERS, RATE):
            found = False
            for partition in self._nearest(
                full, dimension, wanted, lambda each: each in there and self.assignment[each][0] == full
            ):
                replicas = self.assignment[partition]
                target = (empty, *(each for each in replicas if each != empty))
                found = found or self._gain(partition, replicas, target) > _EPSILON
                yield partition, target
            if found:
                return
        for partition in self._nearest(
            full,
            dimension,
            wanted,
            lambda each: each not in there and (dimension != LEADERS or self.assignment[each][0] == full),
        ):
            replicas = self.assignment[partition]
            if empty in self._targets(partition, replicas, full):
                for order in self._orders(replicas, full, empty):
                    yield partition, order

    def _nearest(
        self, broker: BrokerId, dimension: int, wanted: float, is_candidate: Callable[[TopicPartition], bool]
    ) -> list[TopicPartition]:
        """Candidates of a broker whose load comes closest to half of the difference, the smaller ones first among equals. All leaders, and all
        replicas, are equal."""

        def key(partition: TopicPartition) -> tuple[float, int, TopicPartition]:
            replicas = self.assignment[partition]
            value = self.loads_of(partition, replicas, replicas.index(broker))[dimension]
            return abs(wanted - value), self._size(partition), partition

        by_size = self._sorted_by_size(broker)
        order = _outwards(by_size, wanted) if dimension == BYTES else (partition for _, partition in by_size)
        found = (each for each in order if each not in self._view.fixed and is_candidate(each))
        return nsmallest(_CANDIDATES, found, key=key) if dimension == RATE else list(islice(found, _CANDIDATES))

    def _size(self, partition: TopicPartition) -> int:
        return self._view.loads.get(partition, _NO_LOAD).size_bytes

    def _sorted_by_size(self, broker: BrokerId) -> list[tuple[int, TopicPartition]]:
        if broker not in self._by_size:
            self._by_size[broker] = sorted((self._size(each), each) for each in self._hosted[broker])
        return self._by_size[broker]

    def _reason(self, full: BrokerId, empty: BrokerId, dimension: int) -> str:
        def text(value: float) -> str:
            return _amount(value, dimension)

        more, less = self.load[full][dimension], self.load[empty][dimension]
        return f"broker {full} has {text(more)}, broker {empty} {text(less)}; the mean is {text(self.mean[dimension])}"


def _outwards(by_size: Sequence[tuple[int, TopicPartition]], wanted: float) -> Iterator[TopicPartition]:
    """Those whose size is nearest to `wanted` first, of equal distance the smaller ones, of equal size in their order."""
    above = below = bisect_left(by_size, wanted, key=lambda entry: entry[0])
    while below or above < len(by_size):
        if below and (above == len(by_size) or wanted - by_size[below - 1][0] <= by_size[above][0] - wanted):
            first = bisect_left(by_size, by_size[below - 1][0], hi=below, key=lambda entry: entry[0])
            yield from (partition for _, partition in by_size[first:below])
            below = first
        else:
            yield by_size[above][1]
            above += 1


def _racks(count: int) -> str:
    return "rack" if count == 1 else "racks"


def _amount(value: float, dimension: int) -> str:
    if dimension in (REPLICAS, LEADERS):
        noun = "replica" if dimension == REPLICAS else "preferred leader"
        return f"{value:.4g} {noun}{'' if round(value, 3) == 1 else 's'}"
    unit = "MB" if dimension == BYTES else "MB/s"
    return f"{value / 1e6:.1f} {unit}"
