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
        self.caught_up = 0

    async def load(self, coordinator: Coordinator) -> None:
        await asyncio.sleep(READING_S)
        error, self.error = self.error, None
        if error is not None:
            raise error
        self.loaded += 1

    follow = load

    async def catch_up(self, coordinator: Coordinator) -> None:
        await asyncio.sleep(READING_S)
        self.caught_up += 1


class _ZooKeeper:
    """Another cluster's for a while, if that is so."""

    def __init__(self, *, was_ours: bool) -> None:
        self.was_ours = was_ours

    async def until_ours(self, coordinator: Coordinator, cluster_id: str, *, holds_data: bool) -> bool:
        await asyncio.sleep(READING_S)
        return self.was_ours


class _Session:
    """Knows all brokers."""

    async def get_many(self, where: list[str]) -> list[object]:
        await asyncio.sleep(READING_S)
        return [object() for _ in where]


@pytest.mark.parametrize(
    ("pause_s", "same_session", "was_ours", "loaded", "rounds"),
    [
        (30.0, True, True, 1, 1),  # the changes since then are enough
        (90.0, True, True, 2, 3),  # notifications of changes are not kept for ever
        (30.0, False, True, 2, 3),  # nothing shows which changes were before this session
        (30.0, True, False, 2, 3),  # what was read may be the other cluster's
    ],
)
def test_what_was_read_at_the_start_is_read_again_only_if_that_is_needed(
    *, pause_s: float, same_session: bool, was_ours: bool, loaded: int, rounds: int
) -> None:
    loop = SimLoop()  # type: ignore[abstract]
    followed = [_Followed(), _Followed()]
    sessions = [cast(Coordinator, _Session()), cast(Coordinator, _Session())]
    names = ("settings", "clock", "supervisor", "sessions", "replicas", "controller")
    others = dict.fromkeys(names, cast(Any, None))

    async def wait() -> Coordinator:
        return sessions[0]

    membership = ClusterMembership(
        local=cast(Any, SimpleNamespace(cluster_id="c")),
        session=cast(Any, SimpleNamespace(wait=wait)),
        zookeeper=cast(Any, _ZooKeeper(was_ours=was_ours)),
        seen=cast(Any, SimpleNamespace(ids={1})),
        logs=cast(Any, SimpleNamespace(opening=SimpleNamespace(holds_nothing=lambda: False))),
        followed=followed,
        endpoints={},
        **others,
    )

    async def main() -> float:
        await membership.load()
        await asyncio.sleep(pause_s)
        began = loop.time()
        assert await membership._prepare(sessions[0 if same_session else 1]) == []
        return loop.time() - began

    try:
        took_s = loop.run_until_complete(loop.create_task(main()))
    finally:
        loop.close()
    assert [each.loaded for each in followed] == [loaded, loaded]
    assert all(each.caught_up or each.loaded > 1 for each in followed)
    assert took_s < (rounds + 0.5) * READING_S


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
