"""Whether the process has file descriptors left: without one it closes each new connection, and nobody sees why."""

from __future__ import annotations

import asyncio
from collections.abc import Callable

from kafkalite.env.seams import Clock
from kafkalite.extension.messages.watching import HealthProblem
from kafkalite.telemetry.logs import get_logger

_log = get_logger(__name__)

INTERVAL_S = 5.0
#: From this part of the limit on it is a problem, in percent; below the second it has ended.
_SHORT_FROM, _ENOUGH_BELOW = 90, 85


class DescriptorWatch:
    """One per node.

    Args:
        in_use: the number of descriptors in use, and the limit.
    """

    def __init__(self, in_use: Callable[[], tuple[int, int]], clock: Clock) -> None:
        self._in_use = in_use
        self._clock = clock
        self._since_ms: int | None = None
        self._detail = ""

    def problems(self) -> tuple[HealthProblem, ...]:
        """For `admin health`."""
        return () if self._since_ms is None else (HealthProblem("descriptors.short", self._since_ms, self._detail),)

    async def run(self) -> None:
        """Until cancelled."""
        while True:
            self.measure()
            await asyncio.sleep(INTERVAL_S)

    def measure(self) -> None:
        """Compare the descriptors in use with the limit, once."""
        used, limit = self._in_use()
        percent = 100 * used // limit
        self._detail = f"{used} of {limit} file descriptors are in use"
        if self._since_ms is None and percent >= _SHORT_FROM:
            self._since_ms = self._clock.wall_ms()
            _log.warning(
                "descriptors.short", in_use=used, limit=limit, effect="at the limit, new connections are closed"
            )
        elif self._since_ms is not None and percent < _ENOUGH_BELOW:
            self._since_ms = None
            _log.info("descriptors.enough", in_use=used, limit=limit)
