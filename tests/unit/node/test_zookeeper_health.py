"""A request of an administrator waits for ZooKeeper within its own time-out, and is then refused with the cause."""

from __future__ import annotations

import asyncio
from types import SimpleNamespace

import pytest

from kafkalite.coordination import patience
from kafkalite.coordination.patience import waiting_at_most
from kafkalite.env.real import RealClock
from kafkalite.errors import ApiError, ErrorCode
from kafkalite.node.zookeeper_health import ZooKeeperHealth


class Session:
    """A SessionKeeper as the health sees it."""

    connect = "zk:2181"
    is_refused = False

    def __init__(self) -> None:
        self.silent_s: float | None = 7.0
        self.current: object | None = object()

    def away_s(self) -> float | None:
        return self.silent_s

    def lease_left(self) -> float:
        return 1.0


@pytest.fixture
def session() -> Session:
    return Session()


@pytest.fixture
def health(session: Session) -> ZooKeeperHealth:
    return ZooKeeperHealth(session, RealClock())  # type: ignore[arg-type]


async def test_it_goes_on_when_zookeeper_is_back(session: Session, health: ZooKeeperHealth) -> None:
    async def request() -> object:
        with waiting_at_most(60_000):
            return await health.ordering()

    waiting = asyncio.ensure_future(request())
    await asyncio.sleep(0)
    assert not waiting.done()
    session.silent_s, session.current = None, None
    await asyncio.sleep(0)
    assert not waiting.done(), "there is no session yet"
    session.current = object()
    assert await waiting is session.current


@pytest.mark.parametrize("timeout_ms", [0, 50])
async def test_it_is_refused_with_the_cause(health: ZooKeeperHealth, timeout_ms: int) -> None:
    with waiting_at_most(timeout_ms), pytest.raises(ApiError) as refusal:
        await health.ordering()
    assert refusal.value.code is ErrorCode.REQUEST_TIMED_OUT
    assert "ZooKeeper (zk:2181) has not answered for" in str(refusal.value)


async def test_the_earlier_end_counts_within_another_request(health: ZooKeeperHealth) -> None:
    with waiting_at_most(20), waiting_at_most(60_000), pytest.raises(ApiError):
        await health.ordering()


async def test_a_request_without_a_time_out_waits_for_a_while() -> None:
    now = asyncio.get_running_loop().time()
    assert patience.refused_at() == pytest.approx(now + patience.DEFAULT_S, abs=0.5)
    with waiting_at_most(None):
        assert patience.refused_at() == pytest.approx(now + patience.DEFAULT_S, abs=0.5)
    with waiting_at_most(10_000):
        assert patience.refused_at() == pytest.approx(now + 9.0, abs=0.5), "its client has to hear of the cause"


def test_how_long_it_is_away_does_not_depend_on_the_wall_clock(session: Session) -> None:
    """After the clock was set forward by an hour, health said that ZooKeeper had not answered for an hour."""
    clock = SimpleNamespace(wall_ms=lambda: 9_000_000_000)
    [problem] = ZooKeeperHealth(session, clock).problems()  # type: ignore[arg-type]
    assert problem.since_ms == 9_000_000_000 - 7000
    assert problem.detail.startswith("ZooKeeper (zk:2181) has not answered for 7 s")


async def test_it_says_that_zookeeper_closes_every_connection(session: Session, health: ZooKeeperHealth) -> None:
    """Not only that it does not answer: its servers run, and waiting does not help if they were put back to an earlier state."""
    session.is_refused = True
    (problem,) = health.problems()
    assert "it closes every connection: it has no quorum, or its data is older" in problem.detail
