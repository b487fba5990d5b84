"""Long computations on the event loop, a slice per turn of the loop, those who cause them in turn.

A long computation takes a turn, computes for two milliseconds, and takes the next one. One slice runs per turn of the
loop, whatever the number of those who wait: everybody else's work waits for one slice.
"""

from __future__ import annotations

import asyncio
from collections.abc import AsyncIterator, Callable, Generator, Iterable
from functools import partial
from typing import TypeVar

from kafkalite.env.fair_queue import FairQueue, Owner

_T = TypeVar("_T")

#: A slice is over when it has taken this long (seconds). An acknowledgement by all replicas passes the leader's loop three or four times,
#: and waits for a slice each time.
SLICE_S = 0.002
#: What a rush may take of one turn of the loop (seconds).
RUSH_S = 0.01
#: Short pieces of work between two pauses.
_PIECES_AT_ONCE = 100
#: In which the loop has done something else, or nothing (seconds).
_PAUSE_S = 0.001


async def result_of(steps: Generator[None, None, _T]) -> _T:
    """What a computation in steps returns. The loop serves others between two steps."""
    while True:
        try:
            next(steps)
        except StopIteration as end:
            found: _T = end.value
            return found
        await asyncio.sleep(0)


def at_once(steps: Generator[None, None, _T]) -> _T:
    """What a computation in steps returns, where little is to be done, or nobody waits."""
    while True:
        try:
            next(steps)
        except StopIteration as end:
            found: _T = end.value
            return found


async def with_pauses(elements: Iterable[_T]) -> AsyncIterator[_T]:
    """The elements, for each of which there is little to do. The loop serves others after each hundred of them."""
    for number, element in enumerate(elements, 1):
        yield element
        if not number % _PIECES_AT_ONCE:
            await asyncio.sleep(0)


class Turns:
    """Slices of long computations on the loop, in the turns of their owners.

    Args:
        monotonic: the clock, in seconds.
    """

    def __init__(self, monotonic: Callable[[], float]) -> None:
        self.monotonic = monotonic
        self._waiting: FairQueue[Callable[[], bool]] = FairQueue()
        self._is_due = False

    def is_over(self, began: float) -> bool:
        """Whether a slice that began then (seconds) has had its time."""
        return self.monotonic() - began >= SLICE_S

    def call(self, owner: Owner, begin: Callable[[], bool]) -> None:
        """Call `begin` when the owner's turn has come. False: it has nothing to do (any more), the next one may begin."""
        self._waiting.put(owner, begin)
        if not self._is_due:
            self._is_due = True
            asyncio.get_running_loop().call_soon(self._next)

    async def take(self, owner: Owner) -> None:
        """Wait for a turn."""
        turn: asyncio.Future[None] = asyncio.get_running_loop().create_future()

        def begin() -> bool:
            if turn.done():
                return False
            turn.set_result(None)
            return True

        self.call(owner, begin)
        await turn

    def run(
        self,
        owner: Owner,
        steps: Generator[None, None, _T],
        then: Callable[[_T], None],
        spent: Callable[[float], None] | None = None,
    ) -> None:
        """Run a generator: its first step now, the others in slices, and then `then` with what it returns.

        `spent` gets the seconds of each slice after the first step. What the steps raise reaches the caller in the first step, and the
        loop's handler of exceptions in others.
        """

        try:
            next(steps)
        except StopIteration as stop:
            then(stop.value)
            return
        self.call(owner, partial(self._slice, owner, steps, then, spent))

    def _slice(
        self,
        owner: Owner,
        steps: Generator[None, None, _T],
        then: Callable[[_T], None],
        spent: Callable[[float], None] | None,
    ) -> bool:
        began = now = self.monotonic()
        try:
            while now - began < SLICE_S:
                try:
                    next(steps)
                except StopIteration as stop:
                    then(stop.value)
                    return True
                now = self.monotonic()
        finally:
            if spent is not None:
                spent(self.monotonic() - began)
        self.call(owner, partial(self._slice, owner, steps, then, spent))
        return True

    def _next(self) -> None:
        self._is_due = False
        try:
            while self._waiting and not self._waiting.pop()():
                pass
        finally:
            if self._waiting and not self._is_due:
                self._is_due = True
                asyncio.get_running_loop().call_soon(self._next)


class Rush:
    """Short work from many sources: each piece is short, but one turn of the loop may bring thousands. What comes after RUSH_S waits for
    the next turns, those who cause it in turn.

    Args:
        monotonic: the clock.

    Attributes:
        ended: when the last piece ended. Pieces without a pause between them count as those of one turn while they take little time: to
            ask the loop for the end of each turn would cost more.
    """

    def __init__(self, monotonic: Callable[[], float]) -> None:
        self.ended = 0.0
        self._monotonic = monotonic
        self._waiting: FairQueue[Callable[[], object]] = FairQueue()
        #: When the first piece of this turn began.
        self._began = 0.0
        #: The loop was asked for the end of this turn.
        self._is_ending = False
        #: Some wait.
        self._is_due = False

    def must_wait(self, now: float) -> bool:
        """Whether a piece that comes now (monotonic seconds) has to wait: this turn has had its time, or others have come before."""
        if not self._is_ending:
            if now - self.ended >= _PAUSE_S:
                self._began = now
            elif now - self._began >= SLICE_S:
                self._is_ending = True
                asyncio.get_running_loop().call_soon(self._end)
        return self._is_due or now - self._began >= RUSH_S

    def _end(self) -> None:
        self._is_ending = False
        self._began = self._monotonic()

    def is_over(self, now: float) -> bool:
        """Whether this turn has had its time."""
        return now - self._began >= RUSH_S

    def wait(self, owner: Owner, begin: Callable[[], object]) -> None:
        """Call `begin` in one of the next turns."""
        self._waiting.put(owner, begin)
        self._call_next()

    def _call_next(self) -> None:
        if self._waiting and not self._is_due:
            self._is_due = True
            asyncio.get_running_loop().call_soon(self._next)

    def _next(self) -> None:
        self._is_due = False
        self._began = self.ended = self._monotonic()
        try:
            while self._waiting:
                self._waiting.pop()()
                if self.is_over(self._monotonic()):
                    break
        finally:
            self._call_next()


class Slices:
    """One computation's slices. `spent`: the seconds of the loop that it has had, up to the last turn."""

    def __init__(self, turns: Turns, owner: Owner) -> None:
        self._turns = turns
        self._owner = owner
        self._began: float | None = None
        self.spent = 0.0

    @property
    def is_over(self) -> bool:
        """Whether it is somebody else's turn."""
        return self._began is None or self._turns.is_over(self._began)

    async def next(self) -> None:
        """Take the next turn."""
        self.end()
        await self._turns.take(self._owner)
        self._began = self._turns.monotonic()

    def end(self) -> None:
        """The slice is over: what follows is not the loop's time, or somebody else counts it."""
        if self._began is not None:
            self.spent += self._turns.monotonic() - self._began
            self._began = None

    async def run(self, steps: Generator[None, None, _T]) -> _T:
        """Run a generator to its end; what it returns. Raises what it raises."""
        while True:
            if self.is_over:
                await self.next()
            try:
                next(steps)
            except StopIteration as stop:
                result: _T = stop.value
                return result
