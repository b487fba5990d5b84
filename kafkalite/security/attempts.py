"""How often one address may try a password: a few times at once, then once in a while. Pure."""

from __future__ import annotations

from collections.abc import Callable

#: Attempts that may fail at once, and the time after which one of them is forgotten (seconds).
BURST = 10
REGAIN_S = 6.0
#: Number of addresses that are counted separately; all others share one count.
MAX_HOSTS = 4096
_THE_REST = ""


class Attempts:
    """Counts by address.

    Args:
        now: seconds that never go back.
    """

    def __init__(self, now: Callable[[], float]) -> None:
        self._now = now
        #: Address -> (attempts that count, as of when).
        self._counts: dict[str, tuple[float, float]] = {}

    def wait_s(self, host: str) -> float:
        """How long until the next attempt from there may begin; 0: now."""
        return max(0.0, (self._count(self._key(host)) - (BURST - 1)) * REGAIN_S)

    def begin(self, host: str) -> None:
        """An attempt; it counts until it has succeeded, so that many at the same time are no way around."""
        if host not in self._counts and len(self._counts) >= MAX_HOSTS:
            self._counts = {each: entry for each, entry in self._counts.items() if self._count(each) > 0}
        key = self._key(host)
        self._counts[key] = (self._count(key) + 1, self._now())

    def succeeded(self, host: str) -> None:
        """The attempt was right: it does not count any longer."""
        key = self._key(host)
        count = self._count(key) - 1
        if count > 0:
            self._counts[key] = (count, self._now())
        else:
            self._counts.pop(key, None)

    def _key(self, host: str) -> str:
        return host if host in self._counts or len(self._counts) < MAX_HOSTS else _THE_REST

    def _count(self, key: str) -> float:
        count, at = self._counts.get(key, (0.0, 0.0))
        return max(0.0, count - (self._now() - at) / REGAIN_S)
