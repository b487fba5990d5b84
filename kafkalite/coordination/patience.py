"""How long a request of an administrator waits for ZooKeeper to come back, before it is refused."""

from __future__ import annotations

import asyncio
from collections.abc import Iterator
from contextlib import contextmanager
from contextvars import ContextVar

#: For requests whose protocol has no timeout. Kafka's clients wait 30 s for an answer.
DEFAULT_S = 15.0
#: For a topic that is created because a client asks for something else: what its connection has sent behind that, a fetch for example,
#: is answered later.
CREATION_PATIENCE_MS = 1_000
#: The share of a request's own timeout that it waits: its client must hear the cause before it gives up.
_SHARE = 0.9

#: The loop's time at which the present request is refused; None: no request has set it.
_until: ContextVar[float | None] = ContextVar("patience", default=None)


@contextmanager
def waiting_at_most(timeout_ms: int | None) -> Iterator[None]:
    """One request. Within another one the earlier end counts.

    Args:
        timeout_ms: the request's own; None if its protocol has none.
    """
    now = asyncio.get_running_loop().time()
    ends = now + (DEFAULT_S if timeout_ms is None else max(timeout_ms, 0) / 1000 * _SHARE)
    outer = _until.get()
    token = _until.set(ends if outer is None else min(ends, outer))
    try:
        yield
    finally:
        _until.reset(token)


def refused_at() -> float:
    """The loop's time at which the present request is to be refused if ZooKeeper is still away."""
    ends = _until.get()
    return asyncio.get_running_loop().time() + DEFAULT_S if ends is None else ends
