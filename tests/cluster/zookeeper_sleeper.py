"""A process for test_zookeeper_faults: holds a session, and tells what it finds after it stood still.

Prints one JSON line when it holds an ephemeral, one at the first instruction after it was stopped (SIGCONT), one when it learns of
the expiry: with what the session said of itself in between.
"""

from __future__ import annotations

import asyncio
import json
import signal
import sys
from typing import Any

import structlog

from kafkalite.coordination.coordinator import SessionState
from kafkalite.env.real import real_env


def tell(**fields: Any) -> None:
    print(json.dumps(fields), flush=True)


async def main(connect: str, timeout_ms: int) -> None:
    session = await real_env().connect_coordinator(connect, timeout_ms)
    expired = asyncio.Event()
    told: list[tuple[str, bool]] = []

    def changed(state: SessionState) -> None:
        told.append((state.value, session.lease_left() > 0))
        if state is SessionState.EXPIRED:
            expired.set()

    session.on_state(changed)
    await session.create("/controller", b"me", ephemeral=True)

    def woke(*_: object) -> None:
        tell(event="woke", lease=session.lease_left(), state=session.state.value)

    signal.signal(signal.SIGCONT, woke)
    tell(event="holding", lease=session.lease_left())
    await expired.wait()
    tell(event="expired", told=told)
    await session.close()


structlog.configure(logger_factory=structlog.PrintLoggerFactory(sys.stderr))
asyncio.run(main(sys.argv[1], int(sys.argv[2])))
