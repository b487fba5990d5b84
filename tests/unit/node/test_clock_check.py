"""A node whose clock is wrong says so: ZooKeeper stamps what it writes."""

from __future__ import annotations

import asyncio
from collections.abc import Coroutine, Iterator
from typing import Any

import pytest

from kafkalite.coordination.session import SessionKeeper
from kafkalite.extension.messages.watching import HealthProblem
from kafkalite.node.clock_check import INTERVAL_S, ClockCheck, ahead_ms
from kafkalite.testing.simulated.clock import EPOCH_MS, SimClock
from kafkalite.testing.simulated.env import SimWorld

DAY_MS = 86_400_000


@pytest.mark.parametrize(
    ("before_ms", "stamp_ms", "after_ms", "expected"),
    [
        (100, 100, 100, 0),
        (100, 150, 200, 0),
        (100, 90, 200, 10),  # 10 to 110
        (100, 230, 200, -30),  # -130 to -30
        (DAY_MS, 0, DAY_MS + 5, DAY_MS),
        (0, DAY_MS, 5, 5 - DAY_MS),
        (DAY_MS, 7, 8, DAY_MS - 7),  # the clock was set back meanwhile: it is right at the next comparison
    ],
)
def test_a_slow_answer_does_not_make_a_clock_wrong(before_ms: int, stamp_ms: int, after_ms: int, expected: int) -> None:
    assert ahead_ms(before_ms, stamp_ms, after_ms) == expected


class Rig:
    """Two nodes in one world, as far as this goes; the clock of the second one is set."""

    def __init__(self, world: SimWorld) -> None:
        self.world = world
        self.clock: SimClock = world.host("b").clock
        self._tasks: list[asyncio.Task[Any]] = []

    def node(self, name: str) -> ClockCheck:
        env = self.world.env(name)
        keeper = SessionKeeper(env, "zk:2181", 6_000)
        check = ClockCheck(keeper, env.clock)
        for each in (keeper.run(), check.run()):
            self._tasks.append(self.world.loop.create_task(each))
        return check

    async def close(self) -> None:
        for task in self._tasks:
            task.cancel()
        await asyncio.wait(self._tasks)


@pytest.fixture
def rig() -> Iterator[Rig]:
    world = SimWorld(1)
    yield Rig(world)
    world.close()


def run(rig: Rig, test: Coroutine[Any, Any, None]) -> None:
    async def whole() -> None:
        try:
            await test
        finally:
            await rig.close()

    rig.world.run(whole())


def test_the_node_with_the_wrong_clock_says_so_until_it_is_right(rig: Rig) -> None:
    async def test() -> None:
        a, b = rig.node("a"), rig.node("b")
        await asyncio.sleep(INTERVAL_S + 5)
        assert (a.problems(), b.problems()) == ((), ())
        rig.clock.jump(DAY_MS)
        await asyncio.sleep(INTERVAL_S)
        [problem] = b.problems()
        assert problem.what == "clock.off"
        assert problem.detail == "the clock is 86400 s ahead of that of ZooKeeper; 60 s would be too much"
        now_ms = EPOCH_MS + rig.world.loop.now_ns // 1_000_000
        assert now_ms - INTERVAL_S * 1000 <= problem.since_ms <= now_ms, "by the clock that is right"
        assert b.ahead_s == pytest.approx(86_400, abs=1)
        await asyncio.sleep(INTERVAL_S)
        assert b.problems() == (problem,)
        rig.clock.jump(-2 * DAY_MS)
        await asyncio.sleep(INTERVAL_S)
        assert [each.detail[:25] for each in b.problems()] == ["the clock is 86400 s behi"]
        assert b.ahead_s == pytest.approx(-86_400, abs=1)
        rig.clock.jump(DAY_MS)
        await asyncio.sleep(INTERVAL_S)
        assert (a.problems(), b.problems()) == ((), ())

    run(rig, test())


@pytest.mark.parametrize("by_ms", [59_000, -59_000, 62_000, -62_000])
def test_it_may_be_a_minute_off(rig: Rig, by_ms: int) -> None:
    async def test() -> None:
        check = rig.node("b")
        rig.clock.jump(by_ms)
        await asyncio.sleep(INTERVAL_S + 5)
        found: tuple[HealthProblem, ...] = check.problems()
        assert [each.what for each in found] == (["clock.off"] if abs(by_ms) > 60_000 else [])

    run(rig, test())


def test_it_is_compared_again_after_the_session_has_ended(rig: Rig) -> None:
    async def test() -> None:
        check = rig.node("b")
        await asyncio.sleep(5)
        rig.clock.jump(DAY_MS)
        rig.world.zookeeper.expire("b")
        await asyncio.sleep(2 * INTERVAL_S)
        assert [each.what for each in check.problems()] == ["clock.off"]

    run(rig, test())


def test_a_write_without_an_answer_is_no_comparison(rig: Rig) -> None:
    """ZooKeeper is cut off in the very moment; the next comparison counts."""

    async def test() -> None:
        check = rig.node("b")
        await asyncio.sleep(INTERVAL_S - 1)
        rig.clock.jump(DAY_MS)
        rig.world.zookeeper.block("b")
        await asyncio.sleep(3)
        assert check.problems() == ()
        rig.world.zookeeper.unblock("b")
        await asyncio.sleep(2 * INTERVAL_S)
        assert [each.what for each in check.problems()] == ["clock.off"]

    run(rig, test())
