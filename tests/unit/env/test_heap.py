"""What crowds leave behind is given back, and not at every visitor."""

from __future__ import annotations

from typing import Any

from kafkalite.env.heap import CROWD, Crowds, give_back


class Timers:
    """A loop's, run by hand."""

    def __init__(self) -> None:
        self.waiting: list[Any] = []

    def call_later(self, delay_s: float, function: Any) -> Any:
        self.waiting.append(function)
        return self

    def cancel(self) -> None:
        self.waiting.clear()


def test_once_per_crowd() -> None:
    timers, given = Timers(), []
    crowds = Crowds(timers, lambda: given.append(1))  # type: ignore[arg-type]
    for _ in range(CROWD - 1):
        crowds.came()
    assert not timers.waiting
    for _ in range(5 * CROWD):
        crowds.came()
    assert len(timers.waiting) == 1
    timers.waiting.pop()()
    assert given == [1]
    crowds.came()
    assert not timers.waiting
    for _ in range(CROWD):
        crowds.came()
    crowds.close()
    assert not timers.waiting


def test_the_c_library_can_be_asked() -> None:
    give_back()
