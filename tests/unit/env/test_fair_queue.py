"""Groups take turns, and the members of a group."""

from __future__ import annotations

import pytest

from kafkalite.env.fair_queue import FairQueue


def test_groups_take_turns_and_members_within_them() -> None:
    queue: FairQueue[str] = FairQueue()
    for number in range(3):
        queue.put(("a", 1), f"a1.{number}")
    for connection in range(2, 5):
        queue.put(("a", connection), f"a{connection}")
    queue.put(("b", 1), "b1")
    assert len(queue) == 7
    assert [queue.pop() for _ in range(7)] == ["a1.0", "b1", "a2", "a3", "a4", "a1.1", "a1.2"]
    with pytest.raises(IndexError):
        queue.pop()
