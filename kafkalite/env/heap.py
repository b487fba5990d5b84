"""Memory that nobody uses goes back to the system.

A TLS connection has some 80 KB of buffers that live as long as it. When thousands have come and gone, glibc keeps their
places, full of holes, and what comes next finds other ones: the process grows with every wave of connections until it has
many times the memory that it ever used at once (bench/hostile_tls.py). Responses of megabytes do the same, without any connection that
comes or goes: after some rows of bench/beside_kafka.py a node used 19 MB of 766 MB that malloc had from the system.
"""

from __future__ import annotations

import asyncio
import ctypes
import functools
import gc
from collections.abc import AsyncIterator, Callable
from contextlib import asynccontextmanager

#: How often free memory is counted (seconds): 15 to 50 us each time.
LOOK_S = 0.5
#: From here on it is given back (bytes): 0.1 ms of the loop per MB, and the same again when it is needed again.
MOST_FREE_BYTES = 64 * 2**20
#: What malloc keeps for the next responses instead of giving it back with each of them (bytes).
KEPT_BYTES = 16 * 2**20
#: From here on malloc takes a block from the system, which gets it back at once (bytes): the most that glibc itself would choose.
_SYSTEM_BYTES = 32 * 2**20
#: Of glibc's malloc.h.
_M_TRIM_THRESHOLD, _M_MMAP_THRESHOLD = -1, -3
#: How many come and go before a look is worth its cost.
CROWD = 256
#: By then most of them have gone: a little more than a handshake may take (seconds).
DELAY_S = 15.0
#: The collector of cycles rests at most for this time (seconds).
LONGEST_S = 10.0
#: Objects that are worth keeping from its next look: that takes some milliseconds.
MANY_OBJECTS = 20_000
#: Objects that it has not looked at, in all: as much garbage in cycles may be among them, some hundred bytes each. Then it looks at everything.
MOST_UNSEEN = 5_000_000


def give_back() -> None:
    """malloc_trim, some milliseconds; nothing where the C library has none."""
    trim = getattr(ctypes.CDLL(None), "malloc_trim", None)
    if trim is not None:
        trim(0)


def keep_freed() -> None:
    """malloc keeps KEPT_BYTES that are free at the end of its heap; nothing where the C library is another one.

    Left alone, glibc gives back what is more than twice the largest block that was freed until then. So two or three responses of 1 MiB went back to
    the system after each fetch, and came again page by page: 256 page faults for each MiB, a third of what it costs to read and send it (bench.beside_kafka).
    """
    mallopt = getattr(ctypes.CDLL(None), "mallopt", None)
    # Only both: after either of them malloc no longer adapts the other. (With 32-bit addresses the first one is refused.)
    if mallopt is not None and mallopt(_M_MMAP_THRESHOLD, _SYSTEM_BYTES):
        mallopt(_M_TRIM_THRESHOLD, KEPT_BYTES)


class _Mallinfo2(ctypes.Structure):
    """struct mallinfo2 of glibc's malloc.h (2.33)."""

    _fields_ = tuple(
        (name, ctypes.c_size_t)
        for name in (
            "arena", "ordblks", "smblks", "hblks", "hblkhd", "usmblks", "fsmblks", "uordblks", "fordblks", "keepcost"
        )
    )  # fmt: skip


@functools.cache
def _mallinfo() -> Callable[[], _Mallinfo2] | None:
    """Found once: each `CDLL` is a class of its own, in a cycle."""
    mallinfo = getattr(ctypes.CDLL(None), "mallinfo2", None)
    if mallinfo is not None:
        mallinfo.restype = _Mallinfo2
    return mallinfo


def free_bytes() -> int:
    """What malloc has from the system and nobody uses; 0 where the C library does not say."""
    mallinfo = _mallinfo()
    return 0 if mallinfo is None else int(mallinfo().fordblks)


async def give_back_regularly(
    free_bytes: Callable[[], int] = free_bytes, give_back: Callable[[], None] = give_back
) -> None:
    """Look every LOOK_S, and give back what is more than MOST_FREE_BYTES. Until cancelled."""
    while True:
        await asyncio.sleep(LOOK_S)
        if free_bytes() > MOST_FREE_BYTES:
            give_back()


#: Holders of `uncollected`, and whether the collector was on before the first of them.
_holders = 0
_was_enabled = True
#: Objects that became old without a look, since everything was looked at.
_unseen = 0


@asynccontextmanager
async def uncollected() -> AsyncIterator[None]:
    """The collector of cycles does not run within: it would look at hundreds of thousands of new objects, none of them garbage,
    again and again, a tenth of a second each time. At most LONGEST_S; somebody else's garbage waits for that time. What is left at the end (a
    fetch session of as many partitions) is old from then on: the first look afterwards would be at all of it in one piece."""
    global _holders, _was_enabled
    if not _holders:
        _was_enabled = gc.isenabled()
    _holders += 1
    gc.disable()
    timer = asyncio.get_running_loop().call_later(LONGEST_S, _collect_again)
    try:
        yield
    finally:
        timer.cancel()
        _holders -= 1
        if not _holders:
            if _was_enabled and not gc.isenabled():
                _make_old()
            _collect_again()


def _make_old() -> None:
    """What is young goes to the oldest generation, which is looked at least often. By way of the frozen one: that takes no look."""
    global _unseen
    young = gc.get_count()[0]  # about: those that came, less those that have gone
    if young < MANY_OBJECTS:
        return
    _unseen += young
    if _unseen > MOST_UNSEEN:
        _unseen = 0
        gc.collect()
        return
    gc.freeze()
    gc.unfreeze()


def _collect_again() -> None:
    if _was_enabled:
        gc.enable()


class Crowds:
    """Counts those that come, and gives back what a crowd has left behind, once per DELAY_S at most."""

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
