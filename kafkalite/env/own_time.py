"""Time in which this process was run: what others did not say while we did not listen is not held against them.

A process that gets no processor (a busy host, SIGSTOP, a suspended machine) finds every deadline past when it goes on,
and would take peers and disks for dead that had no chance to be heard. So suspicions count in own time: between two
looks of the ticker at most `TICK_S * MAX_TICKS` pass, however long it really was.
"""

from __future__ import annotations

import asyncio
from collections.abc import AsyncGenerator, Callable
from contextlib import asynccontextmanager
from typing import TYPE_CHECKING

if TYPE_CHECKING:
    from kafkalite.env.seams import Clock

#: How often the ticker looks.
TICK_S = 0.1
#: How many ticks count when one comes late: timers are, by a little.
MAX_TICKS = 1.5
#: Minimum time by which a timeout ends late, so that times can be compared.
_BEYOND_S = 1e-6
#: uvloop's timers have millisecond grain.
_GRAIN_S = 0.001


class OwnTime:
    """A clock that goes while this process does. Without its ticker (`run`) it goes like the real one."""

    def __init__(self, clock: Clock) -> None:
        self._clock = clock
        #: Own time at the last look; None: nobody looks.
        self._counted: float | None = None
        self._last_tick = 0.0

    def now(self) -> float:
        """Seconds, for measuring: never goes back, never faster than the monotonic clock."""
        now = self._clock.monotonic()
        if self._counted is None:
            return now
        return self._counted + min(now - self._last_tick, TICK_S * MAX_TICKS)

    async def run(self, ticked: Callable[[], None] = lambda: None) -> None:
        """Look every `TICK_S`, and call `ticked` first. Until cancelled."""
        self._last_tick = self._counted = self._clock.monotonic()
        while True:
            await asyncio.sleep(TICK_S)
            ticked()
            self._counted = self.now()
            self._last_tick = self._clock.monotonic()

    @asynccontextmanager
    async def timeout(self, seconds: float, more: Callable[[], float] = lambda: 0.0) -> AsyncGenerator[None, None]:
        """Like asyncio.timeout, by this clock. Raises TimeoutError.

        Args:
            more: called at the end: seconds to add; 0: the timeout is over.
        """
        loop = asyncio.get_running_loop()
        due = self.now() + seconds + _BEYOND_S
        timer: asyncio.TimerHandle | None = None
        async with asyncio.timeout(None) as scope:

            def tick() -> None:
                nonlocal timer, due
                if self.now() >= due and (extra := more()) > 0:
                    due = self.now() + extra  # from now on: nobody listened in the time by which this comes late
                left = due - self.now()
                if left > 0:
                    timer = loop.call_later(max(left, _GRAIN_S), tick)
                else:
                    scope.reschedule(loop.time())

            timer = loop.call_later(seconds, tick)
            try:
                yield
            finally:
                if timer is not None:
                    timer.cancel()
