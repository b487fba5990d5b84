"""The end of a node: its logs get the time that their number needs, and a stop that gave them up is not called clean."""

from __future__ import annotations

import asyncio
from collections.abc import Awaitable

import pytest
from structlog.testing import capture_logs

from kafkalite.client.async_client import AsyncClient
from kafkalite.extension.messages.topics import NewTopic
from kafkalite.log.log_manager import LogManager
from kafkalite.node.node import Node
from kafkalite.testing.cluster import cluster


async def test_many_logs_have_more_time_to_be_closed(monkeypatch: pytest.MonkeyPatch) -> None:
    """A thousand took more than 15 s on a busy machine: the next start recovered all of them."""
    patience: dict[str, list[float]] = {}
    step = Node._step

    async def recorded(node: Node, name: str, action: Awaitable[None], *given: float) -> bool:
        patience[name] = list(given)
        return await step(node, name, action, *given)

    monkeypatch.setattr(Node, "_step", recorded)
    async with cluster(1) as on, AsyncClient.connect(on.bootstrap) as client:
        await client.create_topics([NewTopic("t", 40, 1)])
    assert patience["logs"] == [15 + 40 * 0.05]
    assert patience["session"] == []


@pytest.mark.parametrize("hangs", [False, True])
async def test_a_stop_that_gave_its_logs_up_is_not_clean(monkeypatch: pytest.MonkeyPatch, *, hangs: bool) -> None:
    close = LogManager.close

    async def closed(logs: LogManager, *, clean: bool = True, was_in_service: bool = True) -> None:
        await close(logs, clean=clean, was_in_service=was_in_service)
        if hangs:
            raise TimeoutError

    monkeypatch.setattr(LogManager, "close", closed)
    with capture_logs() as logged:
        async with cluster(1):
            await asyncio.sleep(0)
    assert [each["clean"] for each in logged if each["event"] == "node.stopped"] == [not hangs]
