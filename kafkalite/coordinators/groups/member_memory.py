"""The memory that members of classic groups take: what they say of themselves is kept before any record bounds it. Pure."""

from __future__ import annotations

from collections.abc import Callable, Iterable, Mapping

from kafkalite.security.fair_room import FairRoom

#: Of all members of the groups that one node coordinates. A member's share is 100 bytes per topic, as a rule.
MAX_BYTES = 256 * 2**20
#: Least time (ms) between two counts: each looks at all members.
_COUNT_AGAIN_MS = 1_000
#: Users that are remembered without a count.
_MOST_USERS = 10_000


class MemberMemory:
    """
    Args:
        counted: how much the members of each user take now.
    """

    def __init__(self, counted: Callable[[], Mapping[str, int]], now_ms: Callable[[], int]) -> None:
        self._counted = counted
        self._now_ms = now_ms
        #: At least as much as they take: what members give back is not noticed before it is counted again.
        self._room = FairRoom(lambda: MAX_BYTES)
        self._count_at = 0

    def take(self, user: str, size: int) -> bool:
        """Whether a member of this user (see `fair_room.user_of`) may say that much."""
        now = self._now_ms()
        is_full = self._room.taken + size > MAX_BYTES or len(self._room) > _MOST_USERS
        if is_full and now >= self._count_at:
            self._room.replace(self._counted())
            self._count_at = now + _COUNT_AGAIN_MS
        return self._room.take(user, size)


def size_of(protocols: Iterable[tuple[str, bytes]]) -> int:
    """What one member says, in bytes."""
    return sum(len(name) + len(metadata) for name, metadata in protocols)
