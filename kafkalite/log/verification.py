"""The transactions of one partition whose beginning the coordinator has yet to confirm (KIP-890). Pure.

A transactional batch may begin a transaction on a partition only if the coordinator knows that this partition is part of
it: otherwise its marker would never be written. The leader asks the coordinator and appends afterwards. In
between, the marker of that very transaction may have been written. So each question has a guard, which is removed by any
batch or marker of its producer: a batch whose guard has been removed is refused.
"""

from __future__ import annotations

from itertools import count

from kafkalite.record.batch import is_behind

#: No guard was issued: a transaction is open, or there was no request.
NO_GUARD = 0
#: Producers that may wait at once on one partition. Beyond it the oldest has to ask again.
MAX_WAITING = 10_000

#: Unique in this process: states are loaded again after a truncation, and their guards must differ from earlier ones.
_guards = count(1)


class _UnverifiedTransaction:
    """`lowest_sequence`: of the batches of `epoch` that were seen. None above it may go first."""

    __slots__ = ("epoch", "guard", "lowest_sequence")

    def __init__(self, epoch: int, sequence: int) -> None:
        self.guard = next(_guards)
        self.epoch = epoch
        self.lowest_sequence = sequence


class Verifications:
    """By producer id, the oldest first."""

    __slots__ = ("_waiting",)

    def __init__(self) -> None:
        self._waiting: dict[int, _UnverifiedTransaction] = {}

    def __len__(self) -> int:
        return len(self._waiting)

    def begin(self, producer_id: int, epoch: int, sequence: int) -> int:
        """The guard for the append."""
        known = self._waiting.get(producer_id)
        if known is None:
            while len(self._waiting) >= MAX_WAITING:
                del self._waiting[next(iter(self._waiting))]
            known = self._waiting[producer_id] = _UnverifiedTransaction(epoch, sequence)
        elif epoch > known.epoch:
            known.epoch, known.lowest_sequence = epoch, sequence
        elif epoch == known.epoch and is_behind(known.lowest_sequence, sequence):
            known.lowest_sequence = sequence
        return known.guard

    def holds(self, producer_id: int, guard: int) -> bool:
        """Whether nothing of the producer was written since `guard` was issued."""
        known = self._waiting.get(producer_id)
        return known is not None and known.guard == guard

    def lowest_sequence(self, producer_id: int, epoch: int) -> int | None:
        """None: any batch may be the first."""
        known = self._waiting.get(producer_id)
        return known.lowest_sequence if known is not None and known.epoch == epoch else None

    def end(self, producer_id: int) -> None:
        """A batch or a marker of the producer is in the log."""
        self._waiting.pop(producer_id, None)

    def refuse(self, producer_id: int, guard: int) -> None:
        """The coordinator has refused the batches of `guard`."""
        if self.holds(producer_id, guard):
            del self._waiting[producer_id]
