"""Tasks beside each other: the caller gets the error of one, as it is."""

from __future__ import annotations

import asyncio

import pytest

from kafkalite.coordination.coordinator import CoordinatorError, NotSentError, SessionExpiredError
from kafkalite.coordination.retry import side_by_side


async def _failing(error: Exception) -> None:
    raise error


async def test_the_first_error_is_raised_as_it_is_and_the_others_are_cancelled() -> None:
    cancelled = asyncio.Event()

    async def waiting() -> None:
        try:
            await asyncio.Event().wait()
        finally:
            cancelled.set()

    with pytest.raises(NotSentError, match="not connected"):
        async with side_by_side() as group:
            group.create_task(waiting())
            await asyncio.sleep(0)
            group.create_task(_failing(NotSentError("not connected")))
    assert cancelled.is_set()


async def test_an_error_of_the_body_is_raised_as_it_is() -> None:
    with pytest.raises(NotSentError):
        async with side_by_side():
            raise NotSentError("not connected")


async def test_the_end_of_the_session_counts_more_than_what_failed_by_it() -> None:
    with pytest.raises(SessionExpiredError) as caught:
        async with side_by_side() as group:
            group.create_task(_failing(NotSentError("not connected")))
            group.create_task(_failing(SessionExpiredError("gone")))
    assert isinstance(caught.value, CoordinatorError)


async def test_a_bug_of_a_task_is_raised_as_it_is() -> None:
    with pytest.raises(KeyError):
        async with side_by_side() as group:
            group.create_task(_failing(KeyError("bug")))


async def test_the_session_counts_more_than_what_the_block_raises() -> None:
    with pytest.raises(SessionExpiredError):
        async with side_by_side() as group:
            group.create_task(_failing(SessionExpiredError("gone")))
            failed = group.create_task(_failing(NotSentError("not connected")))
            await asyncio.wait([failed])
            failed.result()
