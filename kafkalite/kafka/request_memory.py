"""Memory of half received requests, over all connections, and whose turn it is to get some of it.

Behind the limit lies a reserve for users that have little (`security.fair_room`): a client that fills the memory with requests that do not
end delays nobody else.
"""

from __future__ import annotations

from collections.abc import Callable
from typing import Protocol

from kafkalite.security.fair_room import FairRoom

#: Time in seconds for a connection to complete a frame while others wait for memory.
MEMORY_GRACE_S = 1.0


class Holder(Protocol):
    """A connection with a buffer of its own. `frame_began`: monotonic seconds, 0 if no frame is half received."""

    frame_began: float

    @property
    def user(self) -> str:
        """For whom it takes memory."""
        ...

    def starve(self) -> None:
        """There is no memory left: read no further."""

    def feed(self) -> None:
        """Read on."""

    def refuse(self, what: str, detail: str) -> None:
        """Close, and log why."""


class FrameMemory:
    """One per listener.

    Args:
        limit: bytes in all, without the reserve. One connection alone may exceed it.
        is_closing: nobody reads on any more.
    """

    def __init__(self, limit: int, is_closing: Callable[[], bool]) -> None:
        self._room = FairRoom(lambda: limit)
        #: Bytes for which there was no room: a buffer grows before its connection reads no further.
        self._excess = 0
        self._limit = limit
        self._is_closing = is_closing
        #: Connections with a buffer of their own: the user that had it first, and its bytes in the room; and those of them that may not read for
        #: want of memory.
        self._holders: dict[Holder, tuple[str, int]] = {}
        self._starving: dict[Holder, None] = {}
        #: All starved: this one may finish its frame beyond the limit.
        self._favoured: Holder | None = None

    @property
    def bytes(self) -> int:
        return self._room.taken + self._excess

    @property
    def is_ample(self) -> bool:
        return self.bytes < self._limit // 4

    def take(self, holder: Holder, size: int) -> None:
        """A connection's buffer grows; beyond the limit that connection reads no further for now."""
        user, counted = self._holders.get(holder) or (holder.user, 0)
        has_room = self._room.take(user, size)
        self._holders[holder] = (user, counted + size if has_room else counted)
        if not has_room:
            self._excess += size
        if has_room or len(self._holders) == 1 or holder is self._favoured:
            return
        self._starving[holder] = None
        holder.starve()
        self._feed()

    def give(self, holder: Holder, size: int) -> None:
        """It has no buffer any more."""
        user, counted = self._holders.pop(holder)
        self._room.give(user, counted)
        self._excess -= size - counted
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
