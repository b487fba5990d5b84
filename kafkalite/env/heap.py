"""Memory that nobody uses goes back to the system.

A TLS connection has some 80 KB of buffers that live as long as it. When thousands have come and gone, glibc keeps their
places, full of holes, and what comes next finds other ones: the process grows with every wave of connections until it has
many times the memory that it ever used at once (bench/hostile_tls.py).
"""

from __future__ import annotations

import asyncio
import ctypes
from collections.abc import Callable

#: So many come and go before it is worth looking.
CROWD = 256
#: By then most of them have gone: a little more than a handshake may take (seconds).
DELAY_S = 15.0


def give_back() -> None:
    """malloc_trim, some milliseconds; nothing where the C library has none."""
    trim = getattr(ctypes.CDLL(None), "malloc_trim", None)
    if trim is not None:
        trim(0)


class Crowds:
    """Counts who comes, and gives back what a crowd has left behind, once per DELAY_S at most."""

    def __init__(self, loop: asyncio.AbstractEventLoop, give_back: Callable[[], None] = give_back) -> None:
        self._loop = loop
        self._give_back = give_back
        self._count = 0
        self._timer: asyncio.TimerHandle | None = None

    def came(self) -> None:
        """One more."""
        self._count += 1
        if self._count >= CROWD and self._timer is None:
            self._timer = self._loop.call_later(DELAY_S, self._gone)

    def _gone(self) -> None:
        self._timer, self._count = None, 0
        self._give_back()

    def close(self) -> None:
        if self._timer is not None:
            self._timer.cancel()
