"""Memory of answers that clients have not read yet, over all connections, and whose turn it is to get some of it.

A fetch may ask for 50 MiB, and every client does; a client that then reads slowly, or not at all, leaves them with us. So
an answer gets a share of what is left of the limit, which is enough for any client (at least one batch is always in it).
While nothing is left, fetches wait, and connections that do not read their responses are closed, longest first.
"""

from __future__ import annotations

from collections import deque
from collections.abc import Callable, Iterable
from typing import Protocol, TypeVar

#: Smaller answers are not counted: a connection holds only a few.
COUNTED_BYTES = 16 * 1024
#: One answer gets this part of what is left, so that it does not hold up everything else while it is read either.
_PART = 16
_LEAST_BYTES = 64 * 1024
#: Time in seconds for which a connection may leave a response unread while others wait.
UNREAD_GRACE_S = 10.0


class Unread(Protocol):
    """A connection with responses that the client has not read: since when (seconds; 0: there are none), and their bytes."""

    @property
    def unread_since(self) -> float: ...

    @property
    def unread_bytes(self) -> int: ...


_C = TypeVar("_C", bound=Unread)


class AnswerMemory:
    """One per listener.

    Args:
        limit: bytes in all; each connection may exceed it by one batch.
        soon: call something in the next turn of the loop.
    """

    def __init__(self, limit: int, soon: Callable[[Callable[[], None]], object]) -> None:
        self._limit = limit
        self._soon = soon
        self._waiting: deque[Callable[[], None]] = deque()
        self._is_feeding = False
        self._was_full = False
        self.bytes = 0

    def share(self) -> int:
        """How large an answer may be now; 0: there may be none."""
        left = self._limit - self.bytes
        return max(left // _PART, _LEAST_BYTES) if left > 0 else 0

    def change(self, size: int) -> None:
        """The bytes that wait to be read grew or shrank by this number."""
        self.bytes += size
        if size > 0:
            self._was_full = self._was_full or self.bytes > self._limit // 2
        if size < 0 and self._waiting and not self._is_feeding and self.bytes < self._limit:
            self._is_feeding = True
            self._soon(self._feed)

    def when_there_is_some(self, start: Callable[[], None]) -> None:
        """Call `start` now, or in turn when there is memory."""
        if self._waiting or self.bytes >= self._limit:
            self._waiting.append(start)
        else:
            start()

    def _feed(self) -> None:
        """One at a time: others want the loop, too."""
        self._is_feeding = False
        if self._waiting and self.bytes < self._limit:
            self._waiting.popleft()()
        if self._waiting and self.bytes < self._limit:
            self._is_feeding = True
            self._soon(self._feed)

    def has_emptied(self) -> bool:
        """Whether there was a lot and there is little now; once each time. Then the heap has many holes."""
        if not self._was_full or self.bytes > self._limit // 16:
            return False
        self._was_full = False
        return True

    def to_be_closed(self, connections: Iterable[_C], now: float) -> list[_C]:
        """The connections that have left answers unread for too long, until half of the memory would be free: while others wait, or when twice
        the memory is taken, because only fetches wait and other answers can be large, too."""
        if self.bytes < (self._limit if self._waiting else 2 * self._limit):
            return []
        late = [each for each in connections if each.unread_since and now - each.unread_since > UNREAD_GRACE_S]
        doomed: list[_C] = []
        left = self.bytes
        for connection in sorted(late, key=lambda each: each.unread_since):
            if left <= self._limit // 2:
                break
            left -= connection.unread_bytes
            doomed.append(connection)
        return doomed
