"""How often one address may try a password: a few times at once, then once in a while. Pure."""

from __future__ import annotations

from collections.abc import Callable

#: Attempts that may fail at once, and the time after which one of them is forgotten (seconds).
BURST = 10
REGAIN_S = 6.0
#: Number of addresses that are counted separately; all others share one count.
MAX_HOSTS = 4096
#: Addresses that count and that one new address looks at to make room: all of them would take a millisecond of the loop.
LOOKED_AT = 4
_THE_REST = ""


class KnownUsers:
    """Which users have logged in from which address: failures of others there do not delay them."""

    def __init__(self) -> None:
        #: (address, user); the one that logged in longest ago comes first.
        self._known: dict[tuple[str, str], None] = {}

    def __contains__(self, login: tuple[str, str]) -> bool:
        return login in self._known

    def add(self, host: str, user: str) -> None:
        """It has logged in from there."""
        self._known.pop((host, user), None)
        if len(self._known) >= MAX_HOSTS:
            del self._known[next(iter(self._known))]
        self._known[host, user] = None


class Attempts:
    """Counts by address.

    Args:
        now: seconds that never go back.
    """

    def __init__(self, now: Callable[[], float]) -> None:
        self._now = now
        #: Address -> (attempts that count, as of when). The one that tried longest ago comes first.
        self._counts: dict[str, tuple[float, float]] = {}

    def wait_s(self, host: str) -> float:
        """How long until the next attempt from there may begin; 0: now."""
        return max(0.0, (self._count(self._key(host)) - (BURST - 1)) * REGAIN_S)

    def begin(self, host: str) -> None:
        """An attempt; it counts until it has succeeded, so that many at the same time are no way around."""
        if host not in self._counts:
            self._forget()
        key = self._key(host)
        count = self._count(key) + 1
        self._counts.pop(key, None)  # so that the address moves to the end
        self._counts[key] = (count, self._now())

    def _forget(self) -> None:
        """Make room if it is needed: of the addresses that tried longest ago, those go of which nothing counts any more."""
        if len(self._counts) < MAX_HOSTS:
            return
        still_counted = 0
        while self._counts and still_counted < LOOKED_AT:
            oldest = next(iter(self._counts))
            is_counted = self._count(oldest) > 0
            entry = self._counts.pop(oldest)
            if is_counted:
                self._counts[oldest] = entry
                still_counted += 1

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
