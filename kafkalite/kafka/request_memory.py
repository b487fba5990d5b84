"""Memory of half received requests, over all connections, and whose turn it is to get some of it."""

from __future__ import annotations

from collections.abc import Callable
from typing import Protocol

#: Time in seconds for a connection to complete a frame while others wait for memory.
MEMORY_GRACE_S = 1.0


class Holder(Protocol):
    """A connection with a buffer of its own. `frame_began`: monotonic seconds, 0 if no frame is half received."""

    frame_began: float

    def starve(self) -> None:
        """There is no memory left: read no further."""

    def feed(self) -> None:
        """Read on."""

    def refuse(self, what: str, detail: str) -> None:
        """Close, and log why."""


class RequestMemory:
    """One per listener.

    Args:
        limit: bytes in all. One connection alone may exceed it.
        is_closing: nobody reads on any more.
    """

    def __init__(self, limit: int, is_closing: Callable[[], bool]) -> None:
        self.bytes = 0
        self._limit = limit
        self._is_closing = is_closing
        #: Connections with a buffer of their own, and those of them that may not read for want of memory.
        self._holders: dict[Holder, None] = {}
        self._starving: dict[Holder, None] = {}
        #: All starved: this one may finish its frame beyond the limit.
        self._favoured: Holder | None = None

    @property
    def is_ample(self) -> bool:
        return self.bytes < self._limit // 4

    def take(self, holder: Holder, size: int) -> None:
        """A connection's buffer grows; beyond the limit that connection reads no further for now."""
        self.bytes += size
        self._holders[holder] = None
        if self.bytes <= self._limit or len(self._holders) == 1 or holder is self._favoured:
            return
        self._starving[holder] = None
        holder.starve()
        self._feed()

    def give(self, holder: Holder, size: int) -> None:
        """It has no buffer any more."""
        self.bytes -= size
        self._holders.pop(holder, None)
        self._starving.pop(holder, None)
        if holder is self._favoured:
            self._favoured = None
        self._feed()

    def _feed(self) -> None:
        """Let the connection that has starved longest read on: there is memory again, or nobody else makes any."""
        is_stuck = self._favoured is None and len(self._starving) == len(self._holders)
        if self._starving and not self._is_closing() and (is_stuck or self.bytes <= self._limit):
            first = next(iter(self._starving))
            del self._starving[first]
            if is_stuck:
                self._favoured = first
            first.feed()

    def evict(self, now: float) -> None:
        """While other connections wait for memory, those that hold memory for an incomplete frame are closed."""
        for holder in list(self._holders):
            is_slow = holder.frame_began and now - holder.frame_began > MEMORY_GRACE_S
            if self._starving and is_slow and holder not in self._starving:
                holder.refuse("memory.full", "a request arrived too slowly while memory was short")
