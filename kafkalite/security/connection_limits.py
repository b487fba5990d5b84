"""How many connections one address may have. Pure. Keys: max.connections.per.ip and its .overrides (Kafka's)."""

from __future__ import annotations

from collections.abc import Callable

from kafkalite.security.addresses import canonical


def parse_overrides(text: str) -> dict[str, int]:
    """`host:count,host:count`; an IPv6 address may stand in brackets. Raises ValueError."""
    limits: dict[str, int] = {}
    for part in filter(None, (piece.strip() for piece in text.split(","))):
        host, colon, count = part.rpartition(":")
        host = host.removeprefix("[").removesuffix("]")
        if not colon or not host or not count.isascii() or not count.isdigit():
            raise ValueError(f"{part!r} is not HOST:COUNT")
        limits[canonical(host)] = int(count)
    return limits


#: Connections of this many seconds may come at once.
BURST_S = 10.0
#: Addresses whose rate is kept; all others share one.
MAX_HOSTS = 4096
#: Addresses that one new connection may look at to make room.
FORGOTTEN_AT_ONCE = 4
_THE_REST = ""


class ConnectionLimits:
    """Counts per address; as many addresses are kept as have connections.

    Args:
        least: what an address may have in any case, unless its limit is 0.
        rate: new connections per second and address (KIP-612); 0: no limit.
        rate_of: what is set for one address instead; None: nothing.
        rate_of_all: new connections per second of all addresses together; 0: no limit.
        now: seconds that never go back.
    """

    def __init__(
        self,
        per_ip: int,
        overrides: dict[str, int],
        *,
        least: int = 0,
        rate: float = 0.0,
        rate_of: Callable[[str], float | None] = lambda host: None,
        rate_of_all: Callable[[], float] = lambda: 0.0,
        now: Callable[[], float] = lambda: 0.0,
    ) -> None:
        self._rate = rate
        self._rate_of = rate_of
        self._rate_of_all = rate_of_all
        self._all: tuple[float, float] = (0.0, 0.0)
        self._now = now
        #: Address -> (new connections that count, as of when). The one that connected longest ago comes first.
        self._lately: dict[str, tuple[float, float]] = {}
        self._per_ip = per_ip
        self._overrides = overrides
        self._least = least
        self._counts: dict[str, int] = {}

    def change(self, per_ip: int, rate: float) -> None:
        """Other limits from now on; connections that are open stay."""
        self._per_ip, self._rate = per_ip, rate

    def opened(self, host: str) -> bool:
        """One more from there; False: too many, and it does not count."""
        host = canonical(host)
        count = self._counts.get(host, 0)
        limit = self._overrides.get(host, self._per_ip)
        if count >= (max(limit, self._least) if limit else 0) or not self._is_slow_enough(host):
            return False
        self._counts[host] = count + 1
        return True

    def _is_slow_enough(self, host: str) -> bool:
        """Count a new connection; False: they come too fast, from this address or from all."""
        now = self._now()
        of_all = self._rate_of_all()
        together = _left(self._all, of_all, now)
        if of_all and together >= of_all * BURST_S:
            return False
        if not self._is_address_slow_enough(host, now):
            return False
        if of_all:
            self._all = (together + 1, now)
        return True

    def _is_address_slow_enough(self, host: str, now: float) -> bool:
        rate = self._kept_rate(host)
        if not rate:
            return True
        if host not in self._lately:
            self._forget(now)
        key = host if host in self._lately or len(self._lately) < MAX_HOSTS else _THE_REST
        count = _left(self._lately.get(key, (0.0, now)), rate, now)
        if count >= rate * BURST_S:
            return False
        self._lately.pop(key, None)  # so that the address moves to the end
        self._lately[key] = (count + 1, now)
        return True

    def _forget(self, now: float) -> None:
        """Make room if it is needed: the addresses that connected longest ago go, if nothing of them counts any more."""
        # Not all addresses are looked at: with thousands of them, each new one would cost milliseconds on the loop.
        for _ in range(FORGOTTEN_AT_ONCE):
            if len(self._lately) < MAX_HOSTS:
                return
            oldest = next(iter(self._lately))
            entry = self._lately.pop(oldest)
            if _left(entry, self._kept_rate(oldest), now) > 0:
                self._lately[oldest] = entry

    def _kept_rate(self, host: str) -> float:
        own = self._rate_of(host)
        return self._rate if own is None else own

    def closed(self, host: str) -> None:
        """One that was counted is gone."""
        host = canonical(host)
        count = self._counts[host] - 1
        if count:
            self._counts[host] = count
        else:
            del self._counts[host]


def _left(entry: tuple[float, float], rate: float, now: float) -> float:
    """How many of the connections that were counted at some time still count."""
    count, at = entry
    return max(0.0, count - (now - at) * rate)
