"""Log lines whose number a peer decides: each kind is written once in a while, with a count of those in between."""

from __future__ import annotations

import re
from collections.abc import Callable, Hashable

#: Time after which the same kind is logged again.
INTERVAL_S = 10.0
#: Number of kinds that are kept; beyond it peers are not distinguished: all others are one kind.
_MAX_KINDS = 1024
_OTHERS = object()
#: Where a reason has what a peer has chosen: a number, or a text in quotes.
_CHOSEN = re.compile(r"[0-9'\"]")


def kind_of(reason: str) -> str:
    """What a reason has in common with those that differ in what a peer has chosen, or each of its lines would be a kind of its own."""
    return _CHOSEN.split(reason, maxsplit=1)[0]


class Repeats:
    """Asked before a log line is written.

    Args:
        now: seconds that never go back.
    """

    def __init__(self, now: Callable[[], float]) -> None:
        self._now = now
        #: Kind -> [logged at, suppressed since].
        self._kinds: dict[Hashable, list[float]] = {}

    def admit(self, kind: Hashable) -> int | None:
        """The number of suppressed lines of this kind, if this one is to be logged; None if it is not."""
        now = self._now()
        if kind not in self._kinds and len(self._kinds) >= _MAX_KINDS:
            self._kinds = {kind: entry for kind, entry in self._kinds.items() if now - entry[0] < INTERVAL_S}
            if len(self._kinds) >= _MAX_KINDS:
                kind = _OTHERS
        known = self._kinds.get(kind)
        if known is not None and now - known[0] < INTERVAL_S:
            known[1] += 1
            return None
        self._kinds[kind] = [now, 0]
        return 0 if known is None else int(known[1])
