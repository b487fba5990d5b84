"""A task that ends by a CancelledError which nobody sent it has died, and is reported like any other that dies."""

from __future__ import annotations

import asyncio
from collections.abc import Callable, Coroutine
from typing import Any

import pytest
from structlog.testing import capture_logs

from kafkalite.env.supervisor import CancelledByNobody, Policy, Supervisor


class Reports:
    """A supervisor, and what it says of the tasks that end."""

    def __init__(self) -> None:
        self.fatal: list[BaseException] = []
        self.supervisor = Supervisor(self.fatal.append)

    async def after(
        self,
        work: Coroutine[Any, Any, Any],
        policy: Policy,
        then: Callable[[asyncio.Task[Any]], Any] = lambda task: None,
    ) -> list[tuple[str, str]]:
        """(Event, task) of each line of the log once the work, to which `then` was done, has ended."""
        with capture_logs() as lines:
            task = self.supervisor.spawn("work", work, policy)
            await asyncio.sleep(0)
            then(task)
            await asyncio.wait([task])
            await asyncio.sleep(0)
        return [(line["event"], line["task"]) for line in lines]


async def wait_for_what_is_cancelled() -> None:
    waited: asyncio.Future[None] = asyncio.get_running_loop().create_future()
    waited.cancel()
    await waited


async def wait_for_ever() -> None:
    await asyncio.get_running_loop().create_future()


async def test_nobody_cancelled_a_fatal_task() -> None:
    reports = Reports()
    assert await reports.after(wait_for_what_is_cancelled(), Policy.FATAL) == [("task.failed", "work")]
    (error,) = reports.fatal
    assert isinstance(error, CancelledByNobody)
    assert isinstance(error.__cause__, asyncio.CancelledError), "its traceback says where"


async def test_nobody_cancelled_an_isolated_task() -> None:
    reports = Reports()
    assert await reports.after(wait_for_what_is_cancelled(), Policy.ISOLATED) == [("task.failed", "work")]
    assert reports.fatal == []


@pytest.mark.parametrize("policy", Policy)
async def test_its_owner_cancelled_it(policy: Policy) -> None:
    reports = Reports()
    assert await reports.after(wait_for_ever(), policy, lambda task: task.cancel()) == []
    assert reports.fatal == []


@pytest.mark.parametrize("policy", Policy)
async def test_its_owner_cancelled_it_before_its_first_step(policy: Policy) -> None:
    reports = Reports()
    task = reports.supervisor.spawn("work", wait_for_ever(), policy)
    task.cancel()
    await asyncio.wait([task])
    await asyncio.sleep(0)
    assert reports.fatal == []


async def test_the_supervisor_stopped_it() -> None:
    """Also if what it waits for was cancelled just before."""
    reports = Reports()
    waited: asyncio.Future[None] = asyncio.get_running_loop().create_future()

    async def wait() -> None:
        await waited

    with capture_logs() as lines:
        reports.supervisor.spawn("work", wait())
        await asyncio.sleep(0)
        waited.cancel()
        await reports.supervisor.stop()
    assert reports.fatal == []
    assert lines == []
