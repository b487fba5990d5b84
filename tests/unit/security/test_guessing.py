"""Guessing passwords takes time, from however many connections: after some failures no password from there is right."""

from __future__ import annotations

from typing import Any

from kafkalite.errors import AuthenticationFailed
from kafkalite.security.attempts import BURST, MAX_HOSTS, REGAIN_S, Attempts
from kafkalite.security.listener import ListenerSecurity
from tests.support.security import listener_security


def _login(security: ListenerSecurity, host: str, user: str, password: str) -> bool:
    exchange = security.exchange("PLAIN")
    assert exchange is not None
    try:
        exchange.step(b"\0%s\0%s" % (user.encode(), password.encode()))
        security.login(exchange, "PLAIN", None, host)
    except AuthenticationFailed as error:
        security.refused(f"{host}:1", str(error), mechanism="PLAIN")
        return False
    return True


def test_guesses_from_one_address() -> None:
    now = [0.0]
    security: Any = listener_security(passwords={"alice": "right", "bob": "good"}, now=lambda: now[0])
    assert _login(security, "10.0.0.9", "bob", "good")
    for number in range(15):
        assert not _login(security, "10.0.0.9", "alice", f"guess-{number}")
    assert not _login(security, "10.0.0.9", "alice", "right")
    assert _login(security, "10.0.0.9", "bob", "good")  # has been there before
    assert _login(security, "10.0.0.8", "alice", "right")
    now[0] += 200.0
    assert _login(security, "10.0.0.9", "alice", "right")


def test_guesses_from_many_addresses_of_one_network() -> None:
    """A client with an IPv6 address has 2^64 of them: each gave ten more guesses."""
    security: Any = listener_security(passwords={"alice": "right", "bob": "good"}, now=lambda: 0.0)
    assert _login(security, "2001:db8::b", "bob", "good")
    for number in range(BURST):
        assert not _login(security, f"2001:db8::{number:x}", "alice", f"guess-{number}")
    assert not _login(security, "2001:db8::ffff", "alice", "right")
    assert _login(security, "2001:db8::b", "bob", "good")  # has been there before
    assert _login(security, "2001:db8:0:1::1", "alice", "right")
    for number in range(BURST):
        assert not _login(security, "::ffff:10.0.0.9", "alice", f"guess-{number}")
    assert not _login(security, "10.0.0.9", "alice", "right")
    assert _login(security, "10.0.0.8", "alice", "right")


def test_one_more_address_costs_the_same_however_many_there_are() -> None:
    """A /64 of IPv6 has any number of addresses: with 4,096 of them, each failed login looked at all."""
    reads = 0

    def now() -> float:
        nonlocal reads
        reads += 1
        return 0.0

    attempts = Attempts(now)
    for number in range(MAX_HOSTS):
        attempts.begin(f"2001:db8::{number:x}")
    reads = 0
    for number in range(10):
        attempts.begin(f"2001:db8:1::{number:x}")
    assert reads <= 10 * 10


def test_addresses_that_do_not_count_any_longer_make_room() -> None:
    now = [0.0]
    attempts = Attempts(lambda: now[0])
    for number in range(MAX_HOSTS):
        attempts.begin(f"h{number}")
    now[0] = REGAIN_S
    for number in range(2 * BURST):
        attempts.begin(f"new{number}")
        attempts.begin("guesser")
    assert attempts.wait_s("guesser") > 0
    assert attempts.wait_s("new1") == 0, "it is counted alone"
