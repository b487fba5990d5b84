"""A share fetch that goes on later, while its session has had another request."""

from __future__ import annotations

from types import SimpleNamespace
from typing import Any, cast

from kafkalite.kafka.shares.fetch import ShareFetch, ShareTerms
from kafkalite.kafka.shares.sessions import ShareSession
from kafkalite.replica.client_fetch import ClientFetch


def test_an_older_fetch_leaves_the_long_poll_of_a_newer_one_alone() -> None:
    """Otherwise the request after that would not end the newer one, and its answer would wait for it."""
    session = ShareSession("g", "m", cast(Any, None), {}, "u")
    older = ShareFetch(
        cast(Any, SimpleNamespace(now_ms=lambda: 0)),
        cast(Any, None),
        session,
        cast(Any, SimpleNamespace(isolation=0)),
        ShareTerms(500, 1, 1000, 10, 10, is_exact=False, reader=(("u", "h"), 1)),
        dict,
        room=lambda: 1000,
        may_send=lambda size: True,
        is_over=lambda: True,
        is_outdated=lambda: True,
        done=lambda delivered, errors: None,
    )
    session.waiting = newer = ClientFetch(0)
    older._resume()
    assert session.waiting is newer
