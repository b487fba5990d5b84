"""Consecutive offsets in the same state, as a sorted list without holes. Pure."""

from __future__ import annotations

from bisect import bisect_right
from collections.abc import Callable, Iterator, Sequence
from typing import TypeVar

from kafkalite.coordinators.shares.delivery_states import DeliveryState
from kafkalite.model import Offset

_T = TypeVar("_T")


class Run:
    """Offsets `first` to `last`, both included, which have all the rest in common.

    A run with a `holder` is acquired: its state is AVAILABLE, and the holder's lock ends at `deadline_ms`. `target` is
    the state that its holder has asked for and that is not stored yet; `is_written`: a write with it is under way.
    """

    __slots__ = ("deadline_ms", "delivery_count", "first", "holder", "is_written", "last", "state", "target")

    def __init__(self, first: int, last: int, state: DeliveryState, delivery_count: int) -> None:
        self.first = first
        self.last = last
        self.state = state
        self.delivery_count = delivery_count
        self.holder: str | None = None
        self.deadline_ms = 0
        self.target: DeliveryState | None = None
        self.is_written = False

    def __len__(self) -> int:
        return self.last - self.first + 1

    @property
    def is_free(self) -> bool:
        """Whether a member may acquire it."""
        return self.holder is None and self.state is DeliveryState.AVAILABLE

    @property
    def is_done(self) -> bool:
        """Whether nothing more happens to it."""
        return self.state is DeliveryState.ACKNOWLEDGED or self.state is DeliveryState.ARCHIVED

    def is_like(self, other: Run) -> bool:
        """Whether the two differ in their offsets only."""
        return (
            self.target is other.target
            and self.state is other.state
            and self.holder == other.holder
            and self.deadline_ms == other.deadline_ms
            and self.is_written is other.is_written
            and (self.delivery_count == other.delivery_count or self.is_done)
        )

    def let_go(self) -> None:
        """Nobody holds it any more."""
        self.holder, self.deadline_ms, self.target, self.is_written = None, 0, None, False

    def cut(self, offset: int) -> Run:
        """End before `offset`; the run of the rest."""
        rest = Run(offset, self.last, self.state, self.delivery_count)
        rest.holder, rest.deadline_ms = self.holder, self.deadline_ms
        rest.target, rest.is_written = self.target, self.is_written
        self.last = offset - 1
        return rest


def _put(kept: list[Run], run: Run) -> None:
    """Append it, or join it to the last one."""
    if kept and kept[-1].is_like(run):
        kept[-1].last = run.last
    else:
        kept.append(run)


class Runs:
    """All runs from `start` to the one before `end`."""

    def __init__(self, start: Offset) -> None:
        self.start: int = start
        self.end: int = start
        self._runs: list[Run] = []

    def __iter__(self) -> Iterator[Run]:
        return iter(self._runs)

    def __len__(self) -> int:
        return len(self._runs)

    def add(self, last: int, state: DeliveryState, delivery_count: int = 0) -> Run | None:
        """Append a run that ends with `last`; None if there are runs up to there."""
        if last < self.end:
            return None
        run = Run(self.end, last, state, delivery_count)
        self._runs.append(run)
        self.end = last + 1
        return run

    def between(self, first: int, last: int) -> list[Run]:
        """The runs of exactly these offsets, as far as there are any: those at the ends are cut."""
        first, last = max(first, self.start), min(last, self.end - 1)
        if first > last:
            return []
        low, high = self._border(first), self._border(last + 1)
        return self._runs[low:high]

    def peek(self, first: int, last: int) -> Iterator[Run]:
        """The runs that hold these offsets, whole."""
        number = self._number(max(first, self.start))
        while number < len(self._runs) and self._runs[number].first <= last:
            yield self._runs[number]
            number += 1

    def change(self, parts: Sequence[tuple[int, int, _T]], change: Callable[[Run, _T], None]) -> None:
        """Change the runs of exactly these offsets, (first, last, how), and join neighbours that are alike.

        The parts go upwards, and lie near each other: all runs from the first to the last of them are walked over.
        """
        low = max(0, self._number(max(parts[0][0], self.start)) - 1)
        last = parts[-1][1]
        kept: list[Run] = []
        coming = iter(parts)
        part: tuple[int, int, _T] | None = next(coming)
        number = low
        while number < len(self._runs):
            run: Run | None = self._runs[number]
            assert run is not None
            if run.first > last + 1:
                break
            number += 1
            while run is not None:
                while part is not None and part[1] < run.first:
                    part = next(coming, None)
                if part is None or part[0] > run.last:
                    _put(kept, run)
                    break
                if part[0] > run.first:
                    rest = run.cut(part[0])
                    _put(kept, run)
                    run = rest
                after = run.cut(part[1] + 1) if part[1] < run.last else None
                change(run, part[2])
                _put(kept, run)
                run = after
        self._runs[low:number] = kept

    def merge(self, first: int, last: int) -> None:
        """Join neighbours that are alike, from the run before `first` to the one behind `last`."""
        if not self._runs:
            return
        low = max(0, self._number(max(first, self.start)) - 1)
        high = min(len(self._runs), self._number(min(last, self.end - 1)) + 2)
        kept: list[Run] = []
        for run in self._runs[low:high]:
            if kept and kept[-1].is_like(run):
                kept[-1].last = run.last
            else:
                kept.append(run)
        if len(kept) != high - low:
            self._runs[low:high] = kept

    def drop_before(self, offset: int) -> None:
        """Forget everything below `offset`."""
        if offset <= self.start:
            return
        if offset >= self.end:
            self._runs.clear()
            self.start = self.end = offset
            return
        del self._runs[: self._border(offset)]
        self.start = offset

    def drop_from(self, offset: int) -> None:
        """Forget everything from `offset` on."""
        if offset < self.end:
            del self._runs[self._border(max(offset, self.start)) :]
            self.end = max(offset, self.start)

    def _number(self, offset: int) -> int:
        """Of the run that holds `offset`."""
        return max(0, bisect_right(self._runs, offset, key=lambda run: run.first) - 1)

    def _border(self, offset: int) -> int:
        """The number of the run that begins with `offset`; one is cut for it."""
        if offset >= self.end:
            return len(self._runs)
        number = self._number(offset)
        run = self._runs[number]
        if run.first == offset:
            return number
        self._runs.insert(number + 1, run.cut(offset))
        return number + 1
