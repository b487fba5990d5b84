"""How many connections one address may have. Pure. Keys: max.connections.per.ip and its .overrides (Kafka's)."""

from __future__ import annotations

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


class ConnectionLimits:
    """Counts per address; as many addresses are kept as have connections."""

    def __init__(self, per_ip: int, overrides: dict[str, int]) -> None:
        self._per_ip = per_ip
        self._overrides = overrides
        self._counts: dict[str, int] = {}

    def opened(self, host: str) -> bool:
        """One more from there; False: too many, and it does not count."""
        host = canonical(host)
        count = self._counts.get(host, 0)
        if count >= self._overrides.get(host, self._per_ip):
            return False
        self._counts[host] = count + 1
        return True

    def closed(self, host: str) -> None:
        """One that was counted is gone."""
        host = canonical(host)
        count = self._counts[host] - 1
        if count:
            self._counts[host] = count
        else:
            del self._counts[host]
