"""The clock of a simulated host: virtual time, and a wall clock that is somewhat wrong."""

from __future__ import annotations

from kafkalite.testing.simulated.loop import SimLoop

#: Where wall time starts: 2026-01-01T00:00:00Z.
EPOCH_MS = 1_767_225_600_000


class SimClock:
    """The Clock seam.

    Args:
        skew_ms: what the wall clock is wrong by.
        booted_s: how long the host had been up when the simulation began; a host's reboot does not reset it here.
    """

    def __init__(self, loop: SimLoop, *, skew_ms: int = 0, booted_s: int = 1_000) -> None:
        self._loop = loop
        self._skew_ms = skew_ms
        self._booted_ns = booted_s * 1_000_000_000

    def jump(self, by_ms: int) -> None:
        """The wall clock is set."""
        self._skew_ms += by_ms

    def wall_ms(self) -> int:
        return EPOCH_MS + self._loop.now_ns // 1_000_000 + self._skew_ms

    def monotonic(self) -> float:
        return (self._booted_ns + self._loop.now_ns) / 1e9

    def processor(self) -> float:
        """Computing takes no time here."""
        return 0.0

    def boottime(self) -> float:
        return (self._booted_ns + self._loop.now_ns) / 1e9
