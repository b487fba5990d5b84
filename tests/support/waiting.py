"""Waiting for what other tasks do."""

from __future__ import annotations

import asyncio
from collections.abc import Callable
from inspect import isawaitable


async def until(holds: Callable[[], object], timeout_s: float = 150) -> None:
    """Let the loop turn until `holds()`, or the awaitable that it returns, is true."""
    async with asyncio.timeout(timeout_s):
        while True:
            found = holds()
            if await found if isawaitable(found) else found:
                return
            await asyncio.sleep(0.002)
