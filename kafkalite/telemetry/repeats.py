"""Lines that somebody else decides how often are written: each kind once in a while, with a count of those between."""

from __future__ import annotations

from collections.abc import Callable, Hashable

#: The same is told again after so long.
INTERVAL_S = 10.0
#: Kinds that are remembered; more than so many strangers at once are not told apart.
_MAX_KINDS = 1024


class Repeats:
    """Asked before a log line is written.

    Args:
        now: seconds that never go back.
    """

    def __init__(self, now: Callable[[], float]) -> None:
        self._now = now
        #: Kind -> [told at, not told since].
        self._kinds: dict[Hashable, list[float]] = {}

    def admit(self, kind: Hashable) -> int | None:
        """How many of this kind were not told since the last that was, if this one should be; None if it should not."""
        now = self._now()
        known = self._kinds.get(kind)
        if known is not None and now - known[0] < INTERVAL_S:
            known[1] += 1
            return None
        if known is None and len(self._kinds) >= _MAX_KINDS:
            self._kinds = {kind: entry for kind, entry in self._kinds.items() if now - entry[0] < INTERVAL_S}
            if len(self._kinds) >= _MAX_KINDS:
                return None
        self._kinds[kind] = [now, 0]
        return 0 if known is None else int(known[1])
