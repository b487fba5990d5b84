"""How long the event loop is held, and by whom: everybody else waits for as long.

What holds it for a millisecond or more is counted by its cause (an API). A turn over its budget is reported with the client's id. The
processor time of the loop's thread distinguishes computation from a host that gave us no processor.
"""

from __future__ import annotations

import math
from typing import NamedTuple

from kafkalite.env.own_time import TICK_S
from kafkalite.env.seams import Clock
from kafkalite.telemetry.counters import Timing
from kafkalite.telemetry.logs import get_logger
from kafkalite.telemetry.repeats import Repeats

_log = get_logger(__name__)

#: What one turn may take (seconds).
BUDGET_S = 0.02
#: From here on it is counted.
COUNTED_S = 0.001
#: How long a turn over its budget is shown by `problems` (milliseconds), and from what length on (seconds): a request that a client may
#: send again. What is imported with the first request of a kind, on a slow machine, is nobody's problem.
SHOWN_MS = 300_000
SHOWN_FROM_S = 0.5
#: So much of a turn must have been computation.
_COMPUTED = 0.8
#: What no request has caused.
OTHER = "other"


class Overrun(NamedTuple):
    """The longest turn of the last minutes."""

    at_ms: int
    seconds: float
    cause: str
    client_id: str
    principal: str

    @property
    def culprit(self) -> str:
        """The request in words: its API, and the client.id and user if they are known."""
        return self.cause + (f" of client.id {self.client_id!r} ({self.principal})" if self.client_id else "")


class LoopTimes:
    """One per node."""

    def __init__(self, clock: Clock) -> None:
        self._clock = clock
        self._repeats = Repeats(clock.monotonic)
        #: Cause -> turns of a millisecond and more. The causes come from our own tables.
        self.by_cause: dict[str, Timing] = {}
        #: How late the ticker was.
        self.late = Timing()
        self.overruns = 0
        self._longest: Overrun | None = None
        #: At the last tick: the processor time of this thread.
        self._processor = clock.processor()
        #: Seconds since the last tick that were accounted for by a cause.
        self._known = 0.0
        #: When the next tick should come.
        self._due = math.inf

    def held(self, cause: str, seconds: float, client_id: str = "", principal: str = "") -> None:
        """One turn's work has taken `seconds`, at least COUNTED_S."""
        timing = self.by_cause.get(cause)
        if timing is None:
            timing = self.by_cause[cause] = Timing()
        timing.add(seconds * 1000)
        self._known += seconds
        if seconds > BUDGET_S and self._clock.processor() - self._processor >= seconds * _COMPUTED:
            self._over(cause, seconds, client_id, principal)

    def _over(self, cause: str, seconds: float, client_id: str, principal: str) -> None:
        self.overruns += 1
        now_ms = self._clock.wall_ms()
        longest = self.longest()
        if cause != OTHER and (longest is None or seconds >= longest.seconds):
            self._longest = Overrun(now_ms, seconds, cause, client_id[:256], principal[:256])
        suppressed = self._repeats.admit(("held", cause))
        if suppressed is not None:
            _log.warning(
                "loop.held",
                cause=cause,
                ms=round(seconds * 1000),
                client_id=client_id[:256],
                principal=principal[:256],
                suppressed=suppressed,
            )

    def longest(self) -> Overrun | None:
        """The longest turn over its budget of the last minutes that a request has caused."""
        if self._longest is not None and not 0 <= self._clock.wall_ms() - self._longest.at_ms <= SHOWN_MS:
            self._longest = None
        return self._longest

    def ticked(self) -> None:
        """To be called every `TICK_S` (by the ticker of OwnTime)."""
        now = self._clock.monotonic()
        late = now - self._due
        if late > COUNTED_S:
            self.late.add(late * 1000)
        unknown = late - self._known
        if unknown > COUNTED_S:
            self.held(OTHER, unknown)
        self._processor, self._known = self._clock.processor(), 0.0
        self._due = now + TICK_S
