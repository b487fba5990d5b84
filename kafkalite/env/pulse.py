"""A beat that wakes everybody who waits for the next one."""

from __future__ import annotations

import asyncio


class Pulse:
    """Something that changes now and then. For one event loop."""

    def __init__(self) -> None:
        self._next: asyncio.Future[None] | None = None

    def beat(self) -> None:
        """It has changed."""
        waited, self._next = self._next, None
        if waited is not None and not waited.done():
            waited.set_result(None)

    async def wait(self, seconds: float) -> None:
        """Return at the next beat, or after `seconds` at the latest. No beat after the call is missed."""
        if self._next is None:
            self._next = asyncio.get_running_loop().create_future()
        await asyncio.wait((self._next,), timeout=seconds)
