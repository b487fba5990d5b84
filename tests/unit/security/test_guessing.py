"""Guessing passwords takes time, from however many connections: after some failures no password from there is right."""

from __future__ import annotations

from typing import Any

from kafkalite.errors import AuthenticationFailed
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
