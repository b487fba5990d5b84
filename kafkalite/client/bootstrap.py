"""Bootstrap addresses as people write them."""

from __future__ import annotations

from kafkalite.model import Endpoint

DEFAULT_PORT = 9092


def parse_bootstrap(text: str) -> list[Endpoint]:
    """HOST[:PORT] with commas in between. Raises ValueError with one line."""
    endpoints = []
    for part in filter(None, (piece.strip() for piece in text.split(","))):
        host, colon, port = part.rpartition(":")
        if not colon:
            host, port = part, str(DEFAULT_PORT)
        if not host or "/" in host or not port.isascii() or not port.isdigit() or not 0 < int(port) < 65536:
            raise ValueError(f"{part!r} is not HOST:PORT")
        endpoints.append(Endpoint(host.strip("[]"), int(port)))
    if not endpoints:
        raise ValueError("no bootstrap address")
    return endpoints
