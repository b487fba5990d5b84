"""The authenticator of pages alone: who is admitted, and what guessing costs."""

from __future__ import annotations

import asyncio
from collections.abc import Callable, Mapping

import pytest

from kafkalite.env.real import RealClock
from kafkalite.http import authentication
from kafkalite.http.authentication import AuthenticatedRequest, HttpAuthenticator, HttpPeer
from kafkalite.http.page import Page
from kafkalite.security.access import Access
from kafkalite.security.attempts import BURST
from kafkalite.security.http_login import Logins
from kafkalite.security.node_security import HttpSecurity
from kafkalite.security.principal import ANONYMOUS
from kafkalite.security.requirements import HTTP
from kafkalite.testing.cluster import cluster
from tests.support.security import listener_security
from tests.support.waiting import until
from tests.unit.http.secured_pages import USERS, login


class Pool:
    """Runs slow work only when the test asks for it."""

    def __init__(self) -> None:
        self.calls = 0
        self.may_run = asyncio.Event()
        self.may_run.set()

    async def run_blocking(self, function: Callable[[], object], at: str = "") -> object:
        self.calls += 1
        await self.may_run.wait()
        return function()


class Time:
    def __init__(self) -> None:
        self.now = 0.0

    def monotonic(self) -> float:
        return self.now


def gate(pool: Pool, time: Time, tokens: Mapping[str, str] | None = None) -> HttpAuthenticator:
    logins = Logins(
        mechanisms=["PLAIN"],
        passwords=lambda: USERS,
        credentials=_nobody,
        tokens=None if tokens is None else lambda: tokens,
        key=b"key",
    )
    security = HttpSecurity(listener_security(failed_delay_ms=0), logins)
    return HttpAuthenticator(Access(), security, time, pool)  # type: ignore[arg-type]


def _nobody(mechanism: str, user: str) -> None:
    return None


HERE, ELSEWHERE = HttpPeer("127.0.0.1", 5, None), HttpPeer("192.0.2.7", 5, None)


async def test_passwords_in_plain_text_come_from_this_host_only() -> None:
    pool, time = Pool(), Time()
    gated = gate(pool, time)
    header = login("watcher")["Authorization"]
    for peer in (HERE, HttpPeer("::1", 5, None), HttpPeer("::ffff:127.0.0.9", 5, None)):
        assert isinstance(await gated.admit("/", {}, header, peer), AuthenticatedRequest)
    calls = pool.calls
    for peer in (ELSEWHERE, HttpPeer("fe80::1%eth0", 5, None), HttpPeer("", 0, None)):
        for authorization in (header, None):
            refused = await gated.admit("/", {}, authorization, peer)
            assert isinstance(refused, Page)
            # Not 401: a browser would ask for a password, and send it.
            assert (refused.status, refused.headers) == (403, ())
    assert pool.calls == calls


async def test_guessing_takes_time_but_not_from_those_who_are_known() -> None:
    pool, time = Pool(), Time()
    gated = gate(pool, time)
    right, wrong = login("watcher")["Authorization"], login("watcher", "guess")["Authorization"]

    async def status(header: str) -> int:
        outcome = await gated.admit("/metrics", {}, header, HERE)
        return outcome.status if isinstance(outcome, Page) else 200

    assert await status(right) == 200
    assert [await status(wrong) for _ in range(BURST + 3)] == [401] * BURST + [429] * 3
    assert pool.calls == BURST + 1
    assert await status(right) == 200  # remembered: not looked at again
    assert await status(login("admin")["Authorization"]) == 429  # not known yet
    assert pool.calls == BURST + 1
    refused = await gated.admit("/metrics", {}, wrong, HERE)
    assert isinstance(refused, Page)
    assert refused.headers == (("retry-after", "6"),)
    time.now += 6
    assert [await status(wrong) for _ in range(2)] == [401, 429]
    time.now += 600
    assert await status(login("admin")["Authorization"]) == 200


@pytest.mark.parametrize("scheme", ["Basic", "Bearer"])
async def test_who_guesses_learns_no_password_of_a_user_that_is_known_from_elsewhere(scheme: str) -> None:
    time = Time()
    gated = gate(Pool(), time, {"watcher": "t0ken"})
    if scheme == "Basic":
        right, wrong = login("watcher")["Authorization"], login("watcher", "guess")["Authorization"]
    else:
        right, wrong = "Bearer t0ken", "Bearer guess"
    guesser = HttpPeer("127.0.0.9", 5, None)

    async def status(header: str, peer: HttpPeer) -> int:
        outcome = await gated.admit("/metrics", {}, header, peer)
        return outcome.status if isinstance(outcome, Page) else 200

    assert await status(right, HERE) == 200
    assert [await status(wrong, guesser) for _ in range(BURST + 1)] == [401] * BURST + [429]
    # The very password is refused, too: otherwise one more guess would cost nothing, as often as one likes.
    assert await status(right, guesser) == 429
    assert await status(right, HttpPeer("::ffff:127.0.0.9", 5, None)) == 429
    assert await status(right, HERE) == 200
    time.now += 6
    assert await status(right, guesser) == 200
    assert [await status(wrong, guesser) for _ in range(2)][-1] == 429
    assert await status(right, guesser) == 200  # it has logged in from there


async def test_passwords_that_wait_for_their_check_are_bounded(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(authentication, "_MAX_WAITING", 3)
    pool, time = Pool(), Time()
    gated = gate(pool, time)
    pool.may_run.clear()
    header = login("watcher")["Authorization"]
    waiting = [asyncio.create_task(gated.admit("/", {}, header, HttpPeer("::1", n, None))) for n in range(3)]
    await until(lambda: pool.calls == 1 and gated._waiting == 3)
    refused = await gated.admit("/", {}, header, HERE)
    assert isinstance(refused, Page)
    assert refused.status == 503
    assert pool.calls == 1  # one at a time
    pool.may_run.set()
    assert all(isinstance(outcome, AuthenticatedRequest) for outcome in [await task for task in waiting])


async def test_a_page_without_a_rule_is_refused() -> None:
    open_gate = HttpAuthenticator(Access(), None, RealClock(), Pool())  # type: ignore[arg-type]
    asked = await open_gate.admit("/", {}, None, ELSEWHERE)
    assert isinstance(asked, AuthenticatedRequest)
    assert asked.principal == ANONYMOUS
    refused = await open_gate.admit("/new", {}, None, ELSEWHERE)
    assert isinstance(refused, Page)
    assert refused.status == 403


async def test_every_page_has_a_rule() -> None:
    async with cluster(1) as running:
        http = running.nodes[1].http
        assert http._pages.keys() | {f"/{root}" for root in http._trees} == HTTP.keys()
