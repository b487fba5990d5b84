"""Which leader epoch starts at which offset: the basis of truncation after a leader change (KIP-101, KIP-279).

Pure: persisting it is the log's business.
"""

from __future__ import annotations

from array import array
from bisect import bisect_right

from kafkalite.model import NO_LEADER_EPOCH, NO_OFFSET, LeaderEpoch, Offset


class LeaderEpochCache:
    """Entries (epoch, start offset). Invariant: epochs strictly increase, start offsets strictly increase."""

    __slots__ = ("_epochs", "_starts")

    def __init__(self, entries: list[tuple[int, int]] | None = None) -> None:
        self._epochs = array("i")
        self._starts = array("q")
        for epoch, start in entries or ():
            self.assign(epoch, start)

    def entries(self) -> list[tuple[int, int]]:
        return list(zip(self._epochs, self._starts, strict=True))

    @property
    def latest_epoch(self) -> int:
        """-1 if there is none."""
        return self._epochs[-1] if self._epochs else -1

    def assign(self, epoch: int, start_offset: int) -> bool:
        """Epoch `epoch` starts at `start_offset`, unless it is the latest already and starts no later.

        Entries that this contradicts (a later epoch, the same or a later start) go. Returns whether anything changed.
        """
        if epoch < 0:
            return False
        if self._epochs and self._epochs[-1] == epoch and self._starts[-1] <= start_offset:
            return False
        while self._epochs and (self._epochs[-1] > epoch or self._starts[-1] >= start_offset):
            self._epochs.pop()
            self._starts.pop()
        if self._epochs and self._epochs[-1] == epoch:
            return True
        self._epochs.append(epoch)
        self._starts.append(start_offset)
        return True

    def epoch_at(self, offset: int) -> int:
        """The epoch in which the record at `offset` was written; -1 if that lies before the first entry."""
        found = bisect_right(self._starts, offset) - 1
        return self._epochs[found] if found >= 0 else -1

    def end_offset_for(self, epoch: int, log_end_offset: int) -> tuple[LeaderEpoch, Offset]:
        """The largest known epoch <= `epoch`, and where it ends; (-1, -1) if there is none (invariant F2)."""
        found = bisect_right(self._epochs, epoch) - 1
        if found < 0:
            return NO_LEADER_EPOCH, NO_OFFSET
        is_latest = found + 1 == len(self._epochs)
        end = log_end_offset if is_latest else self._starts[found + 1]
        return LeaderEpoch(self._epochs[found]), Offset(end)

    def truncate_from_end(self, end_offset: int) -> bool:
        """Forget epochs that start at or behind `end_offset`. Returns whether anything changed."""
        before = len(self._epochs)
        while self._starts and self._starts[-1] >= end_offset:
            self._epochs.pop()
            self._starts.pop()
        return len(self._epochs) != before

    def truncate_from_start(self, start_offset: int) -> bool:
        """Forget what lies before `start_offset`; the epoch that spans it starts there now. Returns whether changed."""
        found = bisect_right(self._starts, start_offset) - 1
        if found < 0 or (found == 0 and self._starts[0] == start_offset):
            return False
        del self._epochs[:found]
        del self._starts[:found]
        self._starts[0] = start_offset
        return True

    def clear(self) -> bool:
        """Forget everything. Returns whether anything changed."""
        changed = bool(self._epochs)
        del self._epochs[:]
        del self._starts[:]
        return changed
