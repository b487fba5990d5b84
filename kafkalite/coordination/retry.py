"""Repeating what is safe to repeat, and reading side by side what does not depend on each other."""

from __future__ import annotations

import asyncio
from collections.abc import AsyncGenerator, Awaitable, Callable
from contextlib import asynccontextmanager
from typing import TypeVar

from kafkalite.coordination.coordinator import (
    CoordinatorError,
    NotSentError,
    OutcomeUnknownError,
    SessionExpiredError,
)
from kafkalite.env.side_by_side import SideBySide

_FIRST_WAIT_S = 0.02
_LONGEST_WAIT_S = 0.5

_Result = TypeVar("_Result")


async def retrying(operation: Callable[[], Awaitable[_Result]]) -> _Result:
    """Repeat `operation` until ZooKeeper answers it: for reads, and for writes that may be applied twice.

    It ends for sure when the session does (SessionExpiredError); every other answer is the caller's too.
    """
    wait = _FIRST_WAIT_S
    while True:
        try:
            return await operation()
        except (NotSentError, OutcomeUnknownError):
            await asyncio.sleep(wait)
            wait = min(wait * 2, _LONGEST_WAIT_S)


@asynccontextmanager
async def side_by_side() -> AsyncGenerator[SideBySide, None]:
    """Tasks that read beside each other. If some fail, SessionExpiredError is raised, or the first error of another kind."""
    group = SideBySide()
    try:
        async with group:
            yield group
    except CoordinatorError:
        if any(isinstance(each, SessionExpiredError) for each in group.errors()):
            raise SessionExpiredError("the session is over") from None
        raise
