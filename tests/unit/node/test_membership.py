"""What a node reads in a new session before it registers."""

from __future__ import annotations

import asyncio
from types import SimpleNamespace
from typing import Any, cast

import pytest

from kafkalite.coordination.coordinator import AuthFailedError, Coordinator, CoordinatorError
from kafkalite.node.membership import ClusterMembership
from kafkalite.testing.simulated.loop import SimLoop

READING_S = 1.0


class _Followed:
    """Takes a while to be read; the first attempt may fail."""

    def __init__(self, error: CoordinatorError | None = None) -> None:
        self.error = error
        self.loaded = 0

    async def load(self, coordinator: Coordinator) -> None:
        await asyncio.sleep(READING_S)
        error, self.error = self.error, None
        if error is not None:
            raise error
        self.loaded += 1

    follow = catch_up = load


@pytest.mark.parametrize("error", [None, AuthFailedError("no")])
def test_settings_rights_and_tokens_are_read_side_by_side(error: CoordinatorError | None) -> None:
    """One after the other, on a host without a free processor, each of their answers took a second before the node could register."""
    loop = SimLoop()  # type: ignore[abstract]
    followed = [_Followed(), _Followed(error), _Followed()]
    others = dict.fromkeys(
        ("local", "settings", "clock", "supervisor", "zookeeper", "sessions", "seen", "logs", "replicas", "controller"),
        cast(Any, None),
    )

    async def wait() -> Coordinator:
        return cast(Coordinator, None)

    membership = ClusterMembership(
        session=cast(Any, SimpleNamespace(wait=wait)), followed=followed, endpoints={}, **others
    )
    try:
        began = loop.time()
        loop.run_until_complete(loop.create_task(membership.load()))
        took_s = loop.time() - began
    finally:
        loop.close()
    attempts = 1 if error is None else 2
    assert took_s < (attempts + 0.5) * READING_S
    assert all(each.loaded for each in followed)
