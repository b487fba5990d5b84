"""Whether this node's wall clock is that of the others: ZooKeeper is asked for the time of a write, as all nodes ask it."""

from __future__ import annotations

import asyncio

from kafkalite.coordination import paths
from kafkalite.coordination.coordinator import Coordinator, CoordinatorError, NoNodeError
from kafkalite.coordination.session import SessionKeeper
from kafkalite.env.seams import Clock
from kafkalite.extension.messages.watching import HealthProblem
from kafkalite.telemetry.logs import get_logger

_log = get_logger(__name__)

#: Also the pause before the first comparison: a machine that has just started may not have set its clock yet.
INTERVAL_S = 60.0
#: Clocks that are set by NTP agree within a second; what goes by them here reckons in minutes at the least.
BOUND_S = 60.0


class ClockCheck:
    """One per node."""

    def __init__(self, session: SessionKeeper, clock: Clock) -> None:
        self._session = session
        self._clock = clock
        #: By how much the clock was ahead of ZooKeeper's, at the least, when it was last compared; negative: behind.
        self.ahead_s = 0.0
        #: By ZooKeeper's clock.
        self._since_ms: int | None = None

    def problems(self) -> tuple[HealthProblem, ...]:
        """For `admin health`."""
        if self._since_ms is None:
            return ()
        way = "ahead of" if self.ahead_s > 0 else "behind"
        detail = f"the clock is {abs(self.ahead_s):.0f} s {way} that of ZooKeeper; {BOUND_S:.0f} s would be too much"
        return (HealthProblem("clock.off", self._since_ms, detail),)

    async def run(self) -> None:
        """Until cancelled."""
        while True:
            await asyncio.sleep(INTERVAL_S)
            coordinator = await self._session.wait()
            try:
                await self.compare(coordinator)
            except CoordinatorError as error:
                _log.info("clock.not_compared", error=repr(error))

    async def compare(self, coordinator: Coordinator) -> None:
        """Compare the clocks, once. Raises CoordinatorError."""
        before_ms = self._clock.wall_ms()
        try:
            stat = await coordinator.set(paths.CLOCK, b"")
        except NoNodeError:
            await coordinator.ensure_path(paths.CLOCK)
            stat = await coordinator.set(paths.CLOCK, b"")
        self.ahead_s = ahead_ms(before_ms, stat.mtime_ms, self._clock.wall_ms()) / 1000
        is_off = abs(self.ahead_s) > BOUND_S
        if is_off and self._since_ms is None:
            self._since_ms = stat.mtime_ms
            _log.warning("clock.off", ahead_of_zookeeper_s=self.ahead_s)
        elif not is_off and self._since_ms is not None:
            self._since_ms = None
            _log.info("clock.right", ahead_of_zookeeper_s=self.ahead_s)


def ahead_ms(before_ms: int, stamp_ms: int, after_ms: int) -> int:
    """By how much our clock is ahead of the one that stamped a write, at the least; negative: behind.

    The write was stamped between our two readings: 0 if the stamp may be of our clock.
    """
    if stamp_ms < before_ms:
        return before_ms - stamp_ms
    return min(after_ms - stamp_ms, 0)
