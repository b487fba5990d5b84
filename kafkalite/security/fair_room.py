"""Room of a node that its users share: what one user takes does not keep the others out. Pure.

Everybody may take room up to a limit. Behind it lies a reserve for users that have little: each may have as much of it as it leaves to the
others. So there is always room for one more user, whatever one or several of them have taken.
"""

from __future__ import annotations

from collections.abc import Callable, Mapping

from kafkalite.security.addresses import guesser
from kafkalite.security.principal import ANONYMOUS, Principal

#: The reserve is this part of the limit, and at least 1.
_RESERVE = 4


def user_of(principal: Principal, host: str) -> str:
    """The name under which room is counted: the user; where clients do not log in the address, of IPv6 its network."""
    return guesser(host) if principal == ANONYMOUS else str(principal)


class FairRoom:
    """What each user has taken.

    Args:
        limit: up to which everybody may take room, in any unit.
    """

    def __init__(self, limit: Callable[[], int]) -> None:
        self._limit = limit
        self._taken: dict[str, int] = {}
        #: Of all users.
        self.taken = 0

    def __len__(self) -> int:
        """The users that have any."""
        return len(self._taken)

    def has_room(self, user: str, size: int = 1) -> bool:
        """Whether the user may take that much."""
        limit = self._limit()
        taken = self.taken + size
        left = limit + max(limit // _RESERVE, 1) - taken
        return taken <= limit or self._taken.get(user, 0) + size <= left + 1

    def take(self, user: str, size: int = 1) -> bool:
        """Take it if there is room."""
        if not self.has_room(user, size):
            return False
        self.give(user, -size)
        return True

    def give(self, user: str, size: int = 1) -> None:
        """Give it back; less than 0: take it in any case."""
        self.taken -= size
        left = self._taken.get(user, 0) - size
        if left:
            self._taken[user] = left
        else:
            self._taken.pop(user, None)

    def replace(self, taken: Mapping[str, int]) -> None:
        """This is what they have."""
        self._taken = {user: size for user, size in taken.items() if size}
        self.taken = sum(self._taken.values())
