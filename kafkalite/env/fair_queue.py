"""A queue in which those who put much into it do not delay the others.

Groups (a user at a host) take turns, and within a group its members (connections) do: a thousand items of one connection delay another
one's by one item, and a thousand connections of one user delay another user's by one.
"""

from __future__ import annotations

from collections import deque
from collections.abc import Hashable
from typing import Generic, TypeVar

_T = TypeVar("_T")

#: (group, member).
Owner = tuple[Hashable, Hashable]


class FairQueue(Generic[_T]):
    """First in, first out for each member."""

    def __init__(self) -> None:
        #: The groups in the order of their turns, their members likewise.
        self._groups: dict[Hashable, dict[Hashable, deque[_T]]] = {}
        self._count = 0

    def __len__(self) -> int:
        return self._count

    def put(self, owner: Owner, item: _T) -> None:
        group, member = owner
        self._groups.setdefault(group, {}).setdefault(member, deque()).append(item)
        self._count += 1

    def pop(self) -> _T:
        """The next item. Raises IndexError."""
        if not self._groups:
            raise IndexError("the queue is empty")
        group, members = next(iter(self._groups.items()))
        del self._groups[group]
        member, items = next(iter(members.items()))
        del members[member]
        item = items.popleft()
        if items:
            members[member] = items  # behind the other members
        if members:
            self._groups[group] = members  # behind the other groups
        self._count -= 1
        return item
