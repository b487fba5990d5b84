"""The end of a node: its logs get the time that their number needs, and a stop that gave them up is not called clean."""

from __future__ import annotations

import asyncio
import contextlib
from collections.abc import Awaitable
from pathlib import Path
from types import SimpleNamespace
from typing import Any, cast

import pytest
from structlog.testing import capture_logs

from kafkalite.client.async_client import AsyncClient
from kafkalite.env.seams import Clock
from kafkalite.env.supervisor import CancelledByNobody
from kafkalite.extension.messages.topics import NewTopic
from kafkalite.log.log_manager import LogManager
from kafkalite.log.partition_log import PartitionLog
from kafkalite.node.stop_steps import StopSteps
from kafkalite.testing.cluster import cluster

#: A guard against hanging.
PATIENCE_S = 120.0


async def test_many_logs_have_more_time_to_be_closed(monkeypatch: pytest.MonkeyPatch) -> None:
    """A thousand took more than 15 s on a busy machine: the next start recovered all of them."""
    patience: dict[str, list[float]] = {}
    step = StopSteps.do

    async def recorded(steps: StopSteps, name: str, action: Awaitable[None], *given: float) -> bool:
        patience[name] = list(given)
        return await step(steps, name, action, *given)

    monkeypatch.setattr(StopSteps, "do", recorded)
    async with cluster(1) as on, AsyncClient.connect(on.bootstrap) as client:
        await client.create_topics([NewTopic("t", 40, 1)])
    assert patience["logs"] == [15 + 40 * 0.05]
    assert patience["session"] == []


@pytest.mark.parametrize("hangs", [False, True])
async def test_a_stop_that_gave_its_logs_up_is_not_clean(
    monkeypatch: pytest.MonkeyPatch, tmp_path: Path, *, hangs: bool
) -> None:
    close = LogManager.close

    async def closed(logs: LogManager, **options: Any) -> None:
        await close(logs, **options)
        if hangs:
            raise TimeoutError

    monkeypatch.setattr(LogManager, "close", closed)
    with capture_logs() as logged:
        async with cluster(1, directory=tmp_path):
            await asyncio.sleep(0)
    assert [each["clean"] for each in logged if each["event"] == "node.stopped"] == [not hangs]


async def test_the_log_names_the_steps_that_took_long() -> None:
    """A stop of 12 s left one line, and nobody could say what it had waited for."""
    now = [10.0]
    clock = SimpleNamespace(monotonic=lambda: now[0])
    steps = StopSteps(cast(Clock, clock))

    async def work(seconds: float, error: OSError | None = None) -> None:
        now[0] += seconds
        if error is not None:
            raise error

    now[0] += 3
    steps.ended("leaders")
    assert await steps.do("kafka", work(0.01))
    assert not await steps.do("logs", work(8.5, OSError("no room")))
    with capture_logs() as logged:
        steps.finish(clean=False)
    [line] = logged
    assert (line["clean"], line["seconds"], line["slow_steps"]) == (False, 11.5, {"leaders": 3.0, "logs": 8.5})


async def test_nodes_of_one_process_stop_together(tmp_path: Path) -> None:
    """One after the other, the second waited 10 s for a replica of its partitions that had just been stopped: `kafkalite dev` ended that late."""
    async with asyncio.timeout(PATIENCE_S):
        async with (
            cluster(3, directory=tmp_path, settings={"controlled.shutdown.max.wait.ms": 600_000}) as running,
            AsyncClient.connect(running.bootstrap) as client,
        ):
            await client.create_topics([NewTopic("t", 6, 2)])


@pytest.mark.parametrize("is_kept", [False, True])
async def test_what_is_deleted_next_is_not_synced(
    monkeypatch: pytest.MonkeyPatch, tmp_path: Path, *, is_kept: bool
) -> None:
    """Ctrl-C of `kafkalite dev` with a thousand partitions synced six thousand files, and then deleted them."""
    closed: list[str] = []
    close = PartitionLog.close_cleanly

    async def recorded(log: PartitionLog) -> None:
        closed.append(str(log.topic_partition))
        await close(log)

    monkeypatch.setattr(PartitionLog, "close_cleanly", recorded)
    async with (
        cluster(2, directory=tmp_path if is_kept else None) as running,
        AsyncClient.connect(running.bootstrap) as client,
    ):
        await client.create_topics([NewTopic("t", 2, 2)])
    assert ("t-0" in closed) == is_kept


@pytest.mark.parametrize("is_stopping", [True, False])
async def test_what_waits_for_a_part_that_is_closed_does_not_make_the_stop_fail(*, is_stopping: bool) -> None:
    """While the node serves, a task that ends like that is a fault, and stops it."""
    async with cluster(1) as on:
        [node] = on.nodes.values()
        waited: asyncio.Future[None] = asyncio.get_running_loop().create_future()

        async def wait() -> None:
            await waited

        task = node.supervisor.spawn("waiting", wait())
        await asyncio.sleep(0)
        if is_stopping:
            node.stop()
        waited.cancel()
        await asyncio.wait([task])
        await asyncio.sleep(0)  # the supervisor hears of it
        with contextlib.nullcontext() if is_stopping else pytest.raises(CancelledByNobody):
            await on.stop_node(1)
