"""The memory that members of classic groups take: what they say of themselves is kept before any record bounds it. Pure."""

from __future__ import annotations

from collections.abc import Callable, Iterable

#: Of all members of the groups that one node coordinates. A member's share is 100 bytes per topic, as a rule.
MAX_BYTES = 256 * 2**20
#: Least time (ms) between two counts: each looks at all members.
_COUNT_AGAIN_MS = 1_000


class MemberMemory:
    """
    Args:
        counted: how much they take now.
    """

    def __init__(self, counted: Callable[[], int], now_ms: Callable[[], int]) -> None:
        self._counted = counted
        self._now_ms = now_ms
        #: At least as much as they take: what members give back is not noticed before it is counted again.
        self._most = 0
        self._count_at = 0

    def take(self, size: int) -> bool:
        """Whether a member may say that much."""
        now = self._now_ms()
        if self._most + size > MAX_BYTES and now >= self._count_at:
            self._most, self._count_at = self._counted(), now + _COUNT_AGAIN_MS
        if self._most + size > MAX_BYTES:
            return False
        self._most += size
        return True


def size_of(protocols: Iterable[tuple[str, bytes]]) -> int:
    """What one member says, in bytes."""
    return sum(len(name) + len(metadata) for name, metadata in protocols)
