"""Memory of responses that clients do not read: whose connections are closed for it."""

from __future__ import annotations

from types import SimpleNamespace
from typing import Any

from kafkalite.kafka.answers import UNREAD_GRACE_S, AnswerMemory


def unread(since: float, size: int) -> Any:
    return SimpleNamespace(unread_since=since, unread_bytes=size)


def test_responses_that_are_not_read_are_bounded_also_while_nobody_waits_for_memory() -> None:
    """Only fetches wait for it. Thousands of connections that asked for metadata, and read nothing, had a megabyte each."""
    memory = AnswerMemory(1_000, lambda call: None)
    late, later = unread(1.0, 700), unread(2.0, 700)
    fresh, reads = unread(20.0, 700), unread(0.0, 0)
    connections = [fresh, later, reads, late]
    now = 2.5 + UNREAD_GRACE_S
    memory.change(1_999)
    assert memory.to_be_closed(connections, now) == []
    memory.change(101)
    assert memory.to_be_closed(connections, now) == [late, later]
    memory.change(-1_000)
    assert memory.to_be_closed(connections, now) == []
    memory.when_there_is_some(lambda: None)
    assert memory.to_be_closed(connections, now) == [late]
