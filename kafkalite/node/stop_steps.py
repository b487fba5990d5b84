"""The steps of a node's stop: each has a time limit, a failure in one does not keep the next from being done, and the log says what took long."""

from __future__ import annotations

import asyncio
from collections.abc import Awaitable

from kafkalite.env.seams import Clock
from kafkalite.errors import KafkaliteError
from kafkalite.telemetry.logs import get_logger

_log = get_logger(__name__)

#: Time limit of each step.
STEP_S = 15.0
#: A step that took longer is named in the log.
_SLOW_S = 0.25


class StopSteps:
    """Of one stop, which begins when this is made."""

    def __init__(self, clock: Clock) -> None:
        self._clock = clock
        self._began = self._last = clock.monotonic()
        self._seconds: dict[str, float] = {}

    async def do(self, name: str, action: Awaitable[None], patience_s: float = STEP_S) -> bool:
        """Whether it was done."""
        try:
            async with asyncio.timeout(patience_s):
                await action
        except (KafkaliteError, OSError, TimeoutError) as error:
            _log.error("node.stop_step_failed", step=name, error=repr(error))
            return False
        finally:
            self.ended(name)
        return True

    def ended(self, name: str) -> None:
        """What was done since the last step is a step of this name."""
        now = self._clock.monotonic()
        self._seconds[name], self._last = now - self._last, now

    def finish(self, *, clean: bool) -> None:
        """Log the end."""
        slow = {name: round(seconds, 1) for name, seconds in self._seconds.items() if seconds >= _SLOW_S}
        _log.info("node.stopped", clean=clean, seconds=round(self._last - self._began, 1), slow_steps=slow)
