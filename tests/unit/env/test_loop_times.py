"""Who holds the event loop: counted by cause, and reported with the client when a turn computes for too long."""

from __future__ import annotations

from collections.abc import Callable
from types import SimpleNamespace
from typing import Any

import pytest

from kafkalite.env import loop_times
from kafkalite.env.loop_times import OTHER, SHOWN_MS, LoopTimes
from kafkalite.env.own_time import TICK_S
from kafkalite.env.real import RealClock
from kafkalite.node.health import held


class Turned(RealClock):
    """A clock that is set by hand: wall, and this thread's processor."""

    def __init__(self) -> None:
        self.now = 1000.0
        self.computed = 5.0
        self.monotonic: Callable[[], float] = lambda: self.now

    def wall_ms(self) -> int:
        return int(self.now * 1000)

    def processor(self) -> float:
        return self.computed

    def turn(self, seconds: float, *, computed: float) -> None:
        self.now += seconds
        self.computed += computed


@pytest.fixture
def said(monkeypatch: pytest.MonkeyPatch) -> list[dict[str, Any]]:
    lines: list[dict[str, Any]] = []
    log = SimpleNamespace(warning=lambda event, **fields: lines.append({"event": event, **fields}))
    monkeypatch.setattr(loop_times, "_log", log)
    return lines


def test_a_turn_that_computes_too_long_is_reported_with_its_client(said: list[dict[str, Any]]) -> None:
    clock = Turned()
    times = LoopTimes(clock)
    clock.turn(0.6, computed=0.6)
    times.held("Metadata", 0.6, "greedy", "User:alice")
    assert said == [
        {"event": "loop.held", "cause": "Metadata", "ms": 600, "client_id": "greedy", "principal": "User:alice", "suppressed": 0}
    ]  # fmt: skip
    assert times.overruns == 1
    assert sum(times.by_cause["Metadata"].counts) == 1
    [problem] = held(times)
    assert problem.what == "loop.held"
    assert "Metadata of client.id 'greedy' (User:alice) held the event loop for 600 ms" in problem.detail
    clock.turn((SHOWN_MS + 1) / 1000, computed=0)
    assert not list(held(times))


def test_a_wait_for_a_processor_is_counted_and_nobodys_fault(said: list[dict[str, Any]]) -> None:
    clock = Turned()
    times = LoopTimes(clock)
    clock.turn(0.6, computed=0.1)
    times.held("Metadata", 0.6, "waits", "User:alice")
    clock.turn(0.015, computed=0.015)
    times.held("Fetch", 0.015, "short", "User:bob")
    assert (said, times.overruns, times.longest()) == ([], 0, None)
    assert set(times.by_cause) == {"Metadata", "Fetch"}


def test_what_nobody_accounts_for_is_counted_as_other_and_shown_in_no_ones_name(said: list[dict[str, Any]]) -> None:
    clock = Turned()
    times = LoopTimes(clock)
    times.ticked()
    clock.turn(TICK_S + 0.7, computed=0.7)
    times.held("Produce", 0.05, "known", "User:alice")
    times.ticked()
    assert [(line["cause"], line["ms"]) for line in said] == [("Produce", 50), (OTHER, 650)]
    assert sum(times.by_cause[OTHER].counts) == 1
    longest = times.longest()
    assert longest is not None
    assert longest.cause == "Produce"
