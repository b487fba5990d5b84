"""When the balancer looks, and with which settings."""

from __future__ import annotations

import asyncio
from types import SimpleNamespace
from typing import Any, cast

import pytest

from kafkalite.controller.decisions.events import BalancerDue, BalancerSettings
from kafkalite.controller.decisions.state import ControllerState
from kafkalite.controller.load_reports import BalancerConfig, LoadReports
from kafkalite.env.own_time import OwnTime
from kafkalite.env.real import RealClock
from kafkalite.env.supervisor import Supervisor
from kafkalite.model import BrokerId, ControllerEpoch
from tests.support.waiting import until


class World:
    """Brokers that answer when `answered` is set; no look is due without a reason."""

    def __init__(self, monkeypatch: pytest.MonkeyPatch) -> None:
        clock = RealClock()
        self.settings = BalancerSettings("on", max_moves=10)
        self.asked, self.answered = asyncio.Event(), asyncio.Event()
        self.posted: list[BalancerDue] = []
        self.reports = LoadReports(
            cast(Any, SimpleNamespace(clock=clock)),
            OwnTime(clock),
            cast(Supervisor, None),
            cast(Any, None),
            config=lambda: BalancerConfig(self.settings, 3600.0, 0.0),
            state=lambda: ControllerState(BrokerId(1), ControllerEpoch(1)),
            closed=dict,
            internal=dict,
            post=self.posted.append,
        )

        async def ask() -> None:
            self.reports._asked_at = clock.monotonic()
            self.asked.set()
            await self.answered.wait()

        monkeypatch.setattr(self.reports, "ask", ask)


@pytest.fixture
def world(monkeypatch: pytest.MonkeyPatch) -> World:
    return World(monkeypatch)


async def test_settings_that_change_while_the_brokers_are_asked_hold_for_this_look(world: World) -> None:
    """A drain began with ten moves at once although two had been set before it."""
    looking = asyncio.ensure_future(world.reports.run())
    await world.asked.wait()
    world.settings = BalancerSettings("on", max_moves=2)
    world.answered.set()
    await until(lambda: world.posted)
    looking.cancel()
    assert [due.settings.max_moves for due in world.posted] == [2]


async def test_a_change_while_the_brokers_are_asked_is_followed_by_another_look(world: World) -> None:
    looking = asyncio.ensure_future(world.reports.run())
    await world.asked.wait()
    world.reports.kick()
    world.answered.set()
    await until(lambda: len(world.posted) == 2)
    looking.cancel()


async def test_a_balancer_that_was_turned_off_while_the_brokers_were_asked_does_nothing(world: World) -> None:
    looking = asyncio.ensure_future(world.reports.run())
    await world.asked.wait()
    world.settings = BalancerSettings("off")
    world.answered.set()
    for _ in range(20):
        await asyncio.sleep(0)
    looking.cancel()
    assert world.posted == []
