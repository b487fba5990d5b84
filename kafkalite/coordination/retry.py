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
async def side_by_side() -> AsyncGenerator[asyncio.TaskGroup, None]:
    """A group of tasks. The first CoordinatorError of them is raised, and the others are cancelled."""
    failed: ExceptionGroup[CoordinatorError] | None = None
    try:
        async with asyncio.TaskGroup() as group:
            yield group
    except* CoordinatorError as errors:
        failed = errors
    # Raised out here: Python 3.11.2, which Debian 12 has, puts what an `except*` raises into a group.
    if failed is not None:
        if failed.subgroup(SessionExpiredError) is not None:
            raise SessionExpiredError("the session is over") from failed
        raise failed.exceptions[0] from None
